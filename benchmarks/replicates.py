"""Seconds for a thousand replicates, on whatever device JAX finds.

Prints one JSON object: the device, and for each policy and trust the seconds for 1000 replicates of
20 000 rounds (d = 5, 20 arms redrawn from the unit ball), without compilation, and the regret.
"""

from __future__ import annotations

import argparse
import json
import math

import jax

import kerchief
from kerchief.environments import make_environment
from kerchief.policies import POLICIES, PrivacyBudget
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import Run, simulate

CELLS = (
    ("uniform", "none", math.inf),
    ("linucb", "none", math.inf),
    ("linucb", "local", 10.0),
    ("linucb", "joint", 10.0),
    ("linucb", "central", 10.0),
    ("best", "none", math.inf),
    ("best", "local", 4.0),
    ("best", "shuffle", 1.0),
    ("best", "joint", 1.0),
    ("best", "central", 1.0),
)


def play(name: str, trust: str, epsilon: float, *, horizon: int, replicates: int) -> Run:
    """Run one simulation with 100 checkpoints; delta is 1e-5 under privacy."""
    world = make_environment(dim=5, arms=20)
    delta = 1e-5 if math.isfinite(epsilon) else 0.0
    terms = PrivacyBudget(epsilon=epsilon, delta=delta, trust=Trust(trust)) if delta else None
    policy = POLICIES[name].build(world.problem(horizon), "tuned", terms)
    promise = Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust), rounds=horizon)
    return simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=horizon),
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=horizon,
        replicates=replicates,
        seed=7,
        ticks=100,
    )


def main() -> None:
    """Time each configuration twice and keep the better, after one warm-up run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=20_000)
    parser.add_argument("--replicates", type=int, default=1000)
    sizes = vars(parser.parse_args())
    play(*CELLS[0], **sizes)
    rows = []
    for name, trust, epsilon in CELLS:
        runs = [play(name, trust, epsilon, **sizes) for _ in range(2)]
        final = runs[0].regret[-1]
        rows.append(
            {
                "policy": name,
                "trust": trust,
                "epsilon": epsilon if math.isfinite(epsilon) else None,
                "seconds": min(run.seconds for run in runs),
                "microseconds_per_round": min(run.seconds for run in runs) / sizes["horizon"] * 1e6,
                "compile_seconds": runs[0].compile_seconds,
                "regret": float(final.mean()),
                "se": float(final.std(ddof=1) / math.sqrt(final.size)),
            }
        )
    setup = {"device": str(jax.devices()[0]), "jax": jax.__version__}
    print(json.dumps({"kerchief": kerchief.__version__, **setup, **sizes, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
