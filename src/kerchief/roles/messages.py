"""Messages: everything that ever passes between two roles.

Whoever wants to know what a role can learn reads this file. No message has a field for a context,
an action or a reward: `Answers` hold what the privatizers let out of a device, and nothing else
comes from a user.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Clock, Released, Start, Tree
from kerchief.core.errors import InvalidValue
from kerchief.core.validate import MOST_ROUNDS, plain, whole
from kerchief.roles.values import as_report

__all__ = [
    "Answer",
    "Answers",
    "Ask",
    "Batch",
    "Done",
    "Message",
    "Mixed",
    "Post",
    "Read",
    "Reports",
    "Tick",
]

Answers: TypeAlias = Mapping[str, Array | NDArray[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Read:
    """Device to learner: show me what is posted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Post:
    """Learner to everyone: the billboard, a public model at a public time."""

    model: Tree
    clock: Clock

    def __post_init__(self) -> None:
        """Check what a stranger may have sent."""
        _check_clock(self.clock)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reports:
    """Device to the aggregator: one visit's report to each query.

    Attributes:
        ticket: drawn at random for this visit, so that a report sent twice counts once.
        answers: query name to report.
    """

    ticket: str
    answers: Answers = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        """Check what a stranger may have sent."""
        if not isinstance(self.ticket, str):
            raise InvalidValue(f"a ticket is a {type(self.ticket).__name__}; it must be a text")
        _check(self.answers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Shuffler to curator: the reports of many visits, in random order and without tickets."""

    answers: tuple[Answers, ...] = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        """Check what a stranger may have sent."""
        if not isinstance(self.answers, tuple):
            raise InvalidValue(f"a batch is a {type(self.answers).__name__}; it must be a tuple")
        for answers in self.answers:
            _check(answers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixed:
    """Shuffler to curator: the bits of a whole cohort, mixed label by label.

    Mixed bits say how many of them are heads and nothing else, so their totals are what is sent.

    Attributes:
        users: how many devices they come from.
        answers: query name to the total over these devices.
    """

    users: int
    answers: Answers = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        """Check what a stranger may have sent."""
        plain(self)
        _check(self.answers, users=whole("users", self.users, high=MOST_ROUNDS))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tick:
    """Public clock to learner: one more round is over."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """Learner to curator: release this query if it may be released now; a fit gets a start."""

    query: str
    clock: Clock
    request: Start | None = None

    def __post_init__(self) -> None:
        """Check what a stranger may have sent."""
        if not isinstance(self.query, str) or not isinstance(self.request, Start | None):
            raise InvalidValue("a question names its query by a text, and brings a start or none")
        _check_clock(self.clock)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """Curator to learner: the release, or None where the schedule is not ready."""

    release: Released | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """The reply that says nothing but that the message arrived."""


Message: TypeAlias = Read | Post | Reports | Batch | Mixed | Tick | Ask | Answer | Done


def _check(answers: Answers, *, users: int = 1) -> None:
    if not isinstance(answers, Mapping) or not all(isinstance(name, str) for name in answers):
        raise InvalidValue("answers are not a mapping; give one report to each query, by its name")
    for name, report in answers.items():
        as_report(name, report, users=users)


def _check_clock(clock: Clock) -> None:
    now = np.asarray(clock.round) if isinstance(clock, Clock) else np.asarray(None)
    if now.dtype.kind not in "iu" or now.ndim or not 0 <= now < MOST_ROUNDS:
        raise InvalidValue(f"the clock's round is no whole number from 0 to {MOST_ROUNDS - 1}")
