"""Exact coins, choices and noise, from a source of random bytes: whole-number arithmetic only.

The noise has exactly the discrete Gaussian or Laplace law. Method: C. Canonne, G. Kamath,
T. Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, Algorithms 1 to 3, with
whole arrays in place of single draws. Proof note: `exact_gaussian.md` of the library, sections 2
and 3.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief_wire.errors import CapacityExceeded, InvalidValue

__all__ = [
    "MAX_SCALE",
    "UNITS",
    "Randomness",
    "below",
    "drawn",
    "sample_discrete_gaussian",
    "sample_discrete_laplace",
    "word",
    "words",
]

Randomness: TypeAlias = Callable[[int], bytes]
"""Gives n independent uniform bytes when called with n."""

UNITS = 2**32
"""Chances of exact coins are multiples of one over this."""

MAX_SCALE = 2**30
"""The largest scale of noise that no product overflows for."""

_MAX_RUN = 2**31
_MAX_ROUND = 2**16
_LARGEST_WORD = 2**64 - 1


def drawn(count: int, source: Randomness) -> bytes:
    """As many bytes as were asked for.

    Raises:
        InvalidValue: the source gave another number of them.
    """
    data = source(count)
    if len(data) != count:
        raise InvalidValue(f"randomness gave {len(data)} bytes; it must give the {count} asked for")
    return data


def word(source: Randomness) -> int:
    """A whole number uniform below `UNITS`: it is below n with chance exactly n/`UNITS`.

    >>> word(lambda count: bytes([1, 0, 0, 0]))
    1
    """
    return int.from_bytes(drawn(4, source), "little")


def words(size: int, source: Randomness) -> NDArray[np.int64]:
    """As many such numbers."""
    return np.frombuffer(drawn(4 * size, source), dtype="<u4").astype(np.int64)


def below(limit: int, source: Randomness) -> int:
    """A whole number uniform below a limit of at most `UNITS`: words that favour some are redrawn.

    >>> below(10, lambda count: bytes([17, 0, 0, 0]))
    7
    """
    _check("limit", limit, 1, UNITS)
    fair = UNITS - UNITS % limit
    while (number := word(source)) >= fair:
        pass
    return number % limit


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
        product can overflow (`exact_gaussian.md`, sections 2 and 3).

    >>> draws = sample_discrete_gaussian(4, 1000)
    >>> draws.dtype, draws.shape, bool(abs(draws.mean()) < 2)
    (dtype('int64'), (1000,), True)
    """
    _check("scale", scale, 1, MAX_SCALE)
    _check("size", size, 0, MAX_SCALE)
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
    _check("scale", scale, 1, MAX_SCALE)
    _check("size", size, 0, MAX_SCALE)
    found = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        tries = min(missing * 7 // 4 + 16, _MAX_ROUND)
        low, high, negative = _proposals(scale, tries, randomness)
        signed = np.where(negative, -1, 1) * (low + scale * high)
        found.append(signed[~(negative & (signed == 0))])
        missing -= found[-1].size
    return np.concatenate(found)[:size]


def _check(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidValue(f"{name} is {value!r:.80}; it must be a whole number")
    if not low <= value <= high:
        raise InvalidValue(f"{name} is {value}; it must be at least {low} and at most {high}")


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
    far = units.nonzero()[0]
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
    while (tails := (~coins).nonzero()[0]).size < size:
        # The row goes on, it never begins anew: to drop an unfinished run would favour short ones.
        ones = np.ones((size - tails.size) * 7 // 4 + 16, dtype=np.int64)
        coins = np.concatenate([coins, _bernoulli_exp(ones, 1, source)])
        if coins.size > _MAX_RUN:
            raise CapacityExceeded(f"{coins.size} coins were tossed; the most is {_MAX_RUN}")
    runs = tails[:size].astype(np.int64)
    runs[1:] -= tails[: size - 1] + 1
    return runs


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
        if k > 1:
            pending = pending[_one_in(k, pending.size, source)]
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


def _one_in(number: int, size: int, source: Randomness) -> NDArray[np.bool_]:
    """Bernoulli(1/number), so often."""
    step = _LARGEST_WORD // number
    return _words_below(step * number, size, source) < np.uint64(step)


def _uniform_below(bound: int, size: int, source: Randomness) -> NDArray[np.int64]:
    """Whole numbers uniform on 0, ..., bound - 1."""
    step = _LARGEST_WORD // bound
    return (_words_below(step * bound, size, source) // np.uint64(step)).astype(np.int64)


def _words_below(limit: int, size: int, source: Randomness) -> NDArray[np.uint64]:
    """64-bit words uniform on 0, ..., limit - 1: those at or above are drawn again."""
    words = _words(size, source)
    while (over := (words >= np.uint64(limit)).nonzero()[0]).size:
        words[over] = _words(over.size, source)
    return words


def _words(size: int, source: Randomness) -> NDArray[np.uint64]:
    return np.frombuffer(drawn(8 * size, source), dtype="<u8").astype(np.uint64)


def _signs(size: int, source: Randomness) -> NDArray[np.bool_]:
    bits: NDArray[np.uint8] = np.frombuffer(drawn(size, source), dtype=np.uint8) & np.uint8(1)
    return bits.astype(np.bool_)
