"""Convex sets that a learner may play on: balls, boxes and simplices.

A simplex spans one dimension less than its points are written in: directions, radii and barriers
are those of the span. Points are float64, since the difference of two close losses is divided by a
small number.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.random import Stream
from kerchief.core.registry import Registry
from kerchief.core.validate import MOST_DIM, check_bounds, whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Domain(abc.ABC):
    """A convex set with a center, bounded, with an inside in its own span.

    Its barrier is self-concordant, 0 and least at the center, and grows beyond all bounds towards
    the boundary. So from any inner point all steps of length at most 1, in the norm that the
    barrier's Hessian gives there, stay in the set (Nesterov and Nemirovskii 1994). What is written
    out here is for sets around the origin that span the space of their points.
    """

    dim: int

    def __post_init__(self) -> None:
        """Check the size."""
        check_bounds(self)

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return self.dim

    @property
    @abc.abstractmethod
    def inner(self) -> float:
        """Radius of the largest ball around the center, within the span, that the set holds."""

    @property
    @abc.abstractmethod
    def outer(self) -> float:
        """The greatest distance of a point from the center."""

    @property
    def nu(self) -> float:
        """Parameter ν of the barrier: its gradient is at most √ν long in its own dual norm."""
        return float(self.dim)

    def center(self) -> Array:
        """Where a learner begins."""
        return jnp.zeros(self.dim, jnp.float64)

    def basis(self) -> Array:
        """Orthonormal columns that span the differences of points."""
        return jnp.eye(self.dim)

    def direction(self, stream: Stream) -> Array:
        """A unit vector of the span, drawn uniformly."""
        return _unit(stream.normal(self.dim), np.eye(self.dim)[0])

    @abc.abstractmethod
    def project(self, point: Array, share: Array | float = 1.0) -> Array:
        """The nearest point of the set, scaled to this share of its size around its center."""

    @abc.abstractmethod
    def lowest(self, slope: Array) -> Array:
        """The point where this linear function is least."""

    @abc.abstractmethod
    def barrier(self, point: Array) -> Array:
        """The barrier at an inner point."""

    @abc.abstractmethod
    def barrier_gradient(self, point: Array) -> Array:
        """Its gradient."""

    @abc.abstractmethod
    def barrier_hessian(self, point: Array) -> Array:
        """Its Hessian."""


def _unit(vector: Array, otherwise: NDArray[np.float64]) -> Array:
    """The vector at length 1; zero, which floats can draw, stands for a given unit vector."""
    vector = vector.astype(jnp.float64)
    length = jnp.linalg.norm(vector)
    return jnp.where(length > 0, vector / jnp.where(length > 0, length, 1), otherwise)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ball(Domain):
    """All points within a radius of the origin."""

    radius: float = 1.0

    @property
    def inner(self) -> float:
        """The radius."""
        return self.radius

    @property
    def outer(self) -> float:
        """The radius."""
        return self.radius

    @property
    def nu(self) -> float:
        """1, in any dimension."""
        return 1.0

    def project(self, point: Array, share: Array | float = 1.0) -> Array:
        """Scale a point that is too far away."""
        length, limit = jnp.linalg.norm(point), self.radius * share
        return jnp.where(length > limit, point * (limit / jnp.where(length > 0, length, 1)), point)

    def lowest(self, slope: Array) -> Array:
        """The point of the sphere against the slope."""
        return -self.radius * _unit(slope, np.eye(self.dim)[0])

    def barrier(self, point: Array) -> Array:
        """-log(1 - |x|²/R²)."""
        return -jnp.log(self._room(point))

    def barrier_gradient(self, point: Array) -> Array:
        """2x / (R² - |x|²)."""
        return 2 * point / (self.radius**2 * self._room(point))

    def barrier_hessian(self, point: Array) -> Array:
        """2I / (R² - |x|²), and the gradient's outer product with itself."""
        gradient = self.barrier_gradient(point)
        curve = 2 / (self.radius**2 * self._room(point))
        return curve * jnp.eye(self.dim) + gradient[:, None] * gradient[None, :]

    def _room(self, point: Array) -> Array:
        """1 - |x|²/R²."""
        return 1 - (point / self.radius) @ (point / self.radius)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box(Domain):
    """All points whose coordinates lie within `half` of 0."""

    half: float = 1.0

    @property
    def inner(self) -> float:
        """Half an edge."""
        return self.half

    @property
    def outer(self) -> float:
        """Half a diagonal."""
        return self.half * math.sqrt(self.dim)

    def project(self, point: Array, share: Array | float = 1.0) -> Array:
        """Clip every coordinate."""
        limit = self.half * share
        return jnp.clip(point, -limit, limit)

    def lowest(self, slope: Array) -> Array:
        """The corner against the slope."""
        return jnp.where(slope < 0, self.half, -self.half)

    def barrier(self, point: Array) -> Array:
        """-Σ log(1 - x²/h²)."""
        return -jnp.log(self._room(point)).sum()

    def barrier_gradient(self, point: Array) -> Array:
        """2x / (h² - x²) in every coordinate."""
        return 2 * point / (self.half**2 * self._room(point))

    def barrier_hessian(self, point: Array) -> Array:
        """2 / (h² - x²), and the gradient's square, on the diagonal."""
        curve = 2 / (self.half**2 * self._room(point))
        return jnp.diag(curve + self.barrier_gradient(point) ** 2)

    def _room(self, point: Array) -> Array:
        """1 - x²/h²."""
        return 1 - (point / self.half) ** 2


