"""Adversaries with convex losses: one whose losses drift, and one who reacts to what was asked.

In both, one fixed point is the best in hindsight, so regret can be counted round by round.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock
from kerchief.core.convex import Domain
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.environments.context_free_convex import BestPoint, Quadratic


@struct
class Drifting(Quadratic):
    """Users' points swing to and fro along a line through the best point, in a wave of the rounds.

    Over whole periods their mean is the best point, which therefore is the best fixed one. Regret
    is against that point, so it falls below zero in some rounds, and a run that ends within a
    period may end there. The adversary is oblivious: rounds alone move it.
    """

    swing: float | Array
    period: int = static()

    @classmethod
    def of(
        cls,
        *,
        domain: Domain,
        away: float | None = None,
        noise: float = 0.5,
        swing: float = 0.5,
        period: int = 1000,
    ) -> Self:
        """Check every value; the swing is how far the users' points move either way."""
        still = Quadratic.of(domain=domain, away=away, noise=noise)
        return cls(
            **vars(still),
            swing=validate.between("swing", swing, 0.0, 1.0, closed=True),
            period=validate.whole("period", period, low=2, high=2**30),
        )

    @property
    def far(self) -> float:
        """The greatest distance of a point from where users' points may have moved."""
        return super().far + float(self.swing)

    def reward(
        self, world: BestPoint, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """What one user loses at each of the points, in this round."""
        return super().reward(self._shift_truth(world, clock), arms, action, clock, stream)

    def regret(self, world: BestPoint, arms: Arms, action: Array, clock: Clock) -> Array:
        """Expected loss above that of the best fixed point."""
        truth = self._shift_truth(world, clock)
        return super().regret(truth, arms, action, clock) - self.excess(truth, world.best)

    def _shift_truth(self, world: BestPoint, clock: Clock) -> BestPoint:
        """The truth of this round."""
        wave = jnp.sin(2 * math.pi * (clock.round % self.period) / self.period)
        return dataclasses.replace(world, best=world.best + self.swing * wave * world.slope)


@struct
class Stirred(BestPoint):
    """The truth, by how much all losses are higher now, and where the last questions lay."""

    level: Array
    last: Array


@struct
class Reacting(Quadratic):
    """All losses rise by the swing after a question that lay further out than the one before.

    "Out" is from the center towards the best point. What a point loses above the best one never
    changes, so the best point is the best fixed one whatever was asked; but who compares losses of
    different rounds compares what the questions before them did.
    """

    swing: float | Array

    @classmethod
    def of(
        cls, *, domain: Domain, away: float | None = None, noise: float = 0.5, swing: float = 0.5
    ) -> Self:
        """Check every value."""
        still = Quadratic.of(domain=domain, away=away, noise=noise)
        return cls(**vars(still), swing=validate.between("swing", swing, 0.0, 1.0, closed=True))

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts: losses may be higher by the swing."""
        still = super().problem(horizon)
        return dataclasses.replace(still, high=still.high + float(self.swing))

    def init(self, stream: Stream) -> Stirred:
        """Draw the best point; nothing was asked yet."""
        center = self.domain.center()
        return Stirred(**vars(super().init(stream)), level=jnp.float64(0), last=center)

    def loss(self, world: BestPoint, point: Array, own: Array) -> Array:
        """½|x - a|², and what the last two questions did."""
        assert isinstance(world, Stirred)
        return super().loss(world, point, own) + world.level

    def reacted(self, world: Stirred, action: Array, clock: Clock) -> Stirred:
        """Rise or fall, by where the questions of this round lay."""
        here = action.mean(0)
        further = (here - world.last) @ world.slope > 0
        return dataclasses.replace(world, level=jnp.where(further, self.swing, 0.0), last=here)
