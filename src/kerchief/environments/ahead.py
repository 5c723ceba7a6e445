"""Arms that are drawn ahead of time, once for all bandits that meet the same world.

What a user may choose from depends on the truth and the round alone, unless an adversary has a say.
So the arms of some rounds can be drawn before anybody plays them, and be handed to every bandit. A
program that is handed its arms is the same for all worlds that differ in their arms alone.
"""

from __future__ import annotations

from typing import TypeGuard

from jax import Array

from kerchief.core.contracts import Arms, Clock, Foreseen, Opposes, Reacts, Singles, Tree
from kerchief.core.problems import AnyProblem
from kerchief.core.random import Stream
from kerchief.core.struct import struct


def can_be_handed(world: object) -> TypeGuard[Foreseen]:
    """Whether arms may be drawn ahead of time: nobody reacts, and the class itself says how.

    Who inherits a way to go without arms may pay, judge or draw otherwise than those who gave it.
    """
    if not isinstance(world, Foreseen) or isinstance(world, Opposes | Reacts | Singles):
        return False
    return "armless" in vars(type(world))


@struct
class Offer:
    """What a user may choose from, and the expected reward of the best of it."""

    arms: Arms
    best: Array


@struct
class Handed:
    """The truth of one run without what its arms are drawn from, and this round's offer."""

    truth: Tree
    offer: Offer


@struct
class Ahead:
    """A world whose arms are handed to it; it needs no more than the `armless` one."""

    world: Foreseen

    def problem(self, horizon: int) -> AnyProblem:
        """Bandits were built from that of the whole world: nobody asks."""
        return self.world.problem(horizon)

    def init(self, stream: Stream) -> Tree:
        """The truth is handed over, too: nobody asks."""
        return self.world.init(stream)

    def arms(self, world: Handed, clock: Clock, stream: Stream) -> Arms:
        """What was drawn for this round."""
        return world.offer.arms

    def reward(
        self, world: Handed, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """As in the world."""
        return self.world.reward(world.truth, arms, action, clock, stream)

    def regret(self, world: Handed, arms: Arms, action: Array, clock: Clock) -> Array:
        """As in the world; the best is known."""
        return world.offer.best - self.world.value(world.truth, arms, action, clock)
