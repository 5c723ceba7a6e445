"""Discrete Laplace noise, sampled exactly: the deployed twin of the Laplace.

The statistic is rounded to a grid, and the noise is a whole number of grid steps: a two-sided
geometric law. Proof note: `laplace.md`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValue
from kerchief.core.validate import between, plain, whole
from kerchief.mechanisms.discrete_gaussian import MAX_SCALE, Randomness, sample_discrete_laplace
from kerchief.privacy import events

__all__ = ["DiscreteLaplace"]

# Beyond this many grid steps a coordinate is cut: no statistic is so far out, and no sum overflows.
_LARGEST = 2**51
_GUARD = 2.0**-40


@dataclass(frozen=True, kw_only=True)
class DiscreteLaplace:
    """Round a vector to the grid 2**-grid_bits and add `scale` grid steps of noise.

    Attributes:
        grid_bits: the grid is 2**-grid_bits.
        scale: the noise y has probability proportional to exp(−|y|/scale), in grid steps.
        taxicab: how far one user can move the vector, in the sum of absolute values, before
            rounding and in exact arithmetic.
        dimension: the length of the vector.

    Formal guarantees:
        `event` states the cost of one `add` with its default source (`laplace.md`).

    >>> noise = DiscreteLaplace.of(epsilon=1.0, taxicab=2.0, dimension=3)
    >>> round(noise.std, 3), noise.event().epsilon <= 1.0
    (2.828, True)
    """

    grid_bits: int
    scale: int
    taxicab: float
    dimension: int

    idealized: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every field."""
        plain(self)
        whole("grid_bits", self.grid_bits, low=-512, high=512)
        whole("scale", self.scale, high=MAX_SCALE)
        between("taxicab", self.taxicab, 1e-18, 1e18, closed=True)
        whole("dimension", self.dimension)

    @classmethod
    def of(cls, *, epsilon: float, taxicab: float, dimension: int) -> DiscreteLaplace:
        """The least noise on a grid of about 2**-27 of it that keeps a pure epsilon.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        epsilon = between("epsilon", epsilon, 1e-6, 1e6, closed=True)
        taxicab = between("taxicab", taxicab, 1e-18, 1e18, closed=True)
        dimension = whole("dimension", dimension, high=2**24)
        grid_bits = 27 - math.frexp(taxicab / epsilon)[1]
        steps = _rounded(taxicab, grid_bits, dimension)
        scale = math.ceil(steps / epsilon * (1 + _GUARD))
        return cls(grid_bits=grid_bits, scale=scale, taxicab=taxicab, dimension=dimension)

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return math.ldexp(1.0, -self.grid_bits)

    @property
    def std(self) -> float:
        """The noise's standard deviation: √2 scale, a little less for a scale near 1."""
        return math.sqrt(2) * self.scale * self.grid

    @property
    def sensitivity(self) -> float:
        """How far one user can move the vector, in the sum of absolute values."""
        return self.taxicab

    def prepare(self, vector: NDArray[np.float64], stream: object = None) -> NDArray[np.float64]:
        """Round a vector to the grid."""
        return self._to_grid(vector).astype(np.float64) * self.grid

    def add(
        self, vector: NDArray[np.float64], stream: Randomness | None = None
    ) -> NDArray[np.float64]:
        """The vector, rounded to the grid, plus noise: exact multiples of the grid.

        Args:
            vector: `dimension` numbers in float64; what is not finite counts as 0.
            stream: a source of bytes for tests; else the operating system's.

        Raises:
            InvalidValue: the vector has another shape or type.
        """
        steps = self._to_grid(vector)
        noise = sample_discrete_laplace(self.scale, self.dimension, randomness=stream or os.urandom)
        total = np.clip(steps + noise, -2 * _LARGEST, 2 * _LARGEST)
        written: NDArray[np.float64] = total.astype(np.float64) * self.grid
        return written

    def event(self) -> events.RandomizedResponse:
        """What one `add` costs."""
        steps = _rounded(self.taxicab, self.grid_bits, self.dimension)
        return events.RandomizedResponse(epsilon=steps / self.scale * (1 + _GUARD / 16))

    def _to_grid(self, vector: NDArray[np.float64]) -> NDArray[np.int64]:
        array = np.asarray(vector)
        if array.shape != (self.dimension,) or array.dtype != np.float64:
            raise InvalidValue(
                f"vector is {array.dtype} of shape {array.shape}; "
                f"it must be float64 of shape ({self.dimension},)"
            )
        far = math.ldexp(_LARGEST, -self.grid_bits)
        kept = np.clip(np.where(np.isfinite(array), array, 0.0), -far, far)
        steps: NDArray[np.int64] = np.rint(np.ldexp(kept, self.grid_bits)).astype(np.int64)
        return steps


def _rounded(taxicab: float, grid_bits: int, dimension: int) -> float:
    """Bound, in grid steps, how far one user moves the rounded vector: a step a coordinate more.

    2**-40 pays for float64 arithmetic in the encoding and in this line.
    """
    return (math.ldexp(taxicab, grid_bits) + dimension) * (1 + _GUARD)
