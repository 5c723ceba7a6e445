"""What a device keeps of its decisions, wherever it is kept.

A step is all or nothing, and one at a time; what happens in it is up to `Pending`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Cost(NamedTuple):
    """What one report costs its user."""

    epsilon: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One decision.

    Attributes:
        state: decided, rewarded, encoded, or gone where only the id is remembered.
        due: when the report is to be made.
        version: of the model that chose.
        model: its name in the store.
        features: of the chosen arm, as bytes; erased once the report is made.
        reward: that came; erased likewise.
        report: the bytes to send.
        data: the model itself.
    """

    state: str
    due: float
    version: int | None = None
    model: bytes | None = field(default=None, repr=False)
    features: bytes | None = field(default=None, repr=False)
    reward: float | None = field(default=None, repr=False)
    report: bytes | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False)


class Rows(Protocol):
    """What is kept; everything but `step`, `erase`, `copy_to` and `close` is called in a step.

    Attributes:
        secret: of the store; a copy of it has the same.
    """

    secret: bytes

    def step(self, work: Callable[[], T]) -> T:
        """Do some work with exclusive use, all or nothing."""

    def find(self, id: bytes, task: bytes) -> Row | None:
        """A decision of a task that is not gone."""

    def add(self, id: bytes, task: bytes, row: Row) -> None:
        """Begin a decision, unless its id is known."""

    def change(self, id: bytes, row: Row) -> None:
        """Replace all of a decision but when it is due and the bytes of its model."""

    def drop(self, id: bytes) -> None:
        """Remove a decision."""

    def sweep(self, model: bytes | None) -> None:
        """Drop a model that no decision needs any more."""

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Decisions that are due or encoded, in the order in which they are due."""

    def chain(self, task: bytes) -> tuple[int, bytes] | None:
        """Length and head of the longest chain that was seen."""

    def lengthen(self, task: bytes, length: int, head: bytes) -> None:
        """Remember a chain."""

    def spent(self) -> Cost:
        """What all reports have cost."""

    def charge(self, task: bytes, cost: Cost) -> None:
        """Charge one report."""

    def erase(self, *, only_late: bool = False) -> None:
        """Leave no trace of what was erased, or only of what a reader has held until now."""

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file."""

    def close(self) -> None:
        """Let go of it."""
