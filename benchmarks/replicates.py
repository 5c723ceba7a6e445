"""Seconds for a thousand replicates, on whatever device JAX finds.

Prints one JSON object: the device, and for each policy and trust the seconds for 1000 replicates of
20000 rounds (d = 5, 20 arms redrawn from the unit ball), without compilation, and the regret.
"""

from __future__ import annotations

import argparse
import json
import math

import jax

import kerchief
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import Run, simulate

CELLS = (
    ("uniform", "none"),
    ("linucb", "none"),
    ("linucb", "local"),
    ("linucb", "joint"),
    ("linucb", "central"),
)


def guarantee(trust: str, horizon: int) -> Guarantee:
    """No promise, or (10, 1e-5)."""
    if trust == "none":
        return Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE, rounds=horizon)
    return Guarantee(epsilon=10.0, delta=1e-5, trust=Trust(trust), rounds=horizon)


def play(name: str, trust: str, *, horizon: int, replicates: int) -> Run:
    """One simulation, in one segment."""
    world = make_environment(dim=5, arms=20)
    policy = POLICIES[name].build(world.problem(horizon), "tuned")
    promise = guarantee(trust, horizon)
    return simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=horizon),
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=horizon,
        replicates=replicates,
        seed=7,
        ticks=4,
    )


def main() -> None:
    """Time each cell twice and keep the better."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=20000)
    parser.add_argument("--replicates", type=int, default=1000)
    sizes = vars(parser.parse_args())
    rows = []
    for name, trust in CELLS:
        runs = [play(name, trust, **sizes) for _ in range(2)]
        final = runs[0].regret[-1]
        rows.append(
            {
                "policy": name,
                "trust": trust,
                "seconds": min(run.seconds for run in runs),
                "compile_seconds": runs[0].compile_seconds,
                "regret": float(final.mean()),
                "se": float(final.std(ddof=1) / math.sqrt(final.size)),
            }
        )
    found = {"device": str(jax.devices()[0]), "jax": jax.__version__}
    print(json.dumps({"kerchief": kerchief.__version__, **found, **sizes, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
