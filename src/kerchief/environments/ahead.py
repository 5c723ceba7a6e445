"""Arms that are drawn ahead of time, once for all bandits that meet the same world.

What a user may choose from depends on the truth and the round alone, and so do the sets of which an
adversary takes one. So the arms of some rounds can be drawn before anybody plays them, and be
handed to every bandit. A program that is handed its arms is the same for all worlds that differ in
their arms alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import (
    AdaptiveAdversary,
    Arms,
    Clock,
    HasBestArm,
    OmniscientAdversary,
    PrecomputableContexts,
    Tree,
    WorstCaseAdversary,
)
from kerchief.core.problems import AnyProblem
from kerchief.core.random import Stream
from kerchief.core.struct import struct


def can_be_handed(world: object) -> TypeGuard[PrecomputableContexts]:
    """Whether arms may be drawn ahead of time: nobody reacts, and the class itself says how.

    Who inherits a way to go without arms may pay, judge or draw otherwise than those who gave it.
    """
    if not isinstance(world, PrecomputableContexts) or isinstance(
        world, AdaptiveAdversary | HasBestArm
    ):
        return False
    own, foreseen = vars(type(world)), {"without_contexts"}
    if isinstance(world, OmniscientAdversary):
        foreseen |= {"considered", "opposed"}
    return own.keys() >= foreseen


@struct
class PrecomputedContexts:
    """What a user may choose from, and how it is judged.

    Attributes:
        arms: one set, or all of those that an adversary considers.
        judged: the expected reward of the best arm, or what every arm of each set would lose.
    """

    arms: Arms
    judged: Array


def offered(
    world: PrecomputableContexts, truth: Tree, clock: Clock, stream: Stream
) -> PrecomputedContexts:
    """What is handed over for one round."""
    if not isinstance(world, WorstCaseAdversary):
        arms = world.arms(truth, clock, stream)
        return PrecomputedContexts(arms=arms, judged=world.best(truth, arms, clock))
    sets = world.considered(truth, clock, stream)

    def losses(arms: Arms) -> Array:
        actions = jnp.arange(arms.allowed.shape[0])
        return jax.vmap(lambda action: world.regret(truth, arms, action, clock))(actions)

    return PrecomputedContexts(arms=sets, judged=jax.vmap(losses)(sets))


@struct
class PrecomputedTruth:
    """The truth of one run without what its arms are drawn from, and this round's offer."""

    truth: Tree
    offer: PrecomputedContexts


def handing(world: PrecomputableContexts) -> Ahead | Opposed:
    """The world that is handed what is drawn from this one."""
    without_contexts = world.without_contexts()
    return (
        Opposed(world=without_contexts)
        if isinstance(world, WorstCaseAdversary)
        else Ahead(world=without_contexts)
    )


@struct
class Ahead:
    """A world whose arms are handed to it; it needs no more than the `without_contexts` one."""

    world: PrecomputableContexts

    def problem(self, horizon: int) -> AnyProblem:
        """Bandits were built from that of the whole world: nobody asks."""
        return self.world.problem(horizon)

    def init(self, stream: Stream) -> Tree:
        """The truth is handed over, too: nobody asks."""
        return self.world.init(stream)

    def arms(self, world: PrecomputedTruth, clock: Clock, stream: Stream) -> Arms:
        """What was drawn for this round."""
        return world.offer.arms

    def reward(
        self, world: PrecomputedTruth, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """Draw the reward in the world."""
        return self.world.reward(world.truth, arms, action, clock, stream)

    def regret(self, world: PrecomputedTruth, arms: Arms, action: Array, clock: Clock) -> Array:
        """Expected reward lost against the best arm, which comes with the offer."""
        return world.offer.judged - self.world.value(world.truth, arms, action, clock)


@struct
class Opposed(Ahead):
    """A world of drawn offers with an adversary, who takes one set of arms of several."""

    def opposed(
        self, world: PrecomputedTruth, clock: Clock, stream: Stream, choose: Callable[[Arms], Array]
    ) -> Arms:
        """The set in which the choice loses most."""
        sets = world.offer.arms
        regrets = jax.vmap(lambda arms, losses: losses[choose(arms)])(sets, world.offer.judged)
        worst: Arms = jax.tree.map(lambda leaf: leaf[jnp.argmax(regrets)], sets)
        return worst

    def regret(self, world: PrecomputedTruth, arms: Arms, action: Array, clock: Clock) -> Array:
        """Expected reward lost in the world."""
        return self.world.regret(world.truth, arms, action, clock)
