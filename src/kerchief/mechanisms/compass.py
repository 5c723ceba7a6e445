"""One of many directions, read twice: a pure local randomizer of surprises.

A report of a direction, a response along it and a weight (`core.residual_moments`) has d(d+3)/2
numbers, and noise for all of them. But they all come from one direction. So a device tosses a coin
for the sign of the response and one for the weight, and reports one of many candidate directions,
more often one of the few that agree with the unit vector that it then has. The candidate's mean is
that vector, times a number; the mean of its square is the vector's square, but for a multiple of
the identity. What is read off it is right on average, with the noise of a vector of d + 1 numbers.
Proof note: `compass.md`.
"""

from __future__ import annotations

import importlib
import math
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import smat, svec, svec_size
from kerchief.core.queries import finite
from kerchief.core.random import Stream
from kerchief.core.residual_moments import ResidualMoments
from kerchief.core.struct import static, struct
from kerchief.core.validate import between, plain, whole
from kerchief.mechanisms.mechanism import Floats, Simulated, Vector, float64_vector, steady
from kerchief.mechanisms.shortlist import PLACES, chance_units, choice_event, cuts
from kerchief.privacy import events
from kerchief_device.compass import reported
from kerchief_device.randomize import candidates
from kerchief_device.samplers import UNITS, Randomness
from kerchief_protocol.noise import Compass as WireCompass

_FEWEST_CANDIDATES, _MOST_CANDIDATES = 2**8, 2**16
# Twice as many candidates must take off so much of the deviation.
_WORTH = 0.99
_TILTS = (0.15, 0.2, 0.3, 0.4)
# A square that is told less of is not told apart from rounding.
_LEAST_SHAPE = 1e-12
# How finely the simulated law of a direction is tabulated, by the log odds of its tail probability.
_STEPS, _FARTHEST = 4096, 24.0

_special: Any = importlib.import_module("scipy.special")


class _Directed:
    """What both kinds share: the facts of the query, and the choice that was designed for it."""

    query: ResidualMoments
    candidates: int
    listed: int
    lean: float

    @property
    def sensitivity(self) -> float:
        """How far apart two statistics can be."""
        return self.query.sensitivity

    @property
    def corner(self) -> Floats:
        """What coins do not round: the first axis, the greatest response, all weight."""
        point = np.zeros(self.query.size)
        point[[0, svec_size(self.query.dim)]] = self.query.square, self.query.pull
        return point

    def prepare(self, vector: Vector, stream: object = None) -> Vector:
        """What a user would add to a sum: the statistic itself."""
        return vector


