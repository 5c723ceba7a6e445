"""Errors of noisy means: normal errors plus Gaussian or Laplace noise."""

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
    """Independent Gaussian or Laplace noise on means over units.

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
        sampling_std = math.sqrt(variance / self.units)
        if not self.pure:
            total = math.hypot(sampling_std, self.std * math.hypot(*weights))
            return NormalDist().inv_cdf(1 - chance) * total
        scales = _mix_scales([abs(weight) * self.std / _ROOT for weight in weights if weight])
        low, high = 0.0, 40 * (sampling_std + sum(scales))
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (
                (low, middle)
                if _compute_tail(middle, sampling_std, scales) <= chance
                else (middle, high)
            )
        return high


def _mix_scales(deviations: Sequence[float]) -> Mapping[float, float]:
    """Write the law of a sum of Laplace numbers as a signed mixture of scales.

    By partial fractions of 1/(1 + b² t²), for different scales: each is a little above the one
    before, since larger ones only spread more.
    """
    scales: list[float] = []
    for deviation in sorted(deviations):
        scales.append(max(deviation, scales[-1] * _APART) if scales else deviation)
    return {
        scale: math.prod(
            scale**2 / (scale**2 - other_scale**2) for other_scale in scales if other_scale != scale
        )
        for scale in scales
    }


def _compute_tail(at: float, std: float, scales: Mapping[float, float]) -> float:
    """Compute the chance that a normal plus centred Laplace numbers is above `at`."""
    if not scales:
        return ndtr(-at / std) if std else 0.0
    return sum(share * _compute_single_tail(at, std, scale) for scale, share in scales.items())


def _compute_single_tail(at: float, std: float, scale: float) -> float:
    """Compute the chance that a normal plus one Laplace number is above `at`."""
    if std < 1e-6 * scale:
        return 0.5 * math.exp(-at / scale)
    z, ratio = at / std, std / scale
    bell = 0.5 * math.exp(-z * z / 2)
    near = z - ratio
    if near < 0:
        first = bell * erfcx(-near / _ROOT)
    else:
        first = math.exp(ratio * ratio / 2 - at / scale) * ndtr(near)
    return ndtr(-z) + 0.5 * (first - bell * erfcx((z + ratio) / _ROOT))
