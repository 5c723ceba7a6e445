"""One bit for a number in an interval: the best local report of a single bounded number.

The device tosses a coin whose bias is the number's place in the interval, kept away from certainty.
Read as one of two far points, the coin is right on average. Proof note: `one_bit.md`.

After J. Duchi, M. Jordan, M. Wainwright, "Minimax optimal procedures for locally private
estimation", JASA 2018, section 3.2.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.errors import InvalidValueError
from kerchief.core.queries import finite
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import at_least, between, plain, whole
from kerchief.mechanisms.ball import BallReport
from kerchief.mechanisms.mechanism import Floats, Simulated, float64_vector
from kerchief.privacy import events
from kerchief_device.samplers import UNITS, Randomness, word

_HALF = UNITS // 2
# More than all floating-point rounding between epsilon and the coin, and back.
_GUARD = 2.0**-40


@struct
class OneBit(BallReport, Simulated):
    """Replace a number within `radius` of `center` by center ± std, right on average.

    Formal guarantees:
        With real numbers, one report is ε-differentially private, tanh(ε/2) = radius/std, whatever
        the number: see `one_bit.md`. The coin is floating point with a published seed, so only
        simulation may use it; `ExactOneBit` is the twin for deployment.

    Attributes:
        std: how far from the center both reports are: a bound on the report's deviation, which is
            √(std² − (y − center)²) at y, and its sub-Gaussian constant. 0 is no noise.

    >>> noise = OneBit.of(epsilon=1.0, center=0.5, radius=0.5)
    >>> round(noise.std, 4), noise.reports == (0.5 - noise.std, 0.5 + noise.std)
    (1.082, True)
    >>> round(noise.event().epsilon, 6)
    1.0
    """

    std: float | Array
    center: float = static()
    radius: float = static()

    @classmethod
    def of(cls, *, epsilon: float, center: float, radius: float) -> OneBit:
        """The coin that keeps epsilon: never more than it, and less by a part in 2**31 at most."""
        epsilon = at_least("epsilon", epsilon, 1e-6)
        center = between("center", center, -1e18, 1e18, closed=True)
        radius = between("radius", radius, 1e-18, 1e18, closed=True)
        bias = min(math.floor(_HALF * math.tanh(epsilon / 2) * (1 - _GUARD)), _HALF - 1)
        return cls(std=radius * (_HALF / bias), center=center, radius=radius)

    @property
    def reports(self) -> tuple[float, float]:
        """The two reports that there are."""
        return self.center - float(self.std), self.center + float(self.std)

    @property
    def subgaussian(self) -> float:
        """The sub-Gaussian constant of a report about its mean (Hoeffding's lemma)."""
        return float(self.std)

    def add(self, vector: Array, stream: Stream) -> Array:
        """One of the two reports, for a vector of one number."""
        place = jnp.clip(finite((vector - self.center) / self.radius), -1, 1)
        # No coin is likelier than it would be with as much bias as there is: radius / std.
        chance = 0.5 + 0.5 * place * self.radius / self.std
        side = jnp.where(stream.uniform(1) <= chance, 1.0, -1.0)
        return jnp.where(self.std > 0, self.center + self.std * side, vector)

    def _price(self) -> events.Event:
        """A coin that can be certain protects nothing."""
        bias = self.radius / float(self.std)
        return _cost(bias) if bias < 1 else events.NonPrivate()

    def exact(self, dimension: int | None = None) -> ExactOneBit:
        """The twin for deployment: the same chances, in whole units."""
        if float(self.std) <= self.radius:
            raise InvalidValueError(
                f"std is {float(self.std)}; it must be above the radius, {self.radius}: build it "
                f"with OneBit.of"
            )
        bias = min(math.floor(_HALF * (self.radius / float(self.std)) * (1 + _GUARD)), _HALF - 1)
        return ExactOneBit(bias=bias, center=self.center, radius=self.radius)


@dataclass(frozen=True, kw_only=True)
class ExactOneBit(BallReport):
    """One-bit report by an exact coin of the operating system.

    At the ends of the interval its chance is `bias` units of 2**-32 away from one half.

    Formal guarantees:
        With the default source every report is ε-differentially private for the ε of `event`,
        whatever floating point does to the number (`one_bit.md`).

    >>> noise = OneBit.of(epsilon=2.0, center=0.0, radius=1.0).exact()
    >>> abs(noise.add(np.array([0.3])).item()) == noise.std
    True
    """

    bias: int
    center: float
    radius: float

    idealized: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every field."""
        plain(self)
        whole("bias", self.bias, high=_HALF - 1)
        between("center", self.center, -1e18, 1e18, closed=True)
        between("radius", self.radius, 1e-18, 1e18, closed=True)

    @property
    def std(self) -> float:
        """How far from the center both reports are, on the grid."""
        return round(self._far / self.grid) * self.grid

    @property
    def grid(self) -> float:
        """The distance between two values that can be reported: a power of two.

        So fine that the center and the reports are off by a part in 2**30 of the noise at most.
        """
        return 2.0 ** (math.frexp(self._far)[1] - 30)

    @property
    def reports(self) -> tuple[float, float]:
        """The two reports that there are."""
        rounded = round(self.center / self.grid) * self.grid
        return rounded - self.std, rounded + self.std

    def add(self, vector: Floats, stream: Randomness | None = None) -> Floats:
        """One of the two reports, for a vector of one number; what is not finite is the center."""
        place = (float(float64_vector(vector, 1)[0]) - self.center) / self.radius
        place = min(1.0, max(-1.0, place)) if math.isfinite(place) else 0.0
        # Rounded towards one half, so that no chance is more extreme than `bias` says.
        chance = _HALF + math.trunc(self.bias * place)
        return np.array([self.reports[word(stream or os.urandom) < chance]])

    def event(self) -> events.RandomizedResponse:
        """What one report costs."""
        return _cost(self.bias / _HALF)

    @property
    def _far(self) -> float:
        return self.radius * (_HALF / self.bias)


def _cost(bias: float) -> events.RandomizedResponse:
    return events.RandomizedResponse(epsilon=2 * math.atanh(bias) * (1 + _GUARD / 16))
