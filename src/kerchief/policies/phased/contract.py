"""The words of a bandit that goes by phases: what it plays, what it asks, what it makes of answers.

Such a bandit knows the actions beforehand, and they are the same for all clients. So it decides
what a whole phase shall play before the phase begins, and asks a few fresh clients at its end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol

from jax import Array

from kerchief.core.contracts import Tree
from kerchief.core.crowd import Crowd
from kerchief.core.queries import clip_features
from kerchief.core.struct import struct
from kerchief.core.validate import positive, whole

__all__ = ["ANSWERS", "Asked", "Phase", "Phased", "UnitBall"]

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
        whole("size", self.size)
        positive("importance", self.importance)

    @property
    def sensitivity(self) -> float:
        """The diameter of the ball, which opposite vectors attain."""
        return 2.0

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
        clients: how many are asked: those from `first` on.
    """

    number: int | Array
    pulls: int | Array
    first: int | Array
    clients: int | Array


@struct
class Asked:
    """What is played and asked in a phase: a function of earlier releases, so public.

    Attributes:
        atoms: the actions that are played, by number.
        pulls: T, how often each of them is played; 0 for those that only fill up.
        inverse: inverse of V = Σ T(x) x xᵀ, on the span of the actions that survive.
        span: projection onto that span.
        encoder: matrix from a client's average rewards to its vector in the unit ball.
        decoder: matrix from the mean of those vectors to an estimate of the common parameter.
        reals: how many numbers a client sends.
    """

    atoms: Array
    pulls: Array
    inverse: Array
    span: Array
    encoder: Array
    decoder: Array
    reals: Array

    @property
    def rounds(self) -> Array:
        """How many rounds the phase lasts."""
        return self.pulls.sum()


class Phased(Protocol):
    """A bandit that goes by phases: frozen parameters and pure functions."""

    @property
    def crowd(self) -> Crowd:
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

    def ask(self, features: Array, state: Tree, phase: Phase, *, noisy: bool) -> Asked:
        """Learner: what a phase plays and asks."""

    def answer(self, asked: Asked, averages: Array) -> Array:
        """Device: what a client would answer, from its average reward on each atom."""

    def update(
        self, features: Array, state: Tree, asked: Asked, phase: Phase, mean: Array, noise: Array
    ) -> Tree:
        """Learner: take in the mean answer and its noise. Draws nothing."""

    def settled(self, state: Tree) -> Array:
        """Learner: whether nothing is left to ask."""

    def finish(self, features: Array, state: Tree) -> Array:
        """Learner: the share of each action in the rounds that no whole phase fits into."""
