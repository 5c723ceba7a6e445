"""Smooth convex losses with one question per user: gradients from losses on ellipsoids.

The ellipsoids are those of a self-concordant barrier: wide where there is room, thin near the
boundary. For strongly convex losses they also shrink with time.

A. Saha, A. Tewari, "Improved regret guarantees for online smooth convex optimization with bandit
feedback" (2011); E. Hazan, K. Levy, "Bandit convex optimization: towards tight bounds" (2014); both
as black boxes of K. Zheng, T. Cai, W. Huang, Z. Li, L. Wang, "Locally differentially private
(contextual) bandits learning" (2020), Algorithm 1 and Corollary 4. Proofs: `barrier.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import NoiseInfo
from kerchief.core.linalg import inverse, lower_root
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import struct
from kerchief.core.validate import positive
from kerchief.policies.context_free.base import OnDomain, domain_of
from kerchief.policies.context_free.one_point import update_mean
from kerchief.policies.registry import Mode, register

NEWTON = 3
"""Damped Newton steps per round: each starts where the last round ended."""

_MARGIN = 1e-6


@struct
class State:
    """Where it stands, in coordinates of the set's span from the center, and the mean report.

    Its pull is step times the sum of gradient estimates, less growth times the sum of places.
    """

    place: Array
    pull: Array
    mean: Array


@struct
class Memo:
    """Where a question was asked from, and H^(1/2) u there."""

    place: Array
    along: Array


@struct
class Barrier(OnDomain):
    """Follow the leader, with a barrier as its regularizer.

    Round t, from 1, stands at the minimum of η Σ⟨g, y⟩ + (ηα/2) Σ|y - y_s|² + barrier(y) over the
    rounds before. Its question lies on the ellipsoid y + radius · H^(-1/2) · sphere, where H is the
    Hessian of that sum with round t in it. Then g = rank/radius · (report - mean) · H^(1/2) u.

    Attributes:
        radius: size of the ellipsoid; at 1 it touches the boundary.
        step: η.
        growth: ηα, with the losses' strong convexity α; 0 for losses that have none.

    >>> from kerchief.core.convex import Ball
    >>> problem = ContextFreeProblem(horizon=10_000, low=-1.0, high=1.0, domain=Ball(dim=3),
    ...                              lipschitz=1.0, smoothness=1.0)
    >>> round(Barrier.smooth(problem, channel=ReportDistribution.clear(low=-1.0, high=1.0)).radius,
    ...     4)
    0.4411
    """

    radius: float | Array
    step: float | Array
    growth: float | Array

    @classmethod
    def smooth(
        cls, problem: ContextFreeProblem, *, mode: Mode = "tuned", channel: ReportDistribution
    ) -> Self:
        """Build it for smooth convex losses.

        The radius is (2√2 d v √(ν log T / T) / (3 β R²))^⅓.

        In theory mode reports must have the light tails that the theorem asks for.
        """
        if mode == "theory":
            channel.need_light("one-point-smooth")
        domain, bend = domain_of(problem), positive("smoothness", problem.smoothness)
        length = domain.rank * float(channel.spread)
        slow = math.sqrt(domain.nu * max(math.log(problem.horizon), 1.0) / (2 * problem.horizon))
        radius = min(1.0, (4 * length * slow / (3 * bend * domain.outer**2)) ** (1 / 3))
        return cls(problem=problem, radius=radius, step=radius / length * slow, growth=0.0)

    @classmethod
    def strong(
        cls, problem: ContextFreeProblem, *, mode: Mode = "tuned", channel: ReportDistribution
    ) -> Self:
        """Build it for smooth and strongly convex losses.

        The step is √((ν + 3β/2α) log T / 2T) / (d v).

        In theory mode reports must have the light tails that the theorem asks for.
        """
        if mode == "theory":
            channel.need_light("one-point-strong")
        domain, bend = domain_of(problem), positive("smoothness", problem.smoothness)
        curve = positive("convexity", problem.convexity)
        length = domain.rank * float(channel.spread)
        logs = (domain.nu + 1.5 * bend / curve) * max(math.log(problem.horizon), 1.0)
        step = math.sqrt(logs / (2 * problem.horizon)) / length
        return cls(problem=problem, radius=1.0, step=step, growth=step * curve)

    @property
    def limits(self) -> Mapping[str, tuple[float, float]]:
        """Bounds of the parameters; at radius 1 the ellipsoid touches the boundary."""
        return {"radius": (0.0, 1.0)}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Begin at the center, and expect a loss at the midpoint.

        The barrier is least at the center.
        """
        zero, midpoint = jnp.zeros(self.domain.rank), (self.problem.low + self.problem.high) / 2
        return State(place=zero, pull=zero, mean=jnp.float64(midpoint))

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        """Propose a point of the ellipsoid around the current point."""
        sphere = self.domain.basis().T @ self.domain.direction(stream)
        # Any root will do, since directions are uniform: H⁻¹ = L Lᵀ, and L for H^(-1/2).
        aside = lower_root(inverse(self._hessian(state.place, round + 1))) @ sphere
        # Near the boundary H has few digits, so the ellipsoid is inside only up to rounding.
        return self.domain.project(self._point(state.place + self.radius * aside))[None]

    def memo(self, state: State, action: Array, round: Array) -> Memo:
        """Return the current point and H^(1/2) u of the proposal."""
        aside = self.domain.basis().T @ (action[0] - self.domain.center()) - state.place
        # H^(1/2) u = H · aside / radius.
        along = self._hessian(state.place, round + 1) @ aside / self.radius
        return Memo(place=state.place, along=along)

    def learn(self, state: State, action: Array, memo: Memo, report: Array, round: Array) -> State:
        """Add the gradient estimate, and go to the new minimum."""
        gradient = self.domain.rank / self.radius * (report[0] - state.mean) * memo.along
        pull = state.pull + self.step * gradient - self.growth * memo.place
        return State(
            place=self._descend(state.place, pull, round + 1),
            pull=pull,
            mean=update_mean(self.problem, state.mean, report[0], round),
        )

    def recommend(self, state: State) -> Array:
        """Return the current point."""
        return self._point(state.place)

    def _point(self, place: Array) -> Array:
        """Convert span coordinates to a point of the set."""
        return self.domain.center() + self.domain.basis() @ place

    def _hessian(self, place: Array, rounds: Array) -> Array:
        """Compute the Hessian, in the span, of the barrier and the quadratic terms."""
        basis = self.domain.basis()
        barrier = basis.T @ self.domain.barrier_hessian(self._point(place)) @ basis
        return barrier + self.growth * rounds * jnp.eye(self.domain.rank)

    def _descend(self, place: Array, pull: Array, rounds: Array) -> Array:
        """Take damped Newton steps, none of which leaves the set."""
        for _ in range(NEWTON):
            barrier = self.domain.basis().T @ self.domain.barrier_gradient(self._point(place))
            gradient = pull + self.growth * rounds * place + barrier
            newton = inverse(self._hessian(place, rounds)) @ gradient
            decrement = jnp.sqrt(jnp.maximum(gradient @ newton, 0))
            place = place - newton / (1 + decrement)
        # A millionth of the set is left free at the boundary, so that rounding cannot leave it.
        inside = self.domain.project(self._point(place), 1 - _MARGIN)
        return self.domain.basis().T @ (inside - self.domain.center())


_register = partial(register, kind=Barrier, actions="domain", default_environment="quadratic")
_register(
    "one-point-smooth",
    build_with_report_distribution=Barrier.smooth,
    summary="Smooth convex losses: one question per user, inside a barrier",
    variant_of="one-point",
    source="Saha, Tewari 2011; Zheng et al. 2020, Algorithm 1, Corollary 4",
)
_register(
    "one-point-strong",
    build_with_report_distribution=Barrier.strong,
    summary="Smooth, strongly convex losses: one question per user, inside a barrier",
    variant_of="one-point",
    source="Hazan, Levy 2014; Zheng et al. 2020, Algorithm 1, Corollary 4",
)
