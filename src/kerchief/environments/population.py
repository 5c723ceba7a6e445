"""A population: one action at a time reaches every client, and a few clients tell how they fared.

The actions are public and the same for everyone, so a world is not met round by round. What a
client knows after a phase is the average of its rewards on each action that was played.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import lru_cache
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import PopulationProblem
from kerchief.core.random import WORLD, Stream
from kerchief.core.struct import static, struct
from kerchief.environments.contexts import on_sphere

EXACT = 16
"""Averages of at most so many rewards are drawn from their exact law."""

# The most points of a grid that are looked at for a cover.
_GRID = 2**22


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
        cover: above 0, any point of the unit sphere may be played, and the actions are a cover of
            it: no point is farther from its nearest action than this. Regret is that against the
            best point of the whole sphere.
    """

    dim: int = static()
    count: int = static()
    clients: int = static()
    fixed: int | None = static()
    cover: float = static(default=0.0)
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

    @classmethod
    def covering(
        cls,
        *,
        dim: int = 3,
        cover: float = 0.3,
        clients: int = 100_000,
        radius: float = 1.0,
        spread: float = 0.1,
    ) -> Self:
        """A population whose actions are all points of the unit sphere, by a cover.

        >>> Population.covering(dim=2, cover=0.2).count
        32
        """
        count = len(cover_of_sphere(dim, cover))
        population = cls.of(dim=dim, arms=count, clients=clients, radius=radius, spread=spread)
        return dataclasses.replace(population, cover=cover)

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
            features=jnp.asarray(cover_of_sphere(self.dim, self.cover), jnp.float32)
            if self.cover
            else on_sphere(at.split(1), self.count, self.dim),
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

        def exact() -> Array:
            short_averages = 2 * _successes((1 + mean) / 2, times, ndtr(normal)) / times - 1
            return jnp.where(times > EXACT, long_averages, short_averages)

        long_averages = jnp.clip(mean + normal * jnp.sqrt((1 - mean**2) / times), -1, 1)
        # A whole phase of long averages, as most are, is spared what only short ones need.
        short = ((pulls > 0) & (pulls <= EXACT)).any()
        return jnp.where(pulls > 0, jax.lax.cond(short, exact, lambda: long_averages), 0)

    def losses(self, world: PopulationTruth) -> Array:
        """Expected reward lost by each action against the best; for the recorder only."""
        means = world.features.astype(jnp.float64) @ world.parameter.astype(jnp.float64)
        best = jnp.maximum(means.max(), jnp.float64(self.radius)) if self.cover else means.max()
        return best - means


def cover_of_sphere(dim: int, distance: float) -> NDArray[np.float64]:
    """Points of the unit sphere, one per row: no other is farther than this from the nearest.

    Every u of the sphere has a point g of a grid of width 2r/√d within r. The angle between the two
    is at most arcsin r, so g/|g| is at most 2 sin(arcsin(r)/2) from u: r is such that this is the
    distance. The best action of a linear reward then lacks at most distance²/2 of the largest one
    per unit of the parameter's norm.

    Raises:
        InvalidValueError: the distance is not above 0 and at most 1, or takes too many points.

    >>> cover_of_sphere(1, 0.5).tolist()
    [[-1.0], [1.0]]
    """
    dim = validate.whole("dim", dim, high=64)
    return _cover(dim, validate.between("cover", distance, 1e-6, 1.0, closed=True))


@lru_cache(maxsize=16)
def _cover(dim: int, distance: float) -> NDArray[np.float64]:
    near = distance * math.sqrt(1 - distance**2 / 4)
    width = 2 * near / math.sqrt(dim)
    reach = math.floor((1 + near) / width)
    if dim * math.log(2 * reach + 1) > math.log(_GRID):
        raise InvalidValueError(
            f"cover is {distance}, which takes more points in {dim} dimensions than we look at; "
            "take a larger distance, or fewer dimensions"
        )
    line = width * np.arange(-reach, reach + 1)
    grid = np.array(list(itertools.product(line, repeat=dim)))
    lengths = np.linalg.norm(grid, axis=1)
    is_near = (lengths >= 1 - near) & (lengths <= 1 + near) & (lengths > 0)
    points = grid[is_near] / lengths[is_near, None]
    cover: NDArray[np.float64] = np.unique(np.round(points, 12), axis=0)
    cover.flags.writeable = False
    return cover


def _successes(chance: Array, trials: Array, uniform: Array) -> Array:
    """How many of at most `EXACT` trials succeed, by inversion of the distribution function."""
    chance = jnp.clip(chance, np.float32(1e-6), np.float32(1 - 1e-6))
    odds, mass = chance / (1 - chance), (1 - chance) ** trials
    below, successes = mass, jnp.zeros_like(mass)
    for trial in range(EXACT):
        successes += (uniform > below) & (trial < trials)
        mass *= odds * (trials - trial) / (trial + 1)
        below += mass
    return successes
