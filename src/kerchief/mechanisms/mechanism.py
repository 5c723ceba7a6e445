"""What every source of noise offers: additive noise, and randomizers of a device's report."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.privacy.events import Event, NonPrivate

# A JAX array in simulation, a NumPy one in deployment.
Vector: TypeAlias = Any
Floats: TypeAlias = NDArray[np.float64]


class Mechanism(Protocol):
    """Noise and its cost in one object.

    `idealized` says that the noise is floating point: right in law for real numbers, and so fit for
    simulation only.
    """

    idealized: ClassVar[bool]

    @property
    def std(self) -> float | Array:
        """Standard deviation of the noise on each coordinate, or a bound on it."""

    @property
    def sensitivity(self) -> float:
        """How far one user can move the vector: what the noise is paid against."""

    def prepare(self, vector: Vector, stream: Any) -> Vector:
        """What a user adds to a sum that gets this noise later; some round it at random."""

    def add(self, vector: Vector, stream: Any) -> Vector:
        """The vector with noise; simulation gives a `core.random.Stream`, deployment nothing."""

    def event(self) -> Event:
        """What one `add` costs."""


class Simulated:
    """Noise in floating point: for simulation only, and not private where it is switched off."""

    idealized: ClassVar[bool] = True

    std: float | Array

    def prepare(self, vector: Vector, stream: object = None) -> Vector:
        """What a user adds to a sum that gets this noise: the vector itself."""
        return vector

    def event(self) -> Event:
        """What the noise really added costs; without noise there is no privacy."""
        return NonPrivate() if float(self.std) == 0.0 else self._price()

    def _price(self) -> Event:
        raise NotImplementedError


@runtime_checkable
class Twinned(Protocol):
    """Simulated noise, which knows its own twin for deployment."""

    def exact(self, dimension: int) -> Mechanism:
        """Deployed twin of this noise: an exact sampler with the system's randomness."""


def exact_twin(noise: Mechanism, dimension: int) -> Mechanism:
    """What a deployment adds in place of this noise; exact noise is its own twin."""
    if not noise.idealized:
        return noise
    assert isinstance(noise, Twinned), f"{type(noise).__name__} has no exact twin"
    return noise.exact(dimension)


def steady(number: float) -> float:
    """A number to 32 bits: processors add up in orders of their own, and tasks are compared.

    >>> steady(1.0 + 2.0**-40), steady(-3.0)
    (1.0, -3.0)
    """
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(math.ldexp(mantissa, 32)), exponent - 32)


def float64_vector(vector: Any, size: int) -> Floats:
    """The vector, as exact mechanisms take it."""
    array = np.asarray(vector)
    if array.shape != (size,) or array.dtype != np.float64:
        raise InvalidValueError(
            f"vector is {array.dtype} of shape {array.shape}; it must be float64 of shape ({size},)"
        )
    return array
