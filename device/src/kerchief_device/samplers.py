"""Exact coins, choices and noise, from a source of random bytes: whole-number arithmetic only.

The noise has exactly the discrete Gaussian or Laplace law. Coins and Laplace noise: C. Canonne,
G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, Algorithms 1
and 2, with whole arrays in place of single draws. Gaussian noise: a block of numbers by inversion,
then one number of it. Proof note: `exact_gaussian.md` of the library, sections 2 and 3.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from kerchief_device.inversion import blocks
from kerchief_device.source import Randomness, drawn
from kerchief_protocol.errors import CapacityExceededError, InvalidValueError

__all__ = [
    "MAX_SCALE",
    "UNITS",
    "Randomness",
    "below",
    "chosen_rank",
    "drawn",
    "sample_discrete_gaussian",
    "sample_discrete_laplace",
    "word",
    "words",
]

UNITS = 2**32
"""Chances of exact coins are multiples of one over this."""

MAX_SCALE = 2**30
"""The largest scale of noise that no product overflows for."""

_MAX_RUN = 2**31
_MAX_ROUND = 2**16
_LARGEST_WORD = 2**64 - 1
# Blocks in one scale: more of them make a larger table, fewer make more proposals fail.
_BLOCKS = 64
# In scales: noise beyond has a chance below 1e-700, and is refused.
_FAR = 60


def word(source: Randomness) -> int:
    """Draw a uniform integer below `UNITS`: below n with chance exactly n/`UNITS`.

    >>> word(lambda count: bytes([1, 0, 0, 0]))
    1
    """
    return int.from_bytes(drawn(4, source), "little")


def words(size: int, source: Randomness) -> NDArray[np.int64]:
    """Draw this many uniform integers below `UNITS`."""
    return np.frombuffer(drawn(4 * size, source), dtype="<u4").astype(np.int64)


def below(limit: int, source: Randomness) -> int:
    """Draw a uniform integer below a limit of at most `UNITS`, without bias.

    >>> below(10, lambda count: bytes([17, 0, 0, 0]))
    7
    """
    limit = _check_integer("limit", limit, 1, UNITS)
    fair = UNITS - UNITS % limit
    while (number := word(source)) >= fair:
        pass
    return number % limit


def chosen_rank(units: int, candidates: int, listed: int, source: Randomness) -> int:
    """Draw the rank of the candidate to report; the best `listed` ones stand last.

    One of the best with a chance of ``units / UNITS``, each as likely; else one of the others. Both
    take the same operations, since how long a report takes must not tell which it was.

    >>> chosen_rank(2**31, 10, 3, lambda count: bytes([4, 0, 0, 128]))
    6
    """
    best = word(source) < units
    return (candidates - listed) * best + below((candidates - listed, listed)[best], source)


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
        InvalidValueError: The scale or the size is out of its bound, or the source gave too few
            bytes.

    Formal guarantees:
        Exact if the bytes are uniform and independent; whole-number arithmetic only, and no
        product can overflow (`exact_gaussian.md`, sections 2 and 3).

    >>> draws = sample_discrete_gaussian(4, 1000)
    >>> draws.dtype, draws.shape, bool(abs(draws.mean()) < 2)
    (dtype('int64'), (1000,), True)
    """
    scale, size = (
        _check_integer("scale", scale, 1, MAX_SCALE),
        _check_integer("size", size, 0, MAX_SCALE),
    )
    batches = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        # More than 0.98 are accepted where blocks are many; where they are few, minus zero is lost.
        tries = missing + missing // (32 if scale >= _BLOCKS else 2) + 16
        batches.append(_propose_gaussian(scale, min(tries, _MAX_ROUND), randomness))
        missing -= batches[-1].size
    return np.concatenate(batches)[:size]


