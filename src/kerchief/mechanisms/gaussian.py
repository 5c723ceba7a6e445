"""Gaussian noise for simulation: floating point, and so only an idealization of what deployment adds."""

from __future__ import annotations

from typing import ClassVar

from jax import Array

from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.privacy import events

__all__ = ["Gaussian"]


@struct
class Gaussian:
    """Add independent normal noise of one standard deviation to every coordinate.

    Symmetric matrices come as `core.linalg.svec` writes them, so their noise matrix has standard
    deviation `std` on the diagonal and std/√2 off it: exactly what the Frobenius sensitivity pays for.

    Formal guarantees:
        With real numbers, adding this noise to a vector of Euclidean sensitivity Δ costs the event
        `privacy.events.Gaussian(noise_multiplier=std / Δ)`: see `gaussian.md`. Floating-point noise
        leaks through its low bits, so `idealized` is True and only simulation may use it;
        `mechanisms.discrete.DiscreteGaussian` is the twin for deployment.

    >>> import jax.numpy as jnp
    >>> Gaussian(std=0.0).add(jnp.ones(2), Stream.of(seed=0, replicate=0)).tolist()
    [1.0, 1.0]
    """

    idealized: ClassVar[bool] = True

    std: float | Array

    def add(self, vector: Array, stream: Stream) -> Array:
        """The vector with noise."""
        return vector + self.std * stream.normal(vector.shape[0])

    def event(self, sensitivity: float) -> events.Event:
        """The Gaussian event of the noise really added; without noise there is no privacy."""
        if float(self.std) == 0.0:
            return events.NonPrivate()
        return events.Gaussian(noise_multiplier=float(self.std) / sensitivity)
