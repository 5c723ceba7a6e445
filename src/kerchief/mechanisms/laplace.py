"""Laplace noise, the classical pure randomizer: in floating point, and exactly.

`Laplace` is for simulation. `ExactLaplace` rounds the statistic to a grid and adds a whole number
of grid steps, of a two-sided geometric law. Proof note: `laplace.md`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import at_least, between, whole
from kerchief.mechanisms.exact_gaussian import OnGrid
from kerchief.mechanisms.mechanism import Floats, Simulated, float64_vector
from kerchief.privacy import events
from kerchief_device.samplers import Randomness, sample_discrete_laplace

# Beyond this many grid steps a coordinate is cut: no statistic is so far out, and no sum overflows.
_LARGEST = 2**51
_GUARD = 2.0**-40


@struct
class Laplace(Simulated):
    """Add independent Laplace noise of one scale to every coordinate.

    Formal guarantees:
        With real numbers, adding this noise to a vector that one user can move by at most
        `taxicab`, in the sum of absolute values, is ε-differentially private with
        ε = √2 taxicab/std: see `laplace.md`. Floating-point noise, so only simulation may use it;
        `ExactLaplace` is the twin for deployment.
    """

    std: float | Array
    taxicab: float = static()
    dimension: int = static()

    @classmethod
    def of(cls, *, epsilon: float, taxicab: float, dimension: int) -> Laplace:
        """The noise that a pure epsilon asks for."""
        epsilon = at_least("epsilon", epsilon, 1e-6)
        taxicab = between("taxicab", taxicab, 1e-18, 1e18, closed=True)
        scale = taxicab / epsilon * (1 + 1e-12)
        return cls(std=2**0.5 * scale, taxicab=taxicab, dimension=whole("dimension", dimension))

    @property
    def sensitivity(self) -> float:
        """How far one user can move the vector, in the sum of absolute values."""
        return self.taxicab

    def add(self, vector: Array, stream: Stream) -> Array:
        """The vector with noise: the difference of two exponentials per coordinate."""
        first, second = jnp.split(stream.exponential(2 * self.dimension), 2)
        return vector + self.std / 2**0.5 * (first - second)

    def _price(self) -> events.Event:
        return events.Laplace(noise_multiplier=float(self.std) / 2**0.5 / self.taxicab)

    def exact(self, dimension: int | None = None) -> ExactLaplace:
        """The twin for deployment, at the same epsilon."""
        return ExactLaplace.of(
            epsilon=2**0.5 * self.taxicab / float(self.std),
            taxicab=self.taxicab,
            dimension=self.dimension,
        )


@dataclass(frozen=True, kw_only=True)
class ExactLaplace(OnGrid):
    """Round a vector to the grid 2**-grid_bits and add `scale` grid steps of noise.

    The noise y has probability proportional to exp(−|y|/scale), in grid steps. One user can move
    the vector by `taxicab`, in the sum of absolute values, before rounding.

    Formal guarantees:
        `event` states the cost of one `add` with its default source (`laplace.md`).

    >>> noise = ExactLaplace.of(epsilon=1.0, taxicab=2.0, dimension=3)
    >>> round(noise.std, 3), noise.event().epsilon <= 1.0
    (2.828, True)
    """

    taxicab: float

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        between("taxicab", self.taxicab, 1e-18, 1e18, closed=True)

    @classmethod
    def of(cls, *, epsilon: float, taxicab: float, dimension: int) -> ExactLaplace:
        """The least noise on a grid of about 2**-27 of it that keeps a pure epsilon."""
        between("epsilon", epsilon, 1e-6, 1e6, closed=True)
        between("taxicab", taxicab, 1e-18, 1e18, closed=True)
        whole("dimension", dimension, high=2**24)
        grid_bits = 27 - math.frexp(taxicab / epsilon)[1]
        steps = _rounded(taxicab, grid_bits, dimension)
        scale = math.ceil(steps / epsilon * (1 + _GUARD))
        return cls(grid_bits=grid_bits, scale=scale, taxicab=taxicab, dimension=dimension)

    @property
    def std(self) -> float:
        """The noise's standard deviation: √2 scale, a little less for a scale near 1."""
        return math.sqrt(2) * self.scale * self.grid

    @property
    def sensitivity(self) -> float:
        """How far one user can move the vector, in the sum of absolute values."""
        return self.taxicab

    def add(self, vector: Floats, stream: Randomness | None = None) -> Floats:
        """The vector, on the grid, plus noise; what is not finite counts as 0."""
        steps = self._to_grid(vector)
        total = np.clip(steps + self.draw(stream)[0], -2 * _LARGEST, 2 * _LARGEST)
        report: Floats = total.astype(np.float64) * self.grid
        return report

    def draw(self, stream: Randomness | None = None, rows: int = 1) -> NDArray[np.int64]:
        """The noise of so many `add`s, in grid steps: one row each."""
        size, source = rows * self.dimension, stream or os.urandom
        noise = sample_discrete_laplace(self.scale, size, randomness=source)
        return noise.reshape(rows, self.dimension)

    def event(self) -> events.RandomizedResponse:
        """What one `add` costs."""
        steps = _rounded(self.taxicab, self.grid_bits, self.dimension)
        return events.RandomizedResponse(epsilon=steps / self.scale * (1 + _GUARD / 16))

    def _to_grid(self, vector: Floats) -> NDArray[np.int64]:
        array = float64_vector(vector, self.dimension)
        far = math.ldexp(_LARGEST, -self.grid_bits)
        clipped = np.clip(np.where(np.isfinite(array), array, 0.0), -far, far)
        steps: NDArray[np.int64] = np.rint(np.ldexp(clipped, self.grid_bits)).astype(np.int64)
        return steps


def _rounded(taxicab: float, grid_bits: int, dimension: int) -> float:
    """Bound, in grid steps, how far one user moves the rounded vector.

    Rounding adds one step per coordinate; 2**-40 pays for float64 arithmetic in the encoding and in
    this line.
    """
    return (math.ldexp(taxicab, grid_bits) + dimension) * (1 + _GUARD)
