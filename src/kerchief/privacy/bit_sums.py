"""What one user's randomized bits tell, hidden in the sum of everybody's: a numerical bound.

Bits coded as one arrive as one with probability (1 + a)/2, those coded as zero with probability
(1 − a)/2. How many of the others' bits are of which kind is unknown, so every possibility is
covered. Proofs: `randomized_bits.md`, section 3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kerchief.privacy.curves import ORDERS

Floats = NDArray[np.float64]

# Probabilities below exp(-104) = 1e-45 are left out of a binomial law.
_LEFT_OUT = 104.0
_FEWEST_PARTS, _MOST_PARTS = 64, 256
_WORK = 2**21
# The part of a tail that is cut off first, only to save work; it also pays for rounding.
_SPARE = 2.0**-20
# So many numbers at a time stay in the cache of a processor.
_BLOCK = 2**15
# Of intervals that are taken together: how many at most, the part of the tail that pays for few
# coins, and how much variance they lack in units of what one of them lacks.
_MOST_TOGETHER, _RARE, _LESS = 16, 2.0**-8, 0.99


def binomial_law(trials: int, chance: float) -> tuple[int, Floats]:
    """The first outcome of a binomial law, and the chances from there on that matter (1e-44).

    They are products of ratios, away from the mode: their relative error is a few units in the last
    place per step, however small they are.

    >>> first, law = binomial_law(2, 0.5)
    >>> first, law.tolist()
    (0, [0.25, 0.5, 0.25])
    """
    if trials == 0:
        return 0, np.ones(1)
    mean, third = trials * chance, _LEFT_OUT / 3
    # Bernstein's inequality.
    half_width = math.sqrt(2 * _LEFT_OUT * mean * (1 - chance) + third**2) + third
    low, high = max(0, math.floor(mean - half_width)), min(trials, math.ceil(mean + half_width))
    mode, odds = min(trials, math.floor((trials + 1) * chance)), chance / (1 - chance)
    up = np.arange(mode, high, dtype=np.float64)
    down = np.arange(mode, low, -1, dtype=np.float64)
    right = np.cumprod((trials - up) / (up + 1) * odds)
    left = np.cumprod(down / (trials - down + 1) / odds)
    law: Floats = np.concatenate([left[::-1], [1.0], right])
    return low, law / law.sum()


def fineness(bits: int) -> int:
    """How many parts of a bit are told apart, a power of two: the fewer bits, the more parts.

    >>> fineness(1), fineness(3), fineness(8), fineness(64)
    (16, 4, 2, 1)
    """
    return 1 << max(1, 16 // bits).bit_length() - 1


def others(users: int, bits: int, keep: float) -> Iterator[Floats]:
    """Laws that hide one user: whatever the others coded, their sum is one of these plus more.

    Each is for one interval that the number of bits coded as one may lie in; together the intervals
    cover all numbers, from above.
    """
    for interval in _intervals(users, bits, keep):
        yield _crowd(users, bits, keep, interval)


@lru_cache(maxsize=256)
def shift_costs(users: int, bits: int, keep: float, tail: float) -> tuple[float, ...]:
    """Bound, for every order, the Rényi divergence over the square of the shift of a coordinate.

    Neighbouring intervals are taken together where that shows that none of them costs more than
    what was found before.

    Returns:
        c with D_α ≤ c t² outside rare outcomes, for one coordinate that codes, on average, t ones
        more or t ones less, if both averages are multiples of 1/`fineness(bits)`, whatever all
        other bits are.
    """
    worst = np.array(glimpsed_costs(users, bits, keep, tail))
    intervals = _intervals(users, bits, keep)
    size = _together(max(map(_width, intervals)), keep, tail)
    for place in range(0, len(intervals), size):
        group = intervals[place : place + size]
        if len(group) > 1:
            low, high = group[-1][0], group[0][1]
            crowd = _crowd(users, bits, keep, (low, high), _coins(high - low, keep, tail))
            if (_costs(crowd, bits, keep, (1 - _RARE) * tail) <= worst).all():
                continue
        for interval in group:
            crowd = _crowd(users, bits, keep, interval)
            worst = np.maximum(worst, _costs(crowd, bits, keep, tail))
    return tuple(float(cost) for cost in worst)


@lru_cache(maxsize=256)
def glimpsed_costs(users: int, bits: int, keep: float, tail: float) -> tuple[float, ...]:
    """What the costs are if nearly all others coded ones: they hide one more worst, as a rule.

    No bound: it looks at two intervals only, the highest and the highest of the widest.
    """
    intervals = _intervals(users, bits, keep)
    crowds = (
        _crowd(users, bits, keep, interval)
        for interval in {intervals[0], max(intervals, key=_width)}
    )
    costs = np.max([_costs(crowd, bits, keep, tail) for crowd in crowds], 0)
    return tuple(float(cost) for cost in costs)


def _intervals(users: int, bits: int, keep: float) -> list[tuple[int, int]]:
    """Intervals that cover all numbers of the others' bits that were coded as one, from above."""
    count = (users - 1) * bits
    width = 14 * math.sqrt(count * (1 - keep**2) / 4) + 32
    parts = min(max(int(_WORK / (bits * fineness(bits) ** 2 * width)), _FEWEST_PARTS), _MOST_PARTS)
    if count <= parts:
        return [(k, k) for k in range(count, -1, -1)]
    edges = [round(i * count / parts) for i in range(parts + 1)]
    return list(itertools.pairwise(edges))[::-1]


