"""Forecasts from simulated environments: intervals, crossings and a verdict."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import between, real_array

_special: Any = importlib.import_module("scipy.special")

LEVEL = 0.9
"""How often an interval shall hold."""

# The last part of a run, from which its pace is read; how many times the run it may be drawn out.
_LATE, _FARTHEST = 0.2, 10.0

Verdict: TypeAlias = Literal["personalise", "one arm", "undecided"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """Mean with an interval."""

    mean: float
    low: float
    high: float

    def text(self) -> str:
        """Format the interval with three digits each.

        >>> Interval(mean=0.7312, low=0.71, high=0.75).text()
        '0.731 (0.71 to 0.75)'
        """
        return f"{self.mean:.3g} ({self.low:.3g} to {self.high:.3g})"

    def covers(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.low <= value <= self.high


def predict_interval(
    values: ArrayLike, *, least: float = -math.inf, level: float = LEVEL
) -> Interval:
    """Predict where the value of one more environment lies, not below `least`.

    From 19 environments on (at 90 %), the interval lies between two order statistics, which is
    valid for any distribution of environments. With fewer, it holds all values, and is as wide as
    normal values would need to miss half as often, since few environments hide how skewed their
    distribution is.

    >>> predict_interval(range(1, 40)).text()
    '20 (2 to 38)'
    >>> predict_interval([1.0, 2.0, 3.0]).text()
    '2 (-2.97 to 6.97)'
    >>> predict_interval([1.0, 2.0, 3.0], least=0.0).text()
    '2 (0 to 6.97)'
    """
    sorted_values = _sort_values(values)
    count, rank = sorted_values.size, _compute_rank(sorted_values.size, level)
    if rank >= 1:
        low, high = float(sorted_values[rank - 1]), float(sorted_values[count - rank])
        return Interval(mean=float(sorted_values.mean()), low=low, high=high)
    half_width = (
        _compute_quantile(count, (1 + level) / 2)
        * math.sqrt(1 + 1 / count)
        * float(sorted_values.std(ddof=1))
    )
    mean = float(sorted_values.mean())
    low, high = max(mean - half_width, least), mean + half_width
    return Interval(
        mean=mean, low=min(low, float(sorted_values[0])), high=max(high, float(sorted_values[-1]))
    )


def average(values: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Estimate the mean over all environments, by Student's distribution.

    >>> average([1.0, 2.0, 3.0]).text()
    '2 (0.314 to 3.69)'
    """
    sorted_values = _sort_values(values)
    half_width = (
        _compute_quantile(sorted_values.size, level)
        * float(sorted_values.std(ddof=1))
        / math.sqrt(sorted_values.size)
    )
    mean = float(sorted_values.mean())
    return Interval(mean=mean, low=mean - half_width, high=mean + half_width)


def _sort_values(values: ArrayLike) -> NDArray[np.float64]:
    sorted_values = np.sort(real_array("values", values).ravel())
    if sorted_values.size < 2 or not np.isfinite(sorted_values).all():
        raise InvalidValueError(
            f"there are {sorted_values.size} values; an interval needs 2 or more finite ones"
        )
    return sorted_values


def _compute_rank(count: int, level: float) -> int:
    """Return which value from either end bounds a new one, or 0 if none does."""
    tail = (1 - between("level", level, 0.0, 1.0)) / 2
    return math.floor((count + 1) * tail + 1e-9)


def _compute_quantile(count: int, level: float) -> float:
    return float(_special.stdtrit(count - 1, (1 + between("level", level, 0.0, 1.0)) / 2))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requirement:
    """Amount of users or epsilon from which a gain is positive.

    Attributes:
        value: the amount; None if no simulated amount was enough.
        least: least simulated amount; a value that is no greater is an upper bound.
        most: largest simulated amount.
        guess: amount beyond the simulated ones if the pace at the end continues; else None.
    """

    value: float | None
    least: float
    most: float
    guess: float | None = None

    @property
    def bound(self) -> bool:
        """Whether the least simulated amount is enough, so that less may do."""
        return self.value is not None and self.value <= self.least


