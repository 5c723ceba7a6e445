"""Two populations that differ in one user: the first one, with the two records farthest apart."""

from __future__ import annotations

import itertools
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, BoundedLoss, Clock, Policy, Tree
from kerchief.core.problems import AnyProblem, ContextFreeProblem, Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct

__all__ = ["Losers", "Population", "neighbours"]

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

    def reward(self, world: Tree, arms: Arms, action: Array, clock: Clock, stream: Stream) -> Array:
        """The first user's own, or the ordinary one."""
        return jnp.where(clock.round == 0, self.gain, self.usual)

    def regret(self, world: Tree, arms: Arms, action: Array, clock: Clock) -> Array:
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


@struct
class Losers:
    """A world without contexts and without chance: every user but the first loses the midpoint.

    The first user's losses are at one end or at the other, question by question in turn.

    Attributes:
        facts: the public facts.
        sign: 1 where the first question of the first user is lost most, else -1.
        half_width: how far from the midpoint the first user's losses are.
    """

    facts: ContextFreeProblem = static()
    sign: Array
    half_width: Array

    @classmethod
    def of(cls, facts: ContextFreeProblem, sign: float) -> Self:
        """The world whose first user has losses at these ends."""
        return cls(facts=facts, sign=jnp.float32(sign), half_width=jnp.float32(facts.width / 2))

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts, which were settled for one horizon."""
        assert horizon == self.facts.horizon
        return self.facts

    def init(self, stream: Stream) -> Tree:
        """There is no hidden truth."""
        return ()

    def arms(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """Users bring none."""
        return Arms.none()

    def reward(self, world: Tree, arms: Arms, action: Array, clock: Clock, stream: Stream) -> Array:
        """One loss for each question."""
        questions = 1 if self.facts.arms else action.shape[0]
        midpoint = (self.facts.low + self.facts.high) / 2
        ends = self.sign * self.half_width * (-1.0) ** jnp.arange(questions)
        return midpoint + jnp.where(clock.round == 0, ends, 0.0)

    def regret(self, world: Tree, arms: Arms, action: Array, clock: Clock) -> Array:
        """Nothing is lost."""
        return jnp.zeros((), jnp.float32)


def neighbours(
    policy: Policy, facts: AnyProblem, model: Tree
) -> tuple[Population, Population] | tuple[Losers, Losers]:
    """The two populations, among corners of the domain, whose first users can move most.

    Args:
        policy: the bandit.
        facts: the public facts that it was built from.
        model: what is posted when the first user arrives.
    """
    if isinstance(facts, ContextFreeProblem):
        return Losers.of(facts, 1.0), Losers.of(facts, -1.0)
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
