"""Worlds of convex losses: every user has a loss function, and their mean has a known minimum.

Losses are float64: a learner may divide the difference of two of them by a small number.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock
from kerchief.core.convex import Domain
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.registry import Registry
from kerchief.core.struct import static, struct


@struct
class BestPoint:
    """The truth of one run: where the mean of all losses is least, and a unit vector.

    The best point lies there, or linear losses rise there.
    """

    slope: Array
    best: Array


@struct
class ConvexWorld:
    """What worlds of convex losses share: a hidden best point, and users who differ.

    A user's own vector has a uniform direction and the length `noise`. The best point lies `away`
    from the center of the domain, in a uniform direction, unless it is said otherwise.
    """

    domain: Domain = static()
    away: float | Array
    noise: float | Array

    @classmethod
    def of(cls, *, domain: Domain, away: float | None = None, noise: float = 0.5) -> Self:
        """Check every value; `away` is half of the inner radius unless it is given."""
        away = domain.inner / 2 if away is None else away
        return cls(
            domain=domain,
            away=validate.between("away", away, 0.0, domain.inner, closed=True),
            noise=validate.between("noise", noise, 0.0, 1.0, closed=True),
        )

    @property
    def far(self) -> float:
        """The greatest distance of a point from the best one."""
        return self.domain.outer + float(self.away)

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts."""
        raise NotImplementedError

    def init(self, stream: Stream) -> BestPoint:
        """Draw the best point."""
        slope = self.domain.direction(stream)
        return BestPoint(slope=slope, best=self.find(slope))

    def find(self, slope: Array) -> Array:
        """The best point."""
        return self.domain.center() + self.away * slope

    def arms(self, world: BestPoint, clock: Clock, stream: Stream) -> Arms:
        """Users bring none."""
        return Arms.none()

    def reward(
        self, world: BestPoint, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """What one user loses at each of the points."""
        own = self.noise * self.domain.direction(stream)
        return jax.vmap(lambda point: self.loss(world, point, own))(action)

    def loss(self, world: BestPoint, point: Array, own: Array) -> Array:
        """What a user with this vector loses at a point."""
        raise NotImplementedError

    def regret(self, world: BestPoint, arms: Arms, action: Array, clock: Clock) -> Array:
        """Expected loss above the least, as a mean over the points."""
        return jax.vmap(lambda point: self.excess(world, point))(action).mean()

    def excess(self, world: BestPoint, point: Array) -> Array:
        """Expected loss at a point above the least."""
        raise NotImplementedError

    def right(self, world: BestPoint, action: Array) -> Array:
        """Never: no point is the best exactly."""
        return jnp.asarray(False)


CONVEX: Registry[type[ConvexWorld]] = Registry("convex loss")


@CONVEX.entry("quadratic")
@struct
class Quadratic(ConvexWorld):
    """Half the squared distance from the user's own point, which is the best one plus a vector."""

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts: smooth and strongly convex."""
        steepest = self.far + float(self.noise)
        return ContextFreeProblem(
            horizon=horizon,
            low=0.0,
            high=steepest**2 / 2,
            domain=self.domain,
            lipschitz=steepest,
            smoothness=1.0,
            convexity=1.0,
        )

    def loss(self, world: BestPoint, point: Array, own: Array) -> Array:
        """½|x - a|²."""
        apart = point - world.best - own
        return apart @ apart / 2

    def excess(self, world: BestPoint, point: Array) -> Array:
        """½|x - x*|²."""
        apart = point - world.best
        return apart @ apart / 2


@CONVEX.entry("absolute")
@struct
class Absolute(ConvexWorld):
    """The distance from the best point, and a linear part of the user's own: no curvature."""

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts."""
        steepest = 1 + float(self.noise)
        high = steepest * self.far
        return ContextFreeProblem(
            horizon=horizon, low=0.0, high=high, domain=self.domain, lipschitz=steepest
        )

    def loss(self, world: BestPoint, point: Array, own: Array) -> Array:
        """|x - x*| + ⟨n, x - x*⟩, which is at least 0 as |n| is at most 1."""
        return self.excess(world, point) + own @ (point - world.best)

    def excess(self, world: BestPoint, point: Array) -> Array:
        """|x - x*|."""
        distance: Array = jnp.linalg.norm(point - world.best)
        return distance


@CONVEX.entry("kinked")
@struct
class Kinked(Absolute):
    """An absolute loss plus half the squared distance from the best point."""

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts: strongly convex, and not smooth."""
        flat = super().problem(horizon)
        return dataclasses.replace(
            flat,
            high=flat.high + self.far**2 / 2,
            lipschitz=flat.lipschitz + self.far,
            convexity=1.0,
        )

    def excess(self, world: BestPoint, point: Array) -> Array:
        """|x - x*| + ½|x - x*|²."""
        distance = super().excess(world, point)
        return distance + distance**2 / 2


@CONVEX.entry("linear")
@struct
class Linear(ConvexWorld):
    """A linear loss whose slope is a common unit vector plus the user's own; `away` has no part."""

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts."""
        steepest = 1 + float(self.noise)
        bound = steepest * self.domain.outer
        return ContextFreeProblem(
            horizon=horizon, low=-bound, high=bound, domain=self.domain, lipschitz=steepest
        )

    def find(self, slope: Array) -> Array:
        """On the boundary, against the slope."""
        return self.domain.lowest(slope)

    def loss(self, world: BestPoint, point: Array, own: Array) -> Array:
        """⟨s + n, x - center⟩."""
        return (world.slope + own) @ (point - self.domain.center())

    def excess(self, world: BestPoint, point: Array) -> Array:
        """⟨s, x - x*⟩."""
        return world.slope @ (point - world.best)
