"""Arithmetic that takes the same operations for every finite number.

Anyone may post a model and see how long a report takes. So no code branches on a record. Numbers
for which processors or mathematical libraries take other paths never occur: subnormal floats, and
arguments of ``math.exp`` near 0 or far from it. Not covered are the time of single instructions of
a processor, and the time of the noise (`docs/field.md`).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from kerchief_protocol.noise import Floats

LEAST, MOST = 2.0**-200, 2.0**400
"""The least and the largest size of a number: products of a few are normal and finite."""

_SIZE = np.uint64(2**63 - 1)
_LARGEST = np.float64(MOST).view(np.uint64)
# exp rounds to 1 up to the first; the C library takes another path below it and above the second.
_FLAT, _STEEP = 2.0**-54, 500.0
# Beyond, the normal tail is below 1e-299.
_FAR = 37.0
_NODE = 3.75
# Chebyshev series of (1 + 2 z) exp(z²) erfc(z) in (z - 3.75)/(z + 3.75), for z >= 0: Shepherd and
# Laframboise, Mathematics of Computation 36 (1981).
_HALF_FIRST = 1.1775789345674017
_SERIES = (
    -0.004590054580646478,
    -0.08424913336651792,
    0.05920993999819189,
    -0.026658668435305753,
    0.009074997670705265,
    -0.002413163540417608,
    0.0004907758365258086,
    -6.916973302501207e-05,
    4.13902798607301e-06,
    7.74038306619849e-07,
    -2.1886401049234397e-07,
    1.076499946567091e-08,
    4.521959811218287e-09,
    -7.754400208831351e-10,
    -6.318088340886684e-11,
    2.86879501093067e-11,
    1.9455868545777347e-13,
    -9.65469674843344e-13,
    3.25254814814874e-14,
    3.3478119482868056e-14,
    -1.864562880419313e-15,
    -1.2507950530688648e-15,
    7.418235256624044e-17,
    5.068148904796111e-17,
)


def flush(numbers: Floats, least: float = LEAST) -> Floats:
    """Set what is not finite, smaller than `least` or beyond `MOST` to 0.

    Sizes are compared as whole numbers, since arithmetic on subnormal floats is slow.

    >>> flush(np.array([0.5, -1e-300, 5e-324, np.nan, np.inf, -1.0])).tolist()
    [0.5, 0.0, 0.0, 0.0, 0.0, -1.0]
    """
    bits = numbers.view(np.uint64)
    size = bits & _SIZE
    ordinary = (size >= _size_bits(least)) & (size <= _LARGEST)
    flushed: Floats = (bits * ordinary).view(np.float64)
    return flushed


@functools.cache
def _size_bits(size: float) -> np.uint64:
    """The bits of a size as a whole number."""
    return np.float64(size).view(np.uint64)


def clip(value: float, low: float, high: float) -> float:
    """Clip a number to an interval; what is not finite or below `LEAST` counts as 0.

    >>> clip(1e300, 0.0, 1.0), clip(float("nan"), -1.0, 1.0)
    (1.0, 0.0)
    """
    value, size = float(value), abs(float(value))
    number = (0.0, value)[(size >= LEAST) & (size < math.inf)]
    return min(max(number, low), high)


def exp(score: float) -> float:
    """Compute the exponential function of a number, clipped to sizes up to 500.

    >>> exp(0.0), exp(-1e-300), exp(1.0) == math.e
    (1.0, 1.0, True)
    """
    return math.exp(math.copysign(min(max(abs(score), _FLAT), _STEEP), score))


def logistic(score: float) -> float:
    """Compute 1/(1 + exp(-score)); neither side overflows.

    >>> logistic(0.0), logistic(-800.0) < 1e-200
    (0.5, True)
    """
    decay = exp(-abs(score))
    return (decay / (1 + decay), 1 / (1 + decay))[score >= 0]


def normal(score: float) -> float:
    """Compute the normal distribution function, to 3e-16.

    >>> round(normal(0.0), 15), round(normal(1.0), 15)
    (0.5, 0.841344746068543)
    """
    z = min(abs(score), _FAR) / math.sqrt(2)
    place = (z - _NODE) / (z + _NODE)
    now = before = 0.0
    for factor in reversed(_SERIES):
        now, before = 2 * place * now - before + factor, now
    scaled = (place * now - before + _HALF_FIRST) / (1 + 2 * z)
    tail = scaled * exp(-z * z) / 2
    return (tail, 1 - tail)[score >= 0]


def density(score: float) -> float:
    """Compute the density of the normal distribution.

    >>> density(0.0) == 1 / math.sqrt(2 * math.pi)
    True
    """
    return exp(-score * score / 2) / math.sqrt(2 * math.pi)
