"""What a device keeps of its decisions, wherever it is kept.

A step is all or nothing, and one at a time; what happens in it is up to `Pending`.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self, TypeVar

from kerchief_wire.model import Model

T = TypeVar("T")


class Cost(NamedTuple):
    """What one report costs its user."""

    epsilon: float
    delta: float


class Posted:
    """A model that chose, its bytes, and their hash, which is its name in a file.

    What is not given is made when it is first asked for: in memory nobody asks for bytes.
    """

    @classmethod
    def of(cls, model: Model) -> Self:
        """A model as it was posted."""
        posted = cls()
        vars(posted).update(model=model)
        return posted

    @classmethod
    def stored(cls, name: bytes, data: bytes) -> Self:
        """A model as a file has it."""
        posted = cls()
        vars(posted).update(name=name, data=data)
        return posted

    @functools.cached_property
    def model(self) -> Model:
        """Its numbers."""
        return Model.read(self.data)

    @functools.cached_property
    def data(self) -> bytes:
        """Its canonical bytes."""
        return self.model.write()

    @functools.cached_property
    def name(self) -> bytes:
        """Their hash."""
        return hashlib.sha256(self.data).digest()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One decision.

    Attributes:
        state: decided, rewarded, encoded, or gone where only the id is remembered.
        due: when the report is to be made.
        version: of the model that chose.
        posted: that model.
        features: of the chosen arm, as bytes; erased once the report is made.
        reward: that came; erased likewise.
        report: the bytes to send.
    """

    state: str
    due: float
    version: int | None = None
    posted: Posted | None = field(default=None, repr=False)
    features: bytes | None = field(default=None, repr=False)
    reward: float | None = field(default=None, repr=False)
    report: bytes | None = field(default=None, repr=False)


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
        """Begin a decision, unless its id is known in this task."""

    def change(self, id: bytes, task: bytes, row: Row) -> None:
        """Replace all of a decision but when it is due and the bytes of its model."""

    def drop(self, id: bytes, task: bytes) -> None:
        """Remove a decision."""

    def sweep(self, model: Posted | None) -> None:
        """Drop a model that no decision needs any more."""

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Decisions that are due or encoded, in the order in which they are due."""

    def chain(self, task: bytes) -> tuple[int, bytes] | None:
        """Length and head of the longest chain that a signed model named."""

    def lengthen(self, task: bytes, length: int, head: bytes) -> None:
        """Remember a chain."""

    def forget_chain(self, task: bytes) -> None:
        """Remember no chain of a task."""

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
