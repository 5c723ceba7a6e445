"""Sums that value a policy, and readings of noisy sums: note `off_policy.md`.

Rewards are centred and halved: r stands for (reward − middle) / half, within [-1, 1]. A unit,
which is a row or a user, gives the mean of its rows' numbers, which are then encoded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from kerchief.data.logs import Floats
from kerchief.data.tails import Noise

SUREST_GUESS = 0.5
"""Guesses of rewards are cut to it, on either side: a surer model would cost more noise."""

# Where an interval is looked for first, and how often its ends are halved.
_POINTS, _HALVINGS = 81, 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """A value and its interval, within [-1, 1], all from what was released.

    Attributes:
        weight: the mean weight, where it is part of the release.
        noise: the standard deviation that noise alone gives to the value.
    """

    value: float
    low: float
    high: float
    weight: float | None
    noise: float


class ValueSum(Protocol):
    """A bounded statistic of a unit, and how its mean with noise is read."""

    @property
    def size(self) -> int:
        """How many numbers are released."""

    @property
    def sensitivity(self) -> float:
        """How far apart two encoded units can be, in the Euclidean norm."""

    @property
    def taxicab(self) -> float:
        """Sensitivity in the sum of absolute values."""

    def rows(self, weights: Floats, rewards: Floats, guesses: Floats, expected: Floats) -> Floats:
        """The numbers of every row, from weights up to `largest` and rewards within [-1, 1].

        Guesses are a model's for what was played, up to `SUREST_GUESS`, and expected is its value
        of the policy.
        """

    def encode(self, means: Floats, *, pure: bool) -> Floats:
        """The statistic of every unit, from the means of its rows' numbers."""

    def read(self, means: Floats, noise: Noise, *, miss: float) -> Reading:
        """Read value and interval from noisy means; each end may miss with chance `miss`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanSum:
    """Inverse propensity, or doubly robust with a model: a mean with its second moment.

    Attributes:
        largest: weights are cut to it.
        modelled: whether guesses are from a model; else they are zeros.
        complete: whether it is declared that no weight is above it. Else both ends are widened by
            as much as the missing weight could have brought, and each is a mean of its own.
    """

    largest: float
    modelled: bool
    complete: bool

    @property
    def ends(self) -> tuple[float, ...]:
        """What is added to a row's number, in weights: nothing, or the widening of either end."""
        widest = 1.0 + SUREST_GUESS * self.modelled
        return (0.0,) if self.complete else (widest, -widest)

    @property
    def radius(self) -> float:
        """How far a number can be from its center."""
        guess = SUREST_GUESS * self.modelled
        return guess + (1 + guess) * self.largest

    @property
    def size(self) -> int:
        """A mean and a second moment for each end."""
        return 2 * len(self.ends)

    @property
    def sensitivity(self) -> float:
        """Two for each end and its square together."""
        return 2 * math.sqrt(len(self.ends))

    @property
    def taxicab(self) -> float:
        """Sensitivity in the sum of absolute values."""
        return 2.0 * len(self.ends)

    def rows(self, weights: Floats, rewards: Floats, guesses: Floats, expected: Floats) -> Floats:
        """Compute for each end its number less its center, over the radius."""
        plain = expected + weights * (rewards - guesses)
        ends = [plain + end * (weights - self.largest) for end in self.ends]
        return np.stack(ends, axis=1) / self.radius

    def encode(self, means: Floats, *, pure: bool) -> Floats:
        """The numbers, cut to [-1, 1], and their squares, scaled."""
        clipped = np.clip(means, -1.0, 1.0)
        return np.concatenate([clipped, _weigh_square(pure) * clipped**2], axis=1)

    def read(self, means: Floats, noise: Noise, *, miss: float) -> Reading:
        """Move means back to the scale of rewards, and widen the interval."""
        count = len(self.ends)
        first, second = means[:count], means[count:] / _weigh_square(noise.pure)
        errors = [self._error(*pair, noise, miss) for pair in zip(first, second, strict=True)]
        back = self.radius * first + self.largest * np.array(self.ends)
        value = float(back.mean())
        low = float(back[0]) - self.ends[0] - self.radius * errors[0]
        high = float(back[-1]) - self.ends[-1] + self.radius * errors[-1]
        weight = None if self.complete else float((back[0] - back[1]) / (2 * self.ends[0]))
        return _build_reading(value, low, high, weight, self.radius * noise.std / math.sqrt(count))

    def _error(self, first: float, second: float, noise: Noise, miss: float) -> float:
        """Bound the error of a mean: a tenth of the chance is for either moment's own noise."""
        upper = second + noise.error(miss / 10) / _weigh_square(noise.pure)
        lower = max(abs(first) - noise.error(miss / 10), 0.0)
        variance = min(max(upper - lower**2, 0.0), 1.0) * noise.units / (noise.units - 1)
        return noise.error(0.8 * miss, variance=variance)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchedSum:
    """Replay: the mean reward of rows that agree with the policy, each with its weight.

    A ratio of released sums. Its interval is all values v for which the mean of a (r − v) could be
    0, a the weight over `largest`: it stays right where few rows agree.
    """

    largest: float
    complete: bool

    @property
    def size(self) -> int:
        """Weight, weighted reward and their three products."""
        return 5

    @property
    def sensitivity(self) -> float:
        """The triangle of the first two has diameter 2; halved products add 6/4 to its square."""
        return math.sqrt(5.5)

    @property
    def taxicab(self) -> float:
        """Two for the first two, two for the halved products."""
        return 4.0

    def rows(self, weights: Floats, rewards: Floats, guesses: Floats, expected: Floats) -> Floats:
        """The weight in parts of the largest, and the same times the reward."""
        shares = weights / self.largest
        return np.stack([shares, shares * rewards], axis=1)

    def encode(self, means: Floats, *, pure: bool) -> Floats:
        """Clip both numbers to their triangle, and append their halved products."""
        a = np.clip(means[:, 0], 0.0, 1.0)
        b = np.clip(means[:, 1], -a, a)
        return np.stack([a, b, a * a / 2, a * b / 2, b * b / 2], axis=1)

    def read(self, means: Floats, noise: Noise, *, miss: float) -> Reading:
        """Compute the ratio and its interval; half of the chance is for missing weight."""
        a, b, *halved = (float(mean) for mean in means)
        products = tuple(2 * mean for mean in halved)
        matched = max(a, noise.std)
        value = min(max(b / matched, -1.0), 1.0)
        alone = noise.std * math.hypot(1.0, value) / matched
        part = miss if self.complete else miss / 2
        low, high = self._find_interval((a, b), products, noise, part)
        if self.complete:
            return _build_reading(value, low, high, None, alone)
        variance = min(max(products[0] + 2 * noise.error(part / 10), 0.0), 1.0)
        least_weight = self.largest * (a - noise.error(0.9 * part, variance=variance))
        least_weight = min(max(least_weight, 0.0), 1.0)
        low, high = least_weight * (1 + low) - 1, 1 - least_weight * (1 - high)
        return _build_reading(value, low, high, self.largest * a, alone)

    def _find_interval(
        self,
        sums: tuple[float, float],
        products: tuple[float, ...],
        noise: Noise,
        miss: float,
    ) -> tuple[float, float]:
        """The first and the last value that the sums do not rule out."""

        def possible(v: float) -> bool:
            return abs(sums[1] - v * sums[0]) <= self._error(v, products, noise, miss)

        values = [v for v in np.linspace(-1, 1, _POINTS).tolist() if possible(v)]
        if not values:
            return -1.0, 1.0
        step = 2 / (_POINTS - 1)
        return _find_edge(possible, values[0], values[0] - step), _find_edge(
            possible, values[-1], values[-1] + step
        )

    def _error(self, v: float, products: tuple[float, ...], noise: Noise, miss: float) -> float:
        aa, ab, bb = products
        slack = 2 * noise.error(miss / 10, weights=(v * v, -2 * v, 1.0))
        variance = min(max(v * v * aa - 2 * v * ab + bb + slack, 0.0), (1 + abs(v)) ** 2)
        return noise.error(0.9 * miss, variance=variance, weights=(1.0, -v))


def _find_edge(possible: Callable[[float], bool], inside: float, outside: float) -> float:
    """A point beyond the last possible one, and close to it."""
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if possible(middle) else (inside, middle)
    return outside


def _weigh_square(pure: bool) -> float:
    """How much a square counts beside its number, at no cost: lemma 1 of the note."""
    return 0.5 if pure else 1.5


def _build_reading(
    value: float, low: float, high: float, weight: float | None, noise: float
) -> Reading:
    """Build a reading whose ends are ordered and within the range of rewards."""
    value, low, high = (min(max(end, -1.0), 1.0) for end in (value, low, high))
    low, high = min(low, value), max(high, value)
    return Reading(value=value, low=low, high=high, weight=weight, noise=noise)
