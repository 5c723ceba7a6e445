"""Programs of devices: how a task says that a device chooses an arm and encodes a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class Optimist:
    """Device that plays its best arm by optimism, and reports a regression's moments.

    Attributes:
        dim: length of an arm's features.
        arms: the most arms.
        norm: features are scaled into the ball of this radius.
        low: least reward.
        high: greatest reward.
        link: how a score becomes an expected reward.
        linearized: whether a reward is linearized around the posted estimate.
        largest_score: scores are clipped to this before a reward is linearized.
        steepest: what weights are divided by.
        response_low: the reported response is clipped to at least this.
        response_high: the reported response is clipped to at most this.
        offset: is subtracted from the response.
        balance: how much the matrix counts beside the vector.
        weighted: whether the matrix is multiplied by the record's own weight; where it is not,
            surprises tell their weight by its trace.
        reweighed: the rule by which the learner chose the matrix and the reference that are posted
            with the model, and by which surprises are reported; 0 where there are none.
        choice: how an arm is chosen: "bound", the highest upper bound, or "guess", the best under a
            guess of the device's own.
    """

    kind: str = "optimist"
    dim: int
    arms: int
    norm: float
    low: float
    high: float
    link: str
    linearized: bool
    largest_score: float
    steepest: float
    response_low: float
    response_high: float
    offset: float
    balance: float
    weighted: bool
    reweighed: int
    choice: str


@dataclass(frozen=True, kw_only=True)
class DisjointModels:
    """Device that draws a score per arm, and reports moments for disjoint models.

    Attributes:
        dim: length of an arm's features.
        arms: the most arms; an arm is known by the number of its row.
        norm: bound on an arm's features.
        varying: features are scaled into the ball of this radius, a constant left out.
        low: least reward.
        high: greatest reward.
        offset: is subtracted from the reward.
        lever: stands for the constant last feature; 0 where there is none.
        weight: how much the arm's features count beside its moments.
        balance: how much the second moment of features counts; 0 where it is not reported.
    """

    kind: str = "own-models"
    dim: int
    arms: int
    norm: float
    varying: float
    low: float
    high: float
    offset: float
    lever: float
    weight: float
    balance: float


@dataclass(frozen=True, kw_only=True)
class Answering:
    """A device that answers a proposed action with one number.

    Attributes:
        low: least loss.
        high: greatest loss.
        questions: how many points an action has.
        answer: how the losses of these points become one number: loss, or difference.
    """

    kind: str = "answering"
    low: float
    high: float
    questions: int
    answer: str


@dataclass(frozen=True, kw_only=True)
class Phased:
    """A device of a client who is asked once, in one group of one phase.

    The label of a report is its group's number among the groups of all phases.

    Attributes:
        low: least reward.
        high: greatest reward.
        groups: how many groups a phase has.
        atoms: how many actions a client sees at most.
        size: length of the vector in the unit ball that it answers with.
    """

    kind: str = "phased"
    low: float
    high: float
    groups: int
    atoms: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Library:
    """A device that needs the whole library, for a policy that was not made light."""

    kind: str = "library"


Program: TypeAlias = Optimist | DisjointModels | Answering | Phased | Library
