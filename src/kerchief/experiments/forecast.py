"""What some simulated worlds say of one that was not simulated: intervals, crossings, a verdict."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core.errors import InvalidValue
from kerchief.core.validate import between, real_array

_special: Any = importlib.import_module("scipy.special")

LEVEL = 0.9
"""How often an interval shall hold."""

# The last part of a run, from which its pace is read; how many times the run it may be drawn out.
_LATE, _FARTHEST = 0.2, 10.0

Verdict: TypeAlias = Literal["personalise", "one arm", "undecided"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean, and an interval around what it is the mean of."""

    mean: float
    low: float
    high: float

    def text(self) -> str:
        """Three digits each.

        >>> Interval(mean=0.7312, low=0.71, high=0.75).text()
        '0.731 (0.71 to 0.75)'
        """
        return f"{self.mean:.3g} ({self.low:.3g} to {self.high:.3g})"

    def covers(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.low <= value <= self.high


def predicted(values: ArrayLike, *, least: float = -math.inf, level: float = LEVEL) -> Interval:
    """Where the value of one more world will lie; none can be below the `least`.

    From 19 worlds on (for 90 %) between two order statistics, which holds whatever the law of the
    worlds is. Fewer cannot say that much: there the interval holds all that was seen, and is as
    wide as normal values would need to miss half as often, since few worlds hide how skewed a law
    is.

    >>> predicted(range(1, 40)).text()
    '20 (2 to 38)'
    >>> predicted([1.0, 2.0, 3.0]).text()
    '2 (-2.97 to 6.97)'
    >>> predicted([1.0, 2.0, 3.0], least=0.0).text()
    '2 (0 to 6.97)'
    """
    seen = _seen(values)
    count, rank = seen.size, _rank(seen.size, level)
    if rank >= 1:
        low, high = float(seen[rank - 1]), float(seen[count - rank])
        return Interval(mean=float(seen.mean()), low=low, high=high)
    wide = _deviations(count, (1 + level) / 2) * math.sqrt(1 + 1 / count) * float(seen.std(ddof=1))
    mean = float(seen.mean())
    low, high = max(mean - wide, least), mean + wide
    return Interval(mean=mean, low=min(low, float(seen[0])), high=max(high, float(seen[-1])))


def average(values: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Where the mean over all worlds lies, by Student's law.

    >>> average([1.0, 2.0, 3.0]).text()
    '2 (0.314 to 3.69)'
    """
    seen = _seen(values)
    wide = _deviations(seen.size, level) * float(seen.std(ddof=1)) / math.sqrt(seen.size)
    mean = float(seen.mean())
    return Interval(mean=mean, low=mean - wide, high=mean + wide)


def _seen(values: ArrayLike) -> NDArray[np.float64]:
    seen = np.sort(real_array("values", values).ravel())
    if seen.size < 2 or not np.isfinite(seen).all():
        raise InvalidValue(f"there are {seen.size} values; an interval needs 2 or more finite ones")
    return seen


def _rank(count: int, level: float) -> int:
    """Which value from either end bounds a new one; 0 where none does."""
    tail = (1 - between("level", level, 0.0, 1.0)) / 2
    return math.floor((count + 1) * tail + 1e-9)


def _deviations(count: int, level: float) -> float:
    return float(_special.stdtrit(count - 1, (1 + between("level", level, 0.0, 1.0)) / 2))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needed:
    """How much of something is needed until a gain is none no more.

    Attributes:
        value: that much; None where nothing that was simulated was enough.
        least: the least that was simulated; a value that is no greater is a bound from above.
        most: the most that was simulated.
        guess: what it would be if the pace at the end stayed, beyond what was simulated; else None.
    """

    value: float | None
    least: float
    most: float
    guess: float | None = None

    @property
    def bound(self) -> bool:
        """Whether even less may do: the least that was simulated is enough."""
        return self.value is not None and self.value <= self.least


def users_needed(rounds: ArrayLike, gains: ArrayLike) -> Needed:
    """After how many users a cumulative gain is above 0 and stays there, to the end of the run.

    Args:
        rounds: after how many users the gain was read.
        gains: the gain over whatever it is measured against, summed over users so far.

    >>> users_needed([100, 200, 300], [-2.0, -1.0, 1.0]).value
    250.0
    >>> short = users_needed([100, 200, 300, 400, 500], [-2.0, -4.0, -5.0, -5.0, -4.5])
    >>> short.value, short.guess
    (None, 1400.0)
    """
    at, gain = real_array("rounds", rounds), real_array("gains", gains)
    if at.shape != gain.shape or at.ndim != 1 or at.size == 0:
        raise InvalidValue(f"there are {gain.size} gains after {at.size} ticks; give one for each")
    last, least = float(at[-1]), float(at[0])
    if gain[-1] <= 0:
        return Needed(value=None, least=least, most=last, guess=_drawn_out(at, gain))
    behind = np.flatnonzero(gain <= 0)
    if not behind.size:
        return Needed(value=least, least=least, most=last)
    left = int(behind[-1])
    return Needed(
        value=_crossing(at[left], at[left + 1], gain[left], gain[left + 1]), least=least, most=last
    )


def _drawn_out(at: NDArray[np.float64], gain: NDArray[np.float64]) -> float | None:
    """Where the gain would be 0 at the pace of the last part of the run."""
    late = int(np.searchsorted(at, at[-1] * (1 - _LATE)))
    if late >= at.size - 1:
        return None
    pace = (gain[-1] - gain[late]) / (at[-1] - at[late])
    if pace <= 0:
        return None
    guess = float(at[-1] - gain[-1] / pace)
    return guess if guess <= _FARTHEST * at[-1] else None


def epsilon_needed(gains: Mapping[float, float]) -> Needed:
    """The least epsilon whose mean gain is above 0: monotone between those that were simulated.

    More epsilon is no worse, so gains that fall are averaged with their neighbours; between two
    epsilons the gain is a line over log epsilon.

    >>> epsilon_needed({1.0: -1.0, 4.0: 1.0}).value
    2.0
    >>> epsilon_needed({1.0: -1.0, 4.0: -0.5}).value is None
    True
    """
    if not gains:
        raise InvalidValue("there are no gains; give one for each epsilon")
    epsilons = sorted(gains)
    rising = _rising([gains[one] for one in epsilons])
    least, most = epsilons[0], epsilons[-1]
    if rising[-1] <= 0:
        return Needed(value=None, least=least, most=most)
    if rising[0] > 0:
        return Needed(value=least, least=least, most=most)
    pairs = itertools.pairwise(zip(epsilons, rising, strict=True))
    (low, under), (high, over) = next(pair for pair in pairs if pair[1][1] > 0)
    value = math.exp(_crossing(math.log(low), math.log(high), under, over))
    return Needed(value=value, least=least, most=most)


def _crossing(left: float, right: float, under: float, over: float) -> float:
    """Where a line from `under`, at most 0, to `over`, above 0, is 0."""
    return float(left + (right - left) * -under / (over - under))


def _rising(values: list[float]) -> list[float]:
    """The nearest values that do not fall: those that do are put together, at their mean."""
    blocks: list[list[float]] = []
    for value in values:
        block = [value]
        while blocks and np.mean(blocks[-1]) > np.mean(block):
            block = blocks.pop() + block
        blocks.append(block)
    return [float(np.mean(block)) for block in blocks for _ in block]


def verdict(gains: ArrayLike) -> Verdict:
    """Whether to learn at all, by what it gains per user over one arm for all, world by world.

    Only a mean that is above 0 with its interval speaks for learning; one that is not above 0 at
    all speaks for one arm.

    >>> verdict([0.1, 0.12, 0.08]), verdict([-0.1, -0.2]), verdict([0.1, -0.09])
    ('personalise', 'one arm', 'undecided')
    """
    mean = average(gains)
    if mean.low > 0:
        return "personalise"
    return "one arm" if mean.mean <= 0 else "undecided"
