"""What bandits without contexts share: a public proposal, and one protected number in return.

Algorithm 1 of K. Zheng, T. Cai, W. Huang, Z. Li, L. Wang, "Locally differentially private
(contextual) bandits learning" (2020). What is public about the law of a report is in a
`ReportDistribution`. Proof note: `base.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, Feedback, NoiseInfo, Policy, Release, Tree
from kerchief.core.convex import Domain
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import BoundedScalar
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import static, struct

LOSS = "loss"
"""Name of the only query."""


@struct
class ContextFree(Policy):
    """A bandit that proposes, hears one number, and learns from both.

    A member of this family says how it proposes, what it learns and what it recommends; the rest of
    the contract is here. Whatever the learner knows is public, so the model is its state.
    """

    problem: ContextFreeProblem = static()

    feedback: ClassVar[Feedback] = "reports"

    @property
    def queries(self) -> Mapping[str, BoundedScalar]:
        """The only query, by default the loss of the proposed action."""
        return {LOSS: BoundedScalar.of(self.problem)}

    def propose(self, state: Tree, round: Array, stream: Stream) -> Array:
        """Learner: propose an arm (int32), or points of the domain, one per row.

        Every row is a question of its own to the same user.
        """
        raise NotImplementedError

    def ready(self, state: Tree, round: Array) -> Array | bool:
        """Learner: whether a round may begin now; if not, reports are awaited."""
        return True

    def memo(self, state: Tree, action: Array, round: Array) -> Tree:
        """Learner: what `learn` needs of the proposing state; draws nothing.

        Several questions may be open at once, and when an answer comes the state is another one.
        """
        return ()

    def answer(self, action: Array, losses: Array) -> Array:
        """Device: compute the number to report from the loss of each question."""
        return losses[0]

    def learn(self, state: Tree, action: Array, memo: Tree, report: Array, round: Array) -> Tree:
        """Learner: update the state with a report. Draws nothing.

        The report is an array as long as the query says.

        Answers come in any order: the round counts them, and says nothing of when was asked.
        """
        raise NotImplementedError

    def recommend(self, state: Tree) -> Array:
        """Learner: recommend an arm or a point."""
        raise NotImplementedError

    def update(self, state: Tree, name: str, release: Release) -> Tree:
        """Learner: update the state with the last report and its proposed action."""
        assert release.action is not None
        round = release.count - 1
        memo = self.memo(state, release.action, round)
        return self.learn(state, release.action, memo, release.total, round)

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """Learner: propose; users bring no arms."""
        return self.propose(model, clock.round, stream)

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Device: compute the answer to each query."""
        return {name: self.answer(action, reward) for name in self.queries}


@struct
class Armed(ContextFree):
    """A bandit on finitely many arms; the channel says what reports will be like."""

    channel: ReportDistribution

    def __post_init__(self) -> None:
        """Refuse a problem without arms: it is static, so no tracer ever stands for it."""
        arms_of(self.problem)


@struct
class Counts:
    """How often each arm was played, and the sum of its reports."""

    pulls: Array
    total: Array

    @property
    def means(self) -> Array:
        """The mean report of each arm; 0 without any."""
        return self.total / jnp.maximum(self.pulls, 1)


@struct
class Counting(Armed):
    """A bandit that keeps counts and sums of reports."""

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Counts:
        """Return empty counts."""
        zero = jnp.zeros(self.problem.arms, jnp.float64)
        return Counts(pulls=zero, total=zero)

    def learn(self, state: Tree, action: Array, memo: Tree, report: Array, round: Array) -> Counts:
        """Count the report to its arm."""
        indicator = jnp.arange(self.problem.arms) == action
        return Counts(pulls=state.pulls + indicator, total=state.total + indicator * report)

    def recommend(self, state: Tree) -> Array:
        """The arm with the least mean report; arms that were never played come last."""
        return jnp.argmin(jnp.where(state.pulls > 0, state.means, jnp.inf)).astype(jnp.int32)


@struct
class OnDomain(ContextFree):
    """A bandit on a convex set."""

    @property
    def domain(self) -> Domain:
        """The convex set whose points are the actions."""
        return domain_of(self.problem)

    @property
    def limits(self) -> Mapping[str, tuple[float, float]]:
        """Bounds of the parameters; questions within the inner radius are in the set."""
        return {"radius": (0.0, self.domain.inner)}

    def recommend(self, state: Tree) -> Array:
        """The current point of the learner."""
        point: Array = state.point
        return point


def arms_of(problem: ContextFreeProblem) -> int:
    """The number of a problem's arms, which must not be points of a domain."""
    if problem.domain is not None:
        raise InvalidValueError(
            "the problem has a domain and no arms, and this bandit plays arms; choose a problem "
            "with arms, or a bandit for domains such as one-point"
        )
    return problem.arms


def domain_of(problem: ContextFreeProblem) -> Domain:
    """The set of a problem's actions, which must not be arms."""
    if problem.domain is None:
        raise InvalidValueError(
            f"the problem has {problem.arms} arms and no domain, and this bandit plays points of a "
            "convex set; choose a problem with a domain, or a bandit for arms such as ucb"
        )
    return problem.domain


def head_start(problem: ContextFreeProblem, length: float) -> float:
    """Return the t₀ of steps 1/(α(t + t₀)) that makes the bound on regret least.

    `length` bounds the gradient estimates.

    It solves t₀(T + t₀) = (length / αR)² T (`two_point.md`).
    """
    noisy, half = length / (problem.convexity * domain_of(problem).outer), problem.horizon / 2
    return math.sqrt(half**2 + noisy**2 * problem.horizon) - half
