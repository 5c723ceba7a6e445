"""What roles may ask of a store: one task at a time, everything or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from kerchief_protocol.chain import Line

EVERYTHING = 2**62
"""More rows than any store has."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Where a task stands.

    Attributes:
        config: the task's canonical bytes; they never change.
        state: running, or closed.
        epoch: how often the task began anew.
        cohort: the open one.
        releases: how many there are.
        length: of the chain.
        head: of the chain.
        witnessed: the head that was last witnessed; None before the first.
    """

    config: bytes
    state: str
    epoch: int
    cohort: int
    releases: int
    length: int
    head: bytes
    witnessed: bytes | None


@dataclass(frozen=True, kw_only=True)
class Question:
    """What someone was asked.

    Attributes:
        id: of the question.
        round: which it belongs to.
        action: what was proposed.
        memo: what the learner needs to understand the answer.
        due: when it expires, in seconds of the epoch.
        state: asked, answered, or expired.
        report: the id of the report that answered it, if one did.
    """

    id: bytes
    round: int
    action: bytes
    memo: bytes
    due: int
    state: str
    report: bytes | None


class Reader(Protocol):
    """One committed state of one task; it does not change while it is read."""

    def row(self) -> Row | None:
        """Where the task stands; None if the store does not know it."""

    def lines(self, first: int = 0, limit: int = EVERYTHING) -> list[Line]:
        """Read at most `limit` lines of the chain, from line `first` on."""

    def find_report_ids(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return the ids of those reports that were seen already."""

    def count_report_ids(self) -> dict[tuple[int, int], int]:
        """How many reports were seen, by epoch and cohort; reads all of them, for audits."""

    def counts(self) -> dict[int, int]:
        """How many bodies are kept, by cohort; quick, however many there are."""

    def bodies(self, cohort: int) -> list[bytes]:
        """The bodies of a cohort, ordered by id: the order tells nothing."""

    def release(self, number: int) -> bytes | None:
        """A release as it was published."""

    def releases(self, first: int, limit: int) -> list[bytes]:
        """Read at most `limit` releases, from number `first` on."""

    def secret(self) -> bytes | None:
        """The state of the noise."""

    def question(self, id: bytes) -> Question | None:
        """Return a question, whether it is asked, answered or expired."""

    def open_questions(self) -> int:
        """Count the questions that are neither answered nor expired."""

    def overdue_questions(self, now: int, limit: int) -> list[Question]:
        """Open ones that were due by now, the first by round; `expire` or `answer` closes them.

        Args:
            now: seconds of the epoch.
            limit: no more than so many.
        """

    def clients(self, names: Iterable[bytes]) -> dict[bytes, int]:
        """How many places each of these clients took; those who took none are not in it."""

    def client_key(self) -> bytes | None:
        """The key under which clients are named; None once they were forgotten."""

    def witness(self) -> bytes | None:
        """Return the head that this store remembers on behalf of another store."""


class Transaction(Reader, Protocol):
    """Exclusive use of one task, until it is left.

    After a statement failed nothing more can be done in it, and it cannot be committed.
    """

    def create(self, row: Row) -> None:
        """Begin the task."""

    def change(self, row: Row) -> None:
        """Say where the task stands now."""

    def append(self, lines: Sequence[Line]) -> None:
        """Add the next lines to the chain; they stay for ever.

        Raises:
            FencedError: one of them does not follow the one before.
        """

    def add_report_ids(self, reports: Iterable[tuple[bytes, int]], *, epoch: int) -> None:
        """Remember reports, each by its id and with its cohort, as long as any may come.

        Raises:
            InvalidValueError: one of them was seen before.
        """

    def forget_report_ids(self) -> None:
        """Forget which reports were seen: none is taken any more."""

    def keep(self, cohort: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep bodies, each with the id of its report, until their cohort is forgotten."""

    def forget(self, cohort: int) -> None:
        """Delete the bodies of a cohort."""

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        """Store the next releases, the first under this number; they stay for ever."""

    def hide(self, secret: bytes) -> None:
        """Replace the state of the noise; the old one is overwritten."""

    def ask(self, id: bytes, *, round: int, action: bytes, memo: bytes, due: int) -> None:
        """Open a question."""

    def answer(self, id: bytes, report: bytes) -> None:
        """Close an open question with the id of the report that answers it."""

    def expire(self, id: bytes) -> None:
        """Close an open question without an answer."""

    def hide_client_key(self, key: bytes) -> None:
        """Store the key under which clients are named; a task has one."""

    def count_clients(self, places: Mapping[bytes, int]) -> None:
        """Add the places that clients took, each under its name."""

    def forget_clients(self) -> None:
        """Delete all counts of clients, and the key of their names."""

    def attest(self, head: bytes) -> None:
        """Remember a head on behalf of another store."""


class Store(Protocol):
    """Keeps tasks; any number of threads and processes may share what it keeps.

    A store belongs to the process that opened it: a child made by fork must open its own.
    """

    def transaction(self, task: bytes) -> AbstractContextManager[Transaction]:
        """One exclusive transaction of one task.

        It is committed when the block is left, and rolled back if that happens by an exception.
        What was committed survives a crash. Transactions do not nest.

        Raises:
            StoreError: it did not begin, or was not committed.
        """

    def read(self, task: bytes) -> AbstractContextManager[Reader]:
        """Look at what is committed, without the exclusive lock."""

    def tasks(self) -> list[bytes]:
        """The tasks that were created here, in this order."""

    def close(self) -> None:
        """Let go of files and connections."""
