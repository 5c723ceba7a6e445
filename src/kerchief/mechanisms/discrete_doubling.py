"""Doubling epochs with exact noise: that of `discrete_blt` an epoch, all on one grid.

The deployed twin of `doubling.Doubling`. Proof note: `doubling.md`, section 4.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValue
from kerchief.core.validate import plain, whole
from kerchief.mechanisms.blt import MAX_HORIZON
from kerchief.mechanisms.discrete_blt import DiscreteBLT
from kerchief.mechanisms.discrete_grid import on_grid, place_of
from kerchief.mechanisms.doubling import BUFFERS, lengths
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy import events

__all__ = ["DiscreteDoubling"]

Floats: TypeAlias = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteDoubling:
    """Exact noise on every prefix of a stream whose length nobody knows beforehand.

    Host code on NumPy arrays. A prefix gets the noise of its epoch, and of every finished epoch
    what its last place had; sums of whole grid steps have no rounding.

    Formal guarantees:
        The whole stream costs `event()` if every vector was rounded by `prepare`: see
        `doubling.md`, section 4.

    Attributes:
        epochs: the noise of each, on one grid.
        horizon: the most places that may be paid for.

    >>> noise = DiscreteDoubling.matching(
    ...     noise_multiplier=1.0, sensitivity=2.0, horizon=20, first=7, dimension=3
    ... )
    >>> [epoch.horizon for epoch in noise.epochs], noise.std_at(np.array([7, 8])).round(2).tolist()
    ([7, 14], [3.35, 4.34])
    """

    idealized: ClassVar[bool] = False

    epochs: tuple[DiscreteBLT, ...]
    horizon: int

    def __post_init__(self) -> None:
        """Check that the epochs are those of the theorem."""
        plain(self)
        whole("horizon", self.horizon, high=MAX_HORIZON)
        spans = tuple(epoch.horizon for epoch in self.epochs)
        alike = {(one.grid, one.sensitivity, one.buffers) for one in self.epochs}
        if not spans or spans != lengths(self.horizon, spans[0]) or len(alike) > 1:
            raise InvalidValue(
                f"epochs have lengths {spans}; they must double from the first on, with one grid, "
                f"and reach {self.horizon}"
            )

    @classmethod
    def matching(
        cls,
        *,
        noise_multiplier: float,
        sensitivity: float,
        horizon: int,
        first: int,
        dimension: int,
    ) -> DiscreteDoubling:
        """The epochs with which the stream costs no more than one Gaussian of this multiplier.

        Args:
            noise_multiplier: of the Gaussian release that the stream may cost.
            sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
            horizon: as in the attribute.
            first: the length of the first epoch.
            dimension: the length of the vectors.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        epochs = (
            DiscreteBLT.matching(
                noise_multiplier=noise_multiplier,
                sensitivity=sensitivity,
                horizon=span,
                buffers=BUFFERS,
                dimension=dimension,
            )
            for span in lengths(
                whole("horizon", horizon, high=MAX_HORIZON), whole("first epoch", first)
            )
        )
        return cls(epochs=tuple(epochs), horizon=horizon)

    @property
    def std(self) -> float:
        """As if every epoch's columns had norm 1: what hides a user, in the dearest epoch."""
        return min(epoch.std / epoch.column_norm for epoch in self.epochs)

    @property
    def sensitivity(self) -> float:
        """How far one user moves one vector of the stream, before rounding."""
        return self.epochs[0].sensitivity

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return self.epochs[0].grid

    @property
    def column_norm(self) -> float:
        """See `std`."""
        return 1.0

    @property
    def first(self) -> int:
        """The length of the first epoch."""
        return self.epochs[0].horizon

    def prepare(self, vector: Vector) -> Floats:
        """Round a vector to the grid, and see that a whole stream of such fits a float64.

        Raises:
            InvalidValue: the vector does not fit the grid.
        """
        return on_grid(vector, self.epochs[0].node, places=MAX_HORIZON)

    def open(self, size: int) -> Floats:
        """What finished epochs have left, and the sums of the present one, all zero."""
        return np.zeros((2 + BUFFERS, size))

    def step(self, state: Floats, round: Any, stream: Any) -> tuple[Floats, Floats]:
        """Step the present epoch's noise; where that epoch ends, keep its last noise for good.

        Args:
            state: what the step before gave, or `open`.
            round: the place of the vector in the stream, from 0.
            stream: a source of bytes for tests; None for the operating system's.

        Raises:
            CapacityExceeded: the stream is over.
        """
        epoch, place = self._find(place_of(round, self.horizon))
        noise, sums = self.epochs[epoch].step(state[1:], place - 1, stream)
        total: Floats = state[0] + noise
        if place == self.epochs[epoch].horizon:
            return total, np.concatenate([total[None], np.zeros_like(sums)])
        return total, np.concatenate([state[:1], sums])

    def std_at(self, count: Any) -> Any:
        """Variances add: the present epoch's, and what each finished one has left."""
        return np.vectorize(self._std_at, otypes=[np.float64])(count)[()]

    def event(self) -> events.DiscreteGaussian:
        """What all the prefixes together cost: a user is in one epoch, and no epoch costs more."""
        each = [epoch.event() for epoch in self.epochs]
        scale = min(one.scale for one in each)
        ratio = min(one.noise_multiplier for one in each)
        return events.DiscreteGaussian(
            sensitivity=scale / ratio * (1 + 2.0**-50),
            scale=scale,
            dimension=max(one.dimension for one in each),
        )

    def _find(self, place: int) -> tuple[int, int]:
        """The epoch of a place, from 0, and which of the epoch's places it is, from 1."""
        epoch = ((place - 1) // self.first + 1).bit_length() - 1
        return epoch, place - self.first * ((1 << epoch) - 1)

    def _std_at(self, count: int) -> float:
        epoch, place = self._find(int(count))
        finished = [one.std_at(one.horizon) for one in self.epochs[:epoch]]
        return math.hypot(*finished, self.epochs[epoch].std_at(place))
