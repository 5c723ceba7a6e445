"""The words that cross rooms: what a policy may see, ask and answer.

A policy poses *queries* and gets *releases*; a privatizer, which is another object, stands between
it and the users. Everything here is for one bandit; `simulation` runs it by the thousand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.links import link_named
from kerchief.core.random import Stream
from kerchief.core.struct import struct

__all__ = [
    "Arms",
    "BoundedLoss",
    "BoundedSum",
    "Clock",
    "Environment",
    "Example",
    "Fitted",
    "Gradient",
    "Minimizer",
    "Outlook",
    "Policy",
    "Problem",
    "Query",
    "Release",
    "Released",
    "Start",
]

# States, models, memories, worlds: pytrees whose form only their owner knows.
Tree: TypeAlias = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """The public facts about a problem, fixed before the first user arrives.

    Nothing here may be read from private data. What lies beyond a bound is refused by `Bandit`, and
    clipped by devices and in simulations; a bound that is too large costs noise. Neither costs
    privacy.

    Attributes:
        dim: length of an arm's feature vector.
        arms: the most arms a user may meet.
        norm: bound on the Euclidean norm of a feature vector.
        radius: bound on the norm of the unknown parameter.
        low: least reward.
        high: greatest reward.
        horizon: number of rounds.
        constant: the value of the last coordinate where all arms share it (0 for none): with one, a
            constant may be taken off all rewards without changing which arm is best.
        link: how a score ⟨x, θ⟩ becomes an expected reward (`core.links`): a choice of model.
    """

    dim: int
    arms: int
    norm: float
    radius: float
    low: float
    high: float
    horizon: int
    constant: float = 0.0
    link: str = "linear"

    def __post_init__(self) -> None:
        """Check the facts: noise and clipping rest on them."""
        validate.plain(self)
        validate.whole("dim", self.dim, high=validate.MOST_DIM)
        validate.whole("arms", self.arms, high=2**24)
        validate.whole("horizon", self.horizon, high=validate.MOST_ROUNDS)
        validate.between("norm", self.norm, 1e-9, 1e9, closed=True)
        validate.between("radius", self.radius, 1e-9, 1e9, closed=True)
        validate.between("low", self.low, -1e9, 1e9, closed=True)
        validate.between("high", self.high, self.low, 1e9, closed=True)
        validate.at_least("high - low", self.high - self.low, 1e-9)
        validate.between("constant", self.constant, -1e9, 1e9, closed=True)
        link_named(self.link)


@struct
class Arms:
    """What one user may choose from; the mask travels with the features."""

    features: Array
    allowed: Array


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
    """A noisy total over all users so far.

    Attributes:
        total: the sum of the statistics, with noise.
        count: how many users it speaks about (public).
        noise: standard deviation of the noise on each coordinate of `total` (public).
    """

    total: Array
    count: Array
    noise: Array


@struct
class Start:
    """What a learner asks a fit to begin with, from what it has seen released.

    Attributes:
        point: the first iterate.
        metric: a positive definite matrix; a step is its inverse times a gradient.
        ridge: weight of the squared norm, halved, beside the users' losses.
    """

    point: Array
    metric: Array
    ridge: Array


@struct
class Fitted:
    """An approximate minimizer of the loss over all users so far.

    Attributes:
        point: where the fit ended.
        count: how many users it speaks about (public).
        noise: standard deviation of the noise on each coordinate of a gradient sum (public).
    """

    point: Array
    count: Array
    noise: Array


# A Release or a Fitted: the kind of query says which.
Released: TypeAlias = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a policy may know about a query's answers before the first of them.

    Attributes:
        noisy: whether the answers carry noise at all (how much, each release says).
    """

    noisy: bool


