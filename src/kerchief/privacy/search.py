"""A root finder that always errs on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

from kerchief.core.errors import InvalidValueError

_SMALLEST = 1e-300


def least(ok: Callable[[float], bool]) -> float:
    """Return the least positive number for which `ok` holds, to the last bit.

    `ok` must be false below some point and true above it. The number returned has itself been
    tried, so that rounding can make it a little too large, never too small.

    >>> least(lambda x: x * x >= 2.0) ** 2 >= 2.0
    True
    """
    high = 1.0
    while not ok(high):
        high *= 2.0
        if math.isinf(high):
            raise InvalidValueError("no finite value is large enough; the request is out of reach")
    low = high / 2.0
    while low > _SMALLEST and ok(low):
        high, low = low, low / 2.0
    while low < (midpoint := low + (high - low) / 2.0) < high:
        low, high = (low, midpoint) if ok(midpoint) else (midpoint, high)
    return high


def least_epsilon(curve: Callable[[float], float], delta: float) -> float:
    """Return the least ε ≥ 0 at which a privacy curve δ(ε) keeps this δ, found as `least` does.

    >>> round(least_epsilon(lambda epsilon: 0.5 - epsilon, 0.2), 9)
    0.3
    """
    return 0.0 if curve(0.0) <= delta else least(lambda epsilon: curve(epsilon) <= delta)


def least_whole(ok: Callable[[int], bool]) -> int:
    """Return the least whole number from 1 on for which `ok` holds, as it does for all above it.

    >>> least_whole(lambda number: number**2 >= 50)
    8
    """
    high = 1
    while not ok(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        midpoint = (low + high) // 2
        low, high = (low, midpoint) if ok(midpoint) else (midpoint, high)
    return high
