"""A population: one action at a time reaches every client, and a few clients tell how they fared.

The actions are public and the same for everyone, so a world is not met round by round. What a
client knows after a phase is the average of its rewards on each action that was played.
"""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr

from kerchief.core import validate
from kerchief.core.problems import PopulationProblem
from kerchief.core.random import WORLD, Stream
from kerchief.core.struct import static, struct
from kerchief.environments.contexts import on_sphere

__all__ = ["EXACT", "Population", "PopulationTruth"]

EXACT = 16
"""Averages of at most so many rewards are drawn from their exact law."""


@struct
class PopulationTruth:
    """The truth of one run: the common parameter, and the public actions, one per row."""

    parameter: Array
    features: Array


@struct
class Population:
    """Clients whose parameters scatter around a common one, on actions from the unit sphere.

    Client u has the parameter θ* + ξ with ξ normal, and a reward on action x is 1 or -1 with mean
    ⟨θ* + ξ, x⟩, cut to [-1, 1]. θ* is uniform on the sphere of the given radius.

    Attributes:
        count: number of actions.
        spread: standard deviation of ξ in every direction; 0 where all clients are alike.
        fixed: seed of one set of actions and one parameter for all replicates; None for others in
            each.
    """

    dim: int = static()
    count: int = static()
    clients: int = static()
    fixed: int | None = static()
    radius: float | Array
    spread: float | Array

    @classmethod
    def of(
        cls,
        *,
        dim: int = 20,
        arms: int = 1000,
        clients: int = 100_000,
        radius: float = 1.0,
        spread: float = 0.1,
        fixed: int | None = None,
    ) -> Self:
        """Check every value."""
        if fixed is not None:
            validate.whole("fixed", fixed, low=0, high=2**32 - 1)
        return cls(
            dim=validate.whole("dim", dim, high=64),
            count=validate.whole("arms", arms, high=2**24),
            clients=validate.whole("clients", clients, high=validate.MOST_ROUNDS),
            fixed=fixed,
            radius=validate.between("radius", radius, 1e-9, 1.0, closed=True),
            spread=validate.between("spread", spread, 0.0, 1e9, closed=True),
        )

    def problem(self, horizon: int) -> PopulationProblem:
        """The public facts."""
        return PopulationProblem(
            dim=self.dim,
            arms=self.count,
            norm=1.0,
            radius=float(self.radius),
            low=-1.0,
            high=1.0,
            horizon=horizon,
            clients=self.clients,
            spread=float(self.spread),
        )

    def init(self, stream: Stream) -> PopulationTruth:
        """Draw the parameter and the actions."""
        at = stream if self.fixed is None else Stream.of(seed=self.fixed, replicate=0).at(WORLD)
        return PopulationTruth(
            parameter=on_sphere(at.split(0), 1, self.dim)[0] * jnp.float32(self.radius),
            features=on_sphere(at.split(1), self.count, self.dim),
        )

    def averages(
        self, world: PopulationTruth, features: Array, pulls: Array, stream: Stream
    ) -> Array:
        """What one client saw: its average reward on each of these actions, 0 for no pulls.

        Averages of at most `EXACT` rewards have their exact, binomial law. Longer ones are normal
        with the right mean and variance, cut to [-1, 1].
        """
        stray = jnp.float32(self.spread) * stream.split(0).normal(self.dim)
        mean = jnp.clip(features.astype(jnp.float32) @ (world.parameter + stray), -1, 1)
        times = jnp.maximum(pulls, 1).astype(jnp.float32)
        normal = stream.split(1).normal(mean.shape[0])
        many = jnp.clip(mean + normal * jnp.sqrt((1 - mean**2) / times), -1, 1)
        few = 2 * _successes((1 + mean) / 2, times, ndtr(normal)) / times - 1
        return jnp.where(pulls > 0, jnp.where(times > EXACT, many, few), 0)

    def losses(self, world: PopulationTruth) -> Array:
        """Expected reward lost by each action against the best; for the recorder only."""
        means = world.features.astype(jnp.float64) @ world.parameter.astype(jnp.float64)
        return means.max() - means


def _successes(chance: Array, trials: Array, uniform: Array) -> Array:
    """How many of at most `EXACT` trials succeed, by inversion of the distribution function."""
    chance = jnp.clip(chance, np.float32(1e-6), np.float32(1 - 1e-6))
    odds, mass = chance / (1 - chance), (1 - chance) ** trials
    below, successes = mass, jnp.zeros_like(mass)
    for one in range(EXACT):
        successes += (uniform > below) & (one < trials)
        mass *= odds * (trials - one) / (one + 1)
        below += mass
    return successes