@struct
class Compass(_Directed, Simulated):
    """Report what a direction tells, simulated without drawing the other candidates.

    Along the unit vector the reported direction has the law of an order statistic on the sphere,
    across it every direction is as likely: the law of `ExactCompass`, up to a table.

    Attributes:
        std: the root of the mean square deviation of a number of the report from the statistic
            with response and weight as the coins have rounded them, of the vector's numbers or of
            the matrix's, whichever is greater; 0 is no noise. What rounding adds is chance such as
            that of a reward of two values, which bandits count anyway: at most the greatest
            response along the direction, and nothing where the reward has two values. Who has
            no direction stands anywhere, which adds to the matrix.
        chance: p, with which one of the best is reported: a multiple of 2**-32.
        vector: what the direction is multiplied by.
        matrix: what its square is multiplied by.
        weight: what its last coordinate is multiplied by.

    >>> noise = Compass.of(epsilon=4.0, query=ResidualMoments(dim=5, norm=1.0, most=1.0,
    ...     balance=0.85))
    >>> noise.candidates, noise.listed, round(float(noise.std), 2), round(noise.event().epsilon, 6)
    (256, 23, 0.58, 4.0)
    """

    std: float | Array
    chance: float | Array
    vector: float | Array
    matrix: float | Array
    weight: float | Array
    query: ResidualMoments = static()
    candidates: int = static()
    listed: int = static()
    lean: float = static()

    @classmethod
    def of(cls, *, epsilon: float, query: ResidualMoments) -> Self:
        """As many candidates, best ones and as much lean as make the least deviation."""
        epsilon = between("epsilon", epsilon, 1e-6, 1e9, closed=True)
        if not isinstance(query, ResidualMoments):
            raise InvalidValueError(
                f"the query is a {type(query).__name__}; it must be ResidualMoments"
            )
        best = _design(epsilon, query)
        return cls(
            std=best.std,
            chance=best.units / UNITS,
            vector=best.vector,
            matrix=best.matrix,
            weight=best.weight,
            query=query,
            candidates=best.candidates,
            listed=best.best_count,
            lean=best.tilt,
        )

    def _price(self) -> events.Event:
        return self.exact().event()

    def exact(self, dimension: int | None = None) -> ExactCompass:
        """The twin for deployment."""
        return ExactCompass(
            units=round(float(self.chance) * UNITS),
            candidates=self.candidates,
            listed=self.listed,
            lean=self.lean,
            query=self.query,
        )

    def add(self, vector: Array, stream: Stream) -> Array:
        """The report."""
        query, upright = self.query, math.sqrt(1 - self.lean**2)
        x, response, weight = self._decode_statistic(vector, stream.split(0))
        sign, side, coin, place, where = stream.split(1).uniform(5).astype(jnp.float64)
        sign = jnp.where(sign < (1 + response) / 2, 1.0, -1.0)
        side = jnp.where(side < weight, 1.0, -1.0)
        unit = jnp.append(upright * sign * x, self.lean * side)
        along = self._along(coin, place, where)
        across = stream.split(2).normal(query.dim + 1).astype(jnp.float64)
        across = across - (across @ unit) * unit
        across = across / jnp.maximum(jnp.linalg.norm(across), 1e-30)
        direction = along * unit + jnp.sqrt(jnp.maximum(0.0, 1 - along**2)) * across
        top, last = direction[:-1], direction[-1]
        trace = query.square / 2 + self.weight * last - self.matrix * (top @ top)
        matrix = self.matrix * top[:, None] * top[None, :] + trace / query.dim * jnp.eye(query.dim)
        report = jnp.concatenate([svec(matrix), self.vector * top])
        return jnp.where(self.std > 0, report, vector)

    def _decode_statistic(self, vector: Array, stream: Stream) -> tuple[Array, Array, Array]:
        """The direction, the response as a share of the greatest, and the weight."""
        query, matrix_size = self.query, svec_size(self.query.dim)
        numbers = jnp.clip(finite(vector), -1e100, 1e100)
        flat = smat(numbers[:matrix_size], query.dim) / query.square
        weight = jnp.clip(jnp.trace(flat), 0.0, 1.0)
        square = flat + (1 - weight) / query.dim * jnp.eye(query.dim)
        column = square[:, jnp.argmax(jnp.diag(square))]
        anywhere = stream.normal(query.dim).astype(jnp.float64)
        nowhere = ~numbers.any() | ~(jnp.linalg.norm(column) > 0)
        x = jnp.where(nowhere, anywhere, column)
        x = x / jnp.maximum(jnp.linalg.norm(x), 1e-30)
        response = jnp.clip(numbers[matrix_size:] @ x / query.pull, -1.0, 1.0)
        return x, jnp.where(nowhere, 0.0, response), jnp.where(nowhere, 0.0, weight)

    def _along(self, coin: Array, place: Array, where: Array) -> Array:
        """How far along the unit vector the reported direction lies."""
        number = jnp.minimum((where * PLACES).astype(jnp.int32), PLACES - 1)
        best, rest = jnp.asarray(cuts(self.candidates, self.listed))[:, number]
        tail = jnp.where(coin <= self.chance, best * place, rest + (1 - rest) * place)
        odds = jnp.clip(jnp.log(tail) - jnp.log1p(-tail), -_FARTHEST, _FARTHEST)
        step = (odds / _FARTHEST + 1) / 2 * _STEPS
        below = jnp.clip(step.astype(jnp.int32), 0, _STEPS - 1)
        table = jnp.asarray(_heights(self.query.dim + 1))
        return table[below] + (step - below) * (table[below + 1] - table[below])