def sample_discrete_laplace(
    scale: int, size: int, *, randomness: Randomness = os.urandom
) -> NDArray[np.int64]:
    """Draw whole numbers y with probability exactly proportional to exp(-|y| / scale).

    Args:
        scale: 1 to `MAX_SCALE`.
        size: How many independent draws.
        randomness: As for `sample_discrete_gaussian`.

    Raises:
        InvalidValueError: The scale or the size is out of its bound, or the source gave too few
            bytes.

    >>> draws = sample_discrete_laplace(4, 1000)
    >>> draws.dtype, draws.shape, bool(abs(draws.mean()) < 2)
    (dtype('int64'), (1000,), True)
    """
    scale, size = (
        _check_integer("scale", scale, 1, MAX_SCALE),
        _check_integer("size", size, 0, MAX_SCALE),
    )
    batches = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        tries = min(missing * 7 // 4 + 16, _MAX_ROUND)
        low, high, negative = _proposals(scale, tries, randomness)
        signed = np.where(negative, -1, 1) * (low + scale * high)
        batches.append(signed[~(negative & (signed == 0))])
        missing -= batches[-1].size
    return np.concatenate(batches)[:size]


def _check_integer(name: str, value: int, low: int, high: int) -> int:
    """Check an integer's bounds, and convert it so that squares do not overflow."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidValueError(f"{name} is {value!r:.80}; it must be a whole number")
    if not low <= value <= high:
        raise InvalidValueError(f"{name} is {value}; it must be at least {low} and at most {high}")
    return int(value)


def _propose_gaussian(scale: int, tries: int, source: Randomness) -> NDArray[np.int64]:
    """Propose a block and a number in it, and return the accepted proposals in order."""
    width = max(1, scale // _BLOCKS)
    start = width * blocks(scale, width).draw(tries, source)
    if (start > _FAR * scale).any():
        raise CapacityExceededError(f"noise beyond {_FAR} scales; its chance is below 1e-700")
    low, negative = _uniform_below(width, tries, source), _signs(tries, source)
    keep = _bernoulli_exp(low * (2 * start + low), 2 * scale**2, source)
    size = start + low
    signed = np.where(negative, -size, size)
    accepted: NDArray[np.int64] = signed[keep & ~(negative & (size == 0))]
    return accepted


def _proposals(
    scale: int, tries: int, source: Randomness
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Make proposals low + scale·high with signs, and return the accepted ones."""
    low = _uniform_below(scale, tries, source)
    low = low[_bernoulli_exp(low, scale, source)]
    return low, _geometric(low.size, source), _signs(low.size, source)


def _geometric(size: int, source: Randomness) -> NDArray[np.int64]:
    """Count heads before each tail in a row of Bernoulli(1/e) coins: P(v) ∝ exp(-v)."""
    coins = np.empty(0, dtype=np.bool_)
    while (tails := (~coins).nonzero()[0]).size < size:
        # The row goes on, it never begins anew: to drop an unfinished run would favour short ones.
        numerators = np.ones((size - tails.size) * 7 // 4 + 16, dtype=np.int64)
        coins = np.concatenate([coins, _bernoulli_exp(numerators, 1, source)])
        if coins.size > _MAX_RUN:
            raise CapacityExceededError(f"{coins.size} coins were tossed; the most is {_MAX_RUN}")
    runs = tails[:size].astype(np.int64)
    runs[1:] -= tails[: size - 1] + 1
    return runs


def _bernoulli_exp(
    numerator: NDArray[np.int64], denominator: int, source: Randomness
) -> NDArray[np.bool_]:
    """Draw Bernoulli(exp(-a/b)), 0 <= a <= b: is the first failed a/(b k) coin odd?"""
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
    uniforms = _draw_below(step * denominator, numerator.size, source)
    return uniforms < numerator.astype(np.uint64) * np.uint64(step)


def _one_in(number: int, size: int, source: Randomness) -> NDArray[np.bool_]:
    """Draw `size` coins of chance 1/number."""
    step = _LARGEST_WORD // number
    return _draw_below(step * number, size, source) < np.uint64(step)


def _uniform_below(bound: int, size: int, source: Randomness) -> NDArray[np.int64]:
    """Draw integers uniform on 0, ..., bound - 1."""
    step = _LARGEST_WORD // bound
    return (_draw_below(step * bound, size, source) // np.uint64(step)).astype(np.int64)


def _draw_below(limit: int, size: int, source: Randomness) -> NDArray[np.uint64]:
    """Draw 64-bit integers uniform on 0, ..., limit - 1, by rejection."""
    uniforms = _draw_uint64(size, source)
    while (over := (uniforms >= np.uint64(limit)).nonzero()[0]).size:
        uniforms[over] = _draw_uint64(over.size, source)
    return uniforms


def _draw_uint64(size: int, source: Randomness) -> NDArray[np.uint64]:
    return np.frombuffer(drawn(8 * size, source), dtype="<u8").astype(np.uint64)


def _signs(size: int, source: Randomness) -> NDArray[np.bool_]:
    bits: NDArray[np.uint8] = np.frombuffer(drawn(size, source), dtype=np.uint8) & np.uint8(1)
    return bits.astype(np.bool_)
