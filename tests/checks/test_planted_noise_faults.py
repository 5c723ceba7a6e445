"""Broken noises, each of which the very law that it breaks must catch."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import pytest
from jax import Array

from kerchief.checks import MECHANISM_LAWS, CheckFailedError, MechanismCase
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.privacy import Event, NonPrivate, events

LAWS = {law.name: law for law in MECHANISM_LAWS}


@dataclasses.dataclass(kw_only=True)
class Soft:
    """Can be changed."""

    std: float
    sensitivity: float


@struct
class Weak(Gaussian):
    """Adds two thirds of what it says."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return vector + self.std * 2 / 3 * stream.normal(vector.shape[0])


@struct
class Shifted(Gaussian):
    """Lies beside the mark."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return Gaussian.add(self, vector, stream) + 0.3 * self.std


@struct
class Stale(Gaussian):
    """Draws once."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return Gaussian.add(self, vector, Stream.of(seed=0, replicate=0))


@struct
class Cheap(Gaussian):
    """Charges as if there were twice as much of it."""

    def event(self) -> Event:
        return events.Gaussian(noise_multiplier=2 * float(self.std) / self.sensitivity)


@struct
class Unpriced(Gaussian):
    """Names no price."""

    idealized: ClassVar[bool] = True

    def event(self) -> Event:
        return NonPrivate()


FAULTS: dict[str, Any] = {
    "frozen and keyword only": Soft,
    "its event is priced": Unpriced,
    "its event is about its deviation": Cheap,
    "draws are fresh": Stale,
    "draws have mean zero": Shifted,
    "draws have the stated deviation": Weak,
}


@pytest.mark.parametrize(("name", "kind"), FAULTS.items())
def test_the_law_catches_its_fault(name: str, kind: Any) -> None:
    sound = Gaussian.of(noise_multiplier=2.0, sensitivity=1.5)
    LAWS[name](MechanismCase(noise=sound))
    with pytest.raises(CheckFailedError) as caught:
        LAWS[name](MechanismCase(noise=kind(**vars(sound))))
    assert [failure.law for failure in caught.value.failures] == [name]


def test_every_law_has_a_planted_fault() -> None:
    assert set(FAULTS) == set(LAWS)
