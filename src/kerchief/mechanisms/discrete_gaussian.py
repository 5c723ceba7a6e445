"""Discrete Gaussian noise, sampled exactly: the deployed twin of the Gaussian.

Noise drawn in floating point has a law that no proof covers. Here the statistic is rounded to a
grid, the noise is a whole number of grid steps whose law is exactly the discrete Gaussian, and the
bits come from the operating system's cryptographic generator. Proof note: `discrete.md`.

Method: C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy",
NeurIPS 2020, Algorithms 1 to 3, with whole arrays in place of single draws.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import CapacityExceeded, InvalidValue
from kerchief.core.validate import between, plain, positive, whole
from kerchief.privacy import events

__all__ = [
    "MAX_SCALE",
    "DiscreteGaussian",
    "Randomness",
    "sample_discrete_gaussian",
    "sample_discrete_laplace",
]

Randomness: TypeAlias = Callable[[int], bytes]

MAX_SCALE = 2**30
_MAX_GRID_BITS = 512
# Pays, many times over, for the slack between the discrete and the continuous curve.
_MARGIN = 1e-6
_MAX_RUN = 2**31
_MAX_ROUND = 2**16
_LARGEST_WORD = 2**64 - 1
_LARGEST_FLOAT_INT = 2**53


def sample_discrete_gaussian(
    scale: int, size: int, *, randomness: Randomness = os.urandom
) -> NDArray[np.int64]:
    """Draw whole numbers y with probability exactly proportional to exp(-y² / (2 scale²)).

    Args:
        scale: The parameter σ of the law, 1 to `MAX_SCALE`; the standard deviation to within 1e-6.
        size: How many independent draws.
        randomness: Gives n independent uniform bytes when called with n. Anything but the default
            is for tests and simulation.

    Returns:
        The draws, as int64.

    Raises:
        InvalidValue: The scale or the size is out of its bound, or the source gave too few bytes.

    Formal guarantees:
        Exact if the bytes are uniform and independent; whole-number arithmetic only, and no
        product can overflow (`discrete.md`, sections 2 and 3).

    >>> draws = sample_discrete_gaussian(4, 1000)
    >>> draws.dtype, draws.shape, bool(abs(draws.mean()) < 2)
    (dtype('int64'), (1000,), True)
    """
    scale = whole("scale", scale, high=MAX_SCALE)
    size = whole("size", size, low=0)
    found = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        # More than 0.48 are accepted on average; the 16 more make a second round rare.
        found.append(_round(scale, min(missing * 9 // 4 + 16, _MAX_ROUND), randomness))
        missing -= found[-1].size
    return np.concatenate(found)[:size]


def sample_discrete_laplace(
    scale: int, size: int, *, randomness: Randomness = os.urandom
) -> NDArray[np.int64]:
    """Draw whole numbers y with probability exactly proportional to exp(-|y| / scale).

    Args:
        scale: 1 to `MAX_SCALE`.
        size: How many independent draws.
        randomness: As for `sample_discrete_gaussian`, whose proposals these are.

    Raises:
        InvalidValue: The scale or the size is out of its bound, or the source gave too few bytes.

    >>> draws = sample_discrete_laplace(4, 1000)
    >>> draws.dtype, draws.shape, bool(abs(draws.mean()) < 2)
    (dtype('int64'), (1000,), True)
    """
    scale = whole("scale", scale, high=MAX_SCALE)
    size = whole("size", size, low=0)
    found = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        tries = min(missing * 7 // 4 + 16, _MAX_ROUND)
        low, high, negative = _proposals(scale, tries, randomness)
        signed = np.where(negative, -1, 1) * (low + scale * high)
        found.append(signed[~(negative & (signed == 0))])
        missing -= found[-1].size
    return np.concatenate(found)[:size]


def _round(scale: int, tries: int, source: Randomness) -> NDArray[np.int64]:
    """Make proposals and return those that were accepted, in order."""
    low, high, negative = _proposals(scale, tries, source)
    size = low + scale * high
    keep: NDArray[np.bool_] = _accepts(low, high, scale, source) & ~(negative & (size == 0))
    signed: NDArray[np.int64] = np.where(negative, -size, size)
    return signed[keep]


def _proposals(
    scale: int, tries: int, source: Randomness
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Those of so many tries that come to something: low + scale·high, and whether negative."""
    low = _uniform_below(scale, tries, source)
    low = low[_bernoulli_exp(low, scale, source)]
    return low, _geometric(low.size, source), _signs(low.size, source)


