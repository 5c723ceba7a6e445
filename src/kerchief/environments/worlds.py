"""Worlds: contexts, a link from scores to expected rewards, and the law of a reward around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock
from kerchief.core.links import LINKS, get_link
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.registry import Registry
from kerchief.core.struct import static, struct
from kerchief.environments.contexts import CONTEXTS, Contexts

Draw = Callable[[Array, Array, Array, Stream], Array]
NOISES: Registry[Draw] = Registry("reward noise")

# A problem states no greater reward, and a binomial reward is drawn trial by trial.
_MOST_REWARD, _MOST_TRIALS = 1e9, 1024


@NOISES.entry("bernoulli")
def _bernoulli(mean: Array, low: Array, high: Array, stream: Stream) -> Array:
    """The greatest or the least reward, with the right mean."""
    return jnp.where(stream.uniform(1)[0] * (high - low) <= mean - low, high, low)


@NOISES.entry("binomial")
def _binomial(mean: Array, low: Array, high: Array, stream: Stream) -> Array:
    """Successes among as many trials as the range is long: whole numbers where the range is whole.

    In a Poisson world these are counts, with a variance of at most their mean.
    """
    trials = jnp.ceil(high - low).astype(jnp.uint32)
    chance = (mean - low) / (high - low)

    def trial(part: Array, successes: Array) -> Array:
        return successes + (stream.split(part).uniform(1)[0] <= chance)

    successes: Array = jax.lax.fori_loop(jnp.uint32(0), trials, trial, jnp.float32(0))
    return low + (high - low) / trials.astype(jnp.float32) * successes


@NOISES.entry("bounded")
def _bounded(mean: Array, low: Array, high: Array, stream: Stream) -> Array:
    """Uniform around the mean, as widely as the range allows."""
    room = jnp.minimum(mean - low, high - mean)
    return mean + room * (2 * stream.uniform(1)[0] - 1)


@NOISES.entry("gaussian")
def _gaussian(mean: Array, low: Array, high: Array, stream: Stream) -> Array:
    """Normal around the mean, a quarter of the range wide: unbounded, so the device must clip."""
    return mean + (high - low) / 4 * stream.normal(1)[0]


@struct
class GLMTruth:
    """The truth of one run: the parameter, and the arm set where it is fixed."""

    parameter: Array
    kept: Array


@struct
class GLMEnvironment:
    """A generalized linear world: rewards from low to high, a parameter within the radius.

    Attributes:
        strength: the norm of the parameter, in radii; nobody is told.
        fewest: each user may choose among at least this many arms; the rest are masked at random.
        link: how a score becomes an expected reward.
        told: the link that the problem states, where bandits are told a wrong one.
        noise: how a reward falls around it.
    """

    contexts: Contexts
    radius: float | Array
    low: float | Array
    high: float | Array
    strength: float | Array = 1.0
    fewest: int = static()
    link: str = static()
    told: str = static()
    noise: str = static()

    @classmethod
    def of(
        cls,
        *,
        contexts: Contexts,
        radius: float,
        fewest: int | None = None,
        link: str,
        told: str | None = None,
        noise: str = "bernoulli",
        strength: float = 1.0,
    ) -> Self:
        """Check every value, and find the range of rewards."""
        validate.one_of("env", link, tuple(LINKS))
        told = validate.one_of("told", link if told is None else told, tuple(LINKS))
        radius = validate.between("radius", radius, 1e-9, 1e9, closed=True)
        NOISES[noise]
        count = contexts.count
        least = validate.whole("fewest arms", count if fewest is None else fewest, high=count)
        low, high = get_link(link).rewards(contexts.least_score() * radius, radius)
        limit = low + _MOST_TRIALS if noise == "binomial" else _MOST_REWARD
        label = f"the greatest {noise} reward of a {link} world with radius {radius:g}"
        validate.between(label, high, low, limit, closed=True)
        kind: Any = _Opposing if contexts.candidates > 1 else cls
        environment: Self = kind(
            contexts=contexts,
            radius=radius,
            low=low,
            high=high,
            strength=validate.between("strength", strength, 0.0, 1.0, closed=True),
            fewest=least,
            link=link,
            told=told,
            noise=noise,
        )
        return environment

    def problem(self, horizon: int) -> Problem:
        """The public facts; a recorded world refuses to be longer than its record."""
        horizon = validate.whole("horizon", horizon, high=self.contexts.rounds)
        return Problem(
            dim=self.contexts.dim,
            arms=self.contexts.count,
            norm=1.0,
            radius=float(self.radius),
            low=float(self.low),
            high=float(self.high),
            horizon=horizon,
            constant=self.contexts.constant,
            link=self.told,
        )

    def init(self, stream: Stream) -> GLMTruth:
        """Draw the parameter, and the arm set where it is fixed."""
        parameter = self.contexts.parameter(stream.split(0)) * jnp.float32(
            self.radius * self.strength
        )
        return GLMTruth(parameter=parameter, kept=self.contexts.init(stream.split(1)))

    def arms(self, world: GLMTruth, clock: Clock, stream: Stream) -> Arms:
        """This round's arms and which of them may be chosen."""
        features = self.contexts.features(world.kept, clock, stream)
        count = self.contexts.count
        if self.fewest == count:
            return Arms(features=features, allowed=jnp.ones(count, bool))
        # A uniform lies in (0, 1], so its ceiling counts from 1 and never leaves the user
        # without_contexts.
        extra = jnp.ceil(stream.split(2).uniform(1) * (count + 1 - self.fewest))
        size = self.fewest - 1 + extra
        rank = jnp.argsort(jnp.argsort(stream.split(3).uniform(count)))
        return Arms(features=features, allowed=rank < size)

    def reward(
        self, world: GLMTruth, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """Draw the reward of an action."""
        mean = self._means(world, arms.features[action])
        return NOISES[self.noise](mean, jnp.float32(self.low), jnp.float32(self.high), stream)

    def regret(self, world: GLMTruth, arms: Arms, action: Array, clock: Clock) -> Array:
        """Expected reward lost against the best allowed arm."""
        means = self._means(world, arms.features)
        return jnp.where(arms.allowed, means, -jnp.inf).max() - means[action]

    def best(self, world: GLMTruth, arms: Arms, clock: Clock) -> Array:
        """The greatest expected reward of an allowed arm."""
        return jnp.where(arms.allowed, self._means(world, arms.features), -jnp.inf).max()

    def value(self, world: GLMTruth, arms: Arms, action: Array, clock: Clock) -> Array:
        """The expected reward of an arm."""
        return self._means(world, arms.features[action])

    def without_contexts(self) -> Self:
        """Rewards know features alone: any contexts will do, and nobody is told of them."""
        contexts = Contexts(dim=self.contexts.dim, count=self.contexts.count)
        return dataclasses.replace(self, contexts=contexts, fewest=contexts.count, told=self.link)

    def armless_truth(self, world: GLMTruth) -> GLMTruth:
        """The parameter."""
        return dataclasses.replace(world, kept=jnp.zeros((0, 0), jnp.float32))

    def _means(self, world: GLMTruth, features: Array) -> Array:
        """Expected rewards of feature vectors."""
        return get_link(self.link).mean((features * world.parameter).sum(-1))


@struct
class _Opposing(GLMEnvironment):
    """A world with an adversary, who knows the truth and what the posted model would choose."""

    def considered(self, world: GLMTruth, clock: Clock, stream: Stream) -> Arms:
        """Several sets of arms."""
        # Parts up to 3 are those of the mask, which all sets share.
        parts = 4 + jnp.arange(self.contexts.candidates, dtype=jnp.uint32)
        sets: Arms = jax.vmap(lambda part: self.arms(world, clock, stream.split(part)))(parts)
        return sets

    def opposed(
        self, world: GLMTruth, clock: Clock, stream: Stream, choose: Callable[[Arms], Array]
    ) -> Arms:
        """Of several sets of arms, the one in which the model's choice loses most."""
        sets = self.considered(world, clock, stream)
        regrets = jax.vmap(lambda arms: self.regret(world, arms, choose(arms), clock))(sets)
        worst: Arms = jax.tree.map(lambda leaf: leaf[jnp.argmax(regrets)], sets)
        return worst

    def without_contexts(self) -> Self:
        """As without an adversary: whoever is handed the sets need not draw them."""
        return super().without_contexts()


def make_environment(
    *,
    link: str = "linear",
    contexts: str = "ball",
    dim: int = 5,
    arms: int = 20,
    radius: float = 1.0,
    fewest: int | None = None,
    noise: str = "bernoulli",
    strength: float = 1.0,
    told: str | None = None,
) -> GLMEnvironment:
    """Build a world by names, checking every value.

    Where `told` is another link than the true one, every model that bandits may have is wrong.

    >>> make_environment(contexts="fixed", dim=3).problem(100).low
    -1.0
    >>> make_environment(dim=0)
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: dim is 0; it must be at least 1 and at most 512
    """
    make = CONTEXTS[contexts]
    dim = validate.whole("dim", dim, low=2 if make.constant else 1, high=512)
    arms = validate.whole("arms", arms, high=2**24)
    source = make(dim=dim, count=arms)
    return GLMEnvironment.of(
        contexts=source,
        radius=radius,
        fewest=fewest,
        link=link,
        told=told,
        noise=noise,
        strength=strength,
    )
