"""The binary tree: each prefix is a sum of at most log2 T + 1 dyadic blocks with fresh noise.

Sources: C. Dwork, M. Naor, T. Pitassi, G. Rothblum, "Differential privacy under continual
observation", STOC 2010; T.-H. H. Chan, E. Shi, D. Song, "Private and continual release of
statistics", TISSEC 2011. Only blocks that some prefix uses get noise, which leaves exactly one new
block a round and one level fewer to pay for. Proof note: `tree.md`.
"""

from __future__ import annotations

import math
from typing import ClassVar

import jax.numpy as jnp
from jax import Array, lax

from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import MOST_ROUNDS, whole
from kerchief.mechanisms.continual import draw, seed_std, stream_event, until
from kerchief.privacy import events

__all__ = ["Tree"]

# Rounds are counted in int32.


@struct
class Tree:
    """Noise on every prefix from a binary tree: the classical choice, for comparison.

    It is the plainest to prove, and adds two to four times the noise of `blt.BLT`.

    Formal guarantees:
        With real numbers the whole stream costs `event()`: see `tree.md`. Floating-point noise, so
        `idealized` is True.

    Attributes:
        std: standard deviation of the noise on each coordinate of a block.
        sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
        horizon: the length of the stream.

    >>> tree = Tree.of(noise_multiplier=1.0, sensitivity=2.0, horizon=15)
    >>> tree.levels, tree.std, tree.std_at(jnp.array([8, 15])).tolist()
    (4, 4.0, [4.0, 8.0])
    """

    idealized: ClassVar[bool] = True

    std: float | Array
    sensitivity: float = static()
    horizon: int = static()

    @classmethod
    def of(cls, *, noise_multiplier: float, sensitivity: float, horizon: int) -> Tree:
        """The noise with which the whole stream costs one Gaussian release of this multiplier.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        norm = _column_norm(whole("horizon", horizon, high=MOST_ROUNDS))
        std = seed_std(noise_multiplier=noise_multiplier, sensitivity=sensitivity, column_norm=norm)
        return cls(std=std, sensitivity=sensitivity, horizon=horizon)

    @property
    def levels(self) -> int:
        """How many sizes of block there are: floor(log2(horizon)) + 1."""
        return self.horizon.bit_length()

    @property
    def column_norm(self) -> float:
        """The first user is in one block of every size, nobody is in more."""
        return _column_norm(self.horizon)

    def prepare(self, vector: Array) -> Array:
        """What a user adds to a prefix: the vector itself."""
        return vector

    def open(self, size: int) -> Array:
        """The noise of the latest block of each size, none yet."""
        return jnp.zeros((self.levels, size), jnp.float64)

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        """Draw the noise of the block that ends here; add up the blocks of the prefix."""
        count = round + 1
        sizes = 1 << jnp.arange(self.levels, dtype=count.dtype)
        ends_here, used = sizes == (count & -count), (sizes & count) != 0
        fresh = draw(self.std, state.shape[1], stream)
        state = jnp.where(ends_here[:, None], fresh, state)
        noise = jnp.sum(jnp.where(used[:, None], state, 0.0), axis=0)
        return until(self.horizon, round, noise), state

    def std_at(self, count: Array) -> Array:
        """Exact: one share of variance for each block, and as many blocks as `count` has ones."""
        blocks = lax.population_count(jnp.asarray(count))
        return self.std * jnp.sqrt(blocks.astype(jnp.float64))

    def event(self) -> events.Event:
        """What all the prefixes together cost; without noise there is no privacy."""
        return stream_event(self)


def _column_norm(horizon: int) -> float:
    return math.sqrt(horizon.bit_length())
