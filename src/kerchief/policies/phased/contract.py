"""The words of a bandit that goes by phases: what it plays, what it asks, what it makes of answers.

Such a bandit knows the actions beforehand, and they are the same for all clients. So it decides
what a whole phase shall play before the phase begins, and asks a few fresh clients at its end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from jax import Array

from kerchief.core.contracts import Tree
from kerchief.core.population import PopulationProblem
from kerchief.core.queries import clip_features
from kerchief.core.struct import struct
from kerchief.core.validate import between, increasing, whole

__all__ = ["ANSWERS", "Asked", "Asking", "Phase", "Phased", "UnitBall"]

ANSWERS = "answers"
"""The name of the one query."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitBall:
    """The sum over clients of a vector in the unit ball.

    Attributes:
        size: length of the vector.
        importance: the part of the privacy budget, relative to the policy's other queries.
        batches: none here: the phases, and with them the cohorts, depend on the noise level.

    >>> import jax.numpy as jnp
    >>> UnitBall(size=2).encode(jnp.array([0.0, 2.0])).tolist()
    [0.0, 1.0]
    """

    size: int
    importance: float = 1.0
    batches: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the values."""
        whole("size", self.size, high=2**24)
        between("importance", self.importance, 1e-9, 1e9, closed=True)
        increasing("batches", self.batches)

    @property
    def sensitivity(self) -> float:
        """The diameter of the ball, which opposite vectors attain."""
        return 2.0

    @property
    def center(self) -> float:
        """The ball's center."""
        return 0.0

    @property
    def radius(self) -> float:
        """The ball's radius."""
        return 1.0

    def encode(self, record: Array) -> Array:
        """Scale a vector that is too long into the ball."""
        return clip_features(record, 1.0)


@struct
class Phase:
    """One phase of the schedule, all of it public.

    Attributes:
        number: l, from 1.
        pulls: h, which the design is multiplied by.
        first: the number of the first client that is asked.
        clients: how many are asked at most: those from `first` on.
    """

    number: int | Array
    pulls: int | Array
    first: int | Array
    clients: int | Array


@struct
class Asked:
    """What is played and asked in a phase: a function of earlier releases, so public.

    The clients of a phase are in groups, in the order of their numbers. Those of a group see the
    same plays and answer alike, and their answers are released in one sum.

    Attributes:
        atoms: for each group, the actions that its clients see, by number.
        pulls: for each group, how often a client of it sees each of them; 0 for those that only
            fill up.
        plays: how often each of them is played.
        users: how many clients each group has.
        encoder: for each group, a matrix from a client's average rewards to its vector in the unit
            ball.
        decoder: matrix from the mean vectors of all groups, side by side, to an estimate of the
            common parameter.
        inverse: inverse of V = Σ T(x) x xᵀ, on the span of the actions that survive, where T is how
            often x is played.
        span: projection onto that span.
        reals: how many numbers a client sends.
    """

    atoms: Array
    pulls: Array
    plays: Array
    users: Array
    encoder: Array
    decoder: Array
    inverse: Array
    span: Array
    reals: Array

    @property
    def rounds(self) -> Array:
        """How many rounds the phase lasts."""
        return self.plays.sum()


class Phased(Protocol):
    """A bandit that goes by phases, or that needs none: frozen parameters and pure functions."""

    @property
    def problem(self) -> PopulationProblem:
        """The public facts that it was built from."""

    @property
    def queries(self) -> Mapping[str, UnitBall]:
        """What it asks: `ANSWERS`, or nothing."""

    def phases(self, noise: Callable[[int], float]) -> tuple[Phase, ...]:
        """Before the first client: all phases that may be played, with fresh clients in each.

        Args:
            noise: standard deviation, on each coordinate, of the mean of so many answers.
        """

    def init(self) -> Tree:
        """Learner: the state before the first phase."""

    def finish(self, features: Array, state: Tree) -> Array:
        """Learner: the share of each action in the rounds that no whole phase fits into."""


@runtime_checkable
class Asking(Phased, Protocol):
    """A bandit that has phases, and asks clients in each of them."""

    @property
    def groups(self) -> int:
        """How many groups the clients of a phase are in."""

    def ask(self, features: Array, state: Tree, phase: Phase, *, noisy: bool) -> Asked:
        """Learner: what a phase plays and asks."""

    def answer(self, asked: Asked, group: Array | int, averages: Array) -> Array:
        """Device: what a client would answer, from its average reward on each action it saw."""

    def update(
        self, features: Array, state: Tree, asked: Asked, phase: Phase, mean: Array, noise: Array
    ) -> Tree:
        """Learner: take in the mean answers of all groups, side by side. Draws nothing.

        Args:
            features: the public actions.
            state: what it knew.
            asked: what was asked.
            phase: when.
            mean: the mean answers.
            noise: standard deviation of the noise on each number of `mean`.
        """

    def settled(self, state: Tree) -> Array:
        """Learner: whether nothing is left to ask."""
