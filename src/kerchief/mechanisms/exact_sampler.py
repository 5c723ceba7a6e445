"""Whole numbers with exactly the discrete Gaussian or Laplace law, from random bytes.

Method: C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy",
NeurIPS 2020, Algorithms 1 to 3, with whole arrays in place of single draws. Proof note:
`exact_gaussian.md`, sections 2 and 3.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import CapacityExceeded
from kerchief.core.validate import whole
from kerchief.mechanisms.exact_integers import Randomness, drawn

__all__ = ["MAX_SCALE", "sample_discrete_gaussian", "sample_discrete_laplace"]

MAX_SCALE = 2**30
_MAX_RUN = 2**31
_MAX_ROUND = 2**16
_LARGEST_WORD = 2**64 - 1


def sample_discrete_gaussian(
    scale: int, size: int, *, randomness: Randomness = os.urandom
) -> NDArray[np.int64]:
    """Draw whole numbers y with probability exactly proportional to exp(-y² / (2 scale²)).

    The scale, up to `MAX_SCALE`, is the standard deviation to within 1e-6. A source of bytes that
    is not the default is for tests and simulation.

    Formal guarantees:
        Exact if the bytes are uniform and independent; whole-number arithmetic only, and no
        product can overflow (`exact_gaussian.md`, sections 2 and 3).

    >>> draws = sample_discrete_gaussian(4, 1000)
    >>> draws.dtype, draws.shape, bool(abs(draws.mean()) < 2)
    (dtype('int64'), (1000,), True)
    """
    # More than 0.48 of all tries are accepted on average.
    return _gathered(_gaussian_round, scale, size, randomness, quarters=9)


def sample_discrete_laplace(
    scale: int, size: int, *, randomness: Randomness = os.urandom
) -> NDArray[np.int64]:
    """Draw whole numbers y with probability exactly proportional to exp(-|y| / scale).

    >>> draws = sample_discrete_laplace(4, 1000)
    >>> draws.dtype, draws.shape, bool(abs(draws.mean()) < 2)
    (dtype('int64'), (1000,), True)
    """
    return _gathered(_laplace_round, scale, size, randomness, quarters=7)


def _gathered(
    draw: Callable[[int, int, Randomness], NDArray[np.int64]],
    scale: int,
    size: int,
    source: Randomness,
    *,
    quarters: int,
) -> NDArray[np.int64]:
    """Rounds of tries, so many quarters of what is missing, and 16 more: a second one is rare."""
    whole("scale", scale, high=MAX_SCALE)
    missing = whole("size", size, low=0)
    found = [np.empty(0, dtype=np.int64)]
    while missing > 0:
        found.append(draw(scale, min(missing * quarters // 4 + 16, _MAX_ROUND), source))
        missing -= found[-1].size
    return np.concatenate(found)[:size]


def _gaussian_round(scale: int, tries: int, source: Randomness) -> NDArray[np.int64]:
    """Make proposals and return those that were accepted, in order."""
    low, high, negative = _proposals(scale, tries, source)
    size = low + scale * high
    keep: NDArray[np.bool_] = _accepts(low, high, scale, source) & ~(negative & (size == 0))
    signed: NDArray[np.int64] = np.where(negative, -size, size)
    return signed[keep]


def _laplace_round(scale: int, tries: int, source: Randomness) -> NDArray[np.int64]:
    """Make proposals and return them, but for negative zeros."""
    low, high, negative = _proposals(scale, tries, source)
    signed = np.where(negative, -1, 1) * (low + scale * high)
    kept: NDArray[np.int64] = signed[~(negative & (signed == 0))]
    return kept


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
    return np.frombuffer(drawn(8 * size, source), dtype="<u8").astype(np.uint64)


def _signs(size: int, source: Randomness) -> NDArray[np.bool_]:
    bits: NDArray[np.uint8] = np.frombuffer(drawn(size, source), dtype=np.uint8) & np.uint8(1)
    return bits.astype(np.bool_)
