"""Discrete Gaussian noise, sampled exactly: the deployed twin of the Gaussian.

Noise drawn in floating point has a law that no proof covers. Here the statistic is rounded to a
grid, and the noise is a whole number of grid steps with exactly the discrete Gaussian law, from
the operating system's cryptographic generator. Proof note: `exact_gaussian.md`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import between, plain, positive, whole
from kerchief.mechanisms.mechanism import Floats, Vector
from kerchief.privacy import events
from kerchief_device.samplers import MAX_SCALE, Randomness, sample_discrete_gaussian

_MAX_GRID_BITS = 512
# Pays, many times over, for the slack between the discrete and the continuous curve.
_MARGIN = 1e-6
_LARGEST_FLOAT_INT = 2**53


@dataclass(frozen=True, kw_only=True)
class OnGrid:
    """Exact noise: vectors are rounded to the grid 2**-grid_bits, and `scale` is in grid steps."""

    grid_bits: int
    scale: int
    dimension: int

    idealized: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every field."""
        plain(self)
        whole("grid_bits", self.grid_bits, low=-_MAX_GRID_BITS, high=_MAX_GRID_BITS)
        whole("scale", self.scale, high=MAX_SCALE)
        whole("dimension", self.dimension, high=2**24)

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return math.ldexp(1.0, -self.grid_bits)

    def prepare(self, vector: Vector, stream: object = None) -> Floats:
        """Round a vector, or rows of them, to the grid: their sums are exact, so noise may wait."""
        return self._to_grid(vector).astype(np.float64) * self.grid

    def _to_grid(self, vector: Vector) -> NDArray[np.int64]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ExactGaussian(OnGrid):
    """Round a vector to the grid 2**-grid_bits and add `scale` grid steps of discrete noise.

    Attributes:
        scale: the noise's parameter σ, in grid steps.
        sensitivity: how far apart, in the Euclidean norm, one person can move the vector, before
            rounding and in exact arithmetic.

    Formal guarantees:
        `event` states the cost of one `add` with its default source, if the vector is the float64
        encoding of one record, or of a sum kept in whole grid steps (`exact_gaussian.md`, section
        4).
    """

    sensitivity: float

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        _check_sensitivity(self.sensitivity, self.grid_bits)

    @classmethod
    def matching(cls, noise_multiplier: float, sensitivity: float, dimension: int) -> ExactGaussian:
        """Choose the grid and the scale that stand in for a continuous Gaussian.

        Returns:
            A mechanism with at least that multiplier over its own, rounded sensitivity; its
            standard deviation is about 1e-5 above the Gaussian's.

        >>> noise = ExactGaussian.matching(4.0, 1.0, 3)
        >>> noise.grid_bits, noise.scale
        (17, 524296)
        """
        noise_multiplier = positive("noise_multiplier", noise_multiplier)
        between("noise_multiplier", noise_multiplier, 0.0, 1e150)
        sensitivity = positive("sensitivity", sensitivity)
        positive("the standard deviation", noise_multiplier * sensitivity)
        root = math.sqrt(whole("dimension", dimension, high=2**24))
        # Rounding adds root grid steps to the sensitivity: a finer grid where they would show.
        finer = max(0, math.frexp(noise_multiplier * root / 8)[1])
        bits = min(20 + finer, 29) - math.frexp(noise_multiplier * sensitivity)[1]
        whole("grid_bits", bits, low=-_MAX_GRID_BITS, high=_MAX_GRID_BITS)
        _check_sensitivity(sensitivity, bits)
        steps = _rounded_sensitivity(sensitivity, bits, dimension)
        scale = math.ceil(noise_multiplier * (1 + _MARGIN) * steps)
        return cls(grid_bits=bits, scale=scale, sensitivity=sensitivity, dimension=dimension)

    @property
    def std(self) -> float:
        """The noise's standard deviation, in the vector's own units."""
        return self.scale * self.grid

    def add(self, vector: Vector, stream: Randomness | None = None) -> Floats:
        """The vector, rounded to the grid, plus noise: exact multiples of the grid."""
        steps = self._to_grid(vector)
        noise = self._draw_noise(steps.size, stream)
        total = steps + noise
        if (np.abs(total) >= _LARGEST_FLOAT_INT).any():
            raise InvalidValueError(
                f"the sum has 2**53 or more grid steps of {self.grid}; no float64"
            )
        return total.astype(np.float64) * self.grid

    def draw(self, stream: Randomness | None = None, rows: int = 1) -> NDArray[np.int64]:
        """The noise of so many `add`s, in grid steps: one row each."""
        return self._draw_noise(rows * self.dimension, stream).reshape(rows, self.dimension)

    def _draw_noise(self, size: int, stream: Randomness | None) -> NDArray[np.int64]:
        if stream is not None and not callable(stream):
            raise InvalidValueError(f"stream is {stream!r}; it must be a source of bytes, or None")
        return sample_discrete_gaussian(self.scale, size, randomness=stream or os.urandom)

    def event(self) -> events.DiscreteGaussian:
        """What one `add` costs, with lengths in grid steps."""
        steps = _rounded_sensitivity(self.sensitivity, self.grid_bits, self.dimension)
        return events.DiscreteGaussian(
            sensitivity=steps, scale=self.scale, dimension=self.dimension
        )

    def _to_grid(self, vector: Vector) -> NDArray[np.int64]:
        array = np.asarray(vector)
        if array.shape[-1:] != (self.dimension,):
            raise InvalidValueError(
                f"vector has shape {array.shape}; it must be ({self.dimension},)"
            )
        if array.dtype != np.float64:
            raise InvalidValueError(
                f"vector is {array.dtype}; encode it in float64, as the proof asks"
            )
        if not np.isfinite(array).all():
            raise InvalidValueError("vector has an entry that is not finite; every entry must be")
        if (np.abs(array) >= _LARGEST_FLOAT_INT * self.grid).any():
            raise InvalidValueError(
                f"vector has an entry of 2**53 or more grid steps of {self.grid}"
            )
        steps: Floats = np.rint(np.ldexp(array, self.grid_bits))
        return steps.astype(np.int64)


def _check_sensitivity(sensitivity: float, grid_bits: int) -> None:
    bound = math.ldexp(_LARGEST_FLOAT_INT, -grid_bits)
    if positive("sensitivity", sensitivity) >= bound:
        raise InvalidValueError(
            f"sensitivity is {sensitivity}; it must be below 2**53 grid steps, {bound}"
        )


def _rounded_sensitivity(sensitivity: float, grid_bits: int, dimension: int) -> float:
    """Bound the distance, in grid steps, between two vectors after rounding.

    Rounding to nearest moves either vector by half a step per coordinate; 2**-40 pays for float64
    arithmetic in the encoding and 2**-50 for this very line.
    """
    steps = math.ldexp(sensitivity * (1 + 2.0**-40), grid_bits) + math.sqrt(dimension)
    return steps * (1 + 2.0**-50)
