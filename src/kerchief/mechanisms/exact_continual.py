"""Noise for every prefix sum from exact seeds on a grid: the deployed twin of `continual`.

Each place draws one exact discrete Gaussian vector. The noise on a prefix is the newest one plus
the factor's mixture of the earlier ones, rounded to whole steps. Proof note: `exact_continual.md`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import CapacityExceededError, InvalidValueError
from kerchief.mechanisms.factor import FAR, Factor, Floats, OfFactor
from kerchief.mechanisms.mechanism import Mechanism, Vector
from kerchief.privacy import events

# Prefixes stay below half of what a float64 counts exactly; the other half is for the noise.
_MOST_STEPS = 2**52


class GridNoise(Mechanism, Protocol):
    """Exact noise in whole steps of a grid."""

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""

    def draw(self, stream: Any, rows: int) -> NDArray[np.int64]:
        """The noise of so many `add`s, in grid steps: one row each."""

    def event(self) -> events.DiscreteGaussian:
        """What one `add` costs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactContinualNoise(OfFactor):
    """A factor times exact seeds: as little noise as `continual.ContinualNoise` has.

    Host code on NumPy arrays.

    Formal guarantees:
        The whole stream costs `event()` if every vector was rounded by `prepare`: see
        `exact_continual.md`.
    """

    idealized: ClassVar[bool] = False

    factor: Factor
    seeds: tuple[GridNoise, ...]

    def __post_init__(self) -> None:
        """Check that the seeds are those of the theorem."""
        parts, alike = (
            len(self.factor.parts),
            {(seed.grid, seed.sensitivity) for seed in self.seeds},
        )
        if len(self.seeds) != parts or len(alike) != 1:
            raise InvalidValueError(
                f"there are {len(self.seeds)} seeds on {len(alike)} grids; the factor has {parts} "
                "parts, and all of them need seeds on one grid"
            )

    @classmethod
    def matching(
        cls, factor: Factor, *, noise_multiplier: float, sensitivity: float, dimension: int
    ) -> ExactContinualNoise:
        """The noise with which the stream costs no more than one Gaussian of this multiplier."""
        arguments = {"noise_multiplier": noise_multiplier, "sensitivity": sensitivity}
        seeds = tuple(part.seed(**arguments, dimension=dimension) for part in factor.parts)
        return cls(factor=factor, seeds=seeds)

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of the seed vectors.

        Of several parts the least, scaled as if they all amplified a user's change alike.
        """
        pairs = zip(self.seeds, self.factor.parts, strict=True)
        return min(float(seed.std) * (self.column_norm / part.column_norm) for seed, part in pairs)

    @property
    def sensitivity(self) -> float:
        """How far one user moves one vector of the stream, before rounding."""
        return self.seeds[0].sensitivity

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return self.seeds[0].grid

    def prepare(self, vector: Vector) -> Floats:
        """Round a vector to the grid, and see that as many of them as may come fit a float64."""
        rounded: Floats = self.seeds[0].prepare(vector, None)
        limit = _MOST_STEPS * self.grid / self.factor.capacity
        if not (np.abs(rounded) < limit).all():
            raise InvalidValueError(
                f"vector has an entry of {limit} or more; sums would not be exact"
            )
        return rounded

    def open(self, size: int) -> Vector:
        """What finished parts have left, and the state of the present one, in steps, all zero."""
        rows = max(part.rows for part in self.factor.parts)
        return np.zeros((1 + rows, size))

    def step(self, state: Vector, round: Any, stream: Any) -> tuple[Vector, Vector]:
        """The noise on the prefix that ends with this vector, and the next state."""
        (noise,), next_state = self.steps(state, round, stream, 1)
        return noise * self.grid, next_state

    def steps(self, state: Vector, round: Any, stream: Any, rows: int) -> tuple[Vector, Vector]:
        """Noise on so many prefixes, one row each, in grid steps; draw all seeds at once."""
        first, end = int(round), int(round) + rows
        if end > self.horizon:
            raise CapacityExceededError(f"place {end} of a stream that was paid for {self.horizon}")
        blocks = []
        while first < end:
            *past_parts, place = self.factor.places(first + 1)
            number = len(past_parts)
            count = min(end - first, self.factor.parts[number].horizon - place + 1)
            seeds = self.seeds[number].draw(stream, count).astype(np.float64)
            noise, state = self._within(number, state, place, seeds)
            blocks.append(noise)
            first += count
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks), state

    def _within(
        self, number: int, state: Vector, first: int, seeds: Floats
    ) -> tuple[Floats, Vector]:
        """Consecutive places of one part, from their seeds.

        Where the part ends, the noise that its last place had is kept for good. Noise larger than
        the proof covers is refused: it has a chance below 1e-330 whatever the data.
        """
        past, sums, part = state[0], state[1:], self.factor.parts[number]
        if seeds.shape[1:] != past.shape:
            raise InvalidValueError(
                f"state is for {past.shape}; the seeds have shape {seeds.shape[1:]}"
            )
        mixed, sums, largest = part.follow(sums, first, seeds)
        if not (largest <= self._limits[number]).all():
            raise CapacityExceededError(f"noise beyond {FAR} deviations; begin a new run")
        noise = past + seeds + np.rint(mixed, out=mixed)
        if first + len(seeds) > part.horizon:
            past, sums = noise[-1], np.zeros_like(sums)
        return noise, np.concatenate([past[None], sums])

    @functools.cached_property
    def _limits(self) -> tuple[Vector, ...]:
        """How large the numbers of each part's state may become, in steps."""
        pairs = zip(self.factor.parts, self.seeds, strict=True)
        return tuple(part.limits * (float(own.std) / self.grid) for part, own in pairs)

    def std_at(self, count: Any) -> Any:
        """Standard deviation of the noise on a prefix; rounding adds half a step at most."""
        if len(self.seeds) == 1:
            return float(self.seeds[0].std) * self.factor.parts[0].row_norm(np.asarray(count), np)
        return np.vectorize(self._std_at, otypes=[np.float64])(count)[()]

    def event(self) -> events.Event:
        """What all the prefixes together cost."""
        return self.factor.price(*(seed.event() for seed in self.seeds))

    def _std_at(self, count: int) -> float:
        """Variances add: the present part's, and what each finished one has left."""
        places = self.factor.places(int(count))
        triples = zip(self.seeds, self.factor.parts, places, strict=False)
        return math.hypot(
            *(float(seed.std) * part.row_norm(here, np) for seed, part, here in triples)
        )
