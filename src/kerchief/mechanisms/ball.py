"""What randomizers of a point in a ball have in common, and how they see the point."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValue
from kerchief.core.queries import clip_features
from kerchief.core.random import Stream
from kerchief.core.validate import real_array, whole
from kerchief.mechanisms.mechanism import Vector

__all__ = ["BallReport", "beside", "lifted", "spread_out"]


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


def spread_out(center: float | NDArray[np.float64], size: int) -> tuple[float, ...]:
    """The ball's center, one number per coordinate.

    >>> spread_out(0.5, 2)
    (0.5, 0.5)
    """
    numbers, whole_size = real_array("centers", center), whole("size", size, high=2**24)
    if numbers.shape not in ((), (whole_size,)) or not np.isfinite(numbers).all():
        raise InvalidValue(
            f"center has shape {numbers.shape}; it must be a finite number, or {size} of them"
        )
    return tuple(np.broadcast_to(numbers, (size,)).tolist())


def lifted(vector: Array, center: Array, radius: float) -> Array:
    """The unit vector of one more dimension that stands for a vector in a ball.

    It is centred, scaled into the unit ball (what is not finite becomes the center), and the last
    coordinate is what it lacks to length one.

    >>> lifted(jnp.array([1.0, 4.0]), jnp.ones(2), 3.0).tolist()
    [0.0, 1.0, 0.0]
    """
    unit = clip_features((vector - center) / radius, 1.0)
    return jnp.append(unit, jnp.sqrt(jnp.maximum(0, 1 - unit @ unit)))


def beside(unit: Array, along: Array, stream: Stream) -> Array:
    """A normal vector, but for its part along a unit vector, which is given."""
    noise = stream.normal(unit.shape[0]).astype(jnp.float64)
    return noise + (along - noise @ unit) * unit
