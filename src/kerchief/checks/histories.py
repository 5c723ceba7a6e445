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

from kerchief.core.contracts import Arms, Clock
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.environments.population import Population
from kerchief.simulation.run import AnyEnvironment

__all__ = [
    "DRAWS",
    "ROUNDS",
    "History",
    "WorldCase",
    "arms_met",
    "everything",
    "history",
    "mean_reward",
]

ROUNDS, DRAWS = 256, 20_000
_USUAL, _LEAST, _MOST = range(3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorldCase:
    """An environment under test, with the fewest allowed arms that it declares.

    Its factory, if it has one, is held to refuse bad values.
    """

    name: str
    environment: AnyEnvironment
    fewest: int = 1
    make: Callable[..., object] | None = None

    def __str__(self) -> str:
        """The name."""
        return f"the world {self.name}"

    @property
    def contextual(self) -> bool:
        """Whether users bring arms."""
        return self.featured and not isinstance(self.environment, Population)

    @property
    def featured(self) -> bool:
        """Whether actions have features."""
        return not isinstance(self.environment.problem(ROUNDS), ContextFreeProblem)


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
class History:
    """What happened in many rounds of one world, and the truth behind it."""

    truth: Any
    arms: Arms
    reward: Array
    regret: Array


def history(world: WorldCase, seed: int, kind: int = _USUAL) -> History:
    """Many rounds of one world, under one kind of randomness."""
    stream = dataclasses.replace(_Dice.of(seed=seed, replicate=0), kind=jnp.uint32(kind))
    return _history(world.environment, stream)


@lru_cache(maxsize=64)
def everything(world: WorldCase) -> tuple[History, ...]:
    """An ordinary history, and those of the rarest draws."""
    return tuple(history(world, 3, kind) for kind in (_USUAL, _LEAST, _MOST))


def _history(environment: Any, stream: Stream) -> History:
    truth = environment.init(stream.at(WORLD))
    if isinstance(environment, Population):
        return _phases(environment, truth, stream)

    def one(round: Array) -> tuple[Arms, Array, Array]:
        clock = _clock(round)
        arms = environment.arms(truth, clock, stream.at(ARMS, round=round))
        actions = _actions(environment, arms)
        at = stream.at(REWARD, round=round)
        reward = environment.reward(truth, arms, actions[-1], clock, at)
        regret = jax.vmap(lambda action: environment.regret(truth, arms, action, clock))(actions)
        return arms, reward, regret

    arms, reward, regret = jax.vmap(one)(jnp.arange(ROUNDS, dtype=jnp.int32))
    return History(truth=truth, arms=arms, reward=reward, regret=regret)


def _actions(environment: Any, arms: Arms) -> Array:
    """All arms, or some points of a domain, each a question of its own."""
    if arms.allowed.shape[0]:
        return jnp.arange(arms.allowed.shape[0])
    problem = environment.problem(ROUNDS)
    if problem.arms:
        return jnp.arange(problem.arms)
    corners = jnp.concatenate([jnp.eye(problem.dim), -jnp.eye(problem.dim)])
    points: Array = jax.vmap(problem.domain.project)(corners)
    return points[:, None, :]


def _phases(population: Population, truth: Any, stream: Stream) -> History:
    """What many clients saw of every action once, and the actions, one copy for each of them."""
    count = truth.features.shape[0]

    def one(client: Array) -> Array:
        at = stream.at(REWARD, round=client)
        return population.averages(truth, truth.features, jnp.ones(count, jnp.int32), at)

    arms = Arms(features=truth.features[None], allowed=jnp.ones((1, count), bool))
    regret = population.losses(truth)[None]
    return History(truth=truth, arms=arms, reward=jax.vmap(one)(jnp.arange(ROUNDS)), regret=regret)


def mean_reward(world: WorldCase, truth: Any, arms: Arms, action: int) -> float:
    """The mean of many rewards of one action."""
    environment: Any = world.environment
    stream = _Dice.of(seed=6, replicate=0)

    def draw(round: Array) -> Any:
        at = stream.at(REWARD, round=round)
        return environment.reward(truth, arms, jnp.int32(action), _clock(round), at)

    return float(np.asarray(jax.vmap(draw)(jnp.arange(DRAWS)), np.float64).mean())


def arms_met(world: WorldCase, action: int) -> Arms:
    """The arms that users meet after one of them has played this action."""
    seen = everything(world)[0]
    first: Arms = jax.tree.map(lambda leaf: leaf[0], seen.arms)
    at = _Dice.of(seed=8, replicate=0).at(REWARD)
    chosen = jnp.int32(min(action, first.allowed.shape[0] - 1))
    environment: Any = world.environment
    environment.reward(seen.truth, first, chosen, _clock(0), at)
    environment.regret(seen.truth, first, chosen, _clock(0))
    return history(world, 3).arms


def _clock(round: Array | int) -> Clock:
    return Clock(round=jnp.asarray(round, jnp.int32), since={})
