"""How far a mean with noise on it can be off: normal errors plus Gaussian or Laplace noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from kerchief.privacy.external import erfcx, ndtr

_ROOT = math.sqrt(2)
# Scales that are nearer than this are set apart, upwards: closed forms divide by differences.
_APART = 1.02
_STEPS = 45


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """Independent noise on means over so many units: its deviation, and whether it is Laplace's.

    >>> noise = Noise(std=0.1, pure=False, units=100)
    >>> round(noise.error(0.025, variance=1.0), 3)
    0.277
    """

    std: float
    pure: bool
    units: int

    def error(
        self, chance: float, *, variance: float = 0.0, weights: Sequence[float] = (1.0,)
    ) -> float:
        """What sampling and noise together exceed with this chance, below one half, on one side.

        The variance is of one unit, and their mean is taken to be normal; the weights say how much
        of which independent noise is in it.
        """
        spread = math.sqrt(variance / self.units)
        if not self.pure:
            total = math.hypot(spread, self.std * math.hypot(*weights))
            return NormalDist().inv_cdf(1 - chance) * total
        scales = _mixture([abs(one) * self.std / _ROOT for one in weights if one])
        low, high = 0.0, 40 * (spread + sum(scales))
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if _tail(middle, spread, scales) <= chance else (middle, high)
        return high


def _mixture(given: Sequence[float]) -> Mapping[float, float]:
    """The law of a sum of Laplace numbers as a signed mixture: each scale with its share.

    By partial fractions of 1/(1 + b² t²), for different scales: each is a little above the one
    before, since larger ones only spread more.
    """
    scales: list[float] = []
    for one in sorted(given):
        scales.append(max(one, scales[-1] * _APART) if scales else one)
    return {
        one: math.prod(one**2 / (one**2 - other**2) for other in scales if other != one)
        for one in scales
    }


def _tail(at: float, spread: float, scales: Mapping[float, float]) -> float:
    """The chance that a normal number plus Laplace ones, all centred, is above `at`."""
    if not scales:
        return ndtr(-at / spread) if spread else 0.0
    return sum(share * _single_tail(at, spread, one) for one, share in scales.items())


def _single_tail(at: float, spread: float, scale: float) -> float:
    """The same with one Laplace number."""
    if spread < 1e-6 * scale:
        return 0.5 * math.exp(-at / scale)
    z, ratio = at / spread, spread / scale
    bell = 0.5 * math.exp(-z * z / 2)
    near = z - ratio
    if near < 0:
        first = bell * erfcx(-near / _ROOT)
    else:
        first = math.exp(ratio * ratio / 2 - at / scale) * ndtr(near)
    return ndtr(-z) + 0.5 * (first - bell * erfcx((z + ratio) / _ROOT))
