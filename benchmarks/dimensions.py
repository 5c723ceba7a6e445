"""How a round of `Bandit` in memory grows with the dimension: milliseconds of one core's time.

Prints one JSON object per line: for each dimension and trust the seconds to make the bandit and to
play its first round, which compiles, and the mean of the rounds after it (20 arms, exact noise).
"""

from __future__ import annotations

import argparse
import json
import math
import time

import numpy as np

from kerchief import Bandit, Guarantee, Problem, Trust

TRUSTS = ("none", "central", "shuffle", "joint", "local")


def timed(policy: str, dim: int, trust: str, rounds: int) -> dict[str, object]:
    """Time one bandit over some rounds."""
    problem = Problem(dim=dim, arms=20, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=20_000)
    epsilon, delta = (math.inf, 0.0) if trust == "none" else (4.0, 1e-6)
    guarantee = Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust))
    arms = np.random.default_rng(0).normal(size=(20, dim))
    arms /= np.linalg.norm(arms, axis=-1, keepdims=True)
    marks = [time.process_time()]
    with Bandit(policy=policy, problem=problem, guarantee=guarantee, window_s=0) as bandit:
        for _ in range(rounds + 1):
            bandit.reward(bandit.decide(arms).id, 0.5)
            marks.append(time.process_time())
    return {
        "policy": policy,
        "dim": dim,
        "trust": trust,
        "first_s": marks[1] - marks[0],
        "round_ms": 1e3 * (marks[-1] - marks[1]) / rounds,
    }


def main() -> None:
    """Time every dimension under every trust."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="best")
    parser.add_argument("--dims", default="5,16,64,128,256,512")
    parser.add_argument("--trusts", default=",".join(TRUSTS))
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    dims = [int(dim) for dim in options.dims.split(",")]
    for dim in dims:
        for trust in options.trusts.split(","):
            print(json.dumps(timed(options.policy, dim, trust, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