class BoundedSum(Protocol):
    """A query: the sum over users of a bounded statistic, wanted as a running total."""

    @property
    def size(self) -> int:
        """Length of the statistic."""

    @property
    def sensitivity(self) -> float:
        """Euclidean diameter of the statistics: how far replacing one user moves the sum."""

    @property
    def center(self) -> float | NDArray[np.float64]:
        """A public point amid the statistics: one number for all coordinates, or one each."""

    @property
    def radius(self) -> float:
        """Every statistic lies within this Euclidean distance of `center`."""

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


@runtime_checkable
class BoundedLoss(Protocol):
    """A query: the minimizer of a sum over users of losses whose gradients are bounded.

    A user's report is a row of numbers that the aggregator keeps, and every look at the rows is
    a sum of clipped gradients at one public point.
    """

    @property
    def size(self) -> int:
        """Length of a row."""

    @property
    def dim(self) -> int:
        """Length of a gradient."""

    @property
    def sensitivity(self) -> float:
        """How far, in the Euclidean norm, replacing one user moves a sum of gradients."""

    @property
    def importance(self) -> float:
        """The part of the privacy budget that it gets, relative to the policy's other queries."""

    @property
    def batches(self) -> tuple[int, ...]:
        """How many users have come when each batch ends, for a policy that learns in batches.

        Where cohorts are released, these are the cohorts; none means that any will do.
        """

    @property
    def fits(self) -> int:
        """The most fits that may be asked for."""

    @property
    def minimizer(self) -> Minimizer:
        """How noisy gradient sums become an estimate."""

    def encode(self, record: Tree) -> Array:
        """Clip the record, always, then write it as one row; all zeros have no gradient."""

    def gradients(self, rows: Array, point: Array) -> Array:
        """The clipped gradient of each row's loss at this point."""

    def minimum(self, rows: Array, start: Start) -> Array:
        """The minimizer itself, unclipped, for fits without noise."""


Gradient: TypeAlias = Callable[[Array, Array | int], Array]


class Minimizer(Protocol):
    """Turns gradient sums into an approximate minimizer; it never sees a user."""

    @property
    def steps(self) -> int:
        """How many gradient sums a fit with noise takes."""

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """Take that many steps.

        Args:
            gradient: the noisy sum at a point, in step 0, 1, ...: asked once in each.
            start: where to begin.
            users: how many users are summed over.
            noise: standard deviation of the noise on each coordinate of a sum.
        """


Query: TypeAlias = BoundedSum | BoundedLoss


class Policy(Protocol):
    """A bandit: frozen parameters and pure functions, for the device and for the learner."""

    @property
    def queries(self) -> Mapping[str, Query]:
        """The questions it may ask, fixed before the first user arrives."""

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Learner: the state before any release."""

    def due(self, state: Tree, clock: Clock) -> Mapping[str, Array | bool]:
        """Learner: the releases it wants now, from public facts; a plain True means always."""

    def request(self, state: Tree, name: str) -> Start | None:
        """Learner: what a fit shall begin with; a sum needs nothing."""

    def update(self, state: Tree, name: str, release: Released) -> Tree:
        """Learner: take in one release. Draws nothing."""

    def refreshes(self, clock: Clock) -> Array | bool:
        """Learner: whether a new model is posted after this round (public time alone)."""

    def publish(self, state: Tree) -> Tree:
        """Learner: the model, which anyone may read."""

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """Device: choose one of the allowed arms."""

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Device: what this user would answer to each query, before clipping and noise."""


class Environment(Protocol):
    """A simulated world: the only thing that knows the truth."""

    def problem(self, horizon: int) -> Problem:
        """The public facts that a policy may be built from."""

    def init(self, stream: Stream) -> Tree:
        """Draw what stays the same for the whole run: the parameter, a fixed arm set."""

    def arms(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """The arms of this round's user, within the declared norm."""

    def reward(self, world: Tree, arms: Arms, action: Array, stream: Stream) -> Array:
        """Draw the reward of an action."""

    def regret(self, world: Tree, arms: Arms, action: Array) -> Array:
        """Expected reward lost against the best allowed arm; for the recorder only."""
