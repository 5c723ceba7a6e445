"""The words that cross rooms: what a policy may see, ask and answer, for one bandit.

A policy poses *queries* and gets *releases*; a privatizer, which is another object, stands between
it and the users.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.problems import AnyProblem
from kerchief.core.random import Stream
from kerchief.core.struct import struct

# States, models, memories, worlds: pytrees whose form only their owner knows.
Tree: TypeAlias = Any


@struct
class Arms:
    """What one user may choose from; the mask travels with the features."""

    features: Array
    allowed: Array

    @classmethod
    def none(cls) -> Self:
        """The arms of a user who brings none, because the learner chooses the action."""
        return cls(features=jnp.zeros((0, 0), jnp.float32), allowed=jnp.zeros(0, bool))


@struct
class Clock:
    """Public time: the round (from 0), and the rounds since each query was last answered."""

    round: Array
    since: Mapping[str, Array]


@struct
class Example:
    """A record for regression: the features of the action taken, its reward and its weight."""

    features: Array
    reward: Array
    weight: Array | float = 1.0


@struct
class Release:
    """A noisy total over all users so far, or the noisy report of the last of them.

    Attributes:
        total: the sum of the statistics, with noise.
        count: how many users have come (public).
        noise: standard deviation of the noise on each coordinate of `total` (public).
        action: what this round's user was asked about, where the learner chose it (public); None
            where each user chose, and the learner must not know.
    """

    total: Array
    count: Array
    noise: Array
    action: Array | None = None


@struct
class Start:
    """What a learner asks a fit to begin with, from what it has seen released.

    Attributes:
        point: the first iterate.
        metric: a positive definite matrix; a step is its inverse times a gradient.
        ridge: weight of the squared norm, halved, beside the users' losses.
        radius: of the ball around zero that steps with noise are kept within.
    """

    point: Array
    metric: Array
    ridge: Array
    radius: float | Array


@struct
class FitRelease:
    """An approximate minimizer of the loss over all users so far, of whom there are `count`.

    The noise is the standard deviation on each coordinate of a gradient sum. Both are public.
    """

    point: Array
    count: Array
    noise: Array


# A Release or a Fitted: the kind of query says which.
Released: TypeAlias = Any


Separate: TypeAlias = Literal["nobody", "cohorts", "users"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseInfo:
    """What is known about answers before the first.

    Attributes:
        noisy: whether they are; each says how much.
        separate: whose noise is independent of the noise before: what a release adds for them may
            be weighed on its own.
    """

    noisy: bool
    separate: Separate = "nobody"


class _Bounded(Protocol):
    """What both kinds of query say."""

    @property
    def size(self) -> int:
        """Length of what one user's record is written as."""

    @property
    def sensitivity(self) -> float:
        """How far, in the Euclidean norm, replacing one user moves a sum."""

    @property
    def importance(self) -> float:
        """The part of the privacy budget that it gets, relative to the policy's other queries."""

    @property
    def batches(self) -> tuple[int, ...]:
        """How many users have come when each batch ends, for a policy that learns in batches.

        Where cohorts are released, these are the cohorts; none means that any will do.
        """

    def encode(self, record: Tree) -> Array:
        """Clip the record, always, then write it as one flat vector."""


class BoundedSum(_Bounded, Protocol):
    """A query: the sum over users of a bounded statistic, wanted as a running total."""

    @property
    def readings(self) -> tuple[int, ...]:
        """How many users have come when each running total is wanted; none: after every user.

        Where noise is correlated over time, fewer totals have less of it.
        """

    @property
    def center(self) -> float | NDArray[np.float64]:
        """A public point amid the statistics: one number for all coordinates, or one each."""

    @property
    def radius(self) -> float:
        """Every statistic lies within this Euclidean distance of `center`."""


@runtime_checkable
class BoundedLoss(_Bounded, Protocol):
    """A query: the minimizer of a sum over users of losses whose gradients are bounded.

    A user's report is a row of numbers that the aggregator keeps (all zeros have no gradient), and
    every look at the rows is a sum of clipped gradients at one public point.
    """

    @property
    def dim(self) -> int:
        """Length of a gradient."""

    @property
    def fits(self) -> int:
        """The most fits that may be asked for."""

    @property
    def minimizer(self) -> Minimizer:
        """How noisy gradient sums become an estimate."""

    def gradients(self, rows: Array, point: Array) -> Array:
        """The clipped gradient of each row's loss at this point."""

    def minimum(self, rows: Array, start: Start, *, count: Array | int) -> Array:
        """The minimizer itself over the first `count` rows, unclipped, for fits without noise."""


Gradient: TypeAlias = Callable[[Array, Array | int], Array]


class Minimizer(Protocol):
    """Turns gradient sums into an approximate minimizer; it never sees a user."""

    @property
    def steps(self) -> int:
        """How many gradient sums a fit with noise takes."""

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """Take that many steps, each with one noisy gradient sum at a point, by its number.

        The noise is the standard deviation on each coordinate of a sum over so many users.
        """


Query: TypeAlias = BoundedSum | BoundedLoss


Feedback: TypeAlias = Literal["totals", "reports", "phases"]
"""What a bandit hears: running totals, each user's own report, or totals over phases."""


