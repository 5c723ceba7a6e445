"""Worlds of arms with models of their own: every row is the user, and its number says which arm."""

from __future__ import annotations

import math
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock
from kerchief.core.errors import InvalidValue
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.environments.contexts import in_ball, on_sphere
from kerchief.environments.ranges import RANGED_CONSTANT, RANGED_NORM, ranged
from kerchief.environments.worlds import NOISES

# Features are float32.
_ROUNDING = 1e-6


def everyone(user: Array, arms: int) -> Arms:
    """The same features for all arms, all of them allowed."""
    return Arms(features=jnp.tile(user, (arms, 1)), allowed=jnp.ones(arms, bool))


@struct
class OwnModels:
    """Users u/√2 in a ball with a constant 1/√2 behind them, and one parameter for every arm.

    Attributes:
        radius: bound on the norm of each arm's parameter.
        strength: that norm, in radii; nobody is told.
        noise: how a reward falls around its mean.
    """

    radius: float | Array
    strength: float | Array = 1.0
    dim: int = static()
    count: int = static()
    noise: str = static()

    @classmethod
    def of(
        cls,
        *,
        dim: int = 5,
        arms: int = 5,
        radius: float = 1.0,
        noise: str = "bernoulli",
        strength: float = 1.0,
    ) -> Self:
        """Check every value.

        >>> OwnModels.of(dim=3, arms=4).problem(100).own
        3
        """
        NOISES[noise]
        return cls(
            dim=validate.whole("dim", dim, low=2, high=64),
            count=validate.whole("arms", arms, high=2**16),
            radius=validate.between("radius", radius, 1e-9, 512.0, closed=True),
            noise=noise,
            strength=validate.between("strength", strength, 0.0, 1.0, closed=True),
        )

    def problem(self, horizon: int) -> Problem:
        """The public facts."""
        return Problem(
            dim=self.dim,
            arms=self.count,
            norm=1.0,
            radius=float(self.radius),
            low=-float(self.radius),
            high=float(self.radius),
            horizon=horizon,
            constant=math.sqrt(0.5),
            own=self.dim,
        )

    def init(self, stream: Stream) -> Array:
        """Draw every arm's parameter, uniform on a sphere."""
        length: Array = jnp.float32(self.radius * self.strength)
        return on_sphere(stream, self.count, self.dim) * length

    def arms(self, world: Array, clock: Clock, stream: Stream) -> Arms:
        """This round's user."""
        varying = in_ball(stream, 1, self.dim - 1)[0]
        user = jnp.append(varying, jnp.ones(1, varying.dtype)) * jnp.sqrt(jnp.float32(0.5))
        return everyone(user, self.count)

    def reward(
        self, world: Array, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """Draw the reward of an action."""
        mean, most = self._means(world, arms)[action], jnp.float32(self.radius)
        return NOISES[self.noise](mean, -most, most, stream)

    def regret(self, world: Array, arms: Arms, action: Array, clock: Clock) -> Array:
        """Expected reward lost against the best arm for this user."""
        means = self._means(world, arms)
        return means.max() - means[action]

    def single(self, world: Array) -> Array:
        """The arm that is best on average: contexts are symmetric, so the constant decides."""
        return jnp.argmax(world[:, -1])

    def _means(self, world: Array, arms: Arms) -> Array:
        return (arms.features * world).sum(-1)


@struct
class Labelled:
    """Classification data as a bandit: an arm for every label, and reward 1 for the right one.

    Users come in an order of each replicate's own, none twice. The best action is the right label,
    so regret counts mistakes, and mean reward is one less regret per round.

    Attributes:
        features: one row per user.
        labels: one number per user, from 0.
        norm: bound on the norm of a row.
        constant: the last coordinate, where all rows share it; 0 where they do not.
        count: how many labels there are.
    """

    features: Array
    labels: Array
    norm: float = static()
    constant: float = static()
    count: int = static()

    # Arrays are neither hashed nor compared: data are equal to themselves alone.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @classmethod
    @double_precision
    def of(
        cls, *, features: ArrayLike, labels: ArrayLike, norm: float, constant: float = 0.0
    ) -> Self:
        """Check the data against their public bounds.

        >>> data = Labelled.of(features=[[0.6, 0.8], [0.0, 0.8]], labels=[0, 1], norm=1.0,
        ...     constant=0.8)
        >>> data.problem(2).arms
        2
        """
        rows, given = validate.real_array("features", features), _whole(labels)
        if rows.ndim != 2 or given.shape != rows.shape[:1] or given.dtype.kind not in "iu":
            raise InvalidValue(
                f"features have shape {rows.shape} and labels {given.shape} of {given.dtype}; give "
                "one row and one whole number per user"
            )
        found = np.unique(given)
        if not rows.size or not np.array_equal(found, np.arange(len(found))):
            raise InvalidValue("labels must be all the numbers from 0 to the greatest of them")
        with np.errstate(over="ignore"):
            longest = float(np.linalg.norm(rows, axis=1).max())
        norm = validate.between("norm", norm, 1e-9, 1e9, closed=True)
        if not longest <= norm * (1 + _ROUNDING):
            raise InvalidValue(f"the longest row has norm {longest}; it must be at most {norm}")
        constant = validate.between("constant", constant, -norm, norm, closed=True)
        if constant and not np.allclose(rows[:, -1], constant):
            raise InvalidValue(
                f"constant is {constant}; the last coordinate of all rows must be it"
            )
        return cls(
            features=jnp.asarray(rows, jnp.float32),
            labels=jnp.asarray(given, jnp.int32),
            norm=norm,
            constant=constant,
            count=len(found),
        )

    @classmethod
    def ranged(
        cls, *, features: ArrayLike, labels: ArrayLike, low: ArrayLike, high: ArrayLike
    ) -> Self:
        """Data of which only the range of each feature is public, on rows made by `ranged`.

        >>> data = Labelled.ranged(features=[[20.0], [80.0]], labels=[0, 1], low=[0], high=[100])
        >>> data.problem(2).constant
        0.5
        """
        return cls.of(
            features=ranged(features, low=low, high=high),
            labels=labels,
            norm=RANGED_NORM,
            constant=RANGED_CONSTANT,
        )

    def problem(self, horizon: int) -> Problem:
        """The public facts; a run longer than the data is refused."""
        rows, dim = self.features.shape
        return Problem(
            dim=dim,
            arms=self.count,
            norm=self.norm,
            radius=1.0,
            low=0.0,
            high=1.0,
            horizon=validate.whole("horizon", horizon, high=rows),
            constant=self.constant,
            own=dim,
        )

    def init(self, stream: Stream) -> Array:
        """Draw the order in which users come."""
        return jnp.argsort(stream.uniform(self.labels.shape[0])).astype(jnp.int32)

    def arms(self, world: Array, clock: Clock, stream: Stream) -> Arms:
        """This round's user."""
        return everyone(self.features[world[clock.round]], self.count)

    def reward(
        self, world: Array, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """One for the right label, else nothing."""
        return (self.labels[world[clock.round]] == action).astype(jnp.float32)

    def regret(self, world: Array, arms: Arms, action: Array, clock: Clock) -> Array:
        """One for each mistake."""
        return (self.labels[world[clock.round]] != action).astype(jnp.float32)

    def single(self, world: Array) -> Array:
        """The most frequent label."""
        return jnp.argmax(jnp.bincount(self.labels, length=self.count))


def _whole(labels: ArrayLike) -> NDArray[Any]:
    """Labels as an array; a list with holes in it is none."""
    try:
        return np.asarray(labels)
    except ValueError:
        raise InvalidValue(
            "labels have rows of several lengths; give one number per user"
        ) from None
