"""Rounds whose arms are drawn ahead of time: once, for all bandits that meet them.

Up to three quarters of a contextual round draw what the user may choose from and find the best of
it. Every number drawn depends on its address alone, so it is the same whoever draws it when.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import Clock, PrecomputableContexts, Tree
from kerchief.core.random import ARMS, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.environments.ahead import (
    PrecomputedContexts,
    PrecomputedTruth,
    can_be_handed,
    offered,
)
from kerchief.simulation.loop import Replicate, Scene, begin_in, play_rounds

# The most numbers that are drawn at once, which should stay in a cache, and how many are few: where
# a round has hardly any, calls for few rounds would cost more than the rounds.
_MOST_NUMBERS, _FEW_NUMBERS = 2**21, 2**18
_USUAL_ROUNDS, _MOST_ROUNDS = 128, 2048


@struct
class Source:
    """What arms are drawn from."""

    environment: PrecomputableContexts
    seed: Array


def is_foreseen(environment: object) -> TypeGuard[PrecomputableContexts]:
    """Whether arms are drawn ahead of time here: on a processor, in worlds that allow it.

    An accelerator draws those of a whole block at once, and several devices have replicates each.
    """
    here = jax.default_backend() == "cpu" and jax.device_count() == 1
    return here and can_be_handed(environment)


@jax.jit
def meet(source: Source, replicates: Array) -> tuple[Tree, Tree]:
    """The truth of every replicate, and what is left of it without arms."""

    def meet_one(replicate: Array) -> tuple[Tree, Tree]:
        at = Stream.of(seed=source.seed, replicate=replicate).at(WORLD)
        truth = source.environment.init(at)
        return truth, source.environment.armless_truth(truth)

    return jax.vmap(meet_one)(replicates)


@jax.jit
def begin_ahead(scene: Scene, replicates: Array, truths: Tree) -> Replicate:
    """All replicates before their first round, in worlds of which they need not know the arms."""
    return jax.vmap(partial(begin_in, scene))(replicates, truths)


@partial(jax.jit, inline=True)
def _draw_offers(
    source: Source, replicates: Array, truths: Tree, round: Array
) -> PrecomputedContexts:
    """What users of one round may choose from; traced once, for its shape and for what draws it."""

    def offer(replicate: Array, truth: Tree) -> PrecomputedContexts:
        at = Stream.of(seed=source.seed, replicate=replicate).at(ARMS, round=round)
        return offered(source.environment, truth, Clock(round=round, since={}), at)

    return jax.vmap(offer)(replicates, truths)


def nothing_drawn(source: Source, replicates: Array, truths: Tree) -> PrecomputedContexts:
    """Room for what users may choose from in so many rounds as are drawn at once."""
    shapes = jax.eval_shape(_draw_offers, source, replicates, truths, jnp.int32(0))
    numbers: int = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    small: int = 2 ** (_FEW_NUMBERS // numbers).bit_length() // 2
    rounds = min(_MOST_ROUNDS, max(_USUAL_ROUNDS, small))
    rows = max(1, min(rounds, _MOST_NUMBERS // numbers))
    # From the host: nothing is compiled for it.
    room: PrecomputedContexts = jax.tree.map(
        lambda shape: jnp.array(np.zeros((rows, *shape.shape), shape.dtype)), shapes
    )
    return room


@partial(jax.jit, donate_argnames="room")
def draw(
    source: Source,
    replicates: Array,
    truths: Tree,
    room: PrecomputedContexts,
    start: Array,
    length: Array,
) -> PrecomputedContexts:
    """What users may choose from in `length` rounds from round `start` on, in place of the last."""

    def draw_round(i: Array, block: PrecomputedContexts) -> PrecomputedContexts:
        offers = _draw_offers(source, replicates, truths, start + i)
        filled_block: PrecomputedContexts = jax.tree.map(
            lambda rows, offer: rows.at[i].set(offer), block, offers
        )
        return filled_block

    block: PrecomputedContexts = jax.lax.fori_loop(0, length, draw_round, room)
    return block


@partial(jax.jit, donate_argnames="carry")
def play_ahead(
    scene: Scene, carry: Replicate, offers: PrecomputedContexts, start: Array, length: Array
) -> Replicate:
    """Play `length` rounds from round `start` on, with the offers that were drawn for them."""
    truth = carry.world

    def hand_out(round: Array) -> PrecomputedTruth:
        offer: PrecomputedContexts = jax.tree.map(lambda rows: rows[round - start], offers)
        return PrecomputedTruth(truth=truth, offer=offer)

    carry = play_rounds(scene, dataclasses.replace(carry, world=None), start, length, hand_out)
    return dataclasses.replace(carry, world=truth)
