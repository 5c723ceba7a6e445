"""Queries: what a policy may ask of its users."""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import Example, Problem
from kerchief.core.linalg import svec, svec_size
from kerchief.core.validate import at_least, between, whole

__all__ = ["Regression", "clip_features"]


def _finite(value: Array) -> Array:
    """Replace what is not a number, or infinite, by zero: privacy never rests on clean data."""
    return jnp.where(jnp.isfinite(value), value, 0)


def clip_features(features: Array, norm: float) -> Array:
    """Scale a feature vector into the ball of radius `norm`, which must lie between 1e-9 and 1e9.

    Entries above about the root of the largest float are cut to it first, so no square overflows.

    >>> clip_features(jnp.array([3.0, 4.0]), 1.0).tolist()
    [0.6000000000000001, 0.8]
    """
    # Not a division by the largest entry: XLA may multiply by its reciprocal, which can flush to 0.
    limit = 2.0 ** (np.finfo(features.dtype).maxexp // 2 - 4)
    features = jnp.clip(_finite(features), -limit, limit)
    length = jnp.linalg.norm(features)
    return jnp.where(length > norm, features * (norm / length), features)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression:
    """The sum of (x xᵀ, y x) over users, as one flat isometric vector.

    Attributes:
        dim: length of x.
        norm: x is scaled into the ball of this radius.
        low: y is clipped to at least this.
        high: y is clipped to at most this.
        center: subtracted from y after clipping. A center other than zero shifts the regression, so
            it is only for arms that hold a constant coordinate.
    """

    dim: int
    norm: float
    low: float
    high: float
    center: float = 0.0

    def __post_init__(self) -> None:
        """Check the bounds: privacy rests on them."""
        whole("dim", self.dim)
        between("norm", self.norm, 1e-9, 1e9, closed=True)
        at_least("high", self.high, at_least("low", self.low, -1e9))
        between("center", self.center, -1e9, 1e9, closed=True)

    @classmethod
    def of(cls, problem: Problem) -> Regression:
        """The query that fits a problem's public bounds, rewards centred where that is free."""
        center = (problem.low + problem.high) / 2 if problem.constant else 0.0
        return cls(
            dim=problem.dim, norm=problem.norm, low=problem.low, high=problem.high, center=center
        )

    @property
    def size(self) -> int:
        """Length of the statistic: d(d+1)/2 for the matrix and d for the vector."""
        return svec_size(self.dim) + self.dim

    @property
    def sensitivity(self) -> float:
        """Exact diameter of the statistics under replacement.

        For unit x, x' with cosine c and |y| at most Y the squared distance is at most
        2(1 - c²) + 2Y²(1 - c), whose maximum over c lies at c = -Y²/2 where that is above -1: then
        the diameter is (2 + Y²)/√2, which is √4.5 for Y = 1; otherwise it is 2Y. Proof in
        `queries.md`.

        >>> round(Regression(dim=5, norm=1.0, low=0.0, high=1.0).sensitivity ** 2, 6)
        4.5
        """
        reach = max(abs(self.low - self.center), abs(self.high - self.center)) / self.norm
        unit = (2 + reach**2) / math.sqrt(2) if reach**2 <= 2 else 2 * reach
        return self.norm**2 * unit

    def encode(self, record: Example) -> Array:
        """Clip x and y, then write (x xᵀ, y x) as one vector whose norm is the pair's norm."""
        x = clip_features(record.features, self.norm)
        y = jnp.clip(_finite(record.reward), self.low, self.high) - self.center
        return jnp.concatenate([svec(x[:, None] * x[None, :]), y * x])
