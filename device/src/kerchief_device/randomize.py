"""Randomizers: from a statistic to the whole numbers that leave the device.

Each randomizer has exactly the law of a mechanism of the library, and draws the same bytes in the
same order. Whatever the statistic is, the numbers lie within the task's public bounds, and the
operations are the same: what differs between reports depends on fresh randomness alone.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kerchief_device.compass import reported
from kerchief_device.constant_time import flush
from kerchief_device.inversion import coins as coin_law
from kerchief_device.samplers import (
    UNITS,
    Randomness,
    chosen_rank,
    drawn,
    sample_discrete_gaussian,
    sample_discrete_laplace,
    words,
)
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.noise import (
    KEEP_UNITS,
    Bits,
    Bounds,
    Coins,
    Compass,
    Floats,
    Noise,
    OneBit,
    Rounded,
    Shortlist,
    Statistic,
    Wholes,
)

Vectors: TypeAlias = NDArray[np.float32]
Candidates: TypeAlias = Callable[[int, int, Randomness], Vectors]
"""Gives so many independent normal vectors of a size, in units of `step_of` it; it never sees a
statistic."""

_HALF, _UNIT_BITS = UNITS // 2, UNITS.bit_length() - 1
# The chance (1 ± keep)/2 of a bit, in units of 2**-32, is this often (units ± keep units).
_WORDS_A_UNIT = UNITS // (2 * KEEP_UNITS)
Number = TypeVar("Number", Floats, Wholes)
# No number of a report is so large, and no sum with noise overflows.
_FAR = 2.0**62
# How many candidates' numbers there are: as many as two bytes.
_SLICES = 2**16
# Numbers of longer vectors are drawn in pairs; which slices are a pair, and how fine they are.
_LONG = 2**10
_LATTICE = 36945, 51240
_STEP = 2.0**-12
# A candidate's score in single precision does not show a smaller part of a unit vector.
_INVISIBLE = 2.0**-64
# Coins that are tossed one by one.
_MAX_TOSSED = 1024
_LAWS = {"gaussian": sample_discrete_gaussian, "laplace": sample_discrete_laplace}


def candidates(count: int, size: int, source: Randomness) -> Vectors:
    """Draw independent normal vectors; they are public, so a fast generator will do.

    Every number is the mean of one of 65536 equally likely slices of the normal law, in units of
    `step_of` the size. Two bytes choose it; of long vectors they choose two numbers, as good as
    independent (`shortlist.md`).
    """
    numbers, per_place = count * size, 2 if size > _LONG else 1
    seed = int.from_bytes(drawn(16, source), "little")
    places = np.random.SFC64(seed).random_raw(-(-numbers // (4 * per_place))).view(np.uint16)
    if per_place == 1:
        return _slices().take(places[:numbers]).reshape(count, size)
    steps = _pairs().take(places).view(np.int16)[:numbers]
    return steps.astype(np.float32).reshape(count, size)


def step_of(size: int) -> float:
    """Return the unit of candidates of a size, a power of two so that no scale rounds."""
    return _STEP if size > _LONG else 1.0


@functools.cache
def _pairs() -> NDArray[np.int32]:
    """Pack each slice's mean with another slice's, in steps, into one number."""
    factor, shift = _LATTICE
    steps = np.rint(_slices() / np.float32(_STEP)).astype(np.int16)
    partners = steps[(factor * np.arange(_SLICES) + shift) % _SLICES]
    return np.stack([steps, partners], axis=1).view(np.int32)[:, 0]


@functools.cache
def _slices() -> Vectors:
    """Compute the means of 65536 equally likely slices of the normal law, in order."""
    law = statistics.NormalDist()
    inner = np.array([law.inv_cdf(rank / _SLICES) for rank in range(1, _SLICES)])
    heights = np.exp(-(inner**2) / 2) / math.sqrt(2 * math.pi)
    return (-_SLICES * np.diff(heights, prepend=0.0, append=0.0)).astype(np.float32)


def randomize(
    noise: Noise,
    statistic: Any,
    label: int,
    source: Randomness,
    listed: Candidates = candidates,
) -> Wholes:
    """Turn a statistic into the whole numbers to report.

    Args:
        noise: of one query.
        statistic: float64, as many finite numbers as the noise has.
        label: of the cohort, for noise that depends on it.
        source: of random bytes; the operating system's, but in tests.
        listed: where the candidates of a shortlist or a compass come from; each list is for one
            report.

    Raises:
        InvalidValueError: the statistic is something else.

    >>> noise = Statistic(grid_bits=2, center=(0, 0), radius=4)
    >>> randomize(noise, np.array([0.3, 7.0]), 0, bytes).tolist()
    [1, 4]
    """
    is_float64 = isinstance(statistic, np.ndarray) and statistic.dtype == np.float64
    if not is_float64 or statistic.shape != (noise.size,) or not np.isfinite(statistic).all():
        raise InvalidValueError(
            f"the statistic is no {noise.size} finite numbers in float64; encode the record again"
        )
    statistic = flush(statistic)
    match noise:
        case Statistic():
            return _on_grid(noise, statistic)
        case Rounded():
            return _rounded(noise, statistic, source)
        case Coins():
            return _coins(noise, statistic, label, source)
        case Bits():
            return _bits(noise, statistic, label, source)
        case Shortlist():
            return _shortlist(noise, statistic, source, listed)
        case Compass():
            return _compass(noise, statistic, source, listed)
        case OneBit():
            return _one_bit(noise, statistic, source)


def heads(coins: int, size: int, source: Randomness) -> Wholes:
    """Toss that many fair coins for each of `size` numbers, and count the heads.

    Where there are many, their number is drawn at once, with the same law.

    >>> heads(3, 2, lambda count: bytes([255] * count)).tolist()
    [3, 3]
    """
    if coins > _MAX_TOSSED:
        return coin_law(coins).draw(size, source)
    width = -(-coins // 8)
    data = np.frombuffer(drawn(width * size, source), np.uint8).reshape(size, width)
    head_counts: Wholes = np.bitwise_count(data).sum(1, dtype=np.uint32).astype(np.int64)
    if coins % 8:
        head_counts -= np.bitwise_count(data[:, -1] >> np.uint8(coins % 8))
    return head_counts


def _on_grid(noise: Statistic | Rounded, statistic: Floats) -> Wholes:
    """Round a statistic to whole steps, ties to even, within the box of statistics."""
    far = math.ldexp(_FAR, -noise.grid_bits)
    steps = np.rint(_between(statistic, -far, far) * 2.0**noise.grid_bits)
    return _between(steps.astype(np.int64), noise.box.low, noise.box.high)


def _rounded(noise: Rounded, statistic: Floats, source: Randomness) -> Wholes:
    bounds = _bounds(noise, 0)
    steps = _on_grid(noise, statistic)
    total = steps + _LAWS[noise.law](noise.scale, noise.size, randomness=source)
    return _between(total, bounds.low, bounds.high)


def _coins(noise: Coins, statistic: Floats, label: int, source: Randomness) -> Wholes:
    """Toss coins, then round up or down at random, unbiased to 2**-53."""
    coins = noise.coins[label]
    own = heads(coins, noise.size, source)
    random = np.frombuffer(drawn(8 * noise.size, source), "<u8")
    # Below 1, in units of 2**-53: exact, and so is its sum with the fraction of a level.
    up = (random >> np.uint64(11)).astype(np.float64) * 2.0**-53
    far = math.ldexp(noise.levels, -noise.step_bits)
    level = _between(statistic, -far, far) * 2.0**noise.step_bits
    low = np.floor(level)
    near = (low + (level - low > up)).astype(np.int64)
    return 2 * (near + own) - coins


def _bits(noise: Bits, statistic: Floats, label: int, source: Randomness) -> Wholes:
    """Encode a statistic as bits, then keep or replace each of them."""
    clipped = np.clip(statistic / noise.bound, -1, 1)
    steps = np.rint(noise.bits * (1 + clipped) / 2 * UNITS).astype(np.int64)
    fraction = steps & (UNITS - 1)
    one_counts = (steps >> _UNIT_BITS) + (words(noise.size, source) < fraction)
    coded = np.arange(noise.bits) < one_counts[:, None]
    keep = noise.keep[label]
    chances = np.where(coded, KEEP_UNITS + keep, KEEP_UNITS - keep) * _WORDS_A_UNIT
    random = words(noise.size * noise.bits, source).reshape(coded.shape)
    kept_counts: Wholes = (random < chances).sum(1, dtype=np.int64)
    return kept_counts


def _shortlist(
    noise: Shortlist, statistic: Floats, source: Randomness, draw_candidates: Candidates
) -> Wholes:
    """Draw candidates, rank them, choose one by exact coins, and round it to the grid.

    A candidate is cut in the same way wherever it ranks, so the cut cannot tell how it ranked.
    """
    center, far = noise.centers, noise.farthest
    vectors, step = (
        draw_candidates(noise.candidates, noise.size + 1, source),
        step_of(noise.size + 1),
    )
    unit = _unit(statistic, center, noise.radius).astype(np.float32)
    ranked = np.argpartition(vectors @ unit, noise.candidates - noise.listed)
    place = chosen_rank(noise.units, noise.candidates, noise.listed, source)
    candidate = _between(step * vectors[ranked[place], :-1].astype(np.float64), -far, far)
    report = center + noise.factor * candidate
    return np.rint(report * 2.0**noise.grid_bits).astype(np.int64)


def _compass(
    noise: Compass, statistic: Floats, source: Randomness, draw_candidates: Candidates
) -> Wholes:
    """Read the chosen direction, rounded to whole steps."""
    report = reported(noise, statistic, source, draw_candidates) * 2.0**noise.grid_bits
    return _between(np.rint(report).astype(np.int64), noise.box.low, noise.box.high)


def _unit(statistic: Floats, center: Floats, radius: float) -> Floats:
    """Map a vector in the ball to a unit vector with one more dimension."""
    with np.errstate(all="ignore"):
        centred = _between((statistic - center) / radius, -1e150, 1e150)
    centred = flush(centred, _INVISIBLE)
    short = flush(centred / max(1.0, math.sqrt(float(centred @ centred))), _INVISIBLE)
    unit = np.empty(short.size + 1)
    unit[:-1], unit[-1] = short, math.sqrt(max(0.0, 1 - float(short @ short)))
    return unit


def _between(numbers: Number, low: Any, high: Any) -> Number:
    """Clip numbers to an interval, twice as fast as `np.clip` for short arrays."""
    clipped: Number = np.minimum(np.maximum(numbers, low), high)
    return clipped


def _one_bit(noise: OneBit, statistic: Floats, source: Randomness) -> Wholes:
    place = _between((statistic - noise.center) / noise.radius, -1.0, 1.0)
    # Rounded towards one half, so that no chance is more extreme than `bias` says.
    chance = _HALF + np.trunc(noise.bias * place)
    return (words(1, source) < chance).astype(np.int64)


@functools.lru_cache(maxsize=256)
def _bounds(noise: Noise, label: int) -> Bounds:
    return noise.bounds(label)
