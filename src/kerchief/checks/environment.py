"""What every world must be: repeatable, within its public bounds, and fair to all policies."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.errors import expect, law, refused, same
from kerchief.checks.protocol import clock_at
from kerchief.checks.statistics import hoeffding
from kerchief.core.contracts import Arms, WorstCaseAdversary
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import LINKS, get_link
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.environments import CONTEXTS, NOISES, make_environment
from kerchief.environments.ahead import (
    PrecomputedContexts,
    PrecomputedTruth,
    can_be_handed,
    handing,
    offered,
)
from kerchief.environments.population import Population
from kerchief.simulation.run import AnyEnvironment

_ROUNDS, _DRAWS, _ARMS, _FEWEST = 256, 20_000, 4, 2
# Worlds are drawn in float32.
_ROUNDING = 1e-6
_BAD: Mapping[str, tuple[Any, ...]] = {
    "dim": (0, 2.5, 1000),
    "arms": (0, True),
    "radius": (0.0, -1.0, math.nan, math.inf),
    "fewest": (0, _ARMS + 1),
    "strength": (-0.5, 2.0, math.nan),
    "link": ("cubic",),
    "told": ("cubic",),
}
_USUAL, _LEAST, _GREATEST = range(3)


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
        return not isinstance(self.environment.problem(_ROUNDS), ContextFreeProblem)


@struct
class _Dice(Stream):
    """Ordinary draws, or the rarest: every random bit is 0, or every one is 1."""

    kind: Array = dataclasses.field(default_factory=lambda: jnp.uint32(_USUAL))

    def words(self, blocks: int) -> tuple[Array, Array, Array, Array]:
        bits: tuple[Array, Array, Array, Array] = _generate_words(self, blocks)
        return bits

    def at(self, stream: int, *, round: int | Array = 0, query: int = 0) -> Self:
        return dataclasses.replace(super().at(stream, round=round, query=query), kind=self.kind)

    def split(self, part: int | Array) -> Self:
        return dataclasses.replace(super().split(part), kind=self.kind)


@partial(jax.jit, static_argnames="blocks")
def _generate_words(dice: _Dice, blocks: int) -> tuple[Array, ...]:
    """The generator, compiled as one operation: the worlds themselves are not."""
    rare = jnp.where(dice.kind == _LEAST, jnp.uint32(0), jnp.uint32(2**32 - 1))
    return tuple(jnp.where(dice.kind == _USUAL, w, rare) for w in Stream.words(dice, blocks))


@struct
class _History:
    """What happened in many rounds of one world, and the truth behind it."""

    truth: Any
    arms: Arms
    reward: Array
    regret: Array


@lru_cache(maxsize=64)
def _play_histories(world: WorldCase) -> tuple[_History, ...]:
    """Play an ordinary history and those of the rarest draws."""
    return tuple(_play_history(world, 3, kind) for kind in (_USUAL, _LEAST, _GREATEST))


def _play_history(world: WorldCase, seed: int, kind: int = _USUAL) -> _History:
    """Play many rounds of one world under one kind of randomness."""
    environment: Any = world.environment
    stream = dataclasses.replace(_Dice.of(seed=seed, replicate=0), kind=jnp.uint32(kind))
    truth = environment.init(stream.at(WORLD))
    if isinstance(environment, Population):
        return _play_clients(environment, truth, stream)

    def play_round(round: Array) -> tuple[Arms, Array, Array]:
        clock = clock_at(round)
        arms = environment.arms(truth, clock, stream.at(ARMS, round=round))
        actions = _list_actions(environment, arms)
        at = stream.at(REWARD, round=round)
        reward = environment.reward(truth, arms, actions[-1], clock, at)
        regret = jax.vmap(lambda action: environment.regret(truth, arms, action, clock))(actions)
        return arms, reward, regret

    arms, reward, regret = jax.vmap(play_round)(jnp.arange(_ROUNDS, dtype=jnp.int32))
    return _History(truth=truth, arms=arms, reward=reward, regret=regret)


def _list_actions(environment: Any, arms: Arms) -> Array:
    """All arms, or some points of a domain, each a question of its own."""
    if arms.allowed.shape[0]:
        return jnp.arange(arms.allowed.shape[0])
    problem = environment.problem(_ROUNDS)
    if problem.arms:
        return jnp.arange(problem.arms)
    corners = jnp.concatenate([jnp.eye(problem.dim), -jnp.eye(problem.dim)])
    points: Array = jax.vmap(problem.domain.project)(corners)
    return points[:, None, :]


def _play_clients(population: Population, truth: Any, stream: Stream) -> _History:
    """What many clients saw of every action once, and the actions, one copy for each of them."""
    count = truth.features.shape[0]

    def observe(client: Array) -> Array:
        at = stream.at(REWARD, round=client)
        return population.averages(truth, truth.features, jnp.ones(count, jnp.int32), at)

    arms = Arms(features=truth.features[None], allowed=jnp.ones((1, count), bool))
    regret = population.losses(truth)[None]
    return _History(
        truth=truth, arms=arms, reward=jax.vmap(observe)(jnp.arange(_ROUNDS)), regret=regret
    )


def _estimate_mean_reward(world: WorldCase, truth: Any, arms: Arms, action: int) -> float:
    """Estimate the mean reward of one action in the last round."""
    environment: Any = world.environment
    stream, clock = _Dice.of(seed=6, replicate=0), clock_at(_ROUNDS - 1)

    def draw(number: Array) -> Any:
        at = stream.at(REWARD, round=number)
        return environment.reward(truth, arms, jnp.int32(action), clock, at)

    return float(np.asarray(jax.vmap(draw)(jnp.arange(_DRAWS)), np.float64).mean())


def _find_later_arms(world: WorldCase, action: int) -> Arms:
    """Find the arms that users meet after one of them has played an action."""
    history = _play_histories(world)[0]
    first: Arms = jax.tree.map(lambda leaf: leaf[0], history.arms)
    at = _Dice.of(seed=8, replicate=0).at(REWARD)
    arm = jnp.int32(min(action, first.allowed.shape[0] - 1))
    environment: Any = world.environment
    environment.reward(history.truth, first, arm, clock_at(0), at)
    environment.regret(history.truth, first, arm, clock_at(0))
    return _play_history(world, 3).arms


def environment_cases() -> Iterator[WorldCase]:
    """Every link with every source of contexts and every law of rewards, with masks."""
    for link, contexts, noise in itertools.product(LINKS, CONTEXTS, NOISES):
        environment = make_environment(
            link=link, contexts=contexts, dim=3, arms=_ARMS, fewest=_FEWEST, noise=noise
        )
        name = f"{link}-{contexts}-{noise}"
        yield WorldCase(name=name, environment=environment, fewest=_FEWEST, make=make_environment)


@law(cheap=True)
def same_seed_same_world(world: WorldCase) -> None:
    """One seed gives one world and one history, bit for bit; another gives another."""
    first, again, different = (
        _play_histories(world)[0],
        _play_history(world, 3),
        _play_history(world, 4),
    )
    expect(same(first, again), seen="two histories at one seed", expected="one")
    expect(not same(first, different), seen="one history at two seeds", expected="two")


@law(when=lambda world: world.featured, cheap=True)
def arms_keep_the_declared_norm(world: WorldCase) -> None:
    """Features are finite and within the norm, also for the rarest draws."""
    problem: Any = world.environment.problem(_ROUNDS)
    bound = problem.norm * (1 + _ROUNDING)
    for history in _play_histories(world):
        norms = np.linalg.norm(np.asarray(history.arms.features, np.float64), axis=-1)
        worst = float(norms.max())
        expect(worst <= bound, seen=f"a norm of {worst}", expected=f"at most {bound}")


@law(when=lambda world: world.contextual, cheap=True)
def masks_leave_enough_arms(world: WorldCase) -> None:
    """Each user may choose from the declared number of arms at least, also for the rarest draws."""
    arm_count = world.environment.problem(_ROUNDS).arms
    for history in _play_histories(world):
        counts = np.asarray(history.arms.allowed).sum(axis=-1)
        fair = (counts >= world.fewest).all() and (counts <= arm_count).all()
        observed = f"{counts.min()} to {counts.max()} arms"
        expect(fair, seen=observed, expected=f"{world.fewest} to {arm_count}")


@law(cheap=True)
def rewards_keep_their_range(world: WorldCase) -> None:
    """Rewards lie in the declared range, unless their law is declared unbounded."""
    problem = world.environment.problem(_ROUNDS)
    room = _ROUNDING * (problem.high - problem.low)
    for history in _play_histories(world):
        rewards = np.asarray(history.reward, np.float64)
        expect(np.isfinite(rewards).all(), seen="an endless reward", expected="finite ones")
        if getattr(world.environment, "noise", None) != "gaussian":
            inside = rewards.min() >= problem.low - room and rewards.max() <= problem.high + room
            interval = f"[{rewards.min()}, {rewards.max()}]"
            expect(inside, seen=interval, expected=f"within [{problem.low}, {problem.high}]")


@law(when=lambda world: world.contextual)
def rewards_have_the_right_mean(world: WorldCase) -> None:
    """Mean rewards differ by the regret, and are the link of the score where there is one.

    20000 draws for the best and the worst arm; Hoeffding's bound at 1e-6 each.
    """
    environment: Any = world.environment
    problem = environment.problem(_ROUNDS)
    room = hoeffding(_DRAWS, problem.high - problem.low)
    history = _play_histories(world)[0]
    truth, arms = history.truth, jax.tree.map(lambda leaf: leaf[-1], history.arms)
    regrets = np.asarray(history.regret[-1], np.float64)
    best, worst = int(np.argmin(regrets)), int(np.argmax(regrets))
    means = {action: _estimate_mean_reward(world, truth, arms, action) for action in (best, worst)}
    gap, expected_gap = means[best] - means[worst], float(regrets[worst] - regrets[best])
    fair = abs(gap - expected_gap) <= 2 * room
    expect(fair, seen=f"means {gap} apart", expected=f"{expected_gap}, the regret")
    if hasattr(environment, "link") and hasattr(truth, "parameter"):
        mean = float(get_link(environment.link).mean(arms.features[best] @ truth.parameter))
        close = abs(means[best] - mean) <= room
        expect(close, seen=f"a mean reward of {means[best]}", expected=f"{mean}, by the link")


@law(when=lambda world: world.featured, cheap=True)
def regret_is_zero_for_the_best_arm(world: WorldCase) -> None:
    """No arm has negative regret among the allowed, and some allowed arm has none.

    Where arms are a cover of the sphere, some arm has no more than the cover's distance allows.
    """
    environment: Any = world.environment
    room = getattr(environment, "cover", 0.0) ** 2 / 2 * float(environment.problem(_ROUNDS).radius)
    for history in _play_histories(world):
        regrets = np.where(history.arms.allowed, np.asarray(history.regret, np.float64), np.inf)
        least = regrets.min(axis=-1)
        observed = f"least regrets {least.min()} to {least.max()}"
        right = (least >= 0).all() and (least <= room).all()
        expect(right, seen=observed, expected=f"0, or at most {room}, in every round")


@law(when=lambda world: world.contextual, cheap=True)
def policies_meet_the_same_arms(world: WorldCase) -> None:
    """What is played changes nothing in the arms that come later."""
    first, second = (_find_later_arms(world, action) for action in (0, 1))
    expect(same(first, second), seen="arms that follow the actions", expected="the same arms")


@law(when=lambda world: can_be_handed(world.environment), cheap=True)
def handed_arms_change_nothing(world: WorldCase) -> None:
    """Whoever is handed the arms gets the same rewards and regrets in less of the world."""
    environment: Any = world.environment
    reduced: Any = handing(environment)
    for history in _play_histories(world):
        rest = environment.armless_truth(history.truth)
        for round in (0, _ROUNDS // 2, _ROUNDS - 1):
            clock, arms = (
                clock_at(round),
                jax.tree.map(lambda leaf, at=round: leaf[at], history.arms),
            )
            best = environment.best(history.truth, arms, clock)
            reduced_truth = PrecomputedTruth(
                truth=rest, offer=PrecomputedContexts(arms=arms, judged=best)
            )
            action = _list_actions(environment, arms)[-1]
            at = _Dice.of(seed=9, replicate=0).at(REWARD, round=round)
            rewards = [
                float(variant.reward(truth, arms, action, clock, at))
                for variant, truth in ((environment, history.truth), (reduced, reduced_truth))
            ]
            expect(rewards[0] == rewards[1], seen=f"a reward of {rewards[1]}", expected=rewards[0])
            regret = float(reduced.regret(reduced_truth, arms, action, clock))
            expected_regret = float(history.regret[round, -1])
            room = 4 * _ROUNDING * max(1.0, abs(float(best)))
            expect(
                abs(regret - expected_regret) <= room,
                seen=f"a regret of {regret}",
                expected=expected_regret,
            )
            if isinstance(environment, WorstCaseAdversary):
                arm_stream = _Dice.of(seed=9, replicate=0).at(ARMS, round=round)
                sets = PrecomputedTruth(
                    truth=rest, offer=offered(environment, history.truth, clock, arm_stream)
                )
                full_choice, reduced_choice = (
                    variant.opposed(truth, clock, arm_stream, lambda arms: jnp.argmax(arms.allowed))
                    for variant, truth in ((environment, history.truth), (reduced, sets))
                )
                expect(same(full_choice, reduced_choice), seen=reduced_choice, expected=full_choice)


@law(cheap=True)
def problem_is_public_and_consistent(world: WorldCase) -> None:
    """The public facts come from the horizon alone and fit what the world shows."""
    environment = world.environment
    parameters = list(inspect.signature(environment.problem).parameters)
    expect(parameters == ["horizon"], seen=f"problem({parameters})", expected="problem(horizon)")
    problem = environment.problem(_ROUNDS)
    expect(environment.problem(_ROUNDS) == problem, seen="other facts later", expected=problem)
    if world.featured:
        shape = _play_history(world, 7).arms.features.shape[1:]
        expect(
            shape == (problem.arms, problem.dim), seen=shape, expected=(problem.arms, problem.dim)
        )
    right = problem.low < problem.high and problem.horizon == _ROUNDS
    expect(right, seen=problem, expected="positive bounds, and this horizon")


@law(when=lambda world: world.make is not None, cheap=True)
def bad_values_are_refused(world: WorldCase) -> None:
    """The factory answers impossible values with InvalidValueError."""
    make: Any = world.make
    for option, value in ((option, value) for option, values in _BAD.items() for value in values):
        right = refused(InvalidValueError, partial(make, **{"arms": _ARMS, option: value}))
        expect(right, seen=f"{option} {value} is accepted", expected="InvalidValueError")