@functools.cache
def _contrasts(dim: int) -> NDArray[np.float64]:
    """Orthonormal columns, each of which adds up to 0: column k sets k + 1 entries against one."""
    columns = np.zeros((dim, dim - 1))
    for k in range(1, dim):
        columns[:k, k - 1], columns[k, k - 1] = 1.0, -k
        columns[:, k - 1] /= math.sqrt(k * (k + 1))
    columns.flags.writeable = False
    return columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simplex(Domain):
    """All probability vectors of a length: points of one dimension less."""

    def __post_init__(self) -> None:
        """Check the length: one probability alone leaves no choice."""
        whole("dim", self.dim, low=2, high=MOST_DIM)
        super().__post_init__()

    @property
    def rank(self) -> int:
        """One less than the length, as the entries add up to 1."""
        return self.dim - 1

    @property
    def inner(self) -> float:
        """From the center to the middle of a face."""
        return 1 / math.sqrt(self.dim * (self.dim - 1))

    @property
    def outer(self) -> float:
        """From the center to a corner."""
        return math.sqrt((self.dim - 1) / self.dim)

    def center(self) -> Array:
        """Equal probabilities."""
        return jnp.full(self.dim, 1 / self.dim, jnp.float64)

    def basis(self) -> Array:
        """Columns that add up to 0."""
        return jnp.asarray(_contrasts(self.dim))

    def direction(self, stream: Stream) -> Array:
        """A normal vector without its mean, scaled."""
        normal = stream.normal(self.dim).astype(jnp.float64)
        return _unit(normal - normal.mean(), _contrasts(self.dim)[:, 0])

    def project(self, point: Array, share: Array | float = 1.0) -> Array:
        """Take one threshold off every entry, and cut at the least probability.

        The threshold is found among sorted entries (Held, Wolfe and Crowder 1974).
        """
        least = (1 - share) / self.dim
        falling = -jnp.sort(least - point)
        excess = (jnp.cumsum(falling) - share) / np.arange(1, self.dim + 1)
        support_size = jnp.maximum((falling > excess).sum(), 1)
        return least + jnp.maximum(point - least - excess[support_size - 1], 0)

    def lowest(self, slope: Array) -> Array:
        """The corner of the least entry."""
        return jnp.eye(self.dim)[jnp.argmin(slope)]

    def barrier(self, point: Array) -> Array:
        """-Σ log(x d)."""
        return -jnp.log(point * self.dim).sum()

    def barrier_gradient(self, point: Array) -> Array:
        """-1/x in every entry."""
        return -1 / point

    def barrier_hessian(self, point: Array) -> Array:
        """1/x² on the diagonal."""
        return jnp.diag(1 / point**2)


DOMAINS: Registry[Callable[..., Domain]] = Registry("domain")
"""Convex sets by name; each is built from its dimension."""

DOMAINS.add("ball", Ball)
DOMAINS.add("box", Box)
DOMAINS.add("simplex", Simplex)
