"""The query of arms that have models of their own: moments by arm, and what contexts are like.

No matrix is asked for by arm. One pooled second moment of contexts is released, and whoever knows
the policy that was posted can work out which contexts each arm met. Proof note:
`disjoint_moments.md`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Example
from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import smat, svec, svec_size
from kerchief.core.problems import Problem
from kerchief.core.queries import BaseStatistic, clip_features, finite
from kerchief.core.validate import between, whole


class DisjointSums(NamedTuple):
    """What a total says.

    Attributes:
        moments: by arm, the sum of (y - offset) u.
        features: by arm, the sum of u.
        squares: over all users, the sum of z zᵀ; 0 where it was not asked for.
    """

    moments: Array
    features: Array
    squares: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class DisjointMoments(BaseStatistic):
    """The sum of (eₐ ⊗ (y u, w u), h z zᵀ) over users, as one flat isometric vector.

    z, the features that vary, is scaled into its ball; y is clipped to [low, high] and centred; a
    is the arm for which the record's weight is the greatest: one and no other. Where features have
    a constant last coordinate, u is z and `lever` in its place: the constant is public, so how much
    it counts beside z is a matter of noise alone. Otherwise u is z.

    Attributes:
        dim: length of the features, the constant included.
        arms: how many arms there are.
        norm: bound on the norm of z.
        offset: subtracted from y after clipping.
        lever: what stands for the constant in u; 0 where features have none.
        weight: w, how much the sums of features count beside the moments.
        balance: h, the same of the second moment of z.
        pooled: whether that moment is asked for; where contexts are public it need not be.
    """

    dim: int
    arms: int
    norm: float
    low: float
    high: float
    offset: float
    lever: float
    weight: float
    balance: float
    pooled: bool = True

    def __post_init__(self) -> None:
        """Check the bounds, and that some feature varies."""
        super().__post_init__()
        whole("arms", self.arms, high=2**24)
        between("lever", self.lever, 0.0, 1e9, closed=True)
        between("weight", self.weight, 1e-9, 1e9, closed=True)
        if self.varying < 1:
            raise InvalidValueError(
                "dim is 1 and that coordinate is constant, so there are no contexts; use a "
                "ContextFreeProblem"
            )

    @classmethod
    def of(cls, problem: Problem, *, pooled: bool = True) -> Self:
        """The query that fits a problem's public bounds; weights were chosen on unreported data."""
        rest = problem.norm**2 - problem.constant**2
        if rest <= 1e-12 * problem.norm**2:
            raise InvalidValueError(
                f"constant is {problem.constant} and norm {problem.norm}, which leaves no room for "
                "features that vary; norm must bound the whole vector"
            )
        norm, wide = math.sqrt(rest), problem.high - problem.low
        offset = (problem.low + problem.high) / 2 if problem.constant else 0.0
        largest_reward, weight = (
            max(abs(problem.low - offset), abs(problem.high - offset)),
            0.2 * wide,
        )
        return cls(
            dim=problem.dim,
            arms=problem.arms,
            norm=norm,
            low=problem.low,
            high=problem.high,
            offset=offset,
            lever=0.6 * norm if problem.constant else 0.0,
            weight=weight,
            # The most that costs nothing: two contexts of one arm, turned round, are as far apart.
            balance=math.hypot(largest_reward, weight) / math.sqrt(2) / norm,
            pooled=pooled,
        )

    @property
    def varying(self) -> int:
        """How many features vary."""
        return self.dim - (self.lever > 0)

    @property
    def size(self) -> int:
        """Length of the statistic: two vectors by arm, and the second moment of all."""
        return 2 * self.arms * self.dim + self._pool_size

    @property
    def pool(self) -> float:
        """h, or 0 where the second moment is not asked for."""
        return self.balance if self.pooled else 0.0

    @property
    def _pool_size(self) -> int:
        return svec_size(self.varying) if self.pooled else 0

    @property
    def sensitivity(self) -> float:
        """Exact diameter of the statistics under replacement, where two features vary or more.

        All lengths are at their bounds, rewards at ends of their interval, and the inner product of
        the two contexts is where a parabola has its top. Proof in `disjoint_moments.md`.
        """
        ends = (self.low - self.offset, self.high - self.offset)
        same = max(self._same_arm(first, second) for first in ends for second in ends)
        return math.sqrt(max(same, self._two_arms) if self.arms > 1 else same)

    @property
    def taxicab(self) -> float:
        """A bound on the diameter in the sum of absolute values: two arms differ, and the pool."""
        return math.sqrt(4 * self.dim + self._pool_size) * self.sensitivity

    @property
    def center(self) -> NDArray[np.float64]:
        """Arms that share the lever, a multiple of the identity, and nothing else."""
        rows, columns = np.triu_indices(self.varying)
        features = np.zeros((self.arms, self.dim))
        if self.lever:
            features[:, -1] = self.weight * self.lever / self.arms
        second_moment = np.where(rows == columns, self._centre, 0.0)[: self._pool_size]
        return np.concatenate([np.zeros(self.arms * self.dim), features.ravel(), second_moment])

    @property
    def radius(self) -> float:
        """The greatest distance from the center, exactly: at the longest z, or at z = 0."""
        longest = self.pool * self.norm**2
        lever_part = (self.weight * self.lever) ** 2 * (1 - 1 / self.arms)
        none = self.varying * self._centre**2
        full = (longest - self._centre) ** 2 + (self.varying - 1) * self._centre**2
        full += (self._largest_reward**2 + self.weight**2) * self.norm**2
        return math.sqrt(lever_part + (self._largest_reward * self.lever) ** 2 + max(none, full))

    def encode(self, record: Example) -> Array:
        """Clip z and y, name one arm, then write everything as one vector."""
        z = clip_features(record.features[: self.varying], self.norm)
        y = jnp.clip(finite(record.reward), self.low, self.high) - self.offset
        arm_indicator = jnp.arange(self.arms) == jnp.argmax(finite(jnp.asarray(record.weight)))
        u = self.levered(z)
        blocks = [arm_indicator[:, None] * vector[None, :] for vector in (y * u, self.weight * u)]
        second_moment = self.balance * svec(z[:, None] * z[None, :])[: self._pool_size]
        return jnp.concatenate([*(block.ravel() for block in blocks), second_moment])

    def levered(self, z: Array) -> Array:
        """u: the varying features, and the lever where there is a constant."""
        if not self.lever:
            return z
        lever = jnp.full((*z.shape[:-1], 1), self.lever, z.dtype)
        return jnp.concatenate([z, lever], axis=-1)

    def split(self, total: Array) -> DisjointSums:
        """The sums, each in its own unit, from a total."""
        block, shape = self.arms * self.dim, (self.arms, self.dim)
        pool = total[2 * block :] if self.pooled else jnp.zeros(svec_size(self.varying))
        return DisjointSums(
            moments=total[:block].reshape(shape),
            features=total[block : 2 * block].reshape(shape) / self.weight,
            squares=smat(pool, self.varying) / self.balance,
        )

    @property
    def _two_arms(self) -> float:
        """The greatest squared distance of statistics of different arms."""
        blocks = (self._largest_reward**2 + self.weight**2) * (self.lever**2 + self.norm**2)
        return 2 * blocks + 2 * self.pool**2 * self.norm**4

    def _same_arm(self, reward: float, second_reward: float) -> float:
        """The greatest squared distance of statistics of one arm with these rewards."""
        longest, square = self.norm**2, self.pool**2
        pull = reward * second_reward + self.weight**2
        # The inner product t of the two contexts adds -2 square t² - 2 pull t.
        top = -pull / (2 * square) if square else -math.copysign(math.inf, pull)
        t = min(max(top, -longest), longest)
        apart = self.lever**2 * (reward - second_reward) ** 2
        lengths = (
            reward**2 + second_reward**2 + 2 * self.weight**2
        ) * longest + 2 * square * longest**2
        return apart + lengths - 2 * square * t**2 - 2 * pull * t

    @property
    def _largest_reward(self) -> float:
        """How large a centred reward can be."""
        return max(abs(self.low - self.offset), abs(self.high - self.offset))

    @property
    def _centre(self) -> float:
        """The multiple of the identity that the second moment is measured from."""
        return self.pool * self.norm**2 / max(2, self.varying)
