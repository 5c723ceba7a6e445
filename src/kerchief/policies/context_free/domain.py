"""What bandits on a convex set share: a domain, and one question per round."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Outlook, Tree
from kerchief.core.convex import Domain
from kerchief.core.errors import InvalidValue
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import Loss
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.policies.context_free.base import ContextFree

__all__ = ["Anywhere", "BestSeen", "OnDomain", "anywhere", "domain_of"]


def domain_of(problem: ContextFreeProblem) -> Domain:
    """The set of a problem's actions.

    Raises:
        InvalidValue: its actions are arms.
    """
    if problem.domain is None:
        raise InvalidValue(
            f"the problem has {problem.arms} arms and no domain, and this bandit plays points of a "
            "convex set; choose a problem with a domain, or a bandit for arms such as ucb"
        )
    return problem.domain


@struct
class OnDomain(ContextFree):
    """The part of a bandit on a convex set that every one of them has."""

    @property
    def domain(self) -> Domain:
        """Where it plays."""
        return domain_of(self.problem)


@struct
class Anywhere(OnDomain):
    """Play a random point in every round: the yardstick that asks nobody and learns nothing.

    It is uniform on a ball; on other sets it is a uniform point of the ball around them, projected.

    >>> from kerchief.core.convex import Ball
    >>> ball = Ball(dim=2)
    >>> facts = ContextFreeProblem(horizon=9, low=0.0, high=1.0, domain=ball, lipschitz=1.0)
    >>> Anywhere(problem=facts).queries
    {}
    """

    @property
    def queries(self) -> Mapping[str, Loss]:
        """None: it needs no private data."""
        return {}

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Nothing to remember."""
        return ()

    def propose(self, state: Tree, round: Array, stream: Stream) -> Array:
        """Any point."""
        return anywhere(self.domain, stream)[None]

    def recommend(self, state: Tree) -> Array:
        """A point like any other."""
        return self.domain.center()


@struct
class LeastReport:
    """The point whose report was least, and that report."""

    point: Array
    least: Array


@struct
class BestSeen(OnDomain):
    """Try random points for a tenth of all rounds, then play the one whose report was least.

    The greedy yardstick: it trusts single reports, and never tries again.
    """

    def init(self, outlook: Mapping[str, Outlook]) -> LeastReport:
        """Nothing was seen."""
        return LeastReport(point=self.domain.center(), least=jnp.asarray(jnp.inf))

    def propose(self, state: LeastReport, round: Array, stream: Stream) -> Array:
        """A random point, or the best one seen."""
        trying = round < max(1, self.problem.horizon // 10)
        return jnp.where(trying, anywhere(self.domain, stream), state.point)[None]

    def learn(self, state: LeastReport, action: Array, report: Array, round: Array) -> LeastReport:
        """Keep the point, if its report is the least so far; later reports change nothing."""
        better = (report[0] < state.least) & (round < max(1, self.problem.horizon // 10))
        return LeastReport(
            point=jnp.where(better, action[0], state.point),
            least=jnp.where(better, report[0], state.least),
        )

    def recommend(self, state: LeastReport) -> Array:
        """The best one seen."""
        return state.point


def anywhere(domain: Domain, stream: Stream) -> Array:
    """A uniform point of the ball around a set, projected onto the set."""
    far = domain.outer * stream.split(1).uniform(1)[0].astype(jnp.float64) ** (1 / domain.rank)
    return domain.project(domain.center() + far * domain.direction(stream))