@dataclass(frozen=True, kw_only=True)
class ExactCompass(_Directed):
    """Draw the candidates, rank them, toss an exact coin, choose exactly evenly, read on a grid.

    Formal guarantees:
        With the default source every report is ε-differentially private for the ε of `event`, for
        any statistic and any rounding (`compass.md`).

    >>> noise = Compass.of(epsilon=1.0, query=ResidualMoments(dim=2, norm=1.0, most=1.0)).exact()
    >>> report = noise.add(np.zeros(5))
    >>> report.shape, bool((report % noise.grid == 0).all())
    ((5,), True)
    """

    units: int
    candidates: int
    listed: int
    lean: float
    query: ResidualMoments

    idealized: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every field."""
        plain(self)
        whole("candidates", self.candidates, low=3, high=_MOST_CANDIDATES)
        # Less than half of them: else their squares do not point along the statistic.
        whole("listed", self.listed, high=(self.candidates - 1) // 2)
        # The best must be likelier than the others: else reports point away from the statistic.
        least = UNITS * self.listed // self.candidates + 1
        whole("units", self.units, low=least, high=UNITS - 1)
        between("lean", self.lean, 1e-3, 0.999, closed=True)
        if not isinstance(self.query, ResidualMoments):
            raise InvalidValueError(
                f"the query is a {type(self.query).__name__}; it must be ResidualMoments"
            )
        if not self._reading.is_informative:
            raise InvalidValueError(
                f"units is {self.units}; so {self.listed} of {self.candidates} candidates tell "
                "nothing of a square: list fewer, or give more units"
            )

    @property
    def std(self) -> float:
        """The deviation of a report, as its simulated twin states it."""
        return self._reading.std

    @property
    def grid(self) -> float:
        """The distance between two values that can be reported: a power of two."""
        return 2.0**-self.wire.grid_bits

    @property
    def wire(self) -> WireCompass:
        """Parameters of the draw, as the wire writes them for a device."""
        reading = self._reading
        return WireCompass(
            units=self.units,
            candidates=self.candidates,
            listed=self.listed,
            dim=self.query.dim,
            square=self.query.square,
            pull=self.query.pull,
            lean=self.lean,
            vector=reading.vector,
            matrix=reading.matrix,
            weight=reading.weight,
            grid_bits=26 - math.frexp(reading.std)[1],
        )

    def add(self, vector: Floats, stream: Randomness | None = None) -> Floats:
        """What one candidate tells, on the grid."""
        array = float64_vector(vector, self.query.size)
        report = reported(self.wire, array, stream or os.urandom, candidates)
        rounded: Floats = np.rint(report / self.grid) * self.grid
        return rounded

    def event(self) -> events.RandomizedResponse:
        """What one report costs."""
        return choice_event(self.units, self.candidates, self.listed)

    @property
    def _reading(self) -> _Design:
        return _read(self.query, self.candidates, self.listed, self.units, self.lean)


@dataclass(frozen=True, kw_only=True)
class _Design:
    """A choice of candidates, and what then makes reports right on average."""

    std: float
    vector: float
    matrix: float
    weight: float
    units: int
    candidates: int
    best_count: int
    tilt: float
    is_informative: bool


@lru_cache(maxsize=256)
def _design(epsilon: float, query: ResidualMoments) -> _Design:
    """The least deviation with as few candidates as come near it."""
    count = _FEWEST_CANDIDATES
    best = _best(epsilon, query, count, 2.0 ** -np.arange(1, 8.5, 0.5))
    while count < _MOST_CANDIDATES:
        near = best.best_count / count * 2.0 ** np.arange(-2, 1.25, 0.25)
        better = _best(epsilon, query, 2 * count, near)
        if better.std > _WORTH * best.std:
            break
        best, count = better, 2 * count
    return best


def _best(epsilon: float, query: ResidualMoments, count: int, shares: Floats) -> _Design:
    """The least deviation with about such shares of so many candidates listed."""
    limit = (count - 1) // 2
    places = np.unique(np.clip(np.rint(shares * count), 1, limit).astype(int)).tolist()
    designs = (
        _read(query, count, best_count, chance_units(epsilon, count, best_count), tilt)
        for best_count in places
        for tilt in _TILTS
    )
    return min(designs, key=lambda design: design.std)


@lru_cache(maxsize=4096)
def _read(query: ResidualMoments, count: int, best_count: int, units: int, tilt: float) -> _Design:
    """How to read a direction that was chosen so, and the deviation that is left."""
    dim, upright = query.dim, 1 - tilt**2
    mean, second, fourth = _moments(dim + 1, count, best_count, units / UNITS)
    across = (1 - second) / dim
    # A single number has a square without directions.
    shape = second - across if dim > 1 else 1.0
    is_informative, shape = shape > _LEAST_SHAPE, max(shape, _LEAST_SHAPE)
    vector = steady(query.pull / (mean * math.sqrt(upright)))
    matrix = steady(query.square / (shape * upright))
    weight = steady(query.square / (2 * mean * tilt))
    # Moments of the last coordinate: along the vector by its lean, across it evenly.
    square = tilt**2 * second + upright * across
    quartic = (
        tilt**4 * fourth
        + 6 * tilt**2 * upright * (second - fourth) / dim
        + 3 * upright**2 * (1 - 2 * second + fourth) / (dim * (dim + 2))
    )
    vector_part = (1 - square) * vector**2 - query.pull**2
    trace = (square * weight**2 - query.square**2 / 4) / dim
    even = (1 - 1 / dim) * ((1 - 2 * square + quartic) * matrix**2 - query.square**2)
    numbers = dim * (dim + 1) // 2
    variance = max(vector_part / dim, (even + trace) / numbers)
    return _Design(
        std=steady(math.sqrt(max(variance, 1e-30))),
        vector=vector,
        matrix=matrix,
        weight=weight,
        units=units,
        candidates=count,
        best_count=best_count,
        tilt=tilt,
        is_informative=is_informative,
    )


@lru_cache(maxsize=4096)
def _moments(size: int, count: int, best_count: int, chance: float) -> tuple[float, float, float]:
    """Means of a reported direction's height along the vector, of its square and fourth power.

    A candidate is one of the best if its tail probability is below a beta number. So the heights of
    the best add up to N times the mean of their integral over the tails below that number.
    """
    tails, weights = _tabulate_beta(best_count, count - best_count)
    half, upper = (size - 1) / 2, tails <= 0.5
    sines = _squared_sines(size, tails)
    total = float(weights @ sines**half / (2 * half * _special.beta(half, 0.5)))
    moments = [count * (chance / best_count - (1 - chance) / (count - best_count)) * total]
    for power, mean in ((2, 1 / size), (4, 3 / (size * (size + 2)))):
        inner = _special.betainc(half, (power + 1) / 2, sines) / 2
        top = float(weights @ np.where(upper, inner, 1 - inner))
        # Of N even tails: those of the best ones, and all the others.
        best, rest = count * top / best_count, count * (1 - top) / (count - best_count)
        moments.append(mean * (chance * best + (1 - chance) * rest))
    return moments[0], moments[1], moments[2]


def _tabulate_beta(alpha: int, beta: int) -> tuple[Floats, Floats]:
    """The beta law: points, evenly spaced in their log odds, and weights that add up to 1."""
    width = math.sqrt(1 / alpha + 1 / beta)
    odds = math.log(alpha / beta) + width * np.linspace(-40, 40, 801)
    logs = -alpha * np.logaddexp(0, -odds) - beta * np.logaddexp(0, odds)
    weights = np.exp(logs - logs.max())
    tails: Floats = _special.expit(odds)
    return tails, weights / weights.sum()


def _squared_sines(size: int, tails: Floats) -> Floats:
    """1 - t², for the heights t on the sphere that are exceeded with these probabilities."""
    squares: Floats = _special.betaincinv((size - 1) / 2, 0.5, 2 * np.minimum(tails, 1 - tails))
    return squares


@lru_cache(maxsize=64)
def _heights(size: int) -> Floats:
    """The heights whose tail probabilities have evenly spaced log odds."""
    odds = np.linspace(-_FARTHEST, _FARTHEST, _STEPS + 1)
    cosines = np.sqrt(np.maximum(1 - _squared_sines(size, _special.expit(-np.abs(odds))), 0.0))
    heights: Floats = -np.sign(odds) * cosines
    return heights
