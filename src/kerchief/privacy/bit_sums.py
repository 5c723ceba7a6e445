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
_MOST_TOGETHER, _RARE, _VARIANCE_FACTOR = 16, 2.0**-8, 0.99


def binomial_law(trials: int, chance: float) -> tuple[int, Floats]:
    """Return the first outcome of a binomial law that matters (1e-44), and the chances from it.

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
    outcomes_up = np.arange(mode, high, dtype=np.float64)
    outcomes_down = np.arange(mode, low, -1, dtype=np.float64)
    right_side = np.cumprod((trials - outcomes_up) / (outcomes_up + 1) * odds)
    left_side = np.cumprod(outcomes_down / (trials - outcomes_down + 1) / odds)
    law: Floats = np.concatenate([left_side[::-1], [1.0], right_side])
    return low, law / law.sum()


def fineness(bits: int) -> int:
    """Return how many parts of a bit are told apart: a power of two, more for fewer bits.

    >>> fineness(1), fineness(3), fineness(8), fineness(64)
    (16, 4, 2, 1)
    """
    return 1 << max(1, 16 // bits).bit_length() - 1


def others(users: int, bits: int, keep: float) -> Iterator[Floats]:
    """Yield laws that hide one user, whatever the other users coded.

    The sum of the others is one of these laws plus more. Each law is for one
    interval that the number of bits coded as one may lie in. Together the intervals cover all
    numbers, from above.
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
    size = _count_joint_intervals(max(map(_width, intervals)), keep, tail)
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
    """Estimate the costs if nearly all others coded ones, which as a rule is the worst case.

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
    """List intervals that cover all numbers of others' bits coded as one, from above."""
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
    """Return a law that hides one user if the number of others' ones is in the interval.

    If low ≤ k ≤ high of the others' n bits were coded as one, then their sum is
    Bin(low, (1+a)/2) + Bin(n − high, (1−a)/2) plus an independent rest: of the bits that may be
    either, so many are fair coins.
    """
    low, high = interval
    _, one_sum = binomial_law(low, (1 + keep) / 2)
    _, zero_sum = binomial_law((users - 1) * bits - high, (1 - keep) / 2)
    _, coin_sum = binomial_law(coins, 0.5)
    return np.convolve(coin_sum, np.convolve(one_sum, zero_sum))


def _coins(bits: int, keep: float, tail: float) -> int:
    """Return how many of so many bits become coins at least, but for a part of the tail."""
    first, law = binomial_law(bits, 1 - keep)
    return first + _count_tail_places(law, _RARE * tail)


def _count_joint_intervals(width: int, keep: float, tail: float) -> int:
    """Return how many intervals together lack no more variance than one by itself."""
    lacking = width * (1 - keep**2)
    sizes = range(2, _MOST_TOGETHER + 1)
    return max(
        (
            n
            for n in sizes
            if n * lacking - _coins(n * width, keep, tail) < _VARIANCE_FACTOR * lacking
        ),
        default=1,
    )


