"""Arms with models of their own: every row is the user, and its number says which arm."""

from __future__ import annotations

import math
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.environments.contexts import in_ball, on_sphere
from kerchief.environments.worlds import NOISES

_CONSTANT = math.sqrt(0.5)


@struct
class DisjointModels:
    """Users u/√2 in a ball with a constant 1/√2 behind them, and one parameter for every arm.

    Attributes:
        radius: bound on the norm of each arm's parameter, and on how far rewards are from `base`.
        strength: that norm, in radii, at most; nobody is told.
        weakest: that norm, in radii, at the least: every run has one of its own, between the two.
        base: what an arm without a parameter earns.
        noise: how a reward falls around its mean.
    """

    radius: float | Array
    strength: float | Array = 1.0
    weakest: float | Array = 1.0
    base: float | Array = 0.0
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
        weakest: float | None = None,
        base: float = 0.0,
    ) -> Self:
        """Check every value; unless it is said, no run is weaker than another.

        >>> DisjointModels.of(dim=3, arms=4).problem(100).own
        3
        >>> chances = DisjointModels.of(radius=0.5, base=0.5).problem(100)
        >>> chances.low, chances.high
        (0.0, 1.0)
        """
        NOISES[noise]
        strength = validate.between("strength", strength, 0.0, 1.0, closed=True)
        least = strength if weakest is None else weakest
        return cls(
            dim=validate.whole("dim", dim, low=2, high=64),
            count=validate.whole("arms", arms, high=2**16),
            radius=validate.between("radius", radius, 1e-9, 512.0, closed=True),
            noise=noise,
            strength=strength,
            weakest=validate.between("weakest", least, 0.0, strength, closed=True),
            base=validate.between("base", base, -512.0, 512.0, closed=True),
        )

    def problem(self, horizon: int) -> Problem:
        """The public facts: the constant carries the base."""
        wide, base = float(self.radius), float(self.base)
        return Problem(
            dim=self.dim,
            arms=self.count,
            norm=1.0,
            radius=wide + abs(base) / _CONSTANT,
            low=base - wide,
            high=base + wide,
            horizon=horizon,
            constant=_CONSTANT,
            own=self.dim,
        )

    def init(self, stream: Stream) -> Array:
        """Draw every arm's parameter, uniform on a sphere."""
        share = stream.split(1).uniform(1)[0].astype(jnp.float64)
        strength = self.weakest + (self.strength - self.weakest) * share
        length: Array = jnp.float32(self.radius * strength)
        return on_sphere(stream, self.count, self.dim) * length

    def arms(self, world: Array, clock: Clock, stream: Stream) -> Arms:
        """This round's user."""
        varying = in_ball(stream, 1, self.dim - 1)[0]
        user = jnp.append(varying, jnp.ones(1, varying.dtype)) * jnp.sqrt(jnp.float32(0.5))
        features = jnp.tile(user, (self.count, 1))
        return Arms(features=features, allowed=jnp.ones(self.count, bool))

    def reward(
        self, world: Array, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """Draw the reward of an action."""
        mean, bound = self._means(world, arms)[action], jnp.float32(self.radius)
        base = jnp.float32(self.base)
        return NOISES[self.noise](base + mean, base - bound, base + bound, stream)

    def regret(self, world: Array, arms: Arms, action: Array, clock: Clock) -> Array:
        """Expected reward lost against the best arm for this user."""
        means = self._means(world, arms)
        return means.max() - means[action]

    def single(self, world: Array) -> Array:
        """The arm that is best on average: contexts are symmetric, so the constant decides."""
        return jnp.argmax(world[:, -1])

    def _means(self, world: Array, arms: Arms) -> Array:
        return (arms.features * world).sum(-1)
