"""Least eigenvalues of what LinUCB plays: of an average over runs, and within a run.

Appendix G of "Improved rate for Locally Differentially Private Linear Bandits" (TMLR submission)
prints in Table 1 the share of rounds in which the mean of x xᵀ over repeated experiments has a
least eigenvalue that is "O(1)", and concludes that its experiments favour Algorithm 1. The theory
is about one run: Algorithm 1 adds noise to features where the least eigenvalue is at most
T^(-1/4). Prints both as the table of `docs/papers/online_confidence.md`: the numbers for "O(1)"
that meet the printed share, and a verdict on the conclusion.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import math
import shlex
import sys
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief import Guarantee, Protection, Trust, make_environment
from kerchief.comparison.versions import versions
from kerchief.core.precision import double_precision
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.deployment.protected_policy import build_protected
from kerchief.deployment.round import Carry, Round
from kerchief.environments.worlds import GLMTruth

Floats = NDArray[np.float64]

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

CONTEXTS = {"intercept": "redrawn", "fixed-intercept": "fixed"}
"""Worlds of section 5, which does not say whether arms are redrawn."""

EXPERIMENTS = 50
"""Trials of section 5; Appendix G does not say over how many its matrix is averaged."""

_DIM = 5
# How far a share may be from the printed one.
_CLOSE = 0.02

HEAD = (
    "arms | k | T | printed | numbers that meet it | within a run | threshold | runs above it | "
    "favourable?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eigenvalues:
    """Least eigenvalues of repeated experiments at one number of arms and rounds.

    Attributes:
        averages: the least eigenvalue of the average over a set of experiments, for each set and
            each round.
        within: the least eigenvalue of the mean over rounds; one number for each run.
    """

    contexts: str
    arms: int
    rounds: int
    averages: Floats
    within: Floats

    @property
    def threshold(self) -> float:
        """T^(-1/4), the threshold of Algorithm 1 in Corollary 3.6."""
        return float(self.rounds**-0.25)

    @property
    def meeting(self) -> tuple[float, float]:
        """Least and greatest number that meet the printed share, within two points.

        In the printed share of rounds the eigenvalue is "O(1)": at least such a number.
        """
        printed = PRINTED[self.arms, self.rounds]
        return self._number(printed + _CLOSE), self._number(printed - _CLOSE)

    def _number(self, share: float) -> float:
        """Return the greatest number that this share of eigenvalues reaches, or 0 for all."""
        if share >= 1:
            return 0.0
        return float(np.quantile(self.averages, 1 - share, method="lower"))

    @property
    def is_favourable(self) -> str:
        """The verdict on the claim that the setting favours Algorithm 1, in most runs."""
        return "holds" if self._above > len(self.within) / 2 else "does not hold here"

    @property
    def _above(self) -> int:
        return int((self.within > self.threshold).sum())

    def row(self) -> str:
        """Write the row of the table."""
        printed = PRINTED[self.arms, self.rounds]
        cells = (
            CONTEXTS[self.contexts],
            f"{self.arms}",
            f"{self.rounds}",
            f"{100 * printed:.3g} %",
            "{:.3f} to {:.3f}".format(*self.meeting),
            f"{np.median(self.within):.1e}",
            f"{self.threshold:.3f}",
            f"{self._above} of {len(self.within)}",
            self.is_favourable,
        )
        return f"| {' | '.join(cells)} |"


@double_precision
def measure(
    *,
    contexts: str,
    arms: int,
    rounds: int,
    sets: int,
    seed: int,
    experiments: int = EXPERIMENTS,
) -> Eigenvalues:
    """Play LinUCB without noise, with the width of its theorem, in sets of experiments."""
    world = make_environment(contexts=contexts, dim=_DIM, arms=arms)
    guarantee = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    protection = Protection(guarantee=guarantee)
    protected = build_protected("linucb", world.problem(rounds), protection, mode="theory")
    bandit = Round(policy=protected.policy, privatizers=protected.privatizers)  # type: ignore[arg-type]

    def start(run: Array) -> GLMTruth:
        return world.init(Stream.of(seed=seed, replicate=run).at(WORLD))

    def play(run: Array, truth: GLMTruth, carry: Carry, round: Array) -> tuple[Carry, Array]:
        root, clock = Stream.of(seed=seed, replicate=run), bandit.clock(carry, round)
        arm_set = world.arms(truth, clock, root.at(ARMS, round=round))
        action = bandit.act(carry.model, arm_set, clock, root)
        reward = world.reward(truth, arm_set, action, clock, root.at(REWARD, round=round))
        return bandit.learn(carry, arm_set, action, reward, round, root), arm_set.features[action]

    @jax.jit
    def play_set(first: Array) -> tuple[Array, Array]:
        runs = first + jnp.arange(experiments, dtype=jnp.uint32)
        truths: GLMTruth = jax.vmap(start)(runs)
        carry = jax.vmap(lambda _: bandit.begin())(runs)

        def play_round(carry: Carry, round: Array) -> tuple[Carry, Array]:
            return jax.vmap(play, in_axes=(0, 0, 0, None))(runs, truths, carry, round)

        x = jax.lax.scan(play_round, carry, jnp.arange(rounds, dtype=jnp.int32))[1]
        x = x.astype(jnp.float64)
        over_runs = jnp.einsum("tmi,tmj->tij", x, x) / experiments
        over_rounds = jnp.einsum("tmi,tmj->mij", x, x) / rounds
        return jnp.linalg.eigvalsh(over_runs)[:, 0], jnp.linalg.eigvalsh(over_rounds)[:, 0]

    results = [play_set(jnp.uint32(experiments * index)) for index in range(sets)]
    averages, within = zip(*results, strict=True)
    return Eigenvalues(
        contexts=contexts,
        arms=arms,
        rounds=rounds,
        averages=np.array(averages, np.float64),
        within=np.concatenate([np.asarray(part) for part in within]),
    )


def lines(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the table with its caption, row by row as it is played."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contexts", default=",".join(CONTEXTS))
    parser.add_argument("--arms", default="5,25,100")
    parser.add_argument("--rounds", default="200,2000,20000")
    parser.add_argument("--experiments", type=int, default=EXPERIMENTS, help="in a set")
    parser.add_argument("--sets", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    yield f"| {HEAD} |"
    yield "|" + "---|" * (HEAD.count("|") + 1)
    for contexts in options.contexts.split(","):
        for arms in map(int, options.arms.split(",")):
            for rounds in map(int, options.rounds.split(",")):
                yield measure(
                    contexts=contexts,
                    arms=arms,
                    rounds=rounds,
                    sets=options.sets,
                    seed=options.seed,
                    experiments=options.experiments,
                ).row()
    command = shlex.join(["python", "benchmarks/eigenvalues.py", *arguments])
    day = datetime.datetime.now(datetime.UTC).date()
    yield ""
    runs = options.experiments * options.sets
    version = versions()["kerchief"]
    yield f"`{command}`, kerchief {version}, {runs} runs in sets of {options.experiments}, {day}."


if __name__ == "__main__":
    for line in lines(sys.argv[1:]):
        print(line, flush=True)
