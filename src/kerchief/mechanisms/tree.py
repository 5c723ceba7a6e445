"""The binary tree: each prefix is a sum of at most log2 T + 1 dyadic blocks with fresh noise.

Sources: C. Dwork, M. Naor, T. Pitassi, G. Rothblum, STOC 2010; T.-H. H. Chan, E. Shi, D. Song,
TISSEC 2011. Only blocks that some prefix uses get noise, which leaves exactly one new block in
each round and one level fewer to pay for. Proof note: `tree.md`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.validate import MOST_ROUNDS, positive
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.factor import Floats, Part
from kerchief.privacy import events


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree(Part):
    """The classical choice, for comparison: two to four times the noise of `blt.BLT`.

    The seed of a place is the noise of the block that ends there, and B is made of zeros and ones:
    exact seeds add up without any rounding.
    """

    longest: ClassVar[int] = MOST_ROUNDS
    # None: whole numbers add up exactly.
    limits: ClassVar[float] = math.inf

    @property
    def levels(self) -> int:
        """How many sizes of block there are: floor(log2(horizon)) + 1."""
        return self.horizon.bit_length()

    @property
    def column_norm(self) -> float:
        """The first user is in one block of every size, nobody is in more."""
        return math.sqrt(self.levels)

    @property
    def rows(self) -> int:
        """The noise of the latest block of each size."""
        return self.levels

    def step(self, state: Array, round: Array, seed: Array) -> tuple[Array, Array]:
        """Keep the noise of the block that ends here; add up the blocks of the prefix."""
        count = round + 1
        sizes = 1 << jnp.arange(self.levels, dtype=count.dtype)
        ends_here, in_prefix = sizes == (count & -count), (sizes & count) != 0
        state = jnp.where(ends_here[:, None], seed, state)
        return jnp.sum(jnp.where(in_prefix[:, None], state, 0.0), axis=0), state

    def row_norm(self, count: Any, library: Any) -> Any:
        """Exact: as many blocks as `count` has ones."""
        return library.sqrt(library.bitwise_count(library.asarray(count)).astype(library.float64))

    @property
    def capacity(self) -> int:
        """No fewer than there are places."""
        return max(self.horizon, super().capacity)

    def follow(self, state: Floats, first: int, seeds: Floats) -> tuple[Floats, Floats, Floats]:
        """Mix the blocks of a prefix, but for the one that ends here, which replaces its like."""
        blocks, mixed = np.array(state), np.empty(seeds.shape)
        for row, place in enumerate(range(first, first + len(seeds))):
            levels = [level for level in range(self.levels) if (place & (place - 1)) >> level & 1]
            mixed[row] = blocks[levels].sum(axis=0)
            blocks[(place & -place).bit_length() - 1] = seeds[row]
        return mixed, blocks, np.abs(blocks)

    def seed(self, *, noise_multiplier: float, sensitivity: float, dimension: int) -> ExactGaussian:
        """One user is in a block of every size, and pays for each of them."""
        multiplier = positive("noise_multiplier", noise_multiplier) * self.column_norm
        return ExactGaussian.matching(multiplier, sensitivity, dimension)

    def price(self, *seeds: events.DiscreteGaussian) -> events.Repeated:
        """One draw for each size of block."""
        (seed,) = seeds
        return events.Repeated(event=seed, count=self.levels)
