"""Worlds: contexts, a link from scores to expected rewards, and the law of a reward around it."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock, Problem
from kerchief.core.links import LINKS, link_named
from kerchief.core.random import Stream
from kerchief.core.registry import Registry
from kerchief.core.struct import static, struct
from kerchief.environments.contexts import CONTEXTS, Contexts

__all__ = ["NOISES", "GLMEnvironment", "World", "make_environment"]

Draw = Callable[[Array, Array, Array, Stream], Array]
NOISES: Registry[Draw] = Registry("reward noise")


@NOISES.entry("bernoulli")
def _bernoulli(mean: Array, low: Array, high: Array, stream: Stream) -> Array:
    """The greatest or the least reward, with the right mean."""
    return jnp.where(stream.uniform(1)[0] * (high - low) <= mean - low, high, low)


@NOISES.entry("bounded")
def _bounded(mean: Array, low: Array, high: Array, stream: Stream) -> Array:
    """Uniform around the mean, as widely as the range allows."""
    reach = jnp.minimum(mean - low, high - mean)
    return mean + reach * (2 * stream.uniform(1)[0] - 1)


@NOISES.entry("gaussian")
def _gaussian(mean: Array, low: Array, high: Array, stream: Stream) -> Array:
    """Normal around the mean, a quarter of the range wide: unbounded, so the device must clip."""
    return mean + (high - low) / 4 * stream.normal(1)[0]


@struct
class World:
    """The truth of one run: the parameter, and the arm set where it is fixed."""

    parameter: Array
    kept: Array


@struct
class GLMEnvironment:
    """A generalized linear world.

    Attributes:
        contexts: where arms come from.
        radius: norm of the unknown parameter.
        fewest: each user may choose among at least this many arms; the rest are masked at random.
        link: how a score becomes an expected reward.
        noise: how a reward falls around it.
    """

    contexts: Contexts
    radius: float | Array
    fewest: int = static()
    link: str = static()
    noise: str = static()

    def problem(self, horizon: int) -> Problem:
        """The public facts."""
        low, high = self._range()
        return Problem(
            dim=self.contexts.dim,
            arms=self.contexts.count,
            norm=1.0,
            radius=float(self.radius),
            low=float(low),
            high=float(high),
            horizon=horizon,
            constant=self.contexts.constant,
        )

    def init(self, stream: Stream) -> World:
        """Draw the parameter, and the arm set where it is fixed."""
        parameter = self.contexts.parameter(stream.split(0)) * jnp.float32(self.radius)
        return World(parameter=parameter, kept=self.contexts.init(stream.split(1)))

    def arms(self, world: World, clock: Clock, stream: Stream) -> Arms:
        """This round's arms and which of them may be chosen."""
        features = self.contexts.features(world.kept, clock, stream)
        count = self.contexts.count
        if self.fewest == count:
            return Arms(features=features, allowed=jnp.ones(count, bool))
        # A uniform lies in (0, 1], so its ceiling counts from 1 and never leaves the user armless.
        more = jnp.ceil(stream.split(2).uniform(1) * (count + 1 - self.fewest))
        size = self.fewest - 1 + more
        rank = jnp.argsort(jnp.argsort(stream.split(3).uniform(count)))
        return Arms(features=features, allowed=rank < size)

    def reward(self, world: World, arms: Arms, action: Array, stream: Stream) -> Array:
        """Draw the reward of an action."""
        low, high = self._range()
        mean = self._means(world, arms.features[action])
        return NOISES[self.noise](mean, jnp.float32(low), jnp.float32(high), stream)

    def regret(self, world: World, arms: Arms, action: Array) -> Array:
        """Expected reward lost against the best allowed arm."""
        means = self._means(world, arms.features)
        return jnp.where(arms.allowed, means, -jnp.inf).max() - means[action]

    def _means(self, world: World, features: Array) -> Array:
        """Expected rewards of feature vectors."""
        return link_named(self.link).mean((features * world.parameter).sum(-1))

    def _range(self) -> tuple[float | Array, float | Array]:
        """The least and the greatest reward."""
        link = link_named(self.link)
        if link.low is None or link.high is None:
            return self.contexts.least_score() * self.radius, self.radius
        return link.low, link.high


def make_environment(
    *,
    link: str = "linear",
    contexts: str = "ball",
    dim: int = 5,
    arms: int = 20,
    radius: float = 1.0,
    fewest: int | None = None,
    noise: str = "bernoulli",
) -> GLMEnvironment:
    """Build a world by names, checking every value.

    >>> make_environment(contexts="fixed", dim=3).problem(100).low
    -1.0
    >>> make_environment(dim=0)
    Traceback (most recent call last):
    ...
    kerchief.core.errors.InvalidValue: dim is 0; it must be at least 1 and at most 64
    """
    validate.one_of("env", link, tuple(LINKS))
    validate.whole("dim", dim, low=2 if contexts == "intercept" else 1, high=64)
    validate.whole("arms", arms, low=1)
    validate.between("radius", radius, 1e-9, 1e9, closed=True)
    NOISES[noise]
    least = validate.whole("fewest arms", arms if fewest is None else fewest, low=1, high=arms)
    return GLMEnvironment(
        contexts=CONTEXTS[contexts](dim=dim, count=arms),
        radius=radius,
        fewest=least,
        link=link,
        noise=noise,
    )
