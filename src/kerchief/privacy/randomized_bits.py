"""Numbers coded as randomized bits: what one report tells, and what a batch's sums tell.

Whoever carries the reports sees one user's bits: that is local privacy. The learner sees the sums
of a batch, one per coordinate: that is central privacy, in parallel over batches, because a user
is in one of them. Proofs: `randomized_bits.md`.

After E. Garcelon, K. Chaudhuri, V. Perchet, M. Pirotta, "Privacy amplification via shuffling for
linear contextual bandits", ALT 2022, whose own accounting is kept for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import lru_cache
from typing import ClassVar

import numpy as np

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import MOST_ROUNDS, between, plain, positive, whole
from kerchief.privacy.bit_sums import fineness, glimpsed_costs, shift_costs
from kerchief.privacy.calibration import pure_rho, zcdp_rho
from kerchief.privacy.curves import ORDERS, Renyi, RenyiCurve
from kerchief.privacy.events import Event
from kerchief.privacy.search import least_whole

KEEP_UNIT = 2.0**-20
"""Keep parameters are multiples of this, so that the chances of a bit are exact."""

GRID = 2.0**-32
"""Devices write the average number of ones to this precision."""

# Pays for float64 arithmetic in the encoding of a record.
_ENCODING = 1 + 2.0**-40
# Part of δ that pays for rare sums, when a keep parameter is searched for.
_TAIL_PART = 1 / 64
_CLOSE = 0.999
_CLOSE_ODDS = 0.004
# What a device can code, and what a certificate can be sought for in a minute.
_MOST_BITS, _MOST_SOUGHT = 2**16, 64
_LEAST_ODDS, _MOST_ODDS = 2.0**-38, 2.0**20
# An error names a bound that suffices.
_UPWARDS = Context(prec=3, rounding=ROUND_CEILING)

_Costs = Callable[[int, int, float, float], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class RandomizedBits(Event):
    """The sums of many users' randomized bits, one whole number per coordinate.

    Every user holds f in [−1, 1]^s, max ‖f − f'‖₂ ≤ Δ over any two records, and codes coordinate j
    as m bits of which ⌊x⌋ or ⌊x⌋ + 1 are ones, x = m (1 + f_j)/2 on average, independently over
    coordinates. Each bit is kept with probability a, a multiple of `KEEP_UNIT`, and is a fair coin
    otherwise. The output is, for each coordinate, the sum of all bits of all users. Nobody's vector
    depends on the bits of another user of the batch. Here m is `bits`, a is `keep`, Δ is
    `sensitivity` and s is `dimension`; `tail`, the probability of rare sums that is charged to δ,
    is part of the accounting, not of the mechanism.
    """

    kind: ClassVar[str] = "randomized_bits"
    users: int
    bits: int
    keep: float
    sensitivity: float
    dimension: int
    tail: float

    def __post_init__(self) -> None:
        """Check the values."""
        plain(self)
        _check_sizes(self.users, self.bits, self.sensitivity, self.dimension)
        if between("keep", self.keep, 0.0, 1.0) % KEEP_UNIT:
            raise InvalidValueError(
                f"keep is {self.keep}; it must be a multiple of 2**-20: round it down"
            )
        between("tail", self.tail, 1e-15, 1.0)

    @property
    def noise_multiplier(self) -> float:
        """The multiplier of the Gaussian that the sums resemble in a large batch: no bound.

        >>> event = RandomizedBits(
        ...     users=1001, bits=8, keep=0.5, sensitivity=2.0, dimension=5, tail=1e-9
        ... )
        >>> round(event.noise_multiplier, 3)
        9.682
        """
        noise = math.sqrt((self.users - 1) * (1 - self.keep**2) / self.bits)
        return noise / (self.keep * self.sensitivity)


def bits_renyi(event: RandomizedBits) -> Renyi:
    """Return the profile of one batch's sums: the promise to each of its users.

    Formal guarantees:
        `randomized_bits.md`, theorem 2. It holds whatever the other users coded.
    """
    return _profile(event, shift_costs)


def _profile(event: RandomizedBits, costs_of: _Costs) -> Renyi:
    """Return the profile that these costs of a shift imply."""
    costs = np.array(costs_of(event.users, event.bits, event.keep, event.tail / event.dimension))
    parts, root = fineness(event.bits), math.sqrt(event.dimension)
    shift = parts * (event.bits * event.sensitivity / 2 * _ENCODING + root * 2 * GRID)
    cost = costs / parts**2
    # Where a shift lies between two that were scanned: the mean of their moments, or the worse one.
    variance_term = (np.array(ORDERS) - 1) * cost * (2 * shift + root) ** 2 / 8
    mixed = cost * (shift**2 + event.dimension / 4 + variance_term)
    values = np.minimum(mixed, cost * (shift + root) ** 2)
    single_report = _bound_epsilon(
        event.keep, event.bits, event.dimension, root * event.sensitivity / 2
    )
    values = np.minimum(
        values, np.minimum(single_report, np.array(ORDERS) * pure_rho(single_report))
    )
    return Renyi(values=tuple(float(value) for value in values), tail=event.tail)


def bits_epsilon(event: RandomizedBits, delta: float) -> float:
    """Return the least ε that the profile of one batch implies at this δ."""
    delta = between("delta", delta, 0.0, 1.0)
    return RenyiCurve(profile=bits_renyi(event)).epsilon(delta)


def bits_keep(
    epsilon: float, delta: float, *, users: int, bits: int, sensitivity: float, dimension: int
) -> RandomizedBits:
    """Find the least noise with which one batch's sums are (ε, δ)-private.

    Returns:
        A description with a keep parameter that was itself tried, in full. Its ε is at least 0.999
        of the one asked for, or a keep parameter larger by 0.2 % was tried and told too much.
    """
    epsilon, delta = positive("epsilon", epsilon), between("delta", delta, 0.0, 1.0)
    _check_sizes(users, whole("bits", bits, high=_MOST_SOUGHT), sensitivity, dimension)
    return _search_keep(epsilon, delta, users, bits, sensitivity, dimension)


def bits_tail(delta: float) -> float:
    """Return the part of δ that pays for rare sums."""
    return between("delta", delta, 0.0, 1.0) * _TAIL_PART


# A search takes up to a second, and batches of one size ask for it again and again.
@lru_cache(maxsize=256)
def _search_keep(
    epsilon: float, delta: float, users: int, bits: int, sensitivity: float, dimension: int
) -> RandomizedBits:
    tail = bits_tail(delta)

    def build_event(odds: float) -> RandomizedBits:
        units = math.floor(math.sqrt(odds / (1 + odds)) / KEEP_UNIT)
        return RandomizedBits(
            users=users,
            bits=bits,
            keep=min(max(units, 1) * KEEP_UNIT, 1 - KEEP_UNIT),
            sensitivity=sensitivity,
            dimension=dimension,
            tail=tail,
        )

    def glimpse(event: RandomizedBits) -> float:
        """Estimate the ε of a batch quickly. No bound: the event is then priced in full."""
        return RenyiCurve(profile=_profile(event, glimpsed_costs)).epsilon(delta)

    floor = RenyiCurve(profile=Renyi(values=(0.0,) * len(ORDERS), tail=tail)).epsilon(delta)
    if floor >= epsilon:
        raise InvalidValueError(
            f"epsilon is {epsilon}; at delta {delta} orders up to {ORDERS[-1]} certify "
            f"{_UPWARDS.create_decimal_from_float(floor)} at the least: ask for a larger epsilon "
            "or delta"
        )
    start = 1.9 * zcdp_rho(epsilon, delta) * max(users - 1, 1) / (bits * sensitivity**2)
    quick_event = build_event(
        _largest_odds(lambda odds: glimpse(build_event(odds)), epsilon, floor, start)
    )
    if bits_epsilon(quick_event, delta) <= epsilon:
        return quick_event
    return build_event(
        _largest_odds(lambda odds: bits_epsilon(build_event(odds), delta), epsilon, floor, start)
    )


def paper_local_epsilon(keep: float, *, bits: int, dimension: int) -> float:
    """Return ms ln((1+a)/(1−a)): every bit may differ (the paper's proposition 4).

    >>> round(paper_local_epsilon(0.1, bits=1, dimension=5), 3)
    1.003
    """
    bits = whole("bits", bits)
    dimension = whole("dimension", dimension)
    return bits * dimension * _log_odds(keep)


def local_epsilon(keep: float, *, bits: int, dimension: int, taxicab: float) -> float:
    """Return a bound on ε of one user's randomized bits, seen by themselves.

    `taxicab` is the largest ‖f‖₁ of a record; for (r x, the lower half of x xᵀ) with ‖x‖ ≤ 1 and
    |r| ≤ 1 in d dimensions it is √d + (d + 1)/2.

    Formal guarantees:
        `randomized_bits.md`, theorem 1.
    """
    distance = _bound_distance(positive("taxicab", taxicab), dimension)
    single = distance * (keep - math.log1p(-keep)) if bits == 1 else math.inf
    return min(single, _bound_epsilon(keep, bits, dimension, taxicab))


def local_keep(epsilon: float, *, bits: int, dimension: int, taxicab: float) -> float:
    """Return the largest keep parameter with which one report is ε-locally private."""
    epsilon = positive("epsilon", epsilon)

    def too_many(units: int) -> bool:
        keep = units * KEEP_UNIT
        return keep >= 1 or epsilon < local_epsilon(
            keep, bits=bits, dimension=dimension, taxicab=taxicab
        )

    first = least_whole(too_many)
    if first == 1:
        raise InvalidValueError(
            f"epsilon is {epsilon}; no keep parameter is small enough for it: ask for a larger one"
        )
    return (first - 1) * KEEP_UNIT


def _bound_epsilon(keep: float, bits: int, dimension: int, half: float) -> float:
    """Bound what one report tells, if no two records are more than 2·half apart in ‖·‖₁."""
    log = _log_odds(keep)
    corner = math.log(math.expm1(log) / log) - 1 + log / math.expm1(log)
    encoding_bound = bits * _bound_distance(half, dimension) * log + dimension * corner
    return min(encoding_bound, paper_local_epsilon(keep, bits=bits, dimension=dimension))


def _bound_distance(length: float, dimension: int) -> float:
    """Bound a length in ‖·‖₁ after rounding in the encoding and on the grid."""
    return length * _ENCODING + dimension * 2 * GRID


def _largest_odds(
    reached: Callable[[float], float], goal: float, floor: float, start: float
) -> float:
    """Return the largest odds a²/(1 − a²), of those tried, that reach no more than the goal.

    Near the goal, what is reached beyond the floor is about a power of the odds; now and then it
    jumps a little.
    """
    low, high, power, before = 0.0, 2 * _MOST_ODDS, 0.5, (0.0, 0.0)
    odds = min(max(start, _LEAST_ODDS), _MOST_ODDS)
    # A goal just above the floor leaves little between the two: at least half of it is reached.
    close = max(_CLOSE * goal, (goal + floor) / 2)
    aim = math.log(_compute_excess((goal + close) / 2, floor))
    while high - low > _CLOSE_ODDS * low:
        value = reached(odds)
        low, high = (odds, high) if value <= goal else (low, odds)
        if close <= value <= goal or low == _MOST_ODDS or high <= _LEAST_ODDS:
            break
        point = (math.log(odds), math.log(_compute_excess(value, floor)))
        if before != (0.0, 0.0) and point[0] != before[0]:
            power = min(max((point[1] - before[1]) / (point[0] - before[0]), 0.4), 1.5)
        before = point
        guess = math.exp(min(point[0] + (aim - point[1]) / power, 60.0))
        guess = min(max(guess, _LEAST_ODDS), _MOST_ODDS)
        odds = guess if low < guess < high else min((low + high) / 2, _MOST_ODDS)
    if low == 0.0:
        raise InvalidValueError(
            f"no keep parameter keeps epsilon {goal}; ask for a larger one or take larger batches"
        )
    return low


def _compute_excess(value: float, floor: float) -> float:
    """Return by how much a value exceeds the floor, at least 1e-12."""
    return max(value - floor, 1e-12)


def _check_sizes(users: int, bits: int, sensitivity: float, dimension: int) -> None:
    """Refuse sizes for which no certificate can be computed."""
    whole("users", users, high=MOST_ROUNDS)
    whole("bits", bits, high=_MOST_BITS)
    between("sensitivity", sensitivity, 1e-9, 1e18, closed=True)
    whole("dimension", dimension, high=2**24)


def _log_odds(keep: float) -> float:
    keep = between("keep", keep, 0.0, 1.0)
    return math.log1p(keep) - math.log1p(-keep)
