"""Uniform play, greedy play, one arm for all: what every comparison is measured against."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, NoiseInfo, Oracle, Policy, Release, Tree
from kerchief.core.convex import Domain
from kerchief.core.phases import PhasePolicy
from kerchief.core.problems import AnyProblem, ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.queries import BoundedScalar
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import static, struct
from kerchief.policies.context_free.base import ContextFree, OnDomain
from kerchief.policies.context_free.ucb import UCB
from kerchief.policies.disjoint_models import DisjointSampling
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.phased.elimination import Elimination
from kerchief.policies.registry import AnyPolicy, Mode, register


class WithoutQueries(Policy):
    """Play that needs no private data and learns nothing."""

    @property
    def queries(self) -> Mapping[str, BoundedScalar]:
        """No queries."""
        return {}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Tree:
        """Return an empty state."""
        return ()


@struct
class Uniform(WithoutQueries):
    """Choose among the allowed arms with equal chances.

    >>> Uniform().queries
    {}
    """

    def update(self, state: Tree, name: str, release: Release) -> Tree:
        """Never called, as there are no queries."""
        return state

    def refreshes(self, clock: Clock) -> Array | bool:
        """Never publish a new model."""
        return False

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm with the highest ticket."""
        tickets = stream.uniform(arms.allowed.shape[0])
        return jnp.argmax(jnp.where(arms.allowed, tickets, 0))

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Report nothing."""
        return {}


@struct
class SingleArm(Uniform, Oracle):
    """Play the one arm that is best on average, which the simulation tells it.

    >>> SingleArm().play_only(jnp.int32(2)).item()
    2
    """

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Array:
        """Start with arm 0, until the simulation sets the best arm."""
        return jnp.zeros((), jnp.int32)

    def play_only(self, arm: Array) -> Array:
        """Return the model that plays this arm."""
        return jnp.asarray(arm, jnp.int32)

    def act(self, model: Array, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """Play the best arm, or the first that is allowed."""
        arm: Array = jnp.where(arms.allowed[model], model, jnp.argmax(arms.allowed))
        return arm


@struct
class UniformPopulation(PhasePolicy):
    """Play all actions equally often."""

    problem: PopulationProblem = static()

    def finish(self, features: Array, state: Tree) -> Array:
        """Return equal shares for all arms."""
        return jnp.full(self.problem.arms, 1 / self.problem.arms)


@struct
class UniformArms(WithoutQueries, ContextFree):
    """Propose arms with equal chances."""

    def propose(self, state: Tree, round: Array, stream: Stream) -> Array:
        """Propose an arm with equal chances."""
        place = (stream.uniform(1)[0] * self.problem.arms).astype(jnp.int32)
        return jnp.minimum(place, self.problem.arms - 1)

    def recommend(self, state: Tree) -> Array:
        """Recommend the first arm, which is like any other."""
        return jnp.asarray(0, jnp.int32)


@struct
class Anywhere(WithoutQueries, OnDomain):
    """Propose random points: uniform on a ball; on other sets see `draw_point`."""

    def propose(self, state: Tree, round: Array, stream: Stream) -> Array:
        """Propose a random point of the domain."""
        return draw_point(self.domain, stream)[None]

    def recommend(self, state: Tree) -> Array:
        """Recommend the center, which is like any other point."""
        return self.domain.center()


@struct
class LeastReport:
    """The point whose report was least, and that report."""

    point: Array
    least: Array


@struct
class BestReport(OnDomain):
    """Try random points for a tenth of all rounds, then play the one whose report was least.

    The greedy yardstick: it trusts single reports, and never tries again.
    """

    def init(self, outlook: Mapping[str, NoiseInfo]) -> LeastReport:
        """Start at the center, without any report."""
        return LeastReport(point=self.domain.center(), least=jnp.asarray(jnp.inf))

    def propose(self, state: LeastReport, round: Array, stream: Stream) -> Array:
        """Propose a random point, or later the best one so far."""
        return jnp.where(self._trying(round), draw_point(self.domain, stream), state.point)[None]

    def memo(self, state: LeastReport, action: Array, round: Array) -> Array:
        """Whether the round explores."""
        return self._trying(round)

    def learn(
        self, state: LeastReport, action: Array, memo: Array, report: Array, round: Array
    ) -> LeastReport:
        """Keep the point, if its report is the least so far; later reports change nothing."""
        better = (report[0] < state.least) & memo
        return LeastReport(
            point=jnp.where(better, action[0], state.point),
            least=jnp.where(better, report[0], state.least),
        )

    def _trying(self, round: Array) -> Array:
        return round < max(1, self.problem.horizon // 10)


def draw_point(domain: Domain, stream: Stream) -> Array:
    """Draw a uniform point of the ball around a set, projected onto the set."""
    far = domain.outer * stream.split(1).uniform(1)[0].astype(jnp.float64) ** (1 / domain.rank)
    return domain.project(domain.center() + far * domain.direction(stream))


def _uniform(problem: AnyProblem, *, mode: Mode) -> AnyPolicy:
    match problem:
        case PopulationProblem():
            return UniformPopulation(problem=problem)
        case ContextFreeProblem():
            return UniformArms(problem=problem) if problem.arms else Anywhere(problem=problem)
    return Uniform()


def _greedy(problem: AnyProblem, *, mode: Mode, channel: ReportDistribution) -> AnyPolicy:
    match problem:
        case PopulationProblem():
            return Elimination.of(problem, mode=mode, width=0.0)
        case ContextFreeProblem(arms=0):
            return BestReport(problem=problem)
        case ContextFreeProblem():
            return UCB.of(problem, mode=mode, channel=channel, width=0.0)
        case Problem(own=own) if own:
            return DisjointSampling.of(problem, mode=mode, exploration=0.0)
    return LinUCB.of(problem, mode=mode, exploration=0.0)


register(
    "uniform",
    (Uniform, UniformPopulation, UniformArms, Anywhere),
    _uniform,
    summary="Choose every action with the same probability",
    source="the yardstick of every comparison",
    problems=(Problem, PopulationProblem, ContextFreeProblem),
    actions=("arms", "models", "domain"),
    trusts=("none",),
    default_environment=None,
)
register(
    "greedy",
    (LinUCB, DisjointSampling, Elimination, UCB, BestReport),
    summary="Choose the arm with the highest estimate, without exploration",
    source="the yardstick of every comparison",
    problems=(Problem, PopulationProblem, ContextFreeProblem),
    actions=("arms", "models", "domain"),
    build_with_report_distribution=_greedy,
)
register(
    "single-arm",
    SingleArm,
    lambda problem, *, mode: SingleArm(),
    summary="Play the arm that is best on average; knows the truth",
    source="the yardstick of contexts: what a bandit must reach without looking at them",
    actions=("models", "arms"),
    trusts=("none",),
    default_environment="own",
    deployable=False,
)
