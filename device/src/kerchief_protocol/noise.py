"""Kinds of noise: the meaning and the public bounds of a report's whole numbers.

Every number of a report is a whole number within public bounds, and so is every sum of them: no
rounding exists that could take noise off another user, and no sum has to be tested for overflow.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief_protocol.errors import InvalidValueError

Wholes: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

KEEP_UNITS = 2**20
"""The chance with which a bit is kept is a multiple of one over this."""

# Noise without bounds is cut here, in deviations: a cut on the device cannot weaken its promise.
_FAR = 64
# Nothing is reported of a candidate beyond this, in deviations: it is cut there, wherever it ranks.
_FARTHEST = 9


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Range of the whole numbers of a report, and the parity that they must have.

    Attributes:
        low: the least, for each number.
        high: the greatest, for each number.
        odd: whether all must be odd, or all even; None where either will do.
    """

    low: Wholes
    high: Wholes
    odd: bool | None = None

    def hold(self, numbers: Wholes) -> bool:
        """Whether the numbers of a report lie within the bounds.

        >>> Bounds(low=np.array([-3]), high=np.array([3]), odd=True).hold(np.array([2]))
        False
        """
        inside = bool(((numbers >= self.low) & (numbers <= self.high)).all())
        return inside and (self.odd is None or bool(((numbers & 1) == self.odd).all()))

    @property
    def largest(self) -> int:
        """Largest absolute value that the bounds allow."""
        ends: list[int] = [1, *(-self.low).tolist(), *self.high.tolist()]
        return max(ends)


def _box(center: tuple[int, ...], radius: int) -> Bounds:
    places = np.array(center, np.int64)
    return Bounds(low=places - radius, high=places + radius)


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """Statistic on a grid without noise, for a trusted curator or without privacy.

    Attributes:
        grid_bits: a unit is 2**-grid_bits.
        center: a public point amid the statistics, in units.
        radius: how far from it a number may be, in units.
    """

    kind: str = "statistic"
    grid_bits: int
    center: tuple[int, ...]
    radius: int

    @property
    def size(self) -> int:
        """How many numbers a report has."""
        return len(self.center)

    @functools.cached_property
    def box(self) -> Bounds:
        """Bounds of the statistics."""
        return _box(self.center, self.radius)

    def bounds(self, label: int) -> Bounds:
        """Return the box around the center, for every label."""
        return self.box

    def estimate(self, total: Wholes, *, users: int, label: int) -> Floats:
        """Estimate the sum of the statistics, in their own units."""
        return np.ldexp(total.astype(np.float64), -self.grid_bits)


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """Statistic on a grid plus Gaussian or Laplace noise, clipped far out.

    Attributes:
        law: gaussian or laplace.
        grid_bits: a unit is 2**-grid_bits.
        scale: the parameter of the noise, in units.
        center: a public point amid the statistics, in units.
        radius: how far from it a statistic may be, in units.
    """

    kind: str = "rounded"
    law: str
    grid_bits: int
    scale: int
    center: tuple[int, ...]
    radius: int

    def __post_init__(self) -> None:
        """Check the law."""
        if self.law not in ("gaussian", "laplace"):
            raise InvalidValueError(f"law is {self.law[:40]!r}; it must be gaussian or laplace")

    @property
    def size(self) -> int:
        """How many numbers a report has."""
        return len(self.center)

    @functools.cached_property
    def box(self) -> Bounds:
        """Bounds of the statistics."""
        return _box(self.center, self.radius)

    def bounds(self, label: int) -> Bounds:
        """Return the box around the center, with room for the noise."""
        return _box(self.center, self.radius + _FAR * self.scale)

    def estimate(self, total: Wholes, *, users: int, label: int) -> Floats:
        """Estimate the sum of the statistics, in their own units."""
        return np.ldexp(total.astype(np.float64), -self.grid_bits)


