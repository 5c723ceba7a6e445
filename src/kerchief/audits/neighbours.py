"""Two populations that differ in one user: the first one, with the two records farthest apart."""

from __future__ import annotations

import itertools
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, BoundedLoss, Clock, Policy, Tree
from kerchief.core.problems import AnyProblem, ContextFreeProblem, Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct

Floats = NDArray[np.float64]


def contribution(query: Any, record: Tree, point: Array | Floats) -> Array:
    """What a record adds to a sum: its statistic, or its gradient at a point."""
    encoded: Array = query.encode(record)
    if not isinstance(query, BoundedLoss):
        return encoded
    gradients: Array = query.gradients(encoded[None, :], jnp.asarray(point))
    return gradients[0]


@struct
class _Certain:
    """A world in which nothing is left to chance, settled for one horizon: nothing is lost."""

    facts: Any = static()

    def problem(self, horizon: int) -> Any:
        assert horizon == self.facts.horizon
        return self.facts

    def init(self, stream: Stream) -> Tree:
        return ()

    def regret(self, world: Tree, arms: Arms, action: Array, clock: Clock) -> Array:
        return jnp.zeros((), jnp.float32)


@struct
class Population(_Certain):
    """A world in which every user has one arm and a known reward.

    Attributes:
        features: of the first user's arm: the user that populations differ in.
        gain: the first user's reward.
        others: features of everyone else's arm.
        usual: everyone else's reward.
    """

    features: Array
    gain: Array
    others: Array
    usual: Array

    @classmethod
    def of(cls, facts: Problem, features: Floats, gain: float) -> Self:
        """The population whose first user has this record; all others have an ordinary one."""
        ordinary = np.full(facts.dim, facts.norm / (2 * np.sqrt(facts.dim)))
        return cls(
            facts=facts,
            features=jnp.asarray(features, jnp.float32),
            gain=jnp.float32(gain),
            others=jnp.asarray(ordinary, jnp.float32),
            usual=jnp.float32((facts.low + facts.high) / 2),
        )

    def arms(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """Offer a single allowed arm."""
        return self._place_arm(jnp.where(clock.round == 0, self.features, self.others))

    def reward(self, world: Tree, arms: Arms, action: Array, clock: Clock, stream: Stream) -> Array:
        """Return the first user's own reward, or the usual reward of everyone else."""
        return jnp.where(clock.round == 0, self.gain, self.usual)

    def told(self, policy: Policy, model: Tree) -> Floats:
        """What the first user's record moves, query by query, in units of each sensitivity."""
        records = policy.record(model, self._place_arm(self.features), jnp.int32(0), self.gain)
        parts = []
        for name, query in policy.queries.items():
            point = np.zeros(query.dim if isinstance(query, BoundedLoss) else 0)
            row = contribution(query, records[name], point)
            parts.append(np.asarray(row, np.float64) / query.sensitivity)
        return np.concatenate(parts)

    def _place_arm(self, features: Array) -> Arms:
        allowed = jnp.arange(self.facts.arms) == 0
        return Arms(features=jnp.tile(features, (self.facts.arms, 1)), allowed=allowed)


@struct
class Losers(_Certain):
    """A world without contexts in which every user but the first loses the midpoint.

    The first user's losses are at one end or at the other, question by question in turn.

    Attributes:
        sign: 1 where the first question of the first user is lost most, else -1.
        half_width: how far from the midpoint the first user's losses are.
    """

    sign: Array
    half_width: Array

    @classmethod
    def of(cls, facts: ContextFreeProblem, sign: float) -> Self:
        """The world whose first user has losses at these ends."""
        return cls(facts=facts, sign=jnp.float32(sign), half_width=jnp.float32(facts.width / 2))

    def arms(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """Return no arms: users bring no contexts."""
        return Arms.none()

    def reward(self, world: Tree, arms: Arms, action: Array, clock: Clock, stream: Stream) -> Array:
        """One loss for each question."""
        questions = 1 if self.facts.arms else action.shape[0]
        midpoint = (self.facts.low + self.facts.high) / 2
        ends = self.sign * self.half_width * (-1.0) ** jnp.arange(questions)
        losses: Array = midpoint + jnp.where(clock.round == 0, ends, 0.0)
        return losses


def neighbours(
    policy: Policy, facts: AnyProblem, model: Tree
) -> tuple[Population, Population] | tuple[Losers, Losers]:
    """The two populations, among corners of the domain, whose first users can move most.

    The model is what is posted when the first user arrives.
    """
    if isinstance(facts, ContextFreeProblem):
        return Losers.of(facts, 1.0), Losers.of(facts, -1.0)
    corners = [
        Population.of(facts, facts.norm * direction, gain)
        for direction in _list_directions(facts.dim)
        for gain in (facts.low, facts.high)
    ]
    moves = [corner.told(policy, model) for corner in corners]
    pairs = itertools.combinations(range(len(corners)), 2)
    first, second = max(
        pairs, key=lambda pair: float(((moves[pair[0]] - moves[pair[1]]) ** 2).sum())
    )
    return corners[first], corners[second]


def _list_directions(dim: int) -> list[Floats]:
    """List unit vectors along an axis, both ways, and between two axes."""
    first, second = np.eye(dim)[0], np.eye(dim)[-1]
    turns = np.radians([0, 90, 120, 135, 150, 180]) if dim > 1 else np.radians([0, 180])
    return [np.cos(turn) * first + np.sin(turn) * second * (dim > 1) for turn in turns]
