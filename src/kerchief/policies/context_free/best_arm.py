"""Find the best arm: with a chance of failure that is fixed, or with a number of users that is.

K. Jamieson, M. Malloy, R. Nowak, S. Bubeck, "lil'UCB: an optimal exploration algorithm for
multi-armed bandits" (2014), with the spread of the reports in its width, as in Zheng et al. (2020),
section B; and Z. Karnin, T. Koren, O. Somekh, "Almost optimal exploration in multi-armed bandits"
(2013), sequential halving.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Clock, NoiseInfo, Tree
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import struct
from kerchief.core.validate import between
from kerchief.policies.context_free.base import LOSS, Counting, Counts, arms_of
from kerchief.policies.registry import Mode, register


@struct
class Stopping(Counting):
    """A bandit that asks until it knows enough."""

    def due(self, state: Tree, clock: Clock) -> Mapping[str, Array | bool]:
        """Ask for reports until the search has stopped."""
        return {LOSS: ~self.is_stopped(state)}

    def is_stopped(self, state: Tree) -> Array:
        """Whether the search has stopped."""
        raise NotImplementedError


@struct
class LilUCB(Stopping):
    """Play by confidence bounds of the iterated logarithm; stop when one arm dwarfs the others.

    The arm with the least mean less (1 + β)(1 + √ε) √(2 s² (1 + ε) ln(ln((1 + ε) n) / δ) / n) is
    played, and an arm that was played more than λ times as often as all others together is the
    answer. With the parameters of the theorem it is wrong with at most the stated chance (Theorem 2
    of Jamieson et al.; Theorem 12 of Zheng et al.); the documented ones are the authors' heuristic.

    Attributes:
        wide: (1 + β)(1 + √ε).
        slack: 1 + ε.
        delta: δ.
        share: λ.

    >>> problem = ContextFreeProblem(horizon=9, low=0.0, high=1.0, arms=10)
    >>> LilUCB.of(problem, channel=ReportDistribution.clear(low=0.0, high=1.0)).share
    2.0
    """

    wide: float | Array
    slack: float | Array
    delta: float | Array
    share: float | Array

    @classmethod
    def of(
        cls,
        problem: ContextFreeProblem,
        *,
        mode: Mode = "tuned",
        channel: ReportDistribution,
        failure: float = 0.05,
    ) -> Self:
        """Build it from public facts alone.

        `failure` is the chance that the answer is wrong.

        In theory mode, reports that are not sub-Gaussian are refused.
        """
        between("failure", failure, 0.0, 1.0)
        wide, slack, delta, share = 1.5, 1.0, failure / 5, 1 + 10 / arms_of(problem)
        if mode == "theory":
            channel.need_light("lil-ucb")
            slack, beta = 1.01, 1.0
            constant = (1 + slack) / (slack - 1) * (1 / math.log(slack)) ** slack
            wide = (1 + beta) * (1 + math.sqrt(slack - 1))
            delta = (math.sqrt(1 + failure) - 1) ** 2 / (4 * constant)
            share = ((2 + beta) / beta) ** 2
        return cls(
            problem=problem, channel=channel, wide=wide, slack=slack, delta=delta, share=share
        )

    def propose(self, state: Counts, round: Array, stream: Stream) -> Array:
        """The arm with the least optimistic loss, after each was played three times."""
        pulls = jnp.maximum(state.pulls, 3)
        level = jnp.log(jnp.log(self.slack * pulls) / self.delta)
        width = self.channel.spread * jnp.sqrt(2 * self.slack * level / pulls)
        index = jnp.where(state.pulls < 3, -jnp.inf, state.means - self.wide * width)
        return jnp.argmin(index).astype(jnp.int32)

    def ready(self, state: Counts, round: Array) -> Array:
        """One question at a time: pulls by an old index would decide who dwarfs whom."""
        return state.pulls.sum() >= round

    def is_stopped(self, state: Counts) -> Array:
        """Whether one arm was played more than λ times as often as all others together."""
        largest, total = state.pulls.max(), state.pulls.sum()
        return (largest >= 1 + self.share * (total - largest)) & (state.pulls.min() >= 3)

    def recommend(self, state: Counts) -> Array:
        """The arm that was played most."""
        return jnp.argmax(state.pulls).astype(jnp.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of halving: from which round on how many arms are played, in turns, how often."""

    first: int
    arms: int
    pulls: int

    @property
    def last(self) -> int:
        """Return the first round after this stage."""
        return self.first + self.arms * self.pulls


