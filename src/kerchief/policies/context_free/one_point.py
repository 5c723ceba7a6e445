"""Convex losses with one question per user: gradients from losses on a small sphere.

A. Flaxman, A. Kalai, H. McMahan, "Online convex optimization in the bandit setting" (2005), as the
black box of K. Zheng, T. Cai, W. Huang, Z. Li, L. Wang, "Locally differentially private
(contextual) bandits learning" (2020), Algorithm 1 and Theorem 3. For strongly convex losses with
the falling steps of A. Agarwal, O. Dekel, L. Xiao, "Optimal algorithms for online convex
optimization with multi-point bandit feedback" (2010), section 2. Proof: `one_point.md`.
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
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import struct
from kerchief.core.validate import positive
from kerchief.policies.context_free.base import OnDomain, domain_of, head_start
from kerchief.policies.registry import Mode, register


@struct
class State:
    """What the learner keeps: where it stands, and the mean report so far."""

    point: Array
    mean: Array


@struct
class OnePoint(OnDomain):
    """Gradient descent on rank/radius · (report - mean) · direction.

    Round t, from 1, steps by 1/(1/`step` + `growth` t) against it.

    The mean of the reports so far, kept within the bounds of losses, is taken off: directions have
    mean 0 and do not know it, so this changes no expectation, and it makes the estimates shorter.

    Attributes:
        radius: how far from the point the question lies.
        step: the length of a first step, a unit of gradient.
        growth: by how much its inverse grows with every round: the losses' strong convexity, or 0.

    >>> from kerchief.core.convex import Ball
    >>> problem = ContextFreeProblem(horizon=10_000, low=-1.0, high=1.0, domain=Ball(dim=3),
    ...                              lipschitz=1.0)
    >>> OnePoint.of(problem, channel=ReportDistribution.clear(low=-1.0, high=1.0)).radius  # 1 / T^¼
    0.1
    """

    radius: float | Array
    step: float | Array
    growth: float | Array = 0.0

    @classmethod
    def of(
        cls, problem: ContextFreeProblem, *, mode: Mode = "theory", channel: ReportDistribution
    ) -> Self:
        """Build it with the radius and the step that make the bound least.

        The radius is √(R d v / ((2 + R/r) G)) / T^¼.
        """
        domain = domain_of(problem)
        length = domain.rank * float(channel.spread)
        bias = (2 + domain.outer / domain.inner) * problem.lipschitz
        radius = math.sqrt(domain.outer * length / bias) / problem.horizon**0.25
        radius = min(radius, domain.inner / 2)
        step = domain.outer * radius / (length * math.sqrt(problem.horizon))
        return cls(problem=problem, radius=radius, step=step)

    @classmethod
    def curved(
        cls, problem: ContextFreeProblem, *, mode: Mode = "theory", channel: ReportDistribution
    ) -> Self:
        """Build it for strongly convex losses.

        The radius is (d² v² log T / (α (2 + R/r) G T))^⅓.
        """
        domain, curve = domain_of(problem), positive("convexity", problem.convexity)
        length = domain.rank * float(channel.spread)
        bias = (2 + domain.outer / domain.inner) * problem.lipschitz
        logs = max(math.log(problem.horizon), 1.0)
        radius = (length**2 * logs / (curve * bias * problem.horizon)) ** (1 / 3)
        radius = min(radius, domain.inner / 2)
        first = curve * head_start(problem, length / radius)
        return cls(problem=problem, radius=radius, step=1 / first, growth=curve)

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Begin at the center, and expect a loss at the midpoint."""
        midpoint = (self.problem.low + self.problem.high) / 2
        return State(point=self.domain.center(), mean=jnp.float64(midpoint))

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        """Propose a point of the sphere around the current point."""
        return (state.point + self.radius * self.domain.direction(stream))[None]

    def memo(self, state: State, action: Array, round: Array) -> Array:
        """Return the direction from the current point to the proposal."""
        return (action[0] - state.point) / self.radius

    def learn(self, state: State, action: Array, memo: Tree, report: Array, round: Array) -> State:
        """Take one step, and project into the set, as far inside as the questions need."""
        gradient = self.domain.rank / self.radius * (report[0] - state.mean) * memo
        share = 1 - self.radius / self.domain.inner
        step = 1 / (1 / self.step + self.growth * (round + 1.0))
        return State(
            point=self.domain.project(state.point - step * gradient, share),
            mean=update_mean(self.problem, state.mean, report[0], round),
        )


def update_mean(problem: ContextFreeProblem, mean: Array, report: Array, round: Array) -> Array:
    """Update the mean report, which counts one at the midpoint, within the bounds."""
    return jnp.clip(mean + (report - mean) / (round + 2), problem.low, problem.high)


_register = partial(register, kind=OnePoint, actions="domain")
_register(
    "one-point",
    summary="Convex losses: gradient descent from one question per user",
    source="Flaxman, Kalai, McMahan 2005; Zheng et al. 2020, Algorithm 1",
    default_environment="quadratic",
)
_register(
    "one-point-curved",
    build_with_report_distribution=OnePoint.curved,
    summary="Strongly convex losses with kinks: one-point with falling steps",
    variant_of="one-point",
    source="Agarwal, Dekel, Xiao 2010; Zheng et al. 2020, Algorithm 1, Table 1",
    default_environment="kinked",
)
