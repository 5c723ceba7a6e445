"""What online bandits share: steps that devices take and report.

An online estimate moves a little with every user, from where it stands. The posted model says where
that is, so the user's own device can take the step; what it reports is the step itself, and the
learner does nothing but add up.
"""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Example
from kerchief.core.linalg import smat, svec, svec_size
from kerchief.core.queries import BaseStatistic, GramMatrix, clip_features, finite
from kerchief.core.struct import struct
from kerchief.core.validate import MOST_DIM, between, whole
from kerchief.policies import ellipsoid


@struct
class Model(ellipsoid.Model):
    """The billboard, in float64 and with the matrix, for the next step starts from it."""

    gram: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmSum(BaseStatistic):
    """A sum over users of a bounded statistic of the arm played, x.

    Attributes:
        dim: length of x.
        norm: x is scaled into the ball of this radius.
    """

    dim: int
    norm: float

    @property
    def center(self) -> float | NDArray[np.float64]:
        """The centre of a ball that holds every statistic."""
        return 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Increments(ArmSum):
    """The sums of w x xᵀ, w clipped to [0, 1], and of the users' steps, as one flat vector.

    A record's weight is the row (w, steps).

    Attributes:
        steps: how many numbers one user's steps consist of.
        stride: steps are scaled into the ball of this radius, which no honest step leaves.
        balance: the steps count as if they were at most this times `norm`² long: less of it, less
            noise on the matrix.
    """

    steps: int
    stride: float
    balance: float = 0.05

    def __post_init__(self) -> None:
        """Check the bounds: privacy rests on them."""
        super().__post_init__()
        whole("steps", self.steps, high=MOST_DIM)
        between("stride", self.stride, 1e-9, 1e18, closed=True)
        between("balance", self.balance, 1e-9, 1e9, closed=True)

    @property
    def size(self) -> int:
        """Length of the statistic."""
        return svec_size(self.dim) + self.steps

    @property
    def sensitivity(self) -> float:
        """A bound on the diameter of the statistics under replacement.

        Two matrices are at most √2 L² apart (see `GramMatrix`), and two steps twice their bound.

        >>> round(Increments(dim=3, norm=1.0, steps=4, stride=7.0).sensitivity ** 2, 6)
        2.01
        """
        return self.norm**2 * math.sqrt(2 + (2 * self.balance) ** 2)

    @property
    def center(self) -> NDArray[np.float64]:
        """The matrices' middle (see `GramMatrix`), and no step."""
        return np.concatenate([self._gram.center, np.zeros(self.steps)])

    @property
    def radius(self) -> float:
        """The matrices' radius (see `GramMatrix`) and that of the steps, at right angles.

        >>> round(Increments(dim=3, norm=1.0, steps=4, stride=7.0).radius ** 2, 6)
        0.669167
        """
        return math.hypot(self._gram.radius, self.balance * self.norm**2)

    def encode(self, record: Example) -> Array:
        """Clip x, w and the steps, then write them side by side."""
        x = clip_features(record.features, self.norm)
        row = jnp.asarray(record.weight)
        weight = jnp.clip(finite(row[0]), 0, 1)
        steps = clip_features(row[1:], self.stride) * self._scale
        return jnp.concatenate([svec((weight * x)[:, None] * x[None, :]), steps])

    def split(self, total: Array) -> tuple[Array, Array]:
        """The sums of w x xᵀ and of the steps, from a total."""
        boundary = svec_size(self.dim)
        return smat(total[:boundary], self.dim), total[boundary:] / self._scale

    @property
    def _gram(self) -> GramMatrix:
        return GramMatrix(dim=self.dim, norm=self.norm)

    @property
    def _scale(self) -> float:
        return self.balance * self.norm**2 / self.stride
