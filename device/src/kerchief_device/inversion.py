"""Exact draws from a law on whole numbers by inversion, one word per draw.

A uniform number u lies between two steps of the law's distribution function, and that place is the
draw. The steps are known as two whole numbers each, a little below and a little above the truth.
Where the first 64 bits of u do not tell on which side of a step it lies, more bits are drawn and
the steps are computed more finely, as often as it takes. So the law is exact. Proof note:
`exact_gaussian.md` of the library, section 2.
"""

from __future__ import annotations

import bisect
import decimal
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kerchief_device.source import Randomness, drawn

_BITS = 64
_GUARD = 64
# So many decimal digits hold one bit, generously, and rounding of what is computed with them.
_DIGITS_A_BIT, _GUARD_DIGITS = 0.302, 20


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A law up to a factor, as whole numbers.

    Attributes:
        first: the least number that has a weight here.
        found: the weights from there on, none of them more than the truth.
        slack: how much all true weights together, listed or not, may have beyond those found.
    """

    first: int
    found: Sequence[int]
    slack: int


@dataclass(frozen=True)
class Inversion:
    """Draws from a law whose weights can be computed as finely as is asked for.

    >>> fair = Inversion(lambda bits: Weights(first=0, found=(1, 1), slack=0))
    >>> fair.draw(2, lambda count: bytes([0, 0, 0, 0, 0, 0, 0, 1] * (count // 16) + [254] * 8))
    array([0, 1])
    """

    weights: Callable[[int], Weights]

    def draw(self, size: int, source: Randomness) -> NDArray[np.int64]:
        """Draw this many independent numbers."""
        uniforms = np.frombuffer(drawn(8 * size, source), "<u8")
        first, lows, highs = self._table
        positions = np.searchsorted(lows, uniforms, side="right")
        unsure = np.flatnonzero(highs[positions - 1] >= uniforms)
        values = first + positions.astype(np.int64)
        for place in unsure:
            values[place] = self._refine(int(uniforms[place]), source)
        return values

    @functools.cached_property
    def _table(self) -> tuple[int, NDArray[np.uint64], NDArray[np.uint64]]:
        first, lows, highs = self._steps(_BITS)
        return first, np.array(lows, np.uint64), np.array(highs, np.uint64)

    def _refine(self, number: int, source: Randomness) -> int:
        """Locate u from its first bits, and from as many more bits as that takes."""
        bits = _BITS
        while True:
            number = (number << bits) | int.from_bytes(drawn(bits // 8, source), "little")
            bits *= 2
            first, lows, highs = self._steps(bits)
            position = bisect.bisect_right(lows, number)
            if highs[position - 1] < number:
                return first + position

    def _steps(self, bits: int) -> tuple[int, list[int], list[int]]:
        """Bound the law's distribution function times 2**bits from below and above.

        The step before the first weight stands for all numbers below it.
        """
        law = self.weights(bits + _GUARD)
        total, below, lows, highs, largest = sum(law.found), 0, [], [], (1 << bits) - 1
        for weight in (0, *law.found):
            below += weight
            lows.append(min((below << bits) // (total + law.slack), largest))
            highs.append(min(((below + law.slack) << bits) // total, largest))
        return law.first - 1, lows, highs


@functools.lru_cache(maxsize=64)
def coins(count: int) -> Inversion:
    """Return the law of the number of heads among this many fair coins.

    >>> coins(4).draw(1, lambda count: bytes(count - 1) + bytes([128])).tolist()
    [2]
    """
    return Inversion(functools.partial(_binomial, count))


@functools.lru_cache(maxsize=64)
def blocks(scale: int, width: int) -> Inversion:
    """Return the law on h >= 0 with chances ∝ exp(-(h width)² / (2 scale²))."""
    return Inversion(functools.partial(_gaussian, scale, width))


def _binomial(count: int, bits: int) -> Weights:
    """Compute binomial weights from the middle outwards, each from its predecessor.

    Each weight is the weight before it times (n - k)/(k + 1), rounded down. A weight lacks less
    than 1 more than the weight before it, and the weights that vanish sum to less than 4 (n + 1)
    on each side.
    """
    middle = -(-count // 2)
    upper, weight, k = [], 1 << bits, middle
    while weight:
        upper.append(weight)
        weight = weight * (count - k) // (k + 1)
        k += 1
    lower = upper[::-1] if count % 2 else upper[:0:-1]
    weights = (*lower, *upper)
    slack = (len(upper) + 1) ** 2 + 8 * (count + 1)
    return Weights(first=middle - len(lower), found=weights, slack=slack)


def _gaussian(scale: int, width: int, bits: int) -> Weights:
    """Compute Gaussian weights, rounded down; those that vanish sum to less than 64.

    Decimal numbers are rounded correctly, at so many digits that the last of them is lost here.
    """
    with decimal.localcontext(prec=int(_DIGITS_A_BIT * bits) + _GUARD_DIGITS) as context:
        unit = context.power(2, bits)
        weights: list[int] = []
        while True:
            exponent = decimal.Decimal((len(weights) * width) ** 2) / (2 * scale**2)
            weight = int(unit * context.exp(-exponent))
            if weight <= 1:
                return Weights(first=0, found=weights, slack=2 * len(weights) + 64)
            weights.append(weight - 1)