@dataclass(frozen=True, kw_only=True)
class Coins:
    """Statistic rounded at random plus fair coins: 2·level + 2·heads − coins half steps.

    Attributes:
        size: how many numbers a report has.
        step_bits: a step is 2**-step_bits.
        levels: how many steps from 0 a statistic may be.
        scale: the deviation of the coins that a cohort needs, in steps: 4·scale² coins.
        coins: by label, how many coins a device tosses for each number.
    """

    kind: str = "coins"
    size: int
    step_bits: int
    levels: int
    scale: int
    coins: tuple[int, ...]

    def bounds(self, label: int) -> Bounds:
        """Return the bounds of levels plus coins, with the parity of the coins."""
        coins = self.coins[label]
        limits = np.full(self.size, 2 * self.levels + coins, np.int64)
        return Bounds(low=-limits, high=limits, odd=bool(coins % 2))

    def estimate(self, total: Wholes, *, users: int, label: int) -> Floats:
        """Estimate the sum of the statistics, in their own units."""
        return np.ldexp(total.astype(np.float64), -self.step_bits - 1)


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Number of ones in a statistic's bits, each kept or replaced by a fair coin.

    Attributes:
        size: how many numbers a report has.
        bits: how many bits each has.
        bound: numbers are clipped to [−bound, bound].
        keep: by label, the chance with which a bit is kept, in units of 2**-20.
    """

    kind: str = "bits"
    size: int
    bits: int
    bound: float
    keep: tuple[int, ...]

    def bounds(self, label: int) -> Bounds:
        """Return the bounds from no bits set to all bits set."""
        low = np.zeros(self.size, np.int64)
        return Bounds(low=low, high=low + self.bits)

    def estimate(self, total: Wholes, *, users: int, label: int) -> Floats:
        """Estimate the sum of the statistics, without bias."""
        above = (2 * total - users * self.bits).astype(np.float64)
        return self.bound * above / (self.bits * (self.keep[label] / KEEP_UNITS))


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """One of many candidates, scaled and on a grid.

    Attributes:
        units: the chance that one of the best is reported, in units of 2**-32.
        candidates: how many are drawn.
        listed: how many of them are the best.
        center: the center of the ball that the statistics lie in.
        radius: its radius.
        factor: what a candidate is multiplied by.
        grid_bits: a unit is 2**-grid_bits.
    """

    kind: str = "shortlist"
    units: int
    candidates: int
    listed: int
    center: tuple[float, ...]
    radius: float
    factor: float
    grid_bits: int

    @property
    def size(self) -> int:
        """How many numbers a report has."""
        return len(self.center)

    @functools.cached_property
    def centers(self) -> Floats:
        """Center of the ball as an array."""
        return np.array(self.center)

    @property
    def farthest(self) -> float:
        """Bound in deviations at which a reported candidate is clipped."""
        return _FARTHEST

    def bounds(self, label: int) -> Bounds:
        """Return the bounds of a clipped candidate around the center."""
        far = [
            math.ceil(math.ldexp(abs(coordinate) + _FARTHEST * self.factor, self.grid_bits))
            for coordinate in self.center
        ]
        limits = np.array(far, np.int64)
        return Bounds(low=-limits, high=limits)

    def estimate(self, total: Wholes, *, users: int, label: int) -> Floats:
        """Estimate the sum of the statistics, without bias."""
        return np.ldexp(total.astype(np.float64), -self.grid_bits)


@dataclass(frozen=True, kw_only=True)
class Compass:
    """One of many candidate directions, read as a vector and as a matrix on a grid.

    Attributes:
        units: the chance that one of the best is reported, in units of 2**-32.
        candidates: how many are drawn.
        listed: how many of them are the best.
        dim: the length of a direction.
        square: how long the matrix of a statistic is, but for its trace and a part in dim.
        pull: how long its vector may be.
        lean: how far what is ranked by leans towards the axis that tells the weight.
        vector: what a candidate is multiplied by for the vector.
        matrix: what its square is multiplied by for the matrix.
        weight: what its part along the weight's axis is multiplied by.
        grid_bits: a unit is 2**-grid_bits.
    """

    kind: str = "compass"
    units: int
    candidates: int
    listed: int
    dim: int
    square: float
    pull: float
    lean: float
    vector: float
    matrix: float
    weight: float
    grid_bits: int

    @property
    def size(self) -> int:
        """How many numbers a report has; none without a dimension."""
        return self.dim * (self.dim + 3) // 2 if self.dim > 0 else 0

    @functools.cached_property
    def box(self) -> Bounds:
        """Bounds of the matrix and the vector that a unit vector stands for."""
        trace = (self.square / 2 + self.weight) / self.dim
        far = [self.matrix + trace] * (self.size - self.dim) + [self.vector] * self.dim
        limits = [math.ceil(math.ldexp(extent, self.grid_bits)) + 1 for extent in far]
        return Bounds(low=-np.array(limits, np.int64), high=np.array(limits, np.int64))

    def bounds(self, label: int) -> Bounds:
        """Return the box, which does not depend on the label."""
        return self.box

    def estimate(self, total: Wholes, *, users: int, label: int) -> Floats:
        """Estimate the sum of the statistics, without bias."""
        return np.ldexp(total.astype(np.float64), -self.grid_bits)


@dataclass(frozen=True, kw_only=True)
class OneBit:
    """A coin for a single number.

    Attributes:
        bias: how far from one half its chance is at the ends of the interval, in units of 2**-32.
        center: the center of the interval.
        radius: half of its length.
        low: what tails stand for.
        high: what heads stand for.
    """

    kind: str = "one-bit"
    bias: int
    center: float
    radius: float
    low: float
    high: float

    @property
    def size(self) -> int:
        """How many numbers a report has: one."""
        return 1

    def bounds(self, label: int) -> Bounds:
        """Return the bounds 0 (tails) and 1 (heads)."""
        return Bounds(low=np.zeros(1, np.int64), high=np.ones(1, np.int64))

    def estimate(self, total: Wholes, *, users: int, label: int) -> Floats:
        """Estimate the sum of the numbers, without bias."""
        return users * self.low + (self.high - self.low) * total.astype(np.float64)


Noise: TypeAlias = Statistic | Rounded | Coins | Bits | Shortlist | Compass | OneBit
