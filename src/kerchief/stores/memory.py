"""A store that ends with its process: plain dictionaries, and a list of what to take back."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

from kerchief.stores.sqlite import SQLiteStore
from kerchief.stores.store import EVERYTHING, Question, Row, Transaction
from kerchief_wire.chain import ROOT, Line
from kerchief_wire.errors import InvalidValue, KerchiefError, StoreFailed

_STATES = ("running", "closed")


@dataclasses.dataclass
class _Kept:
    """All that is known of one task; bodies and the secret are never shown.

    How to take a step of a transaction back is noted before the step, and crossed out when it is
    taken back or committed: an interrupt may come between any two, and while they are taken back.
    """

    row: Row | None = None
    lines: list[Line] = dataclasses.field(default_factory=list)
    seen: dict[bytes, tuple[int, int]] = dataclasses.field(default_factory=dict)
    bodies: dict[int, dict[bytes, bytes]] = dataclasses.field(default_factory=dict, repr=False)
    releases: list[bytes] = dataclasses.field(default_factory=list)
    secret: bytes | None = dataclasses.field(default=None, repr=False)
    clients: dict[bytes, int] = dataclasses.field(default_factory=dict, repr=False)
    client_key: bytes | None = dataclasses.field(default=None, repr=False)
    questions: dict[bytes, Question] = dataclasses.field(default_factory=dict)
    witnessed: bytes | None = None
    notes: list[Callable[[], object]] = dataclasses.field(default_factory=list, repr=False)

    def take_back(self) -> None:
        """Take back what was not committed, the last step first; a step may be repeated."""
        while self.notes:
            self.notes[-1]()
            self.notes.pop()


class _Reader:
    """Looks at one task, until it is left."""

    def __init__(self, kept: _Kept) -> None:
        self._task, self.over = kept, False

    def row(self) -> Row | None:
        return self._kept.row

    def lines(self, first: int = 0, most: int = EVERYTHING) -> list[Line]:
        return self._known.lines[max(0, first) : max(0, first) + most]

    def known(self, ids: Iterable[bytes]) -> set[bytes]:
        return {id for id in ids if id in self._known.seen}

    def seen(self) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for place in self._known.seen.values():
            found[place] = found.get(place, 0) + 1
        return found

    def counts(self) -> dict[int, int]:
        return {cohort: len(bodies) for cohort, bodies in self._known.bodies.items()}

    def bodies(self, cohort: int) -> list[bytes]:
        return [body for _, body in sorted(self._known.bodies.get(cohort, {}).items())]

    def release(self, number: int) -> bytes | None:
        found = self._known.releases
        return found[number] if 0 <= number < len(found) else None

    def releases(self, first: int, most: int) -> list[bytes]:
        return self._known.releases[max(0, first) : max(0, first) + most]

    def secret(self) -> bytes | None:
        return self._known.secret

    def question(self, id: bytes) -> Question | None:
        return self._known.questions.get(id)

    def open_questions(self) -> int:
        return sum(one.state == "asked" for one in self._known.questions.values())

    def expired(self, now: int, most: int) -> list[Question]:
        asked = (one for one in self._known.questions.values() if one.state == "asked")
        found = [one for one in asked if one.due <= now]
        return sorted(found, key=lambda one: (one.round, one.id))[:most]

    def clients(self, names: Iterable[bytes]) -> dict[bytes, int]:
        used = self._known.clients
        return {name: used[name] for name in names if name in used}

    def client_key(self) -> bytes | None:
        return self._known.client_key

    def witness(self) -> bytes | None:
        return self._kept.witnessed

    @property
    def _kept(self) -> _Kept:
        if self.over:
            raise StoreFailed("the transaction is over; begin another one with `transaction`")
        return self._task

    @property
    def _known(self) -> _Kept:
        kept = self._kept
        if kept.row is None:
            raise InvalidValue("the store does not know this task; create it first")
        return kept


class _Transaction(_Reader):
    """Writes one task too; after a refusal it is over, and all of it is taken back."""

    def __init__(self, kept: _Kept) -> None:
        super().__init__(kept)
        self._notes = kept.notes

    def create(self, row: Row) -> None:
        if self._kept.row is not None:
            self._refuse(InvalidValue("the store refuses this: the task is there already"))
        self._set("row", self._checked(row))

    def change(self, row: Row) -> None:
        if self._kept.row is None or self._kept.row.config != row.config:
            self._refuse(
                InvalidValue("the store does not know a task of this configuration; create it")
            )
        self._set("row", self._checked(row))

    def append(self, lines: Sequence[Line]) -> None:
        kept = self._known.lines
        end = len(kept), kept[-1].hash if kept else ROOT
        for line in lines:
            end = line.after(*end)
        self._notes.append(partial(kept.__delitem__, slice(len(kept), None)))
        kept.extend(lines)

    def see(self, reports: Iterable[tuple[bytes, int]], *, epoch: int) -> None:
        seen = self._known.seen
        for id, cohort in reports:
            if id in seen:
                self._refuse(InvalidValue("the store refuses this: a report was seen before"))
            self._notes.append(partial(seen.pop, id, None))
            seen[id] = (epoch, cohort)

    def forget_seen(self) -> None:
        assert self._known
        self._set("seen", {})

    def keep(self, cohort: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        before = self._known.bodies
        now = dict(before.get(cohort, {}))
        for id, body in entries:
            if id in now:
                self._refuse(InvalidValue("the store refuses this: a body is kept already"))
            now[id] = body
        self._set("bodies", {**before, cohort: now})

    def forget(self, cohort: int) -> None:
        left = {one: bodies for one, bodies in self._known.bodies.items() if one != cohort}
        self._set("bodies", left)

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        releases = self._known.releases
        if first != len(releases):
            self._refuse(
                InvalidValue(f"the store refuses this: release {len(releases)} comes next")
            )
        self._notes.append(partial(releases.__delitem__, slice(first, None)))
        releases.extend(payloads)

    def hide(self, secret: bytes) -> None:
        assert self._known
        self._set("secret", secret)

    def ask(self, id: bytes, *, round: int, action: bytes, memo: bytes, due: int) -> None:
        if id in self._known.questions:
            self._refuse(InvalidValue("the store refuses this: the question was asked before"))
        self._put(
            Question(
                id=id, round=round, action=action, memo=memo, due=due, state="asked", report=None
            )
        )

    def answered(self, id: bytes, report: bytes) -> None:
        self._put(dataclasses.replace(self._open(id), state="answered", report=report))

    def expire(self, id: bytes) -> None:
        self._put(dataclasses.replace(self._open(id), state="expired"))

    def hide_client_key(self, key: bytes) -> None:
        if self._known.client_key is not None:
            self._refuse(InvalidValue("the store refuses this: the clients have a key already"))
        self._set("client_key", key)

    def count_clients(self, places: Mapping[bytes, int]) -> None:
        used = self._known.clients
        for name, count in places.items():
            before = used.get(name, 0)
            self._notes.append(partial(_restore_count, used, name, before))
            used[name] = before + count

    def forget_clients(self) -> None:
        assert self._known
        self._set("clients", {})
        self._set("client_key", None)

    def attest(self, head: bytes) -> None:
        self._set("witnessed", head)

    def _checked(self, row: Row) -> Row:
        if row.state not in _STATES:
            self._refuse(InvalidValue(f"the store refuses this: the state is {row.state[:20]!r}"))
        return row

    def _refuse(self, error: KerchiefError) -> NoReturn:
        self.over = True
        raise error from None

    def _open(self, id: bytes) -> Question:
        found = self.question(id)
        if found is None or found.state != "asked":
            self._refuse(
                InvalidValue("the question is not open; `question` says what became of it")
            )
        return found

    def _put(self, question: Question) -> None:
        self._set("questions", {**self._known.questions, question.id: question})

    def _set(self, name: str, value: object) -> None:
        kept, before = self._kept, getattr(self._kept, name)
        self._notes.append(lambda: setattr(kept, name, before))
        setattr(kept, name, value)


class MemoryStore:
    """Keeps tasks as long as the process lives; any number of threads may share it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._tasks: dict[bytes, _Kept] = {}
        self._lock, self._process = threading.Lock(), os.getpid()
        self._inside, self._closed = set[int](), False

    @contextmanager
    def transaction(self, task: bytes) -> Iterator[_Transaction]:
        """One exclusive transaction of one task."""
        me = self._check()
        with self._lock:
            kept = self._of(task)
            at = _Transaction(kept)
            try:
                self._inside.add(me)
                yield at
                assert at._kept is kept
                kept.notes.clear()
            except BaseException:
                kept.take_back()
                raise
            finally:
                at.over = True
                self._inside.discard(me)
            self._tasks[task] = kept

    @contextmanager
    def read(self, task: bytes) -> Iterator[_Reader]:
        """Look at what is committed."""
        me = self._check()
        with self._lock:
            at = _Reader(self._of(task))
            try:
                self._inside.add(me)
                yield at
            finally:
                at.over = True
                self._inside.discard(me)

    def tasks(self) -> list[bytes]:
        """The tasks that were created here, in this order."""
        self._check()
        with self._lock:
            return [task for task, kept in self._tasks.items() if kept.row is not None]

    def copy_to(self, path: str | Path) -> None:
        """Write everything into a new file, for a store that moves there."""
        store = SQLiteStore(path)
        self._check()
        with self._lock:
            for task in self._tasks:
                with store.transaction(task) as at:
                    _copied(self._of(task), at)
        store.close()

    def close(self) -> None:
        """Forget everything."""
        if self._process == os.getpid():
            self._closed = True
            self._tasks = {}

    def _of(self, task: bytes) -> _Kept:
        """What is committed of a task: what an interrupt left is taken back first."""
        kept = self._tasks.get(task) or _Kept()
        if kept.notes:
            kept.take_back()
        return kept

    def _check(self) -> int:
        """The thread; refuse a store that came by a fork, is closed, or would wait for itself.

        A transaction that an interrupt left open may be closed by another thread.
        """
        if self._process != os.getpid():
            raise StoreFailed("the store was opened before a fork; open it again in the child")
        if self._closed:
            raise StoreFailed("the store is closed; open it again")
        me = threading.get_ident()
        if me in self._inside:
            raise StoreFailed(
                "a transaction is open in this thread; transactions do not nest: leave it, or the "
                "handler of its interrupt, before"
            )
        return me


def _restore_count(counts: dict[bytes, int], name: bytes, before: int) -> None:
    """Put one count back; without one there is no entry."""
    counts[name] = before
    if not before:
        del counts[name]


def _copied(kept: _Kept, to: Transaction) -> None:
    """Write one task into a transaction of another store."""
    assert kept.row is not None
    to.create(kept.row)
    to.append(kept.lines)
    for epoch in {one for one, _ in kept.seen.values()}:
        to.see([(id, at) for id, (one, at) in kept.seen.items() if one == epoch], epoch=epoch)
    for cohort, bodies in kept.bodies.items():
        to.keep(cohort, bodies.items())
    to.publish(0, kept.releases)
    if kept.secret is not None:
        to.hide(kept.secret)
    to.count_clients(kept.clients)
    if kept.client_key is not None:
        to.hide_client_key(kept.client_key)
