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

from kerchief_protocol.model import Model

T = TypeVar("T")


class Cost(NamedTuple):
    """Privacy cost of one report for its user."""

    epsilon: float
    delta: float


class PostedModel:
    """A model that chose an arm, its bytes, and their hash, its name in a file.

    Numbers and bytes are derived from each other on first use: memory needs no bytes.
    """

    @classmethod
    def of(cls, model: Model) -> Self:
        """Wrap a model that was posted."""
        instance = cls()
        vars(instance).update(model=model)
        return instance

    @classmethod
    def stored(cls, name: bytes, data: bytes) -> Self:
        """Wrap the name and the bytes of a model from a file."""
        instance = cls()
        vars(instance).update(name=name, data=data)
        return instance

    @functools.cached_property
    def model(self) -> Model:
        """Content of the model."""
        return Model.read(self.data)

    @functools.cached_property
    def data(self) -> bytes:
        """Canonical bytes of the model."""
        return self.model.write()

    @functools.cached_property
    def name(self) -> bytes:
        """Hash of the canonical bytes."""
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
    posted: PostedModel | None = field(default=None, repr=False)
    features: bytes | None = field(default=None, repr=False)
    reward: float | None = field(default=None, repr=False)
    report: bytes | None = field(default=None, repr=False)


class Rows(Protocol):
    """Store of decisions; methods run in a step, but for those listed below.

    Outside a step run `step`, `erase`, `copy_to` and `close`.

    Attributes:
        secret: of the store; a copy of it has the same.
    """

    secret: bytes

    def step(self, work: Callable[[], T]) -> T:
        """Do some work with exclusive use, all or nothing."""

    def find(self, id: bytes, task: bytes) -> Row | None:
        """Return a decision of a task, or None if it is gone."""

    def add(self, id: bytes, task: bytes, row: Row) -> None:
        """Add a decision, unless its id exists in this task."""

    def change(self, id: bytes, task: bytes, row: Row) -> None:
        """Replace a decision, except its due time and the bytes of its model."""

    def drop(self, id: bytes, task: bytes) -> None:
        """Remove a decision."""

    def sweep(self, model: PostedModel | None) -> None:
        """Drop a model that no decision needs any more."""

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Return ids of decisions that are due or encoded, ordered by due time."""

    def chain(self, task: bytes) -> tuple[int, bytes] | None:
        """Return length and head of the longest chain that a signed model named."""

    def lengthen(self, task: bytes, length: int, head: bytes) -> None:
        """Remember a chain."""

    def forget_chain(self, task: bytes) -> None:
        """Remember no chain of a task."""

    def spent(self) -> Cost:
        """Return the privacy cost of all reports."""

    def charge(self, task: bytes, cost: Cost) -> None:
        """Charge one report."""

    def erase(self, *, only_late: bool = False) -> None:
        """Leave no trace of erased records, or only of those a reader still held."""

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file."""

    def close(self) -> None:
        """Close the store."""
