"""The binary tree with exact noise: the deployed twin of `tree.Tree`, and of `toeplitz`.

Each block of `tree.Tree` gets discrete Gaussian noise on a grid, from the operating system's
generator, so every prefix that is released is a whole number of grid steps. Proof note:
`discrete_tree.md`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kerchief.core.validate import MOST_ROUNDS, plain, positive, whole
from kerchief.mechanisms.discrete_gaussian import DiscreteGaussian
from kerchief.mechanisms.discrete_grid import GridNoise, on_grid, place_of
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy import events

__all__ = ["DiscreteTree"]

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteTree:
    """Exact noise on every prefix: one draw for each block, added up without rounding.

    Host code on NumPy arrays. It adds the noise of the tree, two to four times that of
    `discrete_blt.DiscreteBLT`.

    Formal guarantees:
        The whole stream costs `event()` if every vector was rounded by `prepare`: see
        `discrete_tree.md`.

    Attributes:
        node: the noise of one block.
        horizon: the length of the stream.

    >>> tree = DiscreteTree.matching(noise_multiplier=1.0, sensitivity=2.0, horizon=15, dimension=3)
    >>> tree.levels, round(tree.std, 3), tree.std_at(np.array([8, 15])).round(3).tolist()
    (4, 4.0, [4.0, 8.0])
    """

    idealized: ClassVar[bool] = False

    node: GridNoise
    horizon: int

    def __post_init__(self) -> None:
        """Check the horizon."""
        plain(self)
        whole("horizon", self.horizon)

    @classmethod
    def matching(
        cls,
        *,
        noise_multiplier: float,
        sensitivity: float,
        horizon: int,
        dimension: int,
    ) -> DiscreteTree:
        """The tree with which the whole stream costs no more than one Gaussian of this multiplier.

        Args:
            noise_multiplier: of the Gaussian release that the stream may cost.
            sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
            horizon: as in the attribute.
            dimension: the length of the vectors.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        noise_multiplier = positive("noise_multiplier", noise_multiplier)
        levels = whole("horizon", horizon, high=MOST_ROUNDS).bit_length()
        node = DiscreteGaussian.matching(
            noise_multiplier * math.sqrt(levels), sensitivity, dimension
        )
        return cls(node=node, horizon=horizon)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of a block."""
        return float(self.node.std)

    @property
    def sensitivity(self) -> float:
        """How far one user moves one vector of the stream, before rounding."""
        return self.node.sensitivity

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return self.node.grid

    @property
    def levels(self) -> int:
        """How many sizes of block there are: floor(log2(horizon)) + 1."""
        return self.horizon.bit_length()

    @property
    def column_norm(self) -> float:
        """The first user is in one block of every size, nobody is in more."""
        return math.sqrt(self.levels)

    def prepare(self, vector: Vector) -> Floats:
        """Round a vector to the grid, and see that a whole stream of such fits a float64.

        Raises:
            InvalidValue: the vector does not fit the grid.
        """
        return on_grid(vector, self.node, places=self.horizon)

    def open(self, size: int) -> Floats:
        """The noise of the latest block of each size, none yet."""
        return np.zeros((self.levels, size))

    def step(self, state: Floats, round: Any, stream: Any) -> tuple[Floats, Floats]:
        """Draw the noise of the block that ends here; add up the blocks of the prefix.

        Args:
            state: what the step before gave, or `open`.
            round: the place of the vector in the stream, from 0.
            stream: a source of bytes for tests; None for the operating system's.

        Raises:
            CapacityExceeded: the stream is over.
        """
        count = place_of(round, self.horizon)
        state = np.array(state)
        ends_here = (count & -count).bit_length() - 1
        state[ends_here] = self.node.add(np.zeros(state.shape[1]), stream)
        used = [level for level in range(self.levels) if count >> level & 1]
        noise: Floats = state[used].sum(axis=0)
        return noise, state

    def std_at(self, count: Any) -> Any:
        """One share of variance for each block, and as many blocks as `count` has ones."""
        return self.std * np.sqrt(np.bitwise_count(np.asarray(count)).astype(np.float64))

    def event(self) -> events.Event:
        """What all the prefixes together cost: one draw for each size of block."""
        return events.Repeated(event=self.node.event(), count=self.levels)
