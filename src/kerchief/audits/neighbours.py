"""Two populations that differ in one user: the first one, with the two records farthest apart."""

from __future__ import annotations

import itertools
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, BoundedLoss, Clock, Policy, Tree
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct

__all__ = ["Population", "neighbours"]

Floats = NDArray[np.float64]


@struct
class Population:
    """A world in which nothing is left to chance: every user has one arm and a known reward.

    Attributes:
        facts: the public facts.
        features: of the first user's arm: the user that populations differ in.
        gain: the first user's reward.
        others: features of everyone else's arm.
        usual: everyone else's reward.
    """

    facts: Problem = static()
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

    def problem(self, horizon: int) -> Problem:
        """The public facts, which were settled for one horizon."""
        assert horizon == self.facts.horizon
        return self.facts

    def init(self, stream: Stream) -> Tree:
        """There is no hidden truth."""
        return ()

    def arms(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """One arm, beside places that are not allowed."""
        return self._arms(jnp.where(clock.round == 0, self.features, self.others))

    def reward(self, world: Tree, arms: Arms, action: Array, stream: Stream) -> Array:
        """The first user is known by the arm, which nobody else has."""
        first = jnp.all(arms.features[0] == self.features)
        return jnp.where(first, self.gain, self.usual)

    def regret(self, world: Tree, arms: Arms, action: Array) -> Array:
        """There is one arm, so nothing is lost."""
        return jnp.zeros((), jnp.float32)

    def told(self, policy: Policy, model: Tree) -> Floats:
        """What the first user's record moves, query by query, in units of each sensitivity."""
        arms = self._arms(self.features)
        records = policy.record(model, arms, jnp.int32(0), self.gain)
        parts = []
        for name, query in policy.queries.items():
            row = query.encode(records[name])
            if isinstance(query, BoundedLoss):
                row = query.gradients(row[None, :], jnp.zeros(query.dim))[0]
            parts.append(np.asarray(row, np.float64) / query.sensitivity)
        return np.concatenate(parts)

    def _arms(self, features: Array) -> Arms:
        allowed = jnp.arange(self.facts.arms) == 0
        return Arms(features=jnp.tile(features, (self.facts.arms, 1)), allowed=allowed)


def neighbours(policy: Policy, facts: Problem, model: Tree) -> tuple[Population, Population]:
    """The two populations, among corners of the domain, whose first users can move most.

    Args:
        policy: the bandit.
        facts: the public facts that it was built from.
        model: what is posted when the first user arrives.
    """
    corners = [
        Population.of(facts, facts.norm * direction, gain)
        for direction in _directions(facts.dim)
        for gain in (facts.low, facts.high)
    ]
    told = [corner.told(policy, model) for corner in corners]
    pairs = itertools.combinations(range(len(corners)), 2)
    one, other = max(pairs, key=lambda pair: _apart(told[pair[0]], told[pair[1]]))
    return corners[one], corners[other]


def _directions(dim: int) -> list[Floats]:
    """Axes both ways, and what lies halfway and a third of the way between two of them."""
    first, second = np.eye(dim)[0], np.eye(dim)[-1]
    turns = np.radians([0, 90, 120, 135, 150, 180]) if dim > 1 else np.radians([0, 180])
    return [np.cos(turn) * first + np.sin(turn) * second * (dim > 1) for turn in turns]


def _apart(one: Floats, other: Floats) -> float:
    return float(((one - other) ** 2).sum())
