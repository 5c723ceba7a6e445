"""What a world shows: many rounds of it, ordinary ones and those of the rarest draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import Arms, Clock, Environment
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.core.struct import struct

__all__ = [
    "DRAWS",
    "ROUNDS",
    "Seen",
    "World",
    "arms_met",
    "everything",
    "history",
    "mean_reward",
    "one_user",
]

ROUNDS, DRAWS = 256, 20_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """An environment under test.

    Attributes:
        name: how reports call it.
        environment: the world itself.
        fewest: the least number of allowed arms that it declares.
        make: its factory, held to refuse bad values; None where there is none.
    """

    name: str
    environment: Environment
    fewest: int = 1
    make: Callable[..., object] | None = None

    def __str__(self) -> str:
        """The name."""
        return f"the world {self.name}"


@struct
class _Usual(Stream):
    """Ordinary draws, the same as a Stream's, with the generator compiled as one operation."""

    def words(self, blocks: int) -> tuple[Array, Array, Array, Array]:
        words: tuple[Array, Array, Array, Array] = _words(self, blocks)
        return words


_words = jax.jit(Stream.words, static_argnums=1)


@struct
class _Least(Stream):
    """The rarest draws: every random bit is 0."""

    def words(self, blocks: int) -> tuple[Array, Array, Array, Array]:
        word = jnp.zeros(blocks, jnp.uint32)
        return word, word, word, word


@struct
class _Most(Stream):
    """The rarest draws: every random bit is 1."""

    def words(self, blocks: int) -> tuple[Array, Array, Array, Array]:
        word = jnp.full(blocks, 2**32 - 1, jnp.uint32)
        return word, word, word, word


@struct
class Seen:
    """What happened in many rounds of one world."""

    arms: Arms
    reward: Array
    regret: Array


def _clock(round: Array | int) -> Clock:
    return Clock(round=jnp.asarray(round, jnp.int32), since={})


def _round(environment: Environment, truth: Any, stream: Stream, round: Array) -> Seen:
    arms = environment.arms(truth, _clock(round), stream.at(ARMS, round=round))
    actions = jnp.arange(arms.allowed.shape[0])
    return Seen(
        arms=arms,
        reward=environment.reward(truth, arms, actions[-1], stream.at(REWARD, round=round)),
        regret=jax.vmap(lambda action: environment.regret(truth, arms, action))(actions),
    )


def history(world: World, seed: int, kind: type[Stream] = _Usual) -> Seen:
    """Many rounds of one world, under one kind of randomness."""
    stream = kind.of(seed=seed, replicate=0)
    truth = world.environment.init(stream.at(WORLD))
    rounds = jnp.arange(ROUNDS, dtype=jnp.int32)
    seen: Seen = jax.vmap(lambda round: _round(world.environment, truth, stream, round))(rounds)
    return seen


@lru_cache(maxsize=4)
def everything(world: World) -> tuple[Seen, ...]:
    """An ordinary history, and those of the rarest draws."""
    return tuple(history(world, 3, kind) for kind in (_Usual, _Least, _Most))


def one_user(world: World) -> tuple[Any, Arms, Any]:
    """The truth, the arms of one user, and the regret of each."""
    stream = _Usual.of(seed=5, replicate=0)
    truth = world.environment.init(stream.at(WORLD))
    seen = _round(world.environment, truth, stream, jnp.int32(63))
    return truth, seen.arms, np.asarray(seen.regret, np.float64)


def mean_reward(world: World, truth: Any, arms: Arms, action: int) -> float:
    """The mean of many rewards of one action."""
    stream = _Usual.of(seed=6, replicate=0)

    def draw(round: Array) -> Array:
        at = stream.at(REWARD, round=round)
        return world.environment.reward(truth, arms, jnp.int32(action), at)

    return float(np.asarray(jax.vmap(draw)(jnp.arange(DRAWS)), np.float64).mean())


def arms_met(world: World, action: int) -> list[Arms]:
    """The arms of a few rounds, played one after another with one action."""
    stream = _Usual.of(seed=8, replicate=0)
    truth = world.environment.init(stream.at(WORLD))
    met = []
    for round in range(3):
        met.append(world.environment.arms(truth, _clock(round), stream.at(ARMS, round=round)))
        chosen = jnp.int32(min(action, met[-1].allowed.shape[0] - 1))
        world.environment.reward(truth, met[-1], chosen, stream.at(REWARD, round=round))
        world.environment.regret(truth, met[-1], chosen)
    return met
