"""Minimizers: how sums of gradients, exact or noisy, become an estimate.

They see gradient sums and public numbers alone: `privatizers.fits` pays for those.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Gradient, Start
from kerchief.core.linalg import inverse
from kerchief.core.validate import usual

T = TypeVar("T")


def into_ball(point: Array, radius: float | Array) -> Array:
    """The nearest point of the ball around zero.

    >>> into_ball(jnp.array([0.0, 4.0]), 2.0).tolist()
    [0.0, 2.0]
    """
    return point * jnp.minimum(1.0, radius / jnp.maximum(jnp.linalg.norm(point), 1e-30))


def repeat(steps: int, step: Callable[[Array | int, T], T], begin: T) -> T:
    """Apply a step so many times: one compiled loop under a trace, a plain one on the host."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(begin)):
        ended: T = jax.lax.fori_loop(0, steps, step, begin)
        return ended
    for i in range(steps):
        begin = step(i, begin)
    return begin


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreconditionedSteps:
    """A few gradient steps in the metric that the start brings, each kept within a ball.

    Where the metric is close to the loss's curvature every step is nearly Newton's, so two or three
    suffice, and each spends noise on one gradient sum alone.
    """

    steps: int
    radius: float

    def __post_init__(self) -> None:
        """Check the values."""
        usual(self)

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """Take the steps."""
        metric = inverse(start.metric)

        def step(i: Array | int, point: Array) -> Array:
            slope = gradient(point, i) + start.ridge * point
            return into_ball(point - metric @ slope, self.radius)

        return repeat(self.steps, step, start.point)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientDescent:
    """Projected gradient descent with a fixed step, averaged: Sarmasarkar 2026, Lemma U.4.

    The step D/√(2J(n²L² + B²)), with D the ball's diameter, L the bound on one user's gradient and
    B² the noise's mean square length, balances the two terms of the textbook bound. The lemma wants
    about n²ρ/d steps, which no data set of interest allows; with J steps the excess loss is at most
    √2 D √((n²L² + B²)/J) in expectation, up to the ridge (`privatizers/fits.md`, section 5).
    """

    steps: int
    radius: float
    clip: float

    def __post_init__(self) -> None:
        """Check the values."""
        usual(self)

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """Take the steps and return the mean of the points at which gradients were taken."""
        dim = start.point.shape[0]
        most = jnp.sqrt((users * self.clip) ** 2 + dim * noise**2)
        length = 2 * self.radius / (math.sqrt(2 * self.steps) * most)

        def step(i: Array | int, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            point, total = sums
            slope = gradient(point, i) + start.ridge * point
            return into_ball(point - length * slope, self.radius), total + point

        _, total = repeat(self.steps, step, (start.point, 0 * start.point))
        return total / self.steps


def newton(
    value: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    curvature: Callable[[Array], Array],
    begin: Array,
) -> Array:
    """The minimizer of a strictly convex function, to rounding: for fits without noise.

    Newton steps, each halved until the function falls by a part of what its slope promises, so that
    every start ends at the minimizer. It stops when a step is below 1e-9, or after 100.
    """

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        point, _, count = state
        down = slope(point)
        full = inverse(curvature(point)) @ down
        here, promised = value(point), down @ full

        def too_long(share: Array) -> Array:
            falls = value(point - share * full) <= here - 1e-4 * share * promised
            return ~falls & (share > 1e-9)

        share = jax.lax.while_loop(too_long, lambda share: share / 2, jnp.ones_like(promised))
        return point - share * full, share * jnp.linalg.norm(full), count + 1

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > 1e-9) & (state[2] < 100)

    first = (begin, jnp.full_like(begin[0], jnp.inf), jnp.int32(0))
    return jax.lax.while_loop(unfinished, step, first)[0]
