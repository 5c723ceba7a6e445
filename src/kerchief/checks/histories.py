"""What a world shows: many rounds of it, ordinary ones and those of the rarest draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Self

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
]

ROUNDS, DRAWS = 256, 20_000
_USUAL, _LEAST, _MOST = range(3)


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
class _Dice(Stream):
    """Ordinary draws, or the rarest: every random bit is 0, or every one is 1."""

    kind: Array = dataclasses.field(default_factory=lambda: jnp.uint32(_USUAL))

    def words(self, blocks: int) -> tuple[Array, Array, Array, Array]:
        words: tuple[Array, Array, Array, Array] = _words(self, blocks)
        return words

    def at(self, stream: int, *, round: int | Array = 0, query: int = 0) -> Self:
        return dataclasses.replace(super().at(stream, round=round, query=query), kind=self.kind)

    def split(self, part: int | Array) -> Self:
        return dataclasses.replace(super().split(part), kind=self.kind)


@partial(jax.jit, static_argnames="blocks")
def _words(dice: _Dice, blocks: int) -> tuple[Array, ...]:
    """The generator, compiled as one operation: the worlds themselves are not."""
    rare = jnp.where(dice.kind == _LEAST, jnp.uint32(0), jnp.uint32(2**32 - 1))
    return tuple(jnp.where(dice.kind == _USUAL, w, rare) for w in Stream.words(dice, blocks))


@struct
class Seen:
    """What happened in many rounds of one world, and the truth behind it."""

    truth: Any
    arms: Arms
    reward: Array
    regret: Array


def history(world: World, seed: int, kind: int = _USUAL) -> Seen:
    """Many rounds of one world, under one kind of randomness."""
    stream = dataclasses.replace(_Dice.of(seed=seed, replicate=0), kind=jnp.uint32(kind))
    seen: Seen = _history(world.environment, stream)
    return seen


@lru_cache(maxsize=64)
def everything(world: World) -> tuple[Seen, ...]:
    """An ordinary history, and those of the rarest draws."""
    return tuple(history(world, 3, kind) for kind in (_USUAL, _LEAST, _MOST))


def _history(environment: Environment, stream: Stream) -> Seen:
    truth = environment.init(stream.at(WORLD))

    def one(round: Array) -> tuple[Arms, Array, Array]:
        arms = environment.arms(truth, _clock(round), stream.at(ARMS, round=round))
        actions = jnp.arange(arms.allowed.shape[0])
        reward = environment.reward(truth, arms, actions[-1], stream.at(REWARD, round=round))
        regret = jax.vmap(lambda action: environment.regret(truth, arms, action))(actions)
        return arms, reward, regret

    arms, reward, regret = jax.vmap(one)(jnp.arange(ROUNDS, dtype=jnp.int32))
    return Seen(truth=truth, arms=arms, reward=reward, regret=regret)


def mean_reward(world: World, truth: Any, arms: Arms, action: int) -> float:
    """The mean of many rewards of one action."""
    rewards = _rewards(world.environment, truth, arms, jnp.int32(action))
    return float(np.asarray(rewards, np.float64).mean())


def _rewards(environment: Environment, truth: Any, arms: Arms, action: Array) -> Array:
    stream = _Dice.of(seed=6, replicate=0)

    def draw(round: Array) -> Array:
        return environment.reward(truth, arms, action, stream.at(REWARD, round=round))

    return jax.vmap(draw)(jnp.arange(DRAWS))


def arms_met(world: World, action: int) -> Arms:
    """The arms that users meet after one of them has played this action."""
    seen = everything(world)[0]
    first: Arms = jax.tree.map(lambda leaf: leaf[0], seen.arms)
    at = _Dice.of(seed=8, replicate=0).at(REWARD)
    chosen = jnp.int32(min(action, first.allowed.shape[0] - 1))
    world.environment.reward(seen.truth, first, chosen, at)
    world.environment.regret(seen.truth, first, chosen)
    return history(world, 3).arms


def _clock(round: Array | int) -> Clock:
    return Clock(round=jnp.asarray(round, jnp.int32), since={})
