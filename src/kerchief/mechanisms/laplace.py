"""Laplace noise for simulation: the classical pure randomizer, for comparison."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import at_least, between, whole
from kerchief.mechanisms.discrete_laplace import DiscreteLaplace
from kerchief.privacy import events

__all__ = ["Laplace"]

_GUARD = 1e-12


@struct
class Laplace:
    """Add independent Laplace noise of one scale to every coordinate.

    Formal guarantees:
        With real numbers, adding this noise to a vector that one user can move by at most
        `taxicab`, in the sum of absolute values, is ε-differentially private with
        ε = √2 taxicab/std: see `laplace.md`. Floating-point noise, so `idealized` is True and only
        simulation may use it; `DiscreteLaplace` is the twin for deployment.

    Attributes:
        std: standard deviation of the noise on each coordinate: √2 times its scale.
        taxicab: how far one user can move the vector, in the sum of absolute values.
        dimension: the vector's length.

    >>> noise = Laplace.of(epsilon=2.0, taxicab=1.0, dimension=3)
    >>> round(noise.std, 6), round(noise.event().noise_multiplier, 6)
    (0.707107, 0.5)
    """

    idealized: ClassVar[bool] = True

    std: float | Array
    taxicab: float = static()
    dimension: int = static()

    @classmethod
    def of(cls, *, epsilon: float, taxicab: float, dimension: int) -> Laplace:
        """The noise that a pure epsilon asks for.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        epsilon = at_least("epsilon", epsilon, 1e-6)
        taxicab = between("taxicab", taxicab, 1e-18, 1e18, closed=True)
        scale = taxicab / epsilon * (1 + _GUARD)
        return cls(std=2**0.5 * scale, taxicab=taxicab, dimension=whole("dimension", dimension))

    @property
    def sensitivity(self) -> float:
        """How far one user can move the vector, in the sum of absolute values."""
        return self.taxicab

    def prepare(self, vector: Array, stream: Stream | None = None) -> Array:
        """What a user adds to a sum that gets this noise: the vector itself."""
        return vector

    def add(self, vector: Array, stream: Stream) -> Array:
        """The vector with noise: the difference of two exponentials a coordinate."""
        first, second = jnp.split(stream.exponential(2 * self.dimension), 2)
        return vector + self.std / 2**0.5 * (first - second)

    def event(self) -> events.Event:
        """The Laplace event of the noise really added; without noise there is no privacy."""
        if float(self.std) == 0.0:
            return events.NonPrivate()
        return events.Laplace(noise_multiplier=float(self.std) / 2**0.5 / self.taxicab)

    def exact(self) -> DiscreteLaplace:
        """The twin for deployment, at the same epsilon."""
        return DiscreteLaplace.of(
            epsilon=2**0.5 * self.taxicab / float(self.std),
            taxicab=self.taxicab,
            dimension=self.dimension,
        )
