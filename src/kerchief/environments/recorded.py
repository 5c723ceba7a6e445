"""Recorded worlds: every arm of every round is given, and so is the parameter."""

from __future__ import annotations

from functools import lru_cache
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.contracts import Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.environments.contexts import Contexts
from kerchief.environments.worlds import GLMEnvironment

# Arms and parameters are float32.
_ROUNDING = 1e-6
# Arms are drawn one by one: so many take some seconds.
_MOST_DRAWN = 2**20


@struct
class Recorded(Contexts):
    """Arms of every round, drawn before, with the direction of a parameter to go with them.

    They are the same in every replicate.
    """

    direction: Array
    arms: Array

    # Arrays are neither hashed nor compared: a record is equal to itself alone.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @classmethod
    @double_precision
    def of(cls, *, direction: ArrayLike, arms: ArrayLike) -> Self:
        """Check a record: rounds x arms x features, each arm of norm at most one."""
        sets = validate.real_array("arms", arms)
        vector = validate.real_array("directions", direction)
        if sets.ndim != 3 or vector.shape != sets.shape[2:] or 0 in sets.shape:
            raise InvalidValueError(
                f"arms have shape {sets.shape} and the direction {vector.shape}; give (rounds, "
                "arms, features) and (features,), none of them 0"
            )
        longest, length = _norms(sets).max(), _norms(vector)
        if not longest <= 1 + _ROUNDING:
            raise InvalidValueError(f"the longest arm has norm {longest}; it must be at most 1")
        if not abs(length - 1) <= _ROUNDING:
            raise InvalidValueError(f"the direction has norm {length}; it must be 1")
        _, count, dim = sets.shape
        validate.whole("dim", dim, high=512)
        return cls(
            dim=dim,
            count=count,
            direction=jnp.asarray(vector, jnp.float32),
            arms=jnp.asarray(sets, jnp.float32),
        )

    @property
    def rounds(self) -> int:
        """As many as were recorded."""
        return self.arms.shape[0]

    def parameter(self, stream: Stream) -> Array:
        """Return the recorded direction."""
        return self.direction

    def features(self, kept: Array, clock: Clock, stream: Stream) -> Array:
        """The arms of this round; beyond the record they are NaN, never those of another round."""
        return self.arms.at[clock.round].get(mode="fill", fill_value=jnp.nan)


def table_two(
    *,
    radius: float,
    dim: int = 3,
    arms: int = 20,
    horizon: int = 5000,
    seed: int = 109832,
    link: str = "probit",
) -> GLMEnvironment:
    """The world of the experiments in Sarmasarkar (arXiv 2602.00417), draw for draw.

    Table 2 has the defaults and radius 2, 2.5 or 3; the greatest 1/slope over all its arms is then
    18.39, 56.44 or 222.15. Figure 1a is radius 3.5, dim 5, horizon 15000 and the logistic link
    (33.76), Figure 1b radius 3, dim 5 and the probit link (193.18). Arms and parameter follow from
    `seed` alone; replicates differ in their rewards and in what policies draw.

    >>> table_two(radius=2.0, horizon=10).problem(11)
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: horizon is 11; it must be at least 1 and at most 10
    """
    validate.whole("dim", dim, high=512)
    validate.whole("horizon", horizon, high=_MOST_DRAWN)
    validate.whole("arms", arms, high=_MOST_DRAWN // horizon)
    validate.whole("seed", seed, low=0)
    direction, points = _draw_record(seed, dim, arms, horizon)
    source = Recorded.of(direction=direction, arms=points)
    return GLMEnvironment.of(contexts=source, radius=radius, link=link)


@lru_cache(maxsize=4)
def _draw_record(
    seed: int, dim: int, arms: int, horizon: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A direction, then arms uniform in the ball, each a normal vector followed by a uniform.

    NumPy takes a varying number of bits for a normal, so only a loop keeps the order of the draws.
    The direction is that of a uniform point in a cube.
    """
    dice = np.random.default_rng(seed)
    corner = dice.uniform(-1, 1, dim)
    normals, heights = np.empty((horizon * arms, dim)), np.empty((horizon * arms, 1))
    for normal, height in zip(normals, heights, strict=True):
        dice.standard_normal(out=normal)
        dice.random(out=height)
    points = heights ** (1 / dim) * normals / _norms(normals)[:, None]
    return corner / _norms(corner), points.reshape(horizon, arms, dim)


def _norms(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Lengths along the last axis."""
    with np.errstate(over="ignore"):
        lengths: NDArray[np.float64] = np.linalg.norm(vectors.astype(np.float64), axis=-1)
    return lengths
