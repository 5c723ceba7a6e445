"""Convex losses with two questions per user: one protected difference quotient per round.

The learner asks for the losses of two close points; the device divides their difference by the
distance, clips the slope to the Lipschitz bound, and protects that one number.

A. Agarwal, O. Dekel, L. Xiao, "Optimal algorithms for online convex optimization with multi-point
bandit feedback" (2010); K. Zheng, T. Cai, W. Huang, Z. Li, L. Wang, "Locally differentially private
(contextual) bandits learning" (2020), Algorithms 2 and 4, Theorems 5 and 6. Proofs: `two_point.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import NoiseInfo, Tree
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import BoundedScalar
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import struct
from kerchief.core.validate import positive
from kerchief.policies.context_free.base import LOSS, OnDomain, domain_of, head_start
from kerchief.policies.registry import Mode, register


@struct
class State:
    """What the learner keeps: the point that both questions lie around."""

    point: Array


@struct
class TwoPoint(OnDomain):
    """Gradient descent on protected slopes in random directions.

    Round t, from 1, steps by 1/(`firmness` + `growth` t) against rank · slope · direction.

    Attributes:
        radius: how far from the point both questions lie.
        firmness: the part of a step's inverse that stays.
        growth: the part that grows with every round: the losses' strong convexity, or 0.

    >>> from kerchief.core.convex import Ball
    >>> problem = ContextFreeProblem(horizon=100, low=0.0, high=2.0, domain=Ball(dim=4),
    ...                              lipschitz=2.0)
    >>> clear = ReportDistribution.clear(low=-2.0, high=2.0)
    >>> TwoPoint.of(problem, channel=clear).firmness     # √(T d) G / R
    40.0
    """

    radius: float | Array
    firmness: float | Array
    growth: float | Array

    @classmethod
    def of(
        cls, problem: ContextFreeProblem, *, mode: Mode = "theory", channel: ReportDistribution
    ) -> Self:
        """Steps for convex losses that know the noise: R / (d v √T)."""
        domain = domain_of(problem)
        firmness = math.sqrt(problem.horizon) * _length(problem, channel) / domain.outer
        return cls(
            problem=problem, radius=compute_query_radius(problem), firmness=firmness, growth=0.0
        )

    @classmethod
    def strong(
        cls, problem: ContextFreeProblem, *, mode: Mode = "theory", channel: ReportDistribution
    ) -> Self:
        """Steps for strongly convex losses that know the noise: 1 / (α(t + t₀))."""
        curve = positive("convexity", problem.convexity)
        first = head_start(problem, _length(problem, channel))
        return cls(
            problem=problem,
            radius=compute_query_radius(problem),
            firmness=curve * first,
            growth=curve,
        )

    @classmethod
    def paper(cls, problem: ContextFreeProblem, *, mode: Mode = "theory") -> Self:
        """The paper's steps for convex losses, whatever the noise: 1 / √T; ρ = log T / T."""
        firmness = math.sqrt(problem.horizon)
        return cls(
            problem=problem,
            radius=compute_printed_query_radius(problem),
            firmness=firmness,
            growth=0.0,
        )

    @classmethod
    def strong_paper(cls, problem: ContextFreeProblem, *, mode: Mode = "theory") -> Self:
        """The paper's steps for strongly convex losses, whatever the noise: 1 / (αt)."""
        curve = positive("convexity", problem.convexity)
        return cls(
            problem=problem,
            radius=compute_printed_query_radius(problem),
            firmness=0.0,
            growth=curve,
        )

    @property
    def queries(self) -> Mapping[str, BoundedScalar]:
        """A slope within the Lipschitz bound, which clips whatever a device computes."""
        return {LOSS: BoundedScalar(low=-self.problem.lipschitz, high=self.problem.lipschitz)}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Begin at the center."""
        return State(point=self.domain.center())

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        """Propose two points on opposite sides of the current point."""
        aside = self.radius * self.domain.direction(stream)
        return jnp.stack([state.point + aside, state.point - aside])

    def answer(self, action: Array, losses: Array) -> Array:
        """Compute the slope in float64, as the difference may be tiny."""
        losses = losses.astype(jnp.float64)
        return (losses[0] - losses[1]) / (2 * self.radius)

    def learn(self, state: State, action: Array, memo: Tree, report: Array, round: Array) -> State:
        """Take one step, and project into the set, as far inside as the questions need."""
        direction = (action[0] - action[1]) / (2 * self.radius)
        gradient = self.domain.rank * report[0] * direction
        step = 1 / (self.firmness + self.growth * (round + 1.0))
        share = 1 - self.radius / self.domain.inner
        return State(point=self.domain.project(state.point - step * gradient, share))


def compute_query_radius(problem: ContextFreeProblem) -> float:
    """Return the radius of questions, log T / T of the inner radius.

    It is so small that it costs O(log T) in all.
    """
    return domain_of(problem).inner * max(math.log(problem.horizon), 1.0) / problem.horizon


def compute_printed_query_radius(problem: ContextFreeProblem) -> float:
    """Return the printed radius of questions, log T / T, within the inner radius.

    Algorithm 2 has log T / T whatever the set is.

    Beyond that radius the printed algorithm has no set to stay in. Then both questions lie on
    opposite sides of the center.
    """
    return min(max(math.log(problem.horizon), 1.0) / problem.horizon, domain_of(problem).inner)


def _length(problem: ContextFreeProblem, channel: ReportDistribution) -> float:
    """Root mean square length of a gradient estimate, d v, from public facts.

    A slope along a random direction has a mean square of at most G²/d, instead of G², and noise
    adds to it. Bounded reports beyond G are coins: their squares are alike for every slope.
    """
    rank, lipschitz = domain_of(problem).rank, problem.lipschitz
    if channel.high is not None and channel.high > lipschitz:
        return float(rank * channel.high)
    noise = max(float(channel.spread) ** 2 - lipschitz**2, 0.0)
    return rank * math.sqrt(lipschitz**2 / rank + noise)


_register = partial(
    register,
    kind=TwoPoint,
    source="Agarwal, Dekel, Xiao 2010; Zheng et al. 2020, Algorithm 2, Theorem 6",
    actions="domain",
    default_environment="quadratic",
)
_register("two-point", summary="Convex losses: gradient descent from two questions per user")
_register(
    "two-point-strong",
    build_with_report_distribution=TwoPoint.strong,
    summary="Strongly convex losses: two-point with falling steps",
    variant_of="two-point",
)
# With the normal noise of the paper's line 5.
_printed = partial(_register, noises={"local": "gaussian"})
_printed(
    "two-point@paper",
    factory=TwoPoint.paper,
    summary="The paper's steps for convex losses",
)
_printed(
    "two-point-strong@paper",
    factory=TwoPoint.strong_paper,
    summary="The paper's steps for strongly convex losses",
)