@struct
class HalvingState(Counts):
    """Counts of the present stage, the arms from best to worst, and how many stages are over."""

    order: Array
    stage: Array


@struct
class Halving(Stopping):
    """Sequential halving: equal parts of the horizon to stages, each keeping the better half.

    Reports of earlier stages are forgotten, as in the theorem of Karnin et al.: the answer is wrong
    with chance at most 3 log₂ K exp(-T / (8 H log₂ K) · (½/s)²), H = max i/Δᵢ² (Theorem 4.1, for
    s-sub-Gaussian reports in place of s = ½).

    >>> problem = ContextFreeProblem(horizon=240, low=0.0, high=1.0, arms=8)
    >>> policy = Halving.of(problem, channel=ReportDistribution.clear(low=0.0, high=1.0))
    >>> [(stage.arms, stage.pulls) for stage in policy.stages]
    [(8, 10), (4, 20), (2, 40)]
    """

    @classmethod
    def of(
        cls, problem: ContextFreeProblem, *, mode: Mode = "tuned", channel: ReportDistribution
    ) -> Self:
        """Build it from public facts alone; every arm must fit in once per stage."""
        policy = cls(problem=problem, channel=channel)
        if policy.stages[0].pulls < 1:
            least = problem.arms * len(policy.stages)
            raise InvalidValueError(
                f"horizon is {problem.horizon}; it must be at least {least} to halve "
                f"{problem.arms} arms"
            )
        return policy

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, in the order in which they are played."""
        number = max(1, math.ceil(math.log2(self.problem.arms)))
        stages: list[Stage] = []
        arms, first = self.problem.arms, 0
        for _ in range(number):
            pulls = self.problem.horizon // (number * arms)
            stages.append(Stage(first=first, arms=arms, pulls=pulls))
            arms, first = math.ceil(arms / 2), stages[-1].last
        return tuple(stages)

    def init(self, outlook: Mapping[str, NoiseInfo]) -> HalvingState:
        """No reports yet, and all arms are alike."""
        order = jnp.arange(self.problem.arms, dtype=jnp.int32)
        return HalvingState(**vars(super().init(outlook)), order=order, stage=jnp.int32(0))

    def propose(self, state: HalvingState, round: Array, stream: Stream) -> Array:
        """Play the survivors of the last stage in turns."""
        firsts = jnp.array([stage.first for stage in self.stages], jnp.int32)
        arms = jnp.array([stage.arms for stage in self.stages], jnp.int32)
        current = (round >= firsts).sum() - 1
        return state.order[(round - firsts[current]) % arms[current]]

    def ready(self, state: HalvingState, round: Array) -> Array:
        """Whether the round belongs to the stage whose reports are awaited."""
        return round < jnp.array([stage.last for stage in self.stages])[state.stage]

    def learn(
        self, state: HalvingState, action: Array, memo: Tree, report: Array, round: Array
    ) -> HalvingState:
        """Count the report; after the last one of a stage, order the arms."""
        now = super().learn(state, action, memo, report, round)
        ends = (round + 1 == jnp.array([stage.last for stage in self.stages])).any()
        # Arms that the stage did not play keep their places behind it.
        is_played = now.pulls[state.order] > 0
        ranks = jnp.argsort(jnp.where(is_played, now.means[state.order], jnp.inf), stable=True)
        keep = jnp.where(ends, 0.0, 1.0)
        return HalvingState(
            pulls=keep * now.pulls,
            total=keep * now.total,
            order=jnp.where(ends, state.order[ranks], state.order),
            stage=state.stage + ends,
        )

    def is_stopped(self, state: HalvingState) -> Array:
        """Whether all stages are over."""
        return state.stage >= len(self.stages)

    def recommend(self, state: HalvingState) -> Array:
        """Recommend the best arm of the last stage."""
        return state.order[0]


_register = partial(register, aim="best arm", default_environment="counted")
_register(
    "lil-ucb",
    LilUCB,
    summary="Find the best arm, up to a fixed probability of failure",
    source="Jamieson, Malloy, Nowak, Bubeck 2014; Zheng et al. 2020, Theorem 12",
)
_register(
    "halving",
    Halving,
    summary="Sequential halving: find the best arm from a fixed number of users",
    source="Karnin, Koren, Somekh 2013; Zheng et al. 2020, Algorithm 1",
)