def _accepts(
    low: NDArray[np.int64], high: NDArray[np.int64], scale: int, source: Randomness
) -> NDArray[np.bool_]:
    """Bernoulli(exp(-(x - scale)² / (2 scale²))) at x = low + scale·high."""
    units, rest = _exponent(low, high, scale)
    keep = _bernoulli_exp(rest, 2 * scale**2, source)
    far = np.flatnonzero(units)
    keep[far] &= _geometric(far.size, source) >= units[far]
    return keep


def _exponent(
    low: NDArray[np.int64], high: NDArray[np.int64], scale: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split (x - scale)² / (2 scale²) into its whole part and its remainder, over 2 scale².

    The square itself may not fit in 64 bits; its three terms are divided one by one instead.
    """
    steps = high - 1
    cross, cross_rest = np.divmod(low * steps, scale)
    rest = steps % 2 * scale**2 + 2 * scale * cross_rest + low**2
    carry, rest = np.divmod(rest, 2 * scale**2)
    return steps**2 // 2 + cross + carry, rest


def _geometric(size: int, source: Randomness) -> NDArray[np.int64]:
    """Count the heads before each tail in a row of Bernoulli(1/e) coins: P(v) ∝ exp(-v)."""
    coins = np.empty(0, dtype=np.bool_)
    while (tails := np.flatnonzero(~coins)).size < size:
        # The row goes on, it never begins anew: to drop an unfinished run would favour short ones.
        ones = np.ones((size - tails.size) * 7 // 4 + 16, dtype=np.int64)
        coins = np.concatenate([coins, _bernoulli_exp(ones, 1, source)])
        if coins.size > _MAX_RUN:
            raise CapacityExceeded(f"{coins.size} coins were tossed; the most is {_MAX_RUN}")
    return np.diff(tails[:size], prepend=-1).astype(np.int64) - 1


def _bernoulli_exp(
    numerator: NDArray[np.int64], denominator: int, source: Randomness
) -> NDArray[np.bool_]:
    """Bernoulli(exp(-a/b)) for 0 <= a <= b: is the first failure among Bernoulli(a/(b k)) odd?"""
    odd = np.ones(numerator.size, dtype=np.bool_)
    pending = np.arange(numerator.size)
    k = 1
    while pending.size:
        pending = pending[_bernoulli(numerator[pending], denominator, source)]
        # a/(b k) as two coins: b k could overflow, b and k apart cannot.
        pending = pending[_bernoulli(np.ones(pending.size, dtype=np.int64), k, source)]
        odd[pending] ^= True
        k += 1
    return odd


def _bernoulli(
    numerator: NDArray[np.int64], denominator: int, source: Randomness
) -> NDArray[np.bool_]:
    """Bernoulli(a/b) for 0 <= a <= b, from words below a multiple of b."""
    if denominator == 1:
        return numerator > 0
    step = _LARGEST_WORD // denominator
    words = _words_below(step * denominator, numerator.size, source)
    return words < numerator.astype(np.uint64) * np.uint64(step)


def _uniform_below(bound: int, size: int, source: Randomness) -> NDArray[np.int64]:
    """Whole numbers uniform on 0, ..., bound - 1."""
    step = _LARGEST_WORD // bound
    return (_words_below(step * bound, size, source) // np.uint64(step)).astype(np.int64)


def _words_below(limit: int, size: int, source: Randomness) -> NDArray[np.uint64]:
    """64-bit words uniform on 0, ..., limit - 1: those at or above are drawn again."""
    words = _words(size, source)
    while (over := np.flatnonzero(words >= np.uint64(limit))).size:
        words[over] = _words(over.size, source)
    return words


def _words(size: int, source: Randomness) -> NDArray[np.uint64]:
    return np.frombuffer(_bytes(8 * size, source), dtype="<u8").astype(np.uint64)


def _signs(size: int, source: Randomness) -> NDArray[np.bool_]:
    bits: NDArray[np.uint8] = np.frombuffer(_bytes(size, source), dtype=np.uint8) & np.uint8(1)
    return bits.astype(np.bool_)


def _bytes(count: int, source: Randomness) -> bytes:
    data = source(count)
    if len(data) != count:
        raise InvalidValue(f"randomness gave {len(data)} bytes; it must give the {count} asked for")
    return data


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian:
    """Round a vector to the grid 2**-grid_bits and add `scale` grid steps of discrete noise.

    Attributes:
        grid_bits: The grid is 2**-grid_bits.
        scale: The noise's parameter σ, in grid steps.
        sensitivity: How far apart, in the Euclidean norm, one person can move the vector, before
            rounding and in exact arithmetic.
        dimension: The length of the vector.

    Formal guarantees:
        `event` states the cost of one `add` with its default source, if the vector is the float64
        encoding of one record, or of a sum kept in whole grid steps (`discrete.md`, section 4).

    >>> noise = DiscreteGaussian(grid_bits=10, scale=4096, sensitivity=1.0, dimension=2)
    >>> noise.std
    4.0
    >>> noise.add([0.25, -0.5]) % noise.grid
    array([0., 0.])
    """

    grid_bits: int
    scale: int
    sensitivity: float
    dimension: int

    idealized: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every field."""
        plain(self)
        whole("grid_bits", self.grid_bits, low=-_MAX_GRID_BITS, high=_MAX_GRID_BITS)
        whole("scale", self.scale, high=MAX_SCALE)
        _check_sensitivity(self.sensitivity, self.grid_bits)
        whole("dimension", self.dimension, high=2**24)

    @classmethod
    def matching(
        cls,
        noise_multiplier: float,
        sensitivity: float,
        dimension: int,
    ) -> DiscreteGaussian:
        """Choose the grid and the scale that stand in for a continuous Gaussian.

        Args:
            noise_multiplier: The Gaussian's standard deviation over its sensitivity.
            sensitivity: As in the attribute.
            dimension: As in the attribute.

        Returns:
            A mechanism with at least that multiplier over its own, rounded sensitivity; its
            standard deviation is about 1e-5 above the Gaussian's.

        Raises:
            InvalidValue: A value is out of its bound, or no scale up to `MAX_SCALE` is enough.

        >>> noise = DiscreteGaussian.matching(4.0, 1.0, 3)
        >>> noise.grid_bits, noise.scale
        (17, 524296)
        """
        noise_multiplier = positive("noise_multiplier", noise_multiplier)
        between("noise_multiplier", noise_multiplier, 0.0, 1e150)
        sensitivity = positive("sensitivity", sensitivity)
        positive("the standard deviation", noise_multiplier * sensitivity)
        dimension = whole("dimension", dimension, high=2**24)
        # Rounding adds √dimension steps to the sensitivity: a finer grid where they would show.
        finer = max(0, _binary_exponent(noise_multiplier * math.sqrt(dimension) / 8))
        bits = min(20 + finer, 29) - _binary_exponent(noise_multiplier * sensitivity)
        whole("grid_bits", bits, low=-_MAX_GRID_BITS, high=_MAX_GRID_BITS)
        _check_sensitivity(sensitivity, bits)
        steps = _rounded_sensitivity(sensitivity, bits, dimension)
        scale = math.ceil(noise_multiplier * (1 + _MARGIN) * steps)
        return cls(grid_bits=bits, scale=scale, sensitivity=sensitivity, dimension=dimension)

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return math.ldexp(1.0, -self.grid_bits)

    @property
    def std(self) -> float:
        """The noise's standard deviation, in the vector's own units."""
        return self.scale * self.grid

    def add(
        self, vector: Sequence[float] | NDArray[np.float64], stream: Randomness | None = None
    ) -> NDArray[np.float64]:
        """Return the vector, rounded to the grid, plus noise: exact multiples of the grid.

        Args:
            vector: `dimension` finite float64 numbers, below 2**53 grid steps.
            stream: A source of bytes for tests and simulation; else the operating system's.

        Raises:
            InvalidValue: The vector has another shape or type, or a number that is not finite or
                too large for the grid.
        """
        if stream is not None and not callable(stream):
            raise InvalidValue(f"stream is {stream!r}; it must be a source of bytes, or None")
        steps = self._to_grid(vector)
        noise = sample_discrete_gaussian(self.scale, steps.size, randomness=stream or os.urandom)
        total = steps + noise
        if (np.abs(total) >= _LARGEST_FLOAT_INT).any():
            raise InvalidValue(f"the sum has 2**53 or more grid steps of {self.grid}; no float64")
        return total.astype(np.float64) * self.grid

    def prepare(
        self, vector: Sequence[float] | NDArray[np.float64], stream: object = None
    ) -> NDArray[np.float64]:
        """Round a vector, or rows of them, to the grid: their sums are exact, so noise may wait.

        >>> noise = DiscreteGaussian(grid_bits=1, scale=4096, sensitivity=1.0, dimension=2)
        >>> noise.prepare([0.3, -0.9])
        array([ 0.5, -1. ])
        """
        return self._to_grid(vector).astype(np.float64) * self.grid

    def event(self) -> events.DiscreteGaussian:
        """What one `add` costs, with lengths in grid steps."""
        steps = _rounded_sensitivity(self.sensitivity, self.grid_bits, self.dimension)
        return events.DiscreteGaussian(
            sensitivity=steps, scale=self.scale, dimension=self.dimension
        )

    def _to_grid(self, vector: Sequence[float] | NDArray[np.float64]) -> NDArray[np.int64]:
        array = np.asarray(vector)
        if array.shape[-1:] != (self.dimension,):
            raise InvalidValue(f"vector has shape {array.shape}; it must be ({self.dimension},)")
        if array.dtype != np.float64:
            raise InvalidValue(f"vector is {array.dtype}; encode it in float64, as the proof asks")
        if not np.isfinite(array).all():
            raise InvalidValue("vector has an entry that is not finite; every entry must be")
        if (np.abs(array) >= _LARGEST_FLOAT_INT * self.grid).any():
            raise InvalidValue(f"vector has an entry of 2**53 or more grid steps of {self.grid}")
        steps: NDArray[np.float64] = np.rint(np.ldexp(array, self.grid_bits))
        return steps.astype(np.int64)


def _check_sensitivity(sensitivity: float, grid_bits: int) -> None:
    bound = math.ldexp(_LARGEST_FLOAT_INT, -grid_bits)
    if positive("sensitivity", sensitivity) >= bound:
        raise InvalidValue(
            f"sensitivity is {sensitivity}; it must be below 2**53 grid steps, {bound}"
        )


def _rounded_sensitivity(sensitivity: float, grid_bits: int, dimension: int) -> float:
    """Bound the distance, in grid steps, between two vectors after rounding.

    Rounding to nearest moves either vector by half a step a coordinate; 2**-40 pays for float64
    arithmetic in the encoding and 2**-50 for this very line.
    """
    steps = math.ldexp(sensitivity * (1 + 2.0**-40), grid_bits) + math.sqrt(dimension)
    return steps * (1 + 2.0**-50)


def _binary_exponent(value: float) -> int:
    return math.frexp(value)[1]