def _costs(crowd: Floats, bits: int, keep: float, tail: float) -> Floats:
    """Scan the shifts from φ up to full − 1 + f ones, where 0 ≤ φ < 1 and 0 < f ≤ 1."""
    # What is neither far below the others' bits nor far above them and one user's together.
    first, last = (
        _count_tail_places(crowd, _SPARE * tail),
        _count_tail_places(crowd[::-1], _SPARE * tail),
    )
    start, stop = max(0, first - bits), crowd.size - last + bits
    near = slice(first - start, stop - start)
    one_sums = _add_bits(crowd[start:stop], bits, (1 + keep) / 2)
    zero_sums = _add_bits(crowd[start:stop], bits, (1 - keep) / 2)
    full, phi, f = _shifts(bits)
    highs, lows = (1 + keep * (2 * f - 1)) / 2, (1 + keep * (2 * phi - 1)) / 2
    size, moments = max(1, _BLOCK // one_sums.shape[1]), []
    for place in range(0, len(full), size):
        rows = slice(place, place + size)
        after = _add_last_bit(one_sums, full[rows], highs[rows], near)
        before = _add_last_bit(zero_sums, full[rows], lows[rows], near)
        moments.append(_moments(after, before, tail))
    orders = np.array(ORDERS)
    logs = np.log(np.concatenate(moments, 1)) + 2 * orders[:, None] * _bound_error(crowd, bits)
    worst: Floats = (logs / (full - 1 + f - phi) ** 2).max(1) / (orders - 1)
    return worst


def _moments(after: Floats, before: Floats, tail: float) -> Floats:
    """Sum after^α before^(1−α) for every order α, row by row, without the tails."""
    inside = _select_bulk(after, (1 - 4 * _SPARE) * tail)
    nonempty = np.flatnonzero(inside.any(0))
    columns = slice(nonempty[0], nonempty[-1] + 1)
    inside, after, before = inside[:, columns], after[:, columns], before[:, columns]
    sums = np.empty((len(ORDERS), len(after)))
    # Where the law before is too small for a float of full precision, the ratio is endless: the
    # safe side.
    before = np.where(before < np.finfo(np.float64).tiny, 0.0, before)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratios = np.where(inside, after / before, 1.0)
        terms, step, gap, last = np.where(inside, after, 0.0), ratios, 1.0, 1.0
        for place, order in enumerate(ORDERS):
            exponent = order - last
            if math.frexp(exponent)[0] != 0.5:
                sums[place] = (terms * np.exp(exponent * np.log(ratios))).sum(1)
                continue
            # Powers of two of the ratios are squares and roots of one another.
            while gap > exponent:
                step, gap = np.sqrt(step), gap / 2
            while gap < exponent:
                step, gap = step * step, gap * 2
            terms *= step
            np.add.reduce(terms, 1, out=sums[place])
            last = order
    return sums


@lru_cache(maxsize=32)
def _shifts(bits: int) -> tuple[NDArray[np.int64], Floats, Floats]:
    """List, for every shift on the grid, the (full, φ, f) with φ = 0 and those with f = 1.

    With a given shift no other pair of averages tells more than these.
    """
    steps = fineness(bits)
    full_bits, part = np.divmod(np.arange(bits * steps), steps)
    full, f = full_bits + 1, (part + 1) / steps
    split = f < 1
    return (
        np.concatenate([full, full[split]]),
        np.concatenate([np.zeros(f.size), 1 - f[split]]),
        np.concatenate([f, np.ones(int(split.sum()))]),
    )


def _add_last_bit(laws: Floats, bits: NDArray[np.int64], chances: Floats, near: slice) -> Floats:
    """Return each law after its last bit, which is a one with the row's chance, near the bulk."""
    rows, chance_columns = laws[bits - 1, near.start : near.stop + 1], chances[:, None]
    laws_with_bit: Floats = (1 - chance_columns) * rows[:, 1:]
    laws_with_bit += chance_columns * rows[:, :-1]
    return laws_with_bit


def _add_bits(crowd: Floats, bits: int, chance: float) -> Floats:
    """List the laws of the crowd plus 0, 1, ..., `bits` − 1 bits with this chance of a one.

    A zero is put before each law.
    """
    rows = np.empty((bits, crowd.size + bits + 1))
    rows[0] = np.pad(crowd, (1, bits))
    for j in range(1, bits):
        np.multiply(rows[j - 1], 1 - chance, out=rows[j])
        rows[j, 1:] += chance * rows[j - 1, :-1]
    return rows


def _select_bulk(laws: Floats, tail: float) -> NDArray[np.bool_]:
    """Select the outcomes of each law that remain without `tail`, half of it on either side."""
    from_left = np.cumsum(laws, 1)
    from_right = np.cumsum(laws[:, ::-1], 1)[:, ::-1]
    return (from_left > tail / 2) & (from_right > tail / 2)


def _count_tail_places(law: Floats, tail: float) -> int:
    """Count the places on the left that hold at most half the tail."""
    return int(np.searchsorted(np.cumsum(law), tail / 2, side="right"))


def _bound_error(crowd: Floats, bits: int) -> float:
    """Bound the relative rounding error of a law: 16 roundings per point suffice."""
    return (crowd.size + bits) * 2.0**-49
