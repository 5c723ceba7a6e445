"""What online bandits share: steps that devices take and report, and the ball they stay in.

An online estimate moves a little with every user, from where it stands. The posted model says where
that is, so the user's own device can take the step; what it reports is the step itself, and the
learner does nothing but add up.
"""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Example
from kerchief.core.linalg import inverse, smat, svec, svec_size
from kerchief.core.minimizers import repeat
from kerchief.core.queries import clip_features, finite
from kerchief.core.validate import between, positive, whole

__all__ = ["Increments", "nearest"]

# Newton's method below doubles the correct digits in each step, and starts close.
_STEPS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Increments:
    """The sums of w x xᵀ and of the users' steps, as one flat vector.

    A record's weight is the row (w, steps).

    Attributes:
        dim: length of x.
        norm: x is scaled into the ball of this radius; w is clipped to [0, 1].
        steps: how many numbers a user's steps are.
        reach: steps are scaled into the ball of this radius, which no honest step leaves.
        balance: the steps count as if they were at most this times `norm`² long: less of it, less
            noise on the matrix.
        importance: the part of the privacy budget, relative to the policy's other queries.
        batches: how many users have come when each batch ends; none where any times will do.
    """

    dim: int
    norm: float
    steps: int
    reach: float
    balance: float = 0.05
    importance: float = 1.0
    batches: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the bounds: privacy rests on them."""
        whole("dim", self.dim)
        between("norm", self.norm, 1e-9, 1e9, closed=True)
        whole("steps", self.steps)
        between("reach", self.reach, 1e-9, 1e18, closed=True)
        between("balance", self.balance, 1e-9, 1e9, closed=True)
        positive("importance", self.importance)

    @property
    def size(self) -> int:
        """Length of the statistic."""
        return svec_size(self.dim) + self.steps

    @property
    def sensitivity(self) -> float:
        """A bound on the diameter of the statistics under replacement.

        Two matrices are at most √2 L² apart (see `Gram`), and two steps twice their bound.

        >>> round(Increments(dim=3, norm=1.0, steps=4, reach=7.0).sensitivity ** 2, 6)
        2.01
        """
        return self.norm**2 * math.sqrt(2 + (2 * self.balance) ** 2)

    def encode(self, record: Example) -> Array:
        """Clip x, w and the steps, then write them side by side."""
        x = clip_features(record.features, self.norm)
        row = jnp.asarray(record.weight)
        weight = jnp.clip(finite(row[0]), 0, 1)
        steps = clip_features(row[1:], self.reach) * self._scale
        return jnp.concatenate([svec((weight * x)[:, None] * x[None, :]), steps])

    def split(self, total: Array) -> tuple[Array, Array]:
        """The sums of w x xᵀ and of the steps, from a total."""
        cut = svec_size(self.dim)
        return smat(total[:cut], self.dim), total[cut:] / self._scale

    @property
    def _scale(self) -> float:
        return self.balance * self.norm**2 / self.reach


def nearest(metric: Array, pull: Array, radius: float | Array) -> Array:
    """The point of the ball that is nearest, in the norm of a metric M, to M⁻¹ pull.

    It is (M + νI)⁻¹ pull for the least ν ≥ 0 that puts it into the ball. Newton's method on
    1/length, which is concave in ν, never steps over that ν, so it needs no safeguard.

    >>> nearest(jnp.diag(jnp.array([1.0, 3.0])), jnp.array([0.0, 12.0]), 2.0).round(6).tolist()
    [0.0, 2.0]
    """

    def at(load: Array) -> tuple[Array, Array]:
        inverted = inverse(metric + load * jnp.eye(metric.shape[-1]))
        return inverted, inverted @ pull

    def step(_: Array | int, load: Array) -> Array:
        inverted, point = at(load)
        square = point @ point
        excess = jnp.maximum(0, jnp.sqrt(square) / radius - 1)
        return load + excess * square / jnp.maximum(point @ inverted @ point, 1e-30)

    return at(repeat(_STEPS, step, 0 * pull[0]))[1]
