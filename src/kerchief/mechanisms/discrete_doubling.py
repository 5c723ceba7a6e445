"""Doubling epochs with exact noise: a binary tree an epoch, all on one grid.

The deployed twin of `doubling.Doubling`. Proof note: `doubling.md`, section 4.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import CapacityExceeded
from kerchief.core.validate import whole
from kerchief.mechanisms.discrete import DiscreteGaussian
from kerchief.mechanisms.discrete_tree import DiscreteTree, on_grid
from kerchief.mechanisms.doubling import lengths
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy import events

__all__ = ["DiscreteDoubling"]

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteDoubling:
    """Exact noise on every prefix of a stream whose length nobody knows beforehand.

    Host code on NumPy arrays. A prefix gets the noise of its epoch's tree, and of every finished
    epoch what its last place had; sums of whole grid steps have no rounding.

    Formal guarantees:
        The whole stream costs `event()` if every vector was rounded by `prepare`: see
        `doubling.md`, section 4.

    Attributes:
        trees: the noise of each epoch, on one grid.
        horizon: the most places that may be paid for.

    >>> noise = DiscreteDoubling.matching(
    ...     noise_multiplier=1.0, sensitivity=2.0, horizon=20, first=7, dimension=3
    ... )
    >>> [tree.horizon for tree in noise.trees], noise.std_at(np.array([7, 8, 20])).round(2).tolist()
    ([7, 14], [6.0, 7.21, 9.17])
    """

    idealized: ClassVar[bool] = False

    trees: tuple[DiscreteTree, ...]
    horizon: int

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
        """The trees with which the stream costs no more than one Gaussian of this multiplier.

        The grid is what the first epoch asks for: no later one has less noise.

        Args:
            noise_multiplier: of the Gaussian release that the stream may cost.
            sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
            horizon: as in the attribute.
            first: the length of the first epoch.
            dimension: the length of the vectors.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        spans = lengths(whole("horizon", horizon), whole("first epoch", first))
        least = noise_multiplier * math.sqrt(first.bit_length())
        grid_bits = DiscreteGaussian.matching(least, sensitivity, dimension).grid_bits
        trees = (
            DiscreteTree.matching(
                noise_multiplier=noise_multiplier,
                sensitivity=sensitivity,
                horizon=span,
                dimension=dimension,
                grid_bits=grid_bits,
            )
            for span in spans
        )
        return cls(trees=tuple(trees), horizon=horizon)

    @property
    def std(self) -> float:
        """As if every epoch's columns had norm 1: what hides a user, in the dearest epoch."""
        return self._dearest.std / self._dearest.column_norm

    @property
    def sensitivity(self) -> float:
        """How far one user moves one vector of the stream, before rounding."""
        return self.trees[0].sensitivity

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return self.trees[0].grid

    @property
    def column_norm(self) -> float:
        """See `std`."""
        return 1.0

    @property
    def first(self) -> int:
        """The length of the first epoch."""
        return self.trees[0].horizon

    def prepare(self, vector: Vector) -> Floats:
        """Round a vector to the grid, and see that a whole stream of such fits a float64.

        Raises:
            InvalidValue: the vector does not fit the grid.
        """
        return on_grid(vector, self.trees[0].node, places=self.horizon)

    def open(self, size: int) -> Floats:
        """What finished epochs have left, and the latest block of each size, none yet."""
        return np.zeros((1 + self.trees[-1].levels, size))

    def step(self, state: Floats, round: Any, stream: Any) -> tuple[Floats, Floats]:
        """Step the present epoch's tree; where that epoch ends, keep its last noise for good.

        Args:
            state: what the step before gave, or `open`.
            round: the place of the vector in the stream, from 0.
            stream: a source of bytes for tests; None for the operating system's.

        Raises:
            CapacityExceeded: the stream is over.
        """
        if int(round) >= self.horizon:
            raise CapacityExceeded(
                f"place {int(round) + 1} of a stream that was paid for {self.horizon}"
            )
        epoch, place = self._find(int(round))
        tree, kept = self.trees[epoch], np.array(state)
        noise, blocks = tree.step(kept[1 : 1 + tree.levels], place, stream)
        total: Floats = kept[0] + noise
        if place + 1 == tree.horizon:
            kept[0], kept[1:] = total, 0.0
        else:
            kept[1 : 1 + tree.levels] = blocks
        return total, kept

    def std_at(self, count: Any) -> Any:
        """Variances add: the present epoch's, and what each finished one has left."""
        return np.vectorize(self._std_at, otypes=[np.float64])(count)[()]

    def event(self) -> events.Event:
        """What all the prefixes together cost: a user is in one epoch, at most in the dearest."""
        return self._dearest.event()

    @property
    def _dearest(self) -> DiscreteTree:
        return min(self.trees, key=lambda tree: tree.std / tree.column_norm)

    def _find(self, round: int) -> tuple[int, int]:
        """The epoch of a place, and which of the epoch's places it is."""
        epoch = (round // self.first + 1).bit_length() - 1
        return epoch, round - self.first * ((1 << epoch) - 1)

    def _std_at(self, count: int) -> float:
        epoch, place = self._find(int(count) - 1)
        finished = [tree.std_at(tree.horizon) for tree in self.trees[:epoch]]
        return math.hypot(*finished, self.trees[epoch].std_at(place + 1))
