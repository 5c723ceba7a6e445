"""Queries: what a policy may ask of its users."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Example
from kerchief.core.linalg import smat, svec, svec_size
from kerchief.core.links import get_link
from kerchief.core.problems import ContextFreeProblem, Problem
from kerchief.core.validate import at_least, between, check_bounds, positive, whole


def finite(value: Array) -> Array:
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
    features = jnp.clip(finite(features), -limit, limit)
    length = jnp.linalg.norm(features)
    return jnp.where(length > norm, features * (norm / length), features)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaseStatistic:
    """What every query here has; all its bounds are checked, since privacy rests on them.

    Attributes:
        importance: the part of the privacy budget, relative to the policy's other queries.
        batches: how many users have come when each batch ends; none where any times will do.
        readings: how many have come when each running total is wanted; none for after every user.
        local: the most epsilon that one report may tell whoever reads it on its way, where reports
            are bits; noise that promises nothing of the kind is refused.
        keep: the largest chance with which a bit is kept, where reports are bits.
    """

    importance: float = 1.0
    batches: tuple[int, ...] = ()
    readings: tuple[int, ...] = ()
    local: float = math.inf
    keep: float = 1.0

    def __post_init__(self) -> None:
        """Check the bounds."""
        check_bounds(self)
        positive("local", self.local, infinite=True)
        between("keep", self.keep, 1e-6, 1.0, closed=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionMoments(BaseStatistic):
    """The sum of (a w x xᵀ, y x) over users, as one flat isometric vector.

    x, of length `dim`, is scaled into the ball of radius `norm`, and y clipped to [low, high].

    Attributes:
        offset: subtracted from y after clipping. An offset shifts the regression: it is for arms
            that hold a constant coordinate, and for links whose mean at score 0 is not 0.
        balance: a, how much the matrix counts beside the vector: less of it, less noise on both.
        weighted: whether w is the record's own weight, clipped to [0, 1]; otherwise it is 1.
    """

    dim: int
    norm: float
    low: float
    high: float
    offset: float = 0.0
    balance: float = 1.0
    weighted: bool = False

    @classmethod
    def of(cls, problem: Problem) -> RegressionMoments:
        """The query that fits a problem's public bounds, rewards centred where that is free."""
        midpoint, origin = (problem.low + problem.high) / 2, get_link(problem.link).origin
        offset = midpoint if problem.constant else origin
        return cls(
            dim=problem.dim, norm=problem.norm, low=problem.low, high=problem.high, offset=offset
        )

    @property
    def size(self) -> int:
        """Length of the statistic: d(d+1)/2 for the matrix and d for the vector."""
        return svec_size(self.dim) + self.dim

    @property
    def sensitivity(self) -> float:
        """Exact diameter of the statistics under replacement.

        For unit x, x' with cosine c, a = 1 and |y| at most Y the squared distance is at most
        2(1 - c²) + 2Y²(1 - c): so the diameter is (2 + Y²)/√2 if Y² is at most 2, else 2Y. With
        weights one matrix may vanish: it is √(1 + 4Y²), if that is more. Proof in `queries.md`.

        >>> round(RegressionMoments(dim=5, norm=1.0, low=0.0, high=1.0).sensitivity ** 2, 6)
        4.5
        """
        return self._diameter(1.0)

    @property
    def taxicab(self) -> float:
        """A bound on the diameter in the sum of absolute values, for Laplace noise.

        For every κ > 0 it is at most √(n + d/κ²) times the Euclidean diameter with the vector
        counted κ times, n the length of the matrix's flat form; the best of some κ is taken.
        Proof in `queries.md`.

        >>> round(RegressionMoments(dim=5, norm=1.0, low=0.0, high=1.0).taxicab, 3)
        8.839
        """
        size = svec_size(self.dim)
        return min(
            math.sqrt(size + self.dim / stretch**2) * self._diameter(stretch)
            for stretch in (2 ** (power / 8) for power in range(-32, 33))
        )

    @property
    def largest(self) -> float:
        """The largest absolute value of a number of a statistic, exactly: at x = L e₁.

        >>> RegressionMoments(dim=5, norm=2.0, low=0.0, high=3.0).largest
        6.0
        """
        return self.norm * max(self.balance * self.norm, self._largest_reward)

    @property
    def absolute(self) -> float:
        """The largest sum of absolute values of a statistic, exactly: at x = L (1, ..., 1)/√d.

        >>> round(RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0).absolute, 3)
        3.121
        """
        matrix = self.balance * self.norm**2 * (1 + (self.dim - 1) / math.sqrt(2))
        return matrix + self._largest_reward * self.norm * math.sqrt(self.dim)

    @property
    def center(self) -> NDArray[np.float64]:
        """A multiple of the identity for the matrix, and nothing for the vector."""
        return np.concatenate([_multiple(self._centre, self.dim), np.zeros(self.dim)])

    @property
    def radius(self) -> float:
        """The greatest distance from the center, exactly: at ‖x‖ = L, or else at x = 0 or w = 0.

        Proof in `queries.md`.

        >>> query = RegressionMoments(dim=5, norm=1.0, low=0.0, high=1.0, offset=0.5)
        >>> round(query.radius ** 2, 6)
        1.05
        """
        largest, centre = self.balance * self.norm**2, self._centre
        pull = self._largest_reward * self.norm
        full = (largest - centre) ** 2 + (self.dim - 1) * centre**2 + pull**2
        none = self.dim * centre**2 + (pull**2 if self.weighted else 0.0)
        return math.sqrt(max(full, none))

    def encode(self, record: Example) -> Array:
        """Clip x, y and w, then write the pair as one vector whose norm is the pair's norm."""
        x = clip_features(record.features, self.norm)
        y = jnp.clip(finite(record.reward), self.low, self.high) - self.offset
        weight = jnp.clip(finite(jnp.asarray(record.weight)), 0, 1) if self.weighted else 1
        matrix = (self.balance * weight * x)[:, None] * x[None, :]
        return jnp.concatenate([svec(matrix), y * x])

    def split(self, total: Array) -> tuple[Array, Array]:
        """The sums of w x xᵀ and of y x, from a total."""
        matrix_size = svec_size(self.dim)
        return smat(total[:matrix_size], self.dim) / self.balance, total[matrix_size:]

    def _diameter(self, stretch: float) -> float:
        """The exact Euclidean diameter, with the vector counted so many times."""
        scale = self.balance * self.norm
        reward = stretch * self._largest_reward / scale
        unit = (2 + reward**2) / math.sqrt(2) if reward**2 <= 2 else 2 * reward
        if self.weighted:
            unit = max(unit, math.sqrt(1 + 4 * reward**2))
        return self.norm * scale * unit

    @property
    def _largest_reward(self) -> float:
        """How large a centred reward can be."""
        return max(abs(self.low - self.offset), abs(self.high - self.offset))

    @property
    def _centre(self) -> float:
        """The multiple of the identity from which no matrix is farther than need be."""
        largest = self.balance * self.norm**2
        if self.weighted:
            return largest / max(2, self.dim)
        share = (self._largest_reward / (self.balance * self.norm)) ** 2
        return largest * min(1 / self.dim, (1 + share) / 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GramMatrix(BaseStatistic):
    """The sums of w₁ x xᵀ, w₂ x xᵀ, ... over users, as one flat isometric vector.

    The vector x, of length `dim`, is scaled into the ball of radius `norm`, and the weights of one
    user, one for each of the groups, are clipped to w ≥ 0 with Euclidean norm at most 1. So a user
    who is in one of several groups, with a whole weight there, costs no more than one of a single
    group.
    """

    dim: int
    norm: float
    groups: int = 1

    @property
    def size(self) -> int:
        """Length of the statistic."""
        return self.groups * svec_size(self.dim)

    @property
    def sensitivity(self) -> float:
        """Exact diameter of the statistics under replacement, but for one dimension and one group.

        Two statistics have norm at most L² each and, being positive semidefinite in each group, an
        inner product of at least 0: so they are at most √2 L² apart, as those of orthogonal x are,
        or of different groups. Proof in `queries.md`.

        >>> round(GramMatrix(dim=3, norm=1.0, groups=2).sensitivity ** 2, 6)
        2.0
        """
        return math.sqrt(2) * self.norm**2

    @property
    def largest(self) -> float:
        """The largest absolute value of a number of a statistic, exactly: at x = L e₁."""
        return self.norm**2

    @property
    def center(self) -> NDArray[np.float64]:
        """A multiple of the identity in every group."""
        return np.tile(_multiple(self._centre, self.dim), self.groups)

    @property
    def radius(self) -> float:
        """The greatest distance from the center, exactly: L² √(1 − 1/(g d)), or L²/2 if g d = 1.

        Proof in `queries.md`.

        >>> round(GramMatrix(dim=3, norm=1.0, groups=2).radius ** 2, 6)
        0.833333
        """
        largest, centre, places = self.norm**2, self._centre, self.groups * self.dim
        full = (largest - centre) ** 2 + (places - 1) * centre**2
        return math.sqrt(max(full, places * centre**2))

    def encode(self, record: Example) -> Array:
        """Clip x and the weights, then write the matrices side by side."""
        x = clip_features(record.features, self.norm)
        weights = jnp.maximum(finite(jnp.atleast_1d(record.weight)), 0).astype(x.dtype)
        weights = clip_features(weights, 1.0)
        return (weights[:, None] * svec(x[:, None] * x[None, :])[None, :]).ravel()

    def split(self, total: Array) -> Array:
        """The sums as matrices, one per group, from a total."""
        parts = total.reshape(self.groups, svec_size(self.dim))
        return jnp.stack([smat(part, self.dim) for part in parts])

    @property
    def _centre(self) -> float:
        return self.norm**2 / max(2, self.groups * self.dim)


def _multiple(factor: float, dim: int) -> NDArray[np.float64]:
    """The flat form of a multiple of the identity."""
    rows, columns = np.triu_indices(dim)
    return np.where(rows == columns, factor, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedScalar(BaseStatistic):
    """The sum over users of one number, clipped to an interval; there is one report per round.

    >>> BoundedScalar(low=0.0, high=1.0).encode(jnp.array(7.0)).tolist()
    [1.0]
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        """Check the bounds, and that there is room between them."""
        super().__post_init__()
        at_least("high - low", self.high - self.low, 1e-9)

    @classmethod
    def of(cls, problem: ContextFreeProblem) -> Self:
        """The loss of one action."""
        return cls(low=problem.low, high=problem.high)

    size: ClassVar[int] = 1

    @property
    def sensitivity(self) -> float:
        """The length of the interval, which its two ends attain."""
        return self.high - self.low

    @property
    def center(self) -> float:
        """The middle of the interval."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        """Every number lies within this distance of the center."""
        return (self.high - self.low) / 2

    def encode(self, record: Array) -> Array:
        """Clip the number, always."""
        return jnp.clip(finite(jnp.reshape(record, (1,))), self.low, self.high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitBallVector(BaseStatistic):
    """The sum over clients of a vector in the unit ball, of length `size`.

    It has no batches: the phases, and with them the cohorts, depend on the noise level.

    >>> UnitBallVector(size=2).encode(jnp.array([0.0, 2.0])).tolist()
    [0.0, 1.0]
    """

    size: int

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        whole("size", self.size, high=2**24)

    center: ClassVar[float] = 0.0

    @property
    def sensitivity(self) -> float:
        """The diameter of the ball, which opposite vectors attain."""
        return 2.0

    @property
    def radius(self) -> float:
        """The ball's radius."""
        return 1.0

    def encode(self, record: Array) -> Array:
        """Scale a vector that is too long into the ball."""
        return clip_features(record, 1.0)
