"""The query behind bandits that report surprises: a direction, a response along it, and a weight.

`Regression` with weights asks for w x xᵀ; here directions and weights are summed apart, so that a
randomizer can tell of both moments of a direction by one short vector (`mechanisms.compass`).
Proof note: `residual_moments.md`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Example
from kerchief.core.linalg import smat, svec, svec_size
from kerchief.core.queries import BaseStatistic, clip_features, finite
from kerchief.core.validate import between, whole

_TINY = 1e-12


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResidualMoments(BaseStatistic):
    """The sum of (a (x xᵀ + (w - 1) L² I/d), y x) over users, as one flat isometric vector.

    x, of length `dim`, is as long as L whatever its length was; y, less the offset, is clipped to
    `most` on either side of zero, and w to [0, 1]. The trace of the matrix is a L² w: what is left
    of it are directions alone. Who has no direction, because x vanishes, adds nothing.

    Attributes:
        norm: L, the bound on features.
        most: the greatest response, on either side.
        offset: subtracted from y before it is clipped.
        balance: a, how much the matrix counts beside the vector: less of it, less noise on both.

    >>> query = ResidualMoments(dim=2, norm=2.0, most=1.0)
    >>> x = jnp.array([0.0, 0.5])
    >>> record = Example(features=x, reward=jnp.array(-3.0), weight=jnp.array(0.5))
    >>> query.encode(record).tolist()
    [-1.0, 0.0, 3.0, -0.0, -2.0]
    """

    dim: int
    norm: float
    most: float
    offset: float = 0.0
    balance: float = 1.0

    weighted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the bounds."""
        super().__post_init__()
        whole("dim", self.dim, high=1024)
        between("most", self.most, 1e-9, 1e9, closed=True)

    @property
    def size(self) -> int:
        """Length of the statistic: d(d+1)/2 for the matrix and d for the vector."""
        return svec_size(self.dim) + self.dim

    @property
    def square(self) -> float:
        """A = a L²: how long the matrix is, but for its trace and a part in d."""
        return self.balance * self.norm**2

    @property
    def pull(self) -> float:
        """R: how long the vector may be."""
        return self.most * self.norm

    @property
    def low(self) -> float:
        """The least response, before the offset is subtracted."""
        return self.offset - self.most

    @property
    def high(self) -> float:
        """The greatest one."""
        return self.offset + self.most

    @property
    def sensitivity(self) -> float:
        """Exact diameter of the statistics under replacement.

        With A = aL² and R the length of the vector, for directions with cosine c ≥ 0 the squared
        distance is at most 2A²(1 - c²) + 2R²(1 + c) + A²/d; c = R²/2A², or 1 if that is less. Proof
        in `residual_moments.md`.

        >>> round(ResidualMoments(dim=4, norm=1.0, most=1.0).sensitivity ** 2, 6)
        4.75
        """
        matrix, response = self.square**2, self.pull**2
        cosine = min(1.0, response / (2 * matrix)) if self.dim > 1 else 1.0
        square = 2 * matrix * (1 - cosine**2) + 2 * response * (1 + cosine) + matrix / self.dim
        return math.sqrt(square)

    @property
    def center(self) -> NDArray[np.float64]:
        """No direction, half a weight."""
        rows, columns = np.triu_indices(self.dim)
        weight = np.where(rows == columns, self.square / (2 * self.dim), 0.0)
        return np.concatenate([weight, np.zeros(self.dim)])

    @property
    def radius(self) -> float:
        """The greatest distance from the center, exactly: at any direction, w = 0 or 1.

        >>> round(ResidualMoments(dim=4, norm=1.0, most=1.0).radius ** 2, 6)
        1.8125
        """
        matrix = self.square**2 * (1 - 1 / self.dim + 1 / (4 * self.dim))
        return math.sqrt(matrix + self.pull**2)

    def encode(self, record: Example) -> Array:
        """Take x for its direction, clip y and w, then write the three as one vector."""
        x = clip_features(record.features, 1.0)
        length = jnp.linalg.norm(x)
        there = length > _TINY
        x = jnp.where(there, x / jnp.where(there, length, 1.0), 0.0)
        y = jnp.clip(finite(record.reward) - self.offset, -self.most, self.most)
        weight = jnp.clip(finite(jnp.asarray(record.weight)), 0, 1)
        even = jnp.where(there, (weight - 1) / self.dim, 0.0) * jnp.eye(self.dim, dtype=x.dtype)
        matrix = self.square * (x[:, None] * x[None, :] + even)
        return jnp.concatenate([svec(matrix), self.norm * y * x])

    def split(self, total: Array) -> tuple[Array, Array]:
        """The sums of x xᵀ + (w - 1) L² I/d and of y x, from a total."""
        matrix_size = svec_size(self.dim)
        return smat(total[:matrix_size], self.dim) / self.balance, total[matrix_size:]
