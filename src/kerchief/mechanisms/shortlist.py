"""One of many candidates: a pure local randomizer of vectors that no rounding can weaken.

The device draws candidates that have nothing to do with its statistic, ranks them by how well they
agree with it, and reports one: with probability p one of the best few, else one of the others.
Whatever floating point does to the ranking, there are always exactly as many best ones; so the
probabilities of the candidates are known exactly. Their law is nearly that of `PrivUnitG`, whose
noise is optimal. Proof note: `shortlist.md`.
"""

from __future__ import annotations

import importlib
import math
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import between, plain, real_array, whole
from kerchief.mechanisms.ball import BallReport, SidedReport, spread_out, upper_normal
from kerchief.mechanisms.mechanism import Floats, float64_vector, steady
from kerchief.privacy import events
from kerchief.privacy.unit_vectors import unit_noise
from kerchief_device.randomize import candidates, step_of
from kerchief_device.samplers import UNITS, Randomness, chosen_rank

_FEWEST_CANDIDATES, _MOST_CANDIDATES = 2**8, 2**16
# As many candidates as come so near to the least deviation that there is.
_NEAR = 1.01
# Candidates of longer vectors take so long to draw that fewer of them must do, not quite so near.
_LONG, _FEWEST_LONG, _NEAR_LONG = 2**10, 2**6, 1.02
_GUARD = 2.0**-40
PLACES = 1024
"""How finely the simulated order statistic is tabulated."""

_special: Any = importlib.import_module("scipy.special")


@struct
class Shortlist(SidedReport):
    """Report a candidate times a constant, simulated without drawing the other candidates.

    Along the statistic the reported candidate is an order statistic of normal numbers, across it
    plain normal noise: the law of `ExactShortlist`, whose cost this states, up to a table.

    Attributes:
        std: the greatest standard deviation of a report in any direction; 0 is no noise.
        factor: what a candidate is multiplied by.
        chance: p, with which one of the best is reported: a multiple of 2**-32.

    >>> noise = Shortlist.of(epsilon=1.0, center=0.0, radius=2**0.5, size=3)
    >>> noise.candidates, noise.listed, round(noise.std, 2), round(noise.event().epsilon, 6)
    (256, 88, 3.57, 1.0)
    """

    std: float | Array
    factor: float | Array
    chance: float | Array
    center: tuple[float, ...] = static()
    radius: float = static()
    candidates: int = static()
    listed: int = static()

    @classmethod
    def of(cls, *, epsilon: float, center: float | Floats, radius: float, size: int) -> Shortlist:
        """As few candidates as come within a hundredth of the least noise (65536 at the most).

        Within two hundredths for vectors of more than 1024 numbers.
        """
        radius = between("radius", radius, 1e-18, 1e18, closed=True)
        epsilon = between("epsilon", epsilon, 1e-6, 1e9, closed=True)
        count, best_count, units = _design(epsilon, whole("size", size) > _LONG)
        mean, deviation = _moments(count, best_count, units)
        return cls(
            std=steady(radius * deviation / mean),
            factor=steady(radius / mean),
            chance=units / UNITS,
            center=spread_out(center, size),
            radius=radius,
            candidates=count,
            listed=best_count,
        )

    @property
    def length(self) -> float | Array:
        """The factor of a candidate."""
        return self.factor

    def _price(self) -> events.Event:
        return self.exact().event()

    def exact(self, dimension: int | None = None) -> ExactShortlist:
        """The twin for deployment."""
        return ExactShortlist(
            units=round(float(self.chance) * UNITS),
            center=self.center,
            radius=self.radius,
            candidates=self.candidates,
            listed=self.listed,
        )

    def along(self, stream: Stream) -> Array:
        """How far along the statistic the reported candidate lies.

        Given the first score that is not among the best, those are independent above it; given the
        last one that is, the others are independent below.
        """
        coin, place, where = stream.uniform(3).astype(jnp.float64)
        number = jnp.minimum((where * PLACES).astype(jnp.int32), PLACES - 1)
        best, rest = jnp.asarray(cuts(self.candidates, self.listed))[:, number]
        return upper_normal(coin, place, self.chance, best, rest)


