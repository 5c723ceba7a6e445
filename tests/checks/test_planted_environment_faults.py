"""Broken worlds, each of which the very law that it breaks must catch."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.checks import ENVIRONMENT_LAWS, CheckFailedError, WorldCase
from kerchief.core.contracts import Arms, Clock
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.environments import GLMEnvironment, make_environment
from kerchief.environments.worlds import GLMTruth as Truth

LAWS = {law.name: law for law in ENVIRONMENT_LAWS}


@struct
class GlobalDice(GLMEnvironment):
    """Draws its parameter from the global generator."""

    def init(self, stream: Stream) -> Truth:
        truth = GLMEnvironment.init(self, stream)
        turn = np.float32(np.random.choice([-1, 1]) * np.random.uniform())  # noqa: NPY002
        return dataclasses.replace(truth, parameter=truth.parameter * turn)


@struct
class Deaf(GLMEnvironment):
    """Ignores the seed."""

    def init(self, stream: Stream) -> Truth:
        return GLMEnvironment.init(self, Stream.of(seed=0, replicate=0))

    def arms(self, world: Truth, clock: Clock, stream: Stream) -> Arms:
        return GLMEnvironment.arms(self, world, clock, Stream.of(seed=0, replicate=0))

    def reward(
        self, world: Truth, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        return GLMEnvironment.reward(
            self, world, arms, action, clock, Stream.of(seed=0, replicate=0)
        )


@struct
class Long(GLMEnvironment):
    """Shows arms a little longer than it says."""

    def arms(self, world: Truth, clock: Clock, stream: Stream) -> Arms:
        arms = GLMEnvironment.arms(self, world, clock, stream)
        return dataclasses.replace(arms, features=arms.features * 1.2)


@struct
class RarelyArmless(GLMEnvironment):
    """Leaves about one user in a million with one arm too few."""

    def arms(self, world: Truth, clock: Clock, stream: Stream) -> Arms:
        arms = GLMEnvironment.arms(self, world, clock, stream)
        rare = stream.split(2).uniform(1)[0] < 1e-6
        return dataclasses.replace(arms, allowed=arms.allowed & ~rare)


@struct
class Overpaying(GLMEnvironment):
    """Pays more than the greatest reward."""

    def reward(
        self, world: Truth, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        return GLMEnvironment.reward(self, world, arms, action, clock, stream) * 1.1


@struct
class Shifted(GLMEnvironment):
    """Pays a little less than the link says, whatever the arm."""

    def reward(
        self, world: Truth, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        return GLMEnvironment.reward(self, world, arms, action, clock, stream) - 0.1


@struct
class Mirrored(GLMEnvironment):
    """Pays best for the worst arm."""

    def reward(
        self, world: Truth, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        return -GLMEnvironment.reward(self, world, arms, action, clock, stream)


@struct
class Unfair(GLMEnvironment):
    """Blames the user for arms that were masked."""

    def regret(self, world: Truth, arms: Arms, action: Array, clock: Clock) -> Array:
        everything = dataclasses.replace(arms, allowed=jnp.ones_like(arms.allowed))
        return GLMEnvironment.regret(self, world, everything, action, clock)


@struct
class Vengeful(GLMEnvironment):
    """Remembers what was played and shows other arms."""

    played: ClassVar[list[float]] = []

    def arms(self, world: Truth, clock: Clock, stream: Stream) -> Arms:
        arms = GLMEnvironment.arms(self, world, clock, stream)
        return dataclasses.replace(arms, features=arms.features * 0.9 ** sum(self.played[-1:]))

    def reward(
        self, world: Truth, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        if not isinstance(action, jax.core.Tracer):
            self.played.append(float(action))
        return GLMEnvironment.reward(self, world, arms, action, clock, stream)


@struct
class Misshapen(GLMEnvironment):
    """Declares one dimension too many."""

    def problem(self, horizon: int) -> Problem:
        facts = GLMEnvironment.problem(self, horizon)
        return dataclasses.replace(facts, dim=facts.dim + 1)


@struct
class Confiding(GLMEnvironment):
    """Asks to see the truth before it states the public facts."""

    def problem(self, horizon: int, world: Any = None) -> Problem:
        return GLMEnvironment.problem(self, horizon)


@struct
class Spendthrift(GLMEnvironment):
    """Pays more to those who are handed their arms."""

    def without_contexts(self) -> Any:
        return dataclasses.replace(GLMEnvironment.without_contexts(self), high=2.0)


@struct
class Lenient(GLMEnvironment):
    """Forgives those who are handed their arms half of what they lose."""

    def without_contexts(self) -> Any:
        return GLMEnvironment.without_contexts(self)

    def value(self, world: Truth, arms: Arms, action: Array, clock: Clock) -> Array:
        mine = GLMEnvironment.value(self, world, arms, action, clock)
        return (mine + GLMEnvironment.best(self, world, arms, clock)) / 2


def _world(kind: type[GLMEnvironment], make: Any = make_environment) -> WorldCase:
    plain = make_environment(dim=3, arms=4, fewest=2, noise="bernoulli")
    values = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
    return WorldCase(name=kind.__name__, environment=kind(**values), fewest=2, make=make)


def _accepts_anything(**values: Any) -> GLMEnvironment:
    return make_environment()


FAULTS = [
    ("same seed same world", _world(GlobalDice)),
    ("same seed same world", _world(Deaf)),
    ("arms keep the declared norm", _world(Long)),
    ("masks leave enough arms", _world(RarelyArmless)),
    ("rewards keep their range", _world(Overpaying)),
    ("rewards have the right mean", _world(Shifted)),
    ("rewards have the right mean", _world(Mirrored)),
    ("regret is zero for the best arm", _world(Unfair)),
    ("policies meet the same arms", _world(Vengeful)),
    ("handed arms change nothing", _world(Spendthrift)),
    ("handed arms change nothing", _world(Lenient)),
    ("problem is public and consistent", _world(Misshapen)),
    ("problem is public and consistent", _world(Confiding)),
    ("bad values are refused", _world(GLMEnvironment, _accepts_anything)),
]


@pytest.mark.parametrize(
    ("name", "world"), [pytest.param(law, w, id=f"{law}-{w.name}") for law, w in FAULTS]
)
def test_the_law_catches_its_fault(name: str, world: WorldCase) -> None:
    with pytest.raises(CheckFailedError) as caught:
        LAWS[name](world)
    (failure,) = caught.value.failures
    assert failure.law == name
    assert failure.expected != "no error"


def test_every_law_has_a_planted_fault() -> None:
    assert {law for law, _ in FAULTS} == set(LAWS)