def _width(interval: tuple[int, int]) -> int:
    low, high = interval
    return high - low


def _crowd(users: int, bits: int, keep: float, interval: tuple[int, int], coins: int = 0) -> Floats:
    """A law that hides one user if the number of others' bits coded as one is in the interval.

    If low ≤ k ≤ high of the others' n bits were coded as one, then their sum is
    Bin(low, (1+a)/2) + Bin(n − high, (1−a)/2) plus an independent rest: of the bits that may be
    either, so many are fair coins.
    """
    low, high = interval
    _, ones = binomial_law(low, (1 + keep) / 2)
    _, zeros = binomial_law((users - 1) * bits - high, (1 - keep) / 2)
    _, fair = binomial_law(coins, 0.5)
    return np.convolve(fair, np.convolve(ones, zeros))


def _coins(bits: int, keep: float, tail: float) -> int:
    """How many of so many bits are replaced by coins at least, but for a part of the tail."""
    first, law = binomial_law(bits, 1 - keep)
    return first + _cut(law, _RARE * tail)


def _together(width: int, keep: float, tail: float) -> int:
    """How many intervals of this width, together, lack no more variance than one by itself."""
    lacking = width * (1 - keep**2)
    sizes = range(2, _MOST_TOGETHER + 1)
    return max(
        (n for n in sizes if n * lacking - _coins(n * width, keep, tail) < _LESS * lacking),
        default=1,
    )


