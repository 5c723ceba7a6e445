"""Microseconds of a decision where several bandits meet the same arms, on one core.

Prints one JSON object: for 20 and 100 arms (d = 5, redrawn), the time per decision of LinUCB, alone
and among so many that play in step, drawing the arms included and compilation excluded.
"""

from __future__ import annotations

import json
import math

from tools.benchmark import one_core

from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation.rounds import Contender
from kerchief.simulation.run import simulate_side_by_side

COMPANY = (1, 2, 4, 8)
_HORIZON, _REPLICATES, _TIMES = 2000, 64, 3


def contender(name: str, promise: Guarantee, arms: int) -> Contender:
    """Build a bandit with a ledger of its own."""
    policy = POLICIES[name].build(make_environment(dim=5, arms=arms).problem(_HORIZON), "tuned")
    protection = protect(policy, Protection(guarantee=promise), horizon=_HORIZON)
    return Contender(policy=policy, privatizers=protection, ledger=MemoryLedger(promise))


def measure(promise: Guarantee, arms: int, company: int) -> float:
    """Return the least of a few times, averaged over all bandits."""
    world, times = make_environment(dim=5, arms=arms), []
    for _ in range(_TIMES):
        runs = simulate_side_by_side(
            [contender("linucb", promise, arms) for _ in range(company)],
            environment=world,
            horizon=_HORIZON,
            replicates=_REPLICATES,
            seed=7,
            ticks=20,
        )
        # Not `Run.microseconds`, which counts all of the drawing for each.
        decisions = company * _HORIZON * _REPLICATES
        times.append(1e6 * sum(run.seconds for run in runs) / decisions)
    return min(times)


def main() -> None:
    """Time every number of bandits and print the results."""
    free = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    joint = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT)
    with one_core():
        rows = [
            {
                "trust": str(promise.trust),
                "arms": arms,
                **{str(company): round(measure(promise, arms, company), 2) for company in COMPANY},
            }
            for promise in (free, joint)
            for arms in (20, 100)
        ]
    print(json.dumps({"horizon": _HORIZON, "replicates": _REPLICATES, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