class Policy(Protocol):
    """A bandit: frozen parameters and pure functions, for the device and for the learner.

    Bandits derive from this class and inherit what is usual. One that hears totals (the contextual
    kind) lets each user choose among arms of their own, and the choice stays on the device. One
    that hears reports (`ContextFreeProblem`) makes a public choice, and a release says which.
    Populations are met phase by phase, by `PhasePolicy`.

    >>> from kerchief import POLICIES, make_environment
    >>> bandit: Policy = POLICIES["linucb"].build(make_environment(dim=2).problem(100), "tuned")
    >>> {name: query.size for name, query in bandit.queries.items()}
    {'moments': 5}
    """

    feedback: ClassVar[Feedback] = "totals"

    @property
    def queries(self) -> Mapping[str, Query]:
        """The questions it may ask, fixed before the first user arrives."""

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Tree:
        """Learner: the state before any release."""

    def due(self, state: Tree, clock: Clock) -> Mapping[str, Array | bool]:
        """Learner: the releases it wants now, from public facts; a plain True means always."""
        return dict.fromkeys(self.queries, True)

    def request(self, state: Tree, name: str) -> Start | None:
        """Learner: what a fit shall begin with; a sum needs nothing."""
        return None

    def update(self, state: Tree, name: str, release: Released) -> Tree:
        """Learner: take in one release. Draws nothing."""

    def refreshes(self, clock: Clock) -> Array | bool:
        """Learner: whether a new model is posted after this round (public time alone).

        Asked where totals come after every round; what a batch brings is always posted.
        """
        return True

    def publish(self, state: Tree) -> Tree:
        """Learner: the model, which anyone may read."""
        return state

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """Device: choose one of the allowed arms; learner: propose, where it hears reports."""

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Device: what this user would answer to each query, before clipping and noise."""


Update = TypeVar("Update", bound=Callable[..., Any])


def newest_counts(update: Update) -> Update:
    """Mark an `update` of which only the last one before a post matters.

    Totals that come between two posts then need not be taken in.
    """
    vars(update)["newest_counts"] = True
    return update


def does_newest_count(policy: Policy) -> bool:
    """Whether the policy's `update` is marked so."""
    return getattr(type(policy).update, "newest_counts", False)


@runtime_checkable
class Stops(Protocol):
    """A bandit that may stop before the horizon; from then on nobody is asked."""

    def is_stopped(self, state: Tree) -> Array:
        """Learner: whether nothing more is asked."""


@runtime_checkable
class Recommends(Protocol):
    """A bandit that can name the one action that it would take for good."""

    def recommend(self, state: Tree) -> Array:
        """Learner: the arm or the point that it would name now."""


class Environment(Protocol):
    """A simulated world: the only thing that knows the truth.

    >>> from kerchief import make_environment
    >>> world: Environment = make_environment(dim=2, arms=3)
    >>> world.problem(100).arms
    3
    """

    def problem(self, horizon: int) -> AnyProblem:
        """The public facts that a policy may be built from."""

    def init(self, stream: Stream) -> Tree:
        """Draw what stays the same for the whole run: the parameter, a fixed arm set."""

    def arms(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """The arms of this round's user, within the declared norm; `Arms.none()` without any."""

    def reward(self, world: Tree, arms: Arms, action: Array, clock: Clock, stream: Stream) -> Array:
        """Draw the reward of an action; in a problem of losses, the loss of each question."""

    def regret(self, world: Tree, arms: Arms, action: Array, clock: Clock) -> Array:
        """What an action loses on average against the best; for the recorder only."""


@runtime_checkable
class PrecomputableContexts(Environment, Protocol):
    """A world whose arms depend on the truth and the round alone, so that they can be drawn early.

    Whoever is handed the arms needs less of the world to go on. It counts where the class itself
    has `without_contexts`, and not one that it extends; the clock that arms are drawn by knows the
    round alone.
    """

    def without_contexts(self) -> PrecomputableContexts:
        """The world less what draws its arms: equal for worlds that differ in nothing else."""

    def armless_truth(self, world: Tree) -> Tree:
        """The truth of that world."""

    def best(self, world: Tree, arms: Arms, clock: Clock) -> Array:
        """The expected reward of the best action; for the recorder only."""

    def value(self, world: Tree, arms: Arms, action: Array, clock: Clock) -> Array:
        """The expected reward of an action; for the recorder only."""


@runtime_checkable
class OmniscientAdversary(Protocol):
    """A world whose adversary foresees the choice before it says what a user may choose from."""

    def opposed(
        self, world: Tree, clock: Clock, stream: Stream, choose: Callable[[Arms], Array]
    ) -> Arms:
        """The arms of this round's user; called in place of `arms`, and within the same bounds.

        `choose` is what the bandit would play for given arms, by the coins of this very round.
        """


@runtime_checkable
class WorstCaseAdversary(PrecomputableContexts, OmniscientAdversary, Protocol):
    """An adversary that takes, of several sets of arms, that in which the choice loses most.

    The sets depend on the truth and the round alone, so that they can be drawn early.
    """

    def considered(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """All sets, along a first axis."""


@runtime_checkable
class AdaptiveAdversary(Protocol):
    """A world whose adversary sees the actions taken so far, and moves the truth by them."""

    def reacted(self, world: Tree, action: Array, clock: Clock) -> Tree:
        """The truth after this round, in which the action met the truth as it was."""


@runtime_checkable
class Oracle(Protocol):
    """A yardstick that is told the truth about a simulated world: it plays nowhere else."""

    def play_only(self, arm: Array) -> Tree:
        """The model, from the arm that is the best on average."""


@runtime_checkable
class HasBestArm(Protocol):
    """A world in which one arm is the best on average, whatever a user's features."""

    def single(self, world: Tree) -> Array:
        """Its number; for yardsticks only."""


@runtime_checkable
class HasBestAction(Protocol):
    """A world in which one action is the best for all."""

    def right(self, world: Tree, action: Array) -> Array:
        """Whether that one was named; for the recorder only."""
