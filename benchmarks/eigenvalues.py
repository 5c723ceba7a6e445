"""Least eigenvalues of what LinUCB plays: of an average over runs, and within a run.

Table 1 (Appendix G) of "Improved rate for Locally Differentially Private Linear Bandits" (TMLR
submission) gives the share of rounds in which the least eigenvalue of the mean of x xᵀ over
repeated experiments, each with a parameter of its own, is "O(1)". Its theory is about one run,
where the matrix is the mean over rounds. Prints one JSON object per line: for each number of arms
and rounds that share, for a least eigenvalue of 0.05, beside the printed one, and the median within
a run beside the threshold T^(-1/4), below which the paper's Algorithm 1 adds noise to features.
"""

from __future__ import annotations

import argparse
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief import Guarantee, Protection, Trust, make_environment
from kerchief.core.precision import double_precision
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.environments.worlds import GLMTruth
from kerchief.roles.arrange import arrange
from kerchief.roles.round import Carry, Round

Floats = NDArray[np.float64]
_DIM, _ENOUGH = 5, 0.05

PRINTED = {
    (5, 200): 0.995,
    (5, 2000): 1.0,
    (5, 20_000): 1.0,
    (25, 200): 0.97,
    (25, 2000): 0.977,
    (25, 20_000): 0.999,
    (100, 200): 0.88,
    (100, 2000): 0.891,
    (100, 20_000): 0.998,
}
"""Shares of rounds in Table 1, by the number of arms and of rounds."""


@double_precision
def eigenvalues(*, contexts: str, arms: int, rounds: int, runs: int, seed: int) -> list[Floats]:
    """The least one over runs in each round, and over rounds in each run; LinUCB, no noise."""
    world = make_environment(contexts=contexts, dim=_DIM, arms=arms)
    promise = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    made = arrange("linucb", world.problem(rounds), Protection(guarantee=promise))
    bandit = Round(policy=made.policy, privatizers=made.privatizers)  # type: ignore[arg-type]

    def begun(run: Array) -> GLMTruth:
        return world.init(Stream.of(seed=seed, replicate=run).at(WORLD))

    def play(run: Array, truth: GLMTruth, carry: Carry, round: Array) -> tuple[Carry, Array]:
        root, clock = Stream.of(seed=seed, replicate=run), bandit.clock(carry, round)
        shown = world.arms(truth, clock, root.at(ARMS, round=round))
        action = bandit.act(carry.model, shown, clock, root)
        reward = world.reward(truth, shown, action, clock, root.at(REWARD, round=round))
        return bandit.learn(carry, shown, action, reward, round, root), shown.features[action]

    @jax.jit
    def played() -> tuple[Array, Array]:
        each = jnp.arange(runs, dtype=jnp.uint32)
        truths: GLMTruth = jax.vmap(begun)(each)
        carry = jax.vmap(lambda _: bandit.begin())(each)

        def turn(carry: Carry, round: Array) -> tuple[Carry, Array]:
            return jax.vmap(play, in_axes=(0, 0, 0, None))(each, truths, carry, round)

        x = jax.lax.scan(turn, carry, jnp.arange(rounds, dtype=jnp.int32))[1].astype(jnp.float64)
        over_runs = jnp.einsum("tmi,tmj->tij", x, x) / runs
        over_rounds = jnp.einsum("tmi,tmj->mij", x, x) / rounds
        return jnp.linalg.eigvalsh(over_runs)[:, 0], jnp.linalg.eigvalsh(over_rounds)[:, 0]

    return [np.asarray(part) for part in played()]


def main() -> None:
    """Print the table, for arms that are redrawn and for fixed ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contexts", default="intercept,fixed-intercept")
    parser.add_argument("--arms", default="5,25,100")
    parser.add_argument("--rounds", default="200,2000,20000")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for contexts in asked.contexts.split(","):
        for arms, rounds in [
            (int(k), int(n)) for k in asked.arms.split(",") for n in asked.rounds.split(",")
        ]:
            between, within = eigenvalues(
                contexts=contexts, arms=arms, rounds=rounds, runs=asked.runs, seed=asked.seed
            )
            line = {
                "contexts": contexts,
                "arms": arms,
                "rounds": rounds,
                "share_of_rounds": float((between >= _ENOUGH).mean()),
                "printed": PRINTED.get((arms, rounds)),
                "within_a_run": float(np.median(within)),
                "threshold": rounds**-0.25,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