def _costs(problem: Floats, bits: int, keep: float, tail: float) -> Floats:
    """Scan the shifts from φ up to full − 1 + f ones, where 0 ≤ φ < 1 and 0 < f ≤ 1."""
    # What is neither far below the others' bits nor far above them and one user's together.
    first, last = _cut(problem, _SPARE * tail), _cut(problem[::-1], _SPARE * tail)
    start, stop = max(0, first - bits), problem.size - last + bits
    near = slice(first - start, stop - start)
    ones = _sums(problem[start:stop], bits, (1 + keep) / 2)
    zeros = _sums(problem[start:stop], bits, (1 - keep) / 2)
    full, phi, f = _shifts(bits)
    highs, lows = (1 + keep * (2 * f - 1)) / 2, (1 + keep * (2 * phi - 1)) / 2
    size, moments = max(1, _BLOCK // ones.shape[1]), []
    for place in range(0, len(full), size):
        rows = slice(place, place + size)
        after = _one_more(ones, full[rows], highs[rows], near)
        before = _one_more(zeros, full[rows], lows[rows], near)
        moments.append(_moments(after, before, tail))
    orders = np.array(ORDERS)
    logs = np.log(np.concatenate(moments, 1)) + 2 * orders[:, None] * _error(problem, bits)
    worst: Floats = (logs / (full - 1 + f - phi) ** 2).max(1) / (orders - 1)
    return worst


def _moments(after: Floats, before: Floats, tail: float) -> Floats:
    """For every order α the sums of after^α before^(1−α), row by row, without the tails."""
    inside = _bulk(after, (1 - 4 * _SPARE) * tail)
    some = np.flatnonzero(inside.any(0))
    columns = slice(some[0], some[-1] + 1)
    inside, after, before = inside[:, columns], after[:, columns], before[:, columns]
    sums = np.empty((len(ORDERS), len(after)))
    # Where the law before is too small for a float of full precision, the ratio is endless: the
    # safe side.
    before = np.where(before < np.finfo(np.float64).tiny, 0.0, before)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratios = np.where(inside, after / before, 1.0)
        terms, step, gap, last = np.where(inside, after, 0.0), ratios, 1.0, 1.0
        for place, order in enumerate(ORDERS):
            wanted = order - last
            if math.frexp(wanted)[0] != 0.5:
                sums[place] = (terms * np.exp(wanted * np.log(ratios))).sum(1)
                continue
            # Powers of two of the ratios are squares and roots of one another.
            while gap > wanted:
                step, gap = np.sqrt(step), gap / 2
            while gap < wanted:
                step, gap = step * step, gap * 2
            terms *= step
            np.add.reduce(terms, 1, out=sums[place])
            last = order
    return sums


@lru_cache(maxsize=32)
def _shifts(bits: int) -> tuple[NDArray[np.int64], Floats, Floats]:
    """For every shift on the grid the (full, φ, f) with φ = 0, and those with f = 1.

    With a given shift no other pair of averages tells more than these.
    """
    steps = fineness(bits)
    whole, part = np.divmod(np.arange(bits * steps), steps)
    full, f = whole + 1, (part + 1) / steps
    split = f < 1
    return (
        np.concatenate([full, full[split]]),
        np.concatenate([np.zeros(f.size), 1 - f[split]]),
        np.concatenate([f, np.ones(int(split.sum()))]),
    )


def _one_more(laws: Floats, bits: NDArray[np.int64], chances: Floats, near: slice) -> Floats:
    """Row by row, near its bulk: the law of so many bits, the last a one with the row's chance."""
    rows, ones = laws[bits - 1, near.start : near.stop + 1], chances[:, None]
    mixed: Floats = (1 - ones) * rows[:, 1:]
    mixed += ones * rows[:, :-1]
    return mixed


def _sums(problem: Floats, bits: int, chance: float) -> Floats:
    """The laws of the problem plus 0, 1, ..., `bits` − 1 further bits of that chance of a one.

    A zero is put before each.
    """
    rows = np.empty((bits, problem.size + bits + 1))
    rows[0] = np.pad(problem, (1, bits))
    for j in range(1, bits):
        np.multiply(rows[j - 1], 1 - chance, out=rows[j])
        rows[j, 1:] += chance * rows[j - 1, :-1]
    return rows


def _bulk(laws: Floats, tail: float) -> NDArray[np.bool_]:
    """Which outcomes of each law remain when at most `tail` is left out, half on either side."""
    from_left = np.cumsum(laws, 1)
    from_right = np.cumsum(laws[:, ::-1], 1)[:, ::-1]
    return (from_left > tail / 2) & (from_right > tail / 2)


def _cut(law: Floats, tail: float) -> int:
    """How many places on the left hold at most half the tail."""
    return int(np.searchsorted(np.cumsum(law), tail / 2, side="right"))


def _error(problem: Floats, bits: int) -> float:
    """Bound the relative rounding error of a law: 16 roundings per point are more than occur."""
    return (problem.size + bits) * 2.0**-49