@dataclass(frozen=True, kw_only=True)
class ExactShortlist(BallReport):
    """Draw the candidates, rank them, toss an exact coin, choose exactly evenly.

    The chance that one of the `listed` best is reported is `units` of 2**-32.

    Formal guarantees:
        With the default source every report is ε-differentially private for the ε of `event`,
        for any statistic and any rounding (`shortlist.md`).

    >>> noise = Shortlist.of(epsilon=1.0, center=0.0, radius=1.0, size=3).exact()
    >>> report = noise.add(np.zeros(3))
    >>> report.shape, bool((report % noise.grid == 0).all())
    ((3,), True)
    """

    units: int
    center: tuple[float, ...]
    radius: float
    candidates: int
    listed: int

    idealized: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every field."""
        plain(self)
        whole("candidates", self.candidates, low=2, high=_MOST_CANDIDATES)
        whole("listed", self.listed, high=self.candidates - 1)
        # The best must be likelier than the others: else reports point away from the statistic.
        least = UNITS * self.listed // self.candidates + 1
        whole("units", self.units, low=least, high=UNITS - 1)
        between("radius", self.radius, 1e-18, 1e18, closed=True)
        if not isinstance(self.center, tuple):
            raise InvalidValueError("center is no tuple; give one number per coordinate")
        spread_out(real_array("centers", self.center), len(self.center))

    @property
    def std(self) -> float:
        """The greatest standard deviation of a report in any direction."""
        mean, deviation = _moments(self.candidates, self.listed, self.units)
        return steady(self.radius * deviation / mean)

    @property
    def grid(self) -> float:
        """The distance between two values that can be reported: a power of two."""
        return 2.0 ** (math.frexp(self.std)[1] - 26)

    @property
    def factor(self) -> float:
        """What a candidate is multiplied by, so that reports are right on average."""
        mean, _ = _moments(self.candidates, self.listed, self.units)
        return steady(self.radius / mean)

    def add(self, vector: Floats, stream: Randomness | None = None) -> Floats:
        """One candidate, scaled and on the grid; what is not finite counts as the center."""
        size, source = len(self.center), stream or os.urandom
        array = float64_vector(vector, size)
        draws = candidates(self.candidates, size + 1, source)
        unit = self._unit(array).astype(np.float32)
        ranked = np.argpartition(draws @ unit, self.candidates - self.listed)
        place = ranked[chosen_rank(self.units, self.candidates, self.listed, source)]
        candidate = step_of(size + 1) * draws[place, :-1].astype(np.float64)
        report = np.array(self.center) + self.factor * candidate
        rounded: Floats = np.rint(report / self.grid) * self.grid
        return rounded

    def event(self) -> events.RandomizedResponse:
        """What one report costs."""
        return choice_event(self.units, self.candidates, self.listed)

    def _unit(self, vector: Floats) -> Floats:
        """The unit vector that stands for the statistic; see `ball.lifted`."""
        centred = (vector - np.array(self.center)) / self.radius
        centred = np.clip(np.where(np.isfinite(centred), centred, 0.0), -1e150, 1e150)
        unit = centred / max(1.0, float(np.linalg.norm(centred)))
        return np.append(unit, math.sqrt(max(0.0, 1 - float(unit @ unit))))


def choice_event(units: int, candidates: int, listed: int) -> events.RandomizedResponse:
    """What a choice of one candidate costs, where a best one has `units` of 2**-32."""
    odds = (units / (UNITS - units)) * ((candidates / listed) - 1)
    return events.RandomizedResponse(epsilon=math.log(odds) + _GUARD / 16)


@lru_cache(maxsize=256)
def _design(epsilon: float, long: bool) -> tuple[int, int, int]:
    """How many candidates, how many best ones, and the chance of those in units of 2**-32."""
    least = unit_noise(epsilon)
    share = float(_special.ndtr(-1 / least))
    count, near = (_FEWEST_LONG, _NEAR_LONG) if long else (_FEWEST_CANDIDATES, _NEAR)
    best_count = _best(epsilon, count, share)
    while count < _MOST_CANDIDATES and _noise(epsilon, count, best_count) > near * least:
        count *= 2
        best_count = _best(epsilon, count, share)
    return count, best_count, chance_units(epsilon, count, best_count)


def _best(epsilon: float, candidates: int, share: float) -> int:
    """The number of best ones with the least noise, of some near the best threshold's share."""
    near = {max(1, round(share * candidates * (18 + step) / 20)) for step in range(9)}
    return min(sorted(near), key=lambda best_count: _noise(epsilon, candidates, best_count))


def _noise(epsilon: float, candidates: int, best_count: int) -> float:
    """The greatest deviation of a report, over the ball's radius."""
    mean, deviation = _moments(
        candidates, best_count, chance_units(epsilon, candidates, best_count)
    )
    return deviation / mean


def chance_units(epsilon: float, candidates: int, listed: int) -> int:
    """The greatest chance, in units, with p (N − k) / ((1 − p) k) at most e^ε."""
    odds = math.exp(min(epsilon, 40.0)) * listed / (candidates - listed)
    return min(math.floor(UNITS * (odds / (1 + odds)) * (1 - _GUARD)), UNITS - 1)


@lru_cache(maxsize=1024)
def _moments(candidates: int, best_count: int, units: int) -> tuple[float, float]:
    """A reported candidate's mean along the statistic, and its greatest deviation in a direction.

    With U the beta law of a cut and z its normal quantile, the best have a sum of N E φ(z) and a
    sum of squares of k + N E z φ(z) on average. Across the statistic the deviation is one.
    """
    scores, weights = _tabulate_scores(best_count, candidates - best_count)
    density = np.exp(-(scores**2) / 2) / math.sqrt(2 * math.pi)
    total = candidates * float(weights @ density)
    squares = best_count + candidates * float(weights @ (scores * density))
    chance = units / UNITS
    best, rest = chance / best_count, (1 - chance) / (candidates - best_count)
    mean = total * (best - rest)
    square = best * squares + rest * (candidates - squares)
    return mean, math.sqrt(max(1.0, square - mean**2))


@lru_cache(maxsize=256)
def cuts(candidates: int, listed: int) -> Floats:
    """Equally likely tail probabilities of the first score that is not listed, and the last."""
    places = (np.arange(PLACES) + 0.5) / PLACES
    rows = []
    for alpha, beta in ((listed + 1, candidates - listed), (listed, candidates - listed + 1)):
        scores, weights = _tabulate_scores(alpha, beta)
        centers = np.cumsum(weights) - weights / 2
        rows.append(_special.ndtr(-np.interp(places, centers, scores)))
    return np.stack(rows)


def _tabulate_scores(alpha: int, beta: int) -> tuple[Floats, Floats]:
    """The law of z where the tail probability of z has the beta law: points and their weights."""
    share = alpha / (alpha + beta)
    centre = -float(_special.ndtri(share))
    density = math.exp(-(centre**2) / 2) / math.sqrt(2 * math.pi)
    width = math.sqrt(share * (1 - share) / (alpha + beta)) / density
    scores = centre + 16 * width * np.linspace(-1, 1, 4001)
    logs = (alpha - 1) * _special.log_ndtr(-scores) + (beta - 1) * _special.log_ndtr(scores)
    logs = logs - scores**2 / 2
    weights = np.exp(logs - logs.max())
    return scores, weights / weights.sum()
