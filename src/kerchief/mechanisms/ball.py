"""What randomizers of a point in a ball have in common, and how they see the point."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.errors import InvalidValueError
from kerchief.core.queries import clip_features
from kerchief.core.random import Stream
from kerchief.core.validate import real_array, whole
from kerchief.mechanisms.mechanism import Floats, Simulated, Vector


class BallReport:
    """A randomizer of a device's own report, a point within `radius` of a center."""

    radius: float

    @property
    def sensitivity(self) -> float:
        """How far apart two points can be."""
        return 2 * self.radius

    def prepare(self, vector: Vector, stream: object = None) -> Vector:
        """What a user would add to a sum: the point itself."""
        return vector


def spread_out(center: float | Floats, size: int) -> tuple[float, ...]:
    """The ball's center, one number per coordinate.

    >>> spread_out(0.5, 2)
    (0.5, 0.5)
    """
    numbers, whole_size = real_array("centers", center), whole("size", size, high=2**24)
    if numbers.shape not in ((), (whole_size,)) or not np.isfinite(numbers).all():
        raise InvalidValueError(
            f"center has shape {numbers.shape}; it must be a finite number, or {size} of them"
        )
    return tuple(np.broadcast_to(numbers, (size,)).tolist())


class SidedReport(BallReport, Simulated):
    """A simulated report: a normal vector but for its part along the statistic, times a length."""

    center: tuple[float, ...]

    @property
    def length(self) -> float | Array:
        """What the drawn vector is multiplied by."""
        return self.std

    def along(self, stream: Stream) -> Array:
        """How far along the statistic the drawn vector lies."""
        raise NotImplementedError

    def add(self, vector: Array, stream: Stream) -> Array:
        """The report."""
        center = jnp.asarray(self.center)
        unit = lifted(vector, center, self.radius)
        noise = stream.normal(unit.shape[0]).astype(jnp.float64)
        draw = noise + (self.along(stream.split(1)) - noise @ unit) * unit
        return jnp.where(self.std > 0, center + self.length * draw[:-1], vector)


def upper_normal(coin: Array, place: Array, chance: Any, best: Any, others: Any) -> Array:
    """A normal number: with this chance in the tail of probability `best`, else below `others`.

    The coin and the place within that part are uniform.
    """
    place = place * (1 - 2.0**-25)
    upper = jnp.where(coin <= chance, best * place, others + (1 - others) * place)
    return -jax.scipy.special.ndtri(upper)


def lifted(vector: Array, center: Array, radius: float) -> Array:
    """The unit vector of one more dimension that stands for a vector in a ball.

    It is centred, scaled into the unit ball (what is not finite becomes the center), and the last
    coordinate is what it lacks to length one.

    >>> lifted(jnp.array([1.0, 4.0]), jnp.ones(2), 3.0).tolist()
    [0.0, 1.0, 0.0]
    """
    unit = clip_features((vector - center) / radius, 1.0)
    return jnp.append(unit, jnp.sqrt(jnp.maximum(0, 1 - unit @ unit)))
