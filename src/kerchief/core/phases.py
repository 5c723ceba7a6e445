"""A bandit for populations: what it plays, what it asks, what it makes of answers.

Actions are public and the same for all clients. So it decides what a whole phase shall play before
the phase begins, and asks a few fresh clients at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, Self, runtime_checkable

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import BoundedSum, Feedback, NoiseInfo, Release, Tree
from kerchief.core.problems import PopulationProblem
from kerchief.core.struct import struct

ANSWERS = "answers"
"""The name of the one query."""


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
class PhaseQuery:
    """What is played and asked in a phase: a function of earlier releases, so public.

    The clients of a phase are in groups, in the order of their numbers. Those of a group see the
    same plays and answer alike, and their answers are released in one sum.

    Attributes:
        atoms: for each group, the actions that its clients see, by number.
        pulls: for each group, how often a client sees each of them; 0 for those that only fill up.
        plays: how often each of them is played.
        users: how many clients each group has.
        encoder: for each group, from a client's average rewards to its vector in the unit ball.
        decoder: from the mean vectors of all groups, side by side, to the common parameter.
        inverse: of V = Σ T(x) x xᵀ on the span of the surviving actions, with T plays of x.
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


@runtime_checkable
class PhasePolicy(Protocol):
    """A bandit that goes by phases: frozen parameters and pure functions.

    One that asks nobody has no queries and no phases, and plays as `finish` says throughout.
    """

    feedback: ClassVar[Feedback] = "phases"
    problem: PopulationProblem
    """The public facts that it was built from."""

    @property
    def queries(self) -> Mapping[str, BoundedSum]:
        """What it asks: `ANSWERS`, or nothing."""
        return {}

    @property
    def groups(self) -> int:
        """How many groups the clients of a phase are in."""
        return 0

    def with_equal_groups(self) -> Self:
        """Return this bandit with group sizes that no release decides, for deployments."""
        return self

    def phases(self, noise: Callable[[int], float]) -> tuple[Phase, ...]:
        """All phases that may be played, from the noise on the mean of so many answers.

        They are settled before the first client; in each fresh clients are asked.
        """
        return ()

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Tree:
        """Learner: the state before the first phase."""
        return ()

    def ask(self, features: Array, state: Tree, phase: Phase, *, noisy: bool) -> PhaseQuery:
        """Learner: what a phase plays and asks."""
        raise TypeError("this bandit asks nobody")

    def answer(self, asked: PhaseQuery, group: Array | int, averages: Array) -> Array:
        """Device: what a client would answer, from its average reward on each action it saw."""
        raise TypeError("this bandit asks nobody")

    def update(
        self,
        features: Array,
        state: Tree,
        asked: PhaseQuery,
        phase: Phase,
        mean: Array,
        noise: Array,
    ) -> Tree:
        """Learner: take in the mean answers of all groups, side by side. Draws nothing.

        The noise is the standard deviation on each number of `mean`.
        """
        raise TypeError("this bandit asks nobody")

    def is_settled(self, state: Tree) -> Array:
        """Learner: whether nothing is left to ask."""
        raise TypeError("this bandit asks nobody")

    def finish(self, features: Array, state: Tree) -> Array:
        """Learner: the share of each action in the rounds that no whole phase fits into."""


def learn(
    policy: PhasePolicy,
    features: Array,
    state: Tree,
    asked: PhaseQuery,
    phase: Phase,
    release: Release,
) -> Tree:
    """Learner: turn the totals of all groups into means, and take them in."""
    users = jnp.maximum(release.count, 1)
    mean = release.total / users[:, None]
    noise = jnp.broadcast_to((release.noise / users)[:, None], mean.shape)
    return policy.update(features, state, asked, phase, mean.ravel(), noise.ravel())
