"""A world seen through a public random projection: the bandit gets short features, truth is whole.

Regret is that of the world itself. What short features cannot show is lost whatever a bandit does,
with privacy or without; `loss_of` measures it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import (
    AdaptiveAdversary,
    Arms,
    Clock,
    Environment,
    HasBestArm,
    OmniscientAdversary,
    Tree,
)
from kerchief.core.errors import InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.projections import projected, projection_of
from kerchief.core.random import ARMS, WORLD, Stream
from kerchief.core.struct import static, struct
from kerchief_protocol.projection import Projection

_RUNS, _MOST_USERS, _MOST_NUMBERS = 4, 2048, 2**24


@struct
class _ProjectedArms(Arms):
    """Arms as the bandit sees them, with the features that they really have."""

    original: Arms


@struct
class Projected:
    """A contextual world whose features are projected.

    Attributes:
        world: the world itself.
        projection: public, and the same in all replicates.

    >>> from kerchief.environments import make_environment
    >>> Projected.of(world=make_environment(dim=100), onto=20).problem(100).dim
    20
    """

    world: Environment
    projection: Projection = static()

    @classmethod
    def of(cls, *, world: Environment, onto: int) -> Self:
        """Project a world's features onto so many numbers, as `deploy(project=...)` would.

        Raises:
            InvalidValueError: they are no fewer, or this world's features cannot be projected.
        """
        if isinstance(world, AdaptiveAdversary):
            raise InvalidValueError(
                "this world follows the bandit's actions, and its truth is not projected; leave "
                "the projection out"
            )
        kinds: Any = {
            (False, False): cls,
            (False, True): _SinglesProjected,
            (True, False): _OpposingProjected,
            (True, True): _OpposingSinglesProjected,
        }
        kind = kinds[isinstance(world, OmniscientAdversary), isinstance(world, HasBestArm)]
        projected_world: Self = kind(world=world, projection=projection_of(world.problem(1), onto))
        return projected_world

    def problem(self, horizon: int) -> Problem:
        """The public facts that are left."""
        return projected(self.world.problem(horizon), self.projection)

    def init(self, stream: Stream) -> Tree:
        """The truth of the world."""
        return self.world.init(stream)

    def arms(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """This round's arms, projected."""
        return self._project_arms(self.world.arms(world, clock, stream))

    def _project_arms(self, arms: Arms) -> Arms:
        short = self.projection.apply(arms.features, jnp)
        return _ProjectedArms(features=short, allowed=arms.allowed, original=arms)

    def reward(self, world: Tree, arms: Arms, action: Array, clock: Clock, stream: Stream) -> Array:
        """What the world gives for the arm as it is."""
        return self.world.reward(world, _restore_arms(arms), action, clock, stream)

    def regret(self, world: Tree, arms: Arms, action: Array, clock: Clock) -> Array:
        """What is lost in the world, whatever the bandit could see."""
        return self.world.regret(world, _restore_arms(arms), action, clock)


@struct
class _SinglesProjected(Projected):
    """A projected world in which one arm is the best on average."""

    def single(self, world: Tree) -> Array:
        """Its number; for yardsticks only."""
        assert isinstance(self.world, HasBestArm)
        return self.world.single(world)


@struct
class _OpposingProjected(Projected):
    """A projected world that asks what the bandit would choose, from what the bandit sees."""

    def opposed(
        self, world: Tree, clock: Clock, stream: Stream, choose: Callable[[Arms], Array]
    ) -> Arms:
        """The arms that the adversary offers, projected."""
        assert isinstance(self.world, OmniscientAdversary)
        offered = self.world.opposed(
            world, clock, stream, lambda arms: choose(self._project_arms(arms))
        )
        return self._project_arms(offered)


@struct
class _OpposingSinglesProjected(_OpposingProjected, _SinglesProjected):
    """Both."""


def _restore_arms(arms: Arms) -> Arms:
    assert isinstance(arms, _ProjectedArms)
    return arms.original


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shortened:
    """What a projection does to a world.

    Attributes:
        dim: how many numbers features have.
        onto: how many the bandit sees.
        clipped: the share of feature vectors that are too long after the map, and are scaled.
        lost: what the best rule that is linear in short features loses per round, on average.
    """

    dim: int
    onto: int
    clipped: float
    lost: float


@double_precision
def loss_of(world: Projected, *, horizon: int, seed: int) -> Shortened:
    """Measure what a projection costs whoever plays, without any noise.

    In each of a few replicates, a rule is fitted by least squares to the true expected rewards of
    half of the users, and chooses for the other half.
    """
    facts = world.problem(horizon)
    room = _MOST_NUMBERS // (facts.arms * facts.dim)
    users = min(horizon, max(2, min(_MOST_USERS, room)))
    runs = [_measure_loss(world, facts, _visits(world, users, seed, run)) for run in range(_RUNS)]
    clipped, mean_loss = np.mean(runs, axis=0).tolist()
    through = world.projection
    return Shortened(dim=through.dim, onto=through.onto, clipped=clipped, lost=mean_loss)


@partial(jax.jit, static_argnums=1)
def _visits(world: Projected, users: int, seed: Array, run: Array) -> tuple[Array, ...]:
    """Of each user: short features, allowed arms, what each of them loses, which are clipped."""
    root = Stream.of(seed=seed, replicate=run)
    truth = world.init(root.at(WORLD))

    def visit(round: Array) -> tuple[Array, ...]:
        clock = Clock(round=round, since={})
        arms = world.arms(truth, clock, root.at(ARMS, round=round))
        assert isinstance(arms, _ProjectedArms)
        actions = jnp.arange(arms.allowed.size)
        losses = jax.vmap(lambda action: world.regret(truth, arms, action, clock))(actions)
        return (
            arms.features,
            arms.allowed,
            losses,
            world.projection.clips(arms.original.features, jnp),
        )

    visits: tuple[Array, ...] = jax.lax.map(visit, jnp.arange(users, dtype=jnp.int32))
    return visits


def _measure_loss(
    world: Projected, facts: Problem, visits: tuple[Array, ...]
) -> tuple[float, float]:
    features, allowed, losses, clipped = (np.asarray(array) for array in visits)
    counts = np.where(allowed, 1.0, 0.0)
    share = counts / counts.sum(1, keepdims=True)
    # Only what tells the arms of one user apart matters.
    gains = (share * losses).sum(1, keepdims=True) - losses
    if not facts.own:
        features = features - (share[:, :, None] * features).sum(1, keepdims=True)
    half = -(-len(features) // 2)
    scores = (_own_scores if facts.own else _scores)(features, counts, gains, half)
    choice = np.where(allowed[-half:], scores, -np.inf).argmax(1)
    return float((counts * clipped).sum() / counts.sum()), float(
        np.take_along_axis(losses[-half:], choice[:, None], 1).mean()
    )


Floats = NDArray[np.floating[Any]]


def _scores(features: Floats, counts: Floats, gains: Floats, half: int) -> Floats:
    """One parameter for all arms."""
    rows = (features[:half] * counts[:half, :, None]).reshape(-1, features.shape[-1])
    parameter = np.linalg.lstsq(rows.T @ rows, rows.T @ gains[:half].ravel(), rcond=1e-9)[0]
    scores: Floats = features[-half:] @ parameter
    return scores


def _own_scores(features: Floats, counts: Floats, gains: Floats, half: int) -> Floats:
    """One parameter for every arm; all rows are the user."""
    rows = features[:half, 0]
    parameters = np.linalg.lstsq(rows.T @ rows, rows.T @ gains[:half], rcond=1e-9)[0]
    scores: Floats = features[-half:, 0] @ parameters
    return scores