def users_needed(rounds: ArrayLike, gains: ArrayLike) -> Requirement:
    """Find after how many users a cumulative gain stays above 0.

    Args:
        rounds: after how many users the gain was read.
        gains: the gain over the baseline, summed over users so far.

    >>> users_needed([100, 200, 300], [-2.0, -1.0, 1.0]).value
    250.0
    >>> short = users_needed([100, 200, 300, 400, 500], [-2.0, -4.0, -5.0, -5.0, -4.5])
    >>> short.value, short.guess
    (None, 1400.0)
    """
    users, gain = real_array("rounds", rounds), real_array("gains", gains)
    if users.shape != gain.shape or users.ndim != 1 or users.size == 0:
        raise InvalidValueError(
            f"there are {gain.size} gains after {users.size} ticks; give one for each"
        )
    last, least = float(users[-1]), float(users[0])
    if gain[-1] <= 0:
        return Requirement(
            value=None, least=least, most=last, guess=_extrapolate_crossing(users, gain)
        )
    behind = np.flatnonzero(gain <= 0)
    if not behind.size:
        return Requirement(value=least, least=least, most=last)
    last_behind = int(behind[-1])
    return Requirement(
        value=_interpolate_crossing(
            users[last_behind], users[last_behind + 1], gain[last_behind], gain[last_behind + 1]
        ),
        least=least,
        most=last,
    )


def _extrapolate_crossing(users: NDArray[np.float64], gain: NDArray[np.float64]) -> float | None:
    """Extrapolate where the gain is 0 at the pace of the end of the run."""
    late = int(np.searchsorted(users, users[-1] * (1 - _LATE)))
    if late >= users.size - 1:
        return None
    pace = (gain[-1] - gain[late]) / (users[-1] - users[late])
    if pace <= 0:
        return None
    guess = float(users[-1] - gain[-1] / pace)
    return guess if guess <= _FARTHEST * users[-1] else None


def epsilon_needed(gains: Mapping[float, float]) -> Requirement:
    """Find the least epsilon whose mean gain is above 0.

    Gains are made monotone, since more epsilon is no worse: gains that fall are averaged with their
    neighbours. Between two epsilons the gain is a line over log epsilon.

    >>> epsilon_needed({1.0: -1.0, 4.0: 1.0}).value
    2.0
    >>> epsilon_needed({1.0: -1.0, 4.0: -0.5}).value is None
    True
    """
    if not gains:
        raise InvalidValueError("there are no gains; give one for each epsilon")
    epsilons = sorted(gains)
    rising = _fit_nondecreasing([gains[epsilon] for epsilon in epsilons])
    smallest, largest = epsilons[0], epsilons[-1]
    if rising[-1] <= 0:
        return Requirement(value=None, least=smallest, most=largest)
    if rising[0] > 0:
        return Requirement(value=smallest, least=smallest, most=largest)
    pairs = itertools.pairwise(zip(epsilons, rising, strict=True))
    (low, under), (high, over) = next(pair for pair in pairs if pair[1][1] > 0)
    value = math.exp(_interpolate_crossing(math.log(low), math.log(high), under, over))
    return Requirement(value=value, least=smallest, most=largest)


def _interpolate_crossing(start: float, end: float, under: float, over: float) -> float:
    """Interpolate where a line from `under` <= 0 to `over` > 0 is 0."""
    return float(start + (end - start) * -under / (over - under))


def _fit_nondecreasing(values: list[float]) -> list[float]:
    """Fit the nearest values that do not fall, by pooling at the mean."""
    blocks: list[list[float]] = []
    for value in values:
        block = [value]
        while blocks and np.mean(blocks[-1]) > np.mean(block):
            block = blocks.pop() + block
        blocks.append(block)
    return [float(np.mean(block)) for block in blocks for _ in block]


def verdict(gains: ArrayLike) -> Verdict:
    """Decide whether to learn, by the gain per user over one arm for all.

    The gains are those of each environment. A mean above 0 with its whole interval speaks for
    learning; a mean of at most 0 speaks for one arm.

    >>> verdict([0.1, 0.12, 0.08]), verdict([-0.1, -0.2]), verdict([0.1, -0.09])
    ('personalise', 'one arm', 'undecided')
    """
    mean = average(gains)
    if mean.low > 0:
        return "personalise"
    return "one arm" if mean.mean <= 0 else "undecided"
