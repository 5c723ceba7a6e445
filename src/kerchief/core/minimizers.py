"""Minimizers: how sums of gradients, exact or noisy, become an estimate.

They see gradient sums and public numbers alone: `privatizers.fits` pays for those.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Gradient, Start
from kerchief.core.linalg import inverse
from kerchief.core.struct import struct
from kerchief.core.validate import check_bounds

T = TypeVar("T")

_EPSILON = 2.0**-52
"""What rounding of a number may hide, relative to it."""

_ROUNDING = 1e-13
"""What rounding of a sum over many users may add to it, relative to it."""

_MOST_LOOKS = 1000
"""How often Newton's method looks at its function at most."""


def project_to_ball(point: Array, radius: float | Array) -> Array:
    """The nearest point of the ball around zero.

    >>> project_to_ball(jnp.array([0.0, 4.0]), 2.0).tolist()
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
    """A few gradient steps in the metric that the start brings, each kept within its ball.

    Where the metric is close to the loss's curvature every step is nearly Newton's, so two or three
    suffice, and each spends noise on one gradient sum alone.
    """

    steps: int

    def __post_init__(self) -> None:
        """Check the values."""
        check_bounds(self)

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """Take the steps."""
        metric = inverse(start.metric)

        def step(i: Array | int, point: Array) -> Array:
            slope = gradient(point, i) + start.ridge * point
            return project_to_ball(point - metric @ slope, start.radius)

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
        check_bounds(self)

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """Take the steps and return the mean of the points at which gradients were taken."""
        dim = start.point.shape[0]
        bound = jnp.sqrt((users * self.clip) ** 2 + dim * noise**2)
        length = 2 * self.radius / (math.sqrt(2 * self.steps) * bound)

        def step(i: Array | int, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            point, total = sums
            slope = gradient(point, i) + start.ridge * point
            return project_to_ball(point - length * slope, self.radius), total + point

        _, total = repeat(self.steps, step, (start.point, 0 * start.point))
        return total / self.steps


@struct
class Look:
    """What a function is at one point: its value, its slope and its curvature there."""

    value: Array
    slope: Array
    curvature: Array


@struct
class _Descent:
    """How far Newton's method has come.

    Attributes:
        point: the best so far.
        value: the function there.
        full: the step that would end at the minimizer, were the function a square.
        promised: twice what the function would fall by that.
        share: how much of the step is tried next.
        looks: how many points were looked at.
    """

    point: Array
    value: Array
    full: Array
    promised: Array
    share: Array
    looks: Array


def newton(look: Callable[[Array], Look], begin: Array, *, at_origin: Array | float) -> Array:
    """The minimizer of a strictly convex function, to rounding: for fits without noise.

    Newton steps, each halved until the function falls by a part of what its slope promises, so that
    every start ends at the minimizer. It looks once at each point that it tries. The last step is
    below 1e-9, or promises less than rounding of the value hides, and is taken without a look. Far
    out a function may overflow, and steps be short: where it is above its value at the origin, it
    begins there instead.
    """

    def move_to(point: Array, view: Look, looks: Array) -> _Descent:
        full = inverse(view.curvature) @ view.slope
        return _Descent(
            point=point,
            value=view.value,
            full=full,
            promised=view.slope @ full,
            share=jnp.ones_like(view.value),
            looks=looks,
        )

    def step(at: _Descent) -> _Descent:
        point, looks = at.point - at.share * at.full, at.looks + 1
        view = look(point)
        least = 1e-4 * at.share * at.promised - _ROUNDING * jnp.abs(at.value)
        falls = view.value <= at.value - least
        shorter = dataclasses.replace(at, share=at.share / 2, looks=looks)
        descent: _Descent = jax.tree.map(
            partial(jnp.where, falls), move_to(point, view, looks), shorter
        )
        return descent

    def unfinished(at: _Descent) -> Array:
        long = at.share * jnp.linalg.norm(at.full) > 1e-9
        visible = at.promised > _EPSILON * jnp.abs(at.value)
        going: Array = long & visible & (at.looks < _MOST_LOOKS)
        return going

    start, origin = move_to(begin, look(begin), jnp.int32(1)), jnp.zeros_like(begin)
    ceiling = at_origin + _ROUNDING * jnp.abs(at_origin)
    # A loop, since mapped over replicates a branch would be taken even where none of them needs it.
    start = jax.lax.while_loop(
        lambda at: ~(at.value <= ceiling) & (at.looks < 2),
        lambda at: move_to(origin, look(origin), at.looks + 1),
        start,
    )
    at: _Descent = jax.lax.while_loop(unfinished, step, start)
    return jnp.where(at.looks < _MOST_LOOKS, at.point - at.share * at.full, at.point)
