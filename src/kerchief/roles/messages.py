"""Messages: everything that ever passes between two roles.

Whoever wants to know what a role can learn reads this file. No message has a field for a context,
an action or a reward: `Answers` hold what the privatizers let out of a device, and nothing else
comes from a user.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Clock, Released, Start, Tree

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reports:
    """Device to the middle: one visit's report to each query.

    Attributes:
        ticket: drawn at random for this visit, so that a report sent twice counts once.
        answers: query name to report.
    """

    ticket: str
    answers: Answers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Shuffler to curator: the reports of many visits, in random order and without tickets."""

    answers: tuple[Answers, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixed:
    """Shuffler to curator: the bits of a whole cohort, mixed label by label.

    Mixed bits say how many of them are heads and nothing else, so their totals are what is sent.

    Attributes:
        users: how many devices they come from.
        answers: query name to the total over these devices.
    """

    users: int
    answers: Answers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tick:
    """Public clock to learner: one more round is over."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """Learner to curator: release this query if it may be released now; a fit gets a start."""

    query: str
    clock: Clock
    request: Start | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """Curator to learner: the release, or None where the schedule is not ready."""

    release: Released | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """The reply that says nothing but that the message arrived."""


Message: TypeAlias = Read | Post | Reports | Batch | Mixed | Tick | Ask | Answer | Done
