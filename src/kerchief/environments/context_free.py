"""Worlds without contexts on finitely many arms: chance, and two adversaries.

A loss is 0 or 1, with a mean that depends on the arm and, against an adversary, on the round. Which
arms are special is drawn anew in each run.
"""

from __future__ import annotations

import math
from typing import Any, Self

import jax.numpy as jnp
from jax import Array

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct


@struct
class BestArms:
    """The truth of one run: the arm with the least loss, and another that may be special too."""

    best: Array
    other: Array


@struct
class _Arms:
    """What the worlds here share: so many arms, of which the best loses less by the gap."""

    count: int = static()
    gap: float | Array

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts."""
        return ContextFreeProblem(horizon=horizon, low=0.0, high=1.0, arms=self.count)

    def init(self, stream: Stream) -> BestArms:
        """Draw two different arms."""
        first, second = stream.uniform(2)
        best = _scale_to_integer(first, self.count)
        alternate = (best + 1 + _scale_to_integer(second, self.count - 1)) % self.count
        return BestArms(best=best, other=alternate)

    def arms(self, world: BestArms, clock: Clock, stream: Stream) -> Arms:
        """Users bring none."""
        return Arms.none()

    def means(self, world: BestArms, action: Array, round: Array) -> Array:
        """The expected loss of an arm in a round."""
        raise NotImplementedError

    def reward(
        self, world: BestArms, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """A loss: a coin that shows 1 with the arm's mean as its chance."""
        mean = self.means(world, action, clock.round)
        return (stream.uniform(1) <= mean).astype(jnp.float32)

    def regret(self, world: BestArms, arms: Arms, action: Array, clock: Clock) -> Array:
        """Expected loss above that of the best fixed arm; in some rounds it may be below."""
        least = self.means(world, world.best, clock.round)
        return self.means(world, action, clock.round) - least

    def right(self, world: BestArms, action: Array) -> Array:
        """Whether an arm is the best."""
        return action == world.best


@struct
class ChanceArms(_Arms):
    """Losses of one mean for all arms but the best, which has the gap less: the world of chance."""

    mean: float | Array

    @classmethod
    def of(cls, *, arms: int = 10, gap: float = 0.2, mean: float = 0.5) -> Self:
        """Check every value."""
        facts = _check_fields(arms, gap, 1.0)
        return cls(**facts, mean=validate.between("mean", mean, facts["gap"], 1.0, closed=True))

    def means(self, world: BestArms, action: Array, round: Array) -> Array:
        """The expected loss of an arm: the same in all rounds."""
        return self.mean - jnp.where(action == world.best, self.gap, 0.0)


@struct
class CountedArms(ChanceArms):
    """Arms whose losses are coins, where every user costs one: the price of the best."""

    def regret(self, world: BestArms, arms: Arms, action: Array, clock: Clock) -> Array:
        """One user."""
        return jnp.ones(())


@struct
class Alternating(_Arms):
    """All means swing between low and high together, and the gap stays: hard for UCB.

    In even phases the best arm has mean 0 and the others the gap; in odd phases the best has 1 less
    the gap and the others 1. Phase n has growthⁿ rounds or so. This is the stochastically
    constrained adversary of Zimmert and Seldin (2021), section 5.
    """

    growth: float = static()

    @classmethod
    def of(cls, *, arms: int = 10, gap: float = 0.2, growth: float = 1.6) -> Self:
        """Check every value."""
        growth = validate.between("growth", growth, 1.0, 10.0)
        return cls(**_check_fields(arms, gap, 0.5), growth=growth)

    def means(self, world: BestArms, action: Array, round: Array) -> Array:
        """The expected loss of an arm, by the phase."""
        grown = jnp.log1p((self.growth - 1) * round) / math.log(self.growth)
        low = jnp.where(grown.astype(jnp.int32) % 2 == 0, 0.0, 1 - self.gap)
        return low + jnp.where(action == world.best, 0.0, self.gap)


@struct
class Switching(_Arms):
    """Another arm is the good one until the turn, a round; from then on it is the best arm.

    The good arm has mean ½ less the gap, and all others ½. Regret is measured against the arm that
    is best over all rounds, so it falls below zero before the turn.
    """

    turn: int = static()

    @classmethod
    def of(cls, *, arms: int = 10, gap: float = 0.2, turn: int = 1000) -> Self:
        """Check every value."""
        return cls(**_check_fields(arms, gap, 0.5), turn=validate.whole("turn", turn, high=2**30))

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts; the arm that is good after the turn must be the best over all rounds.

        >>> Switching.of(turn=60).problem(100)
        Traceback (most recent call last):
        ...
        kerchief_protocol.errors.InvalidValueError: turn is 60; it must come before half of the \
100 rounds
        """
        if 2 * self.turn >= horizon:
            raise InvalidValueError(
                f"turn is {self.turn}; it must come before half of the {horizon} rounds"
            )
        return super().problem(horizon)

    def means(self, world: BestArms, action: Array, round: Array) -> Array:
        """The expected loss of an arm, before or after the turn."""
        good = jnp.where(round < self.turn, world.other, world.best)
        return 0.5 - jnp.where(action == good, self.gap, 0.0)


def _check_fields(arms: int, gap: float, limit: float) -> dict[str, Any]:
    """The fields that all these worlds have."""
    count = validate.whole("arms", arms, low=2, high=2**20)
    return {"count": count, "gap": validate.between("gap", gap, 0.0, limit, closed=True)}


def _scale_to_integer(uniform: Array, below: int) -> Array:
    """A whole number below a bound, from a number in (0, 1]."""
    return jnp.minimum((uniform * below).astype(jnp.int32), below - 1)
