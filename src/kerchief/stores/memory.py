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
from kerchief_protocol.chain import ROOT, Line
from kerchief_protocol.errors import InvalidValueError, KerchiefError, StoreError

_STATES = ("running", "closed")


@dataclasses.dataclass
class _TaskState:
    """State of one task; its repr shows neither bodies nor secrets.

    How to take a step of a transaction back is noted before the step, and crossed out when it is
    taken back or committed: an interrupt may come between any two, and while they are taken back.
    """

    row: Row | None = None
    lines: list[Line] = dataclasses.field(default_factory=list)
    report_ids: dict[bytes, tuple[int, int]] = dataclasses.field(default_factory=dict)
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

    def __init__(self, state: _TaskState) -> None:
        self._task, self.over = state, False

    def row(self) -> Row | None:
        return self._state.row

    def lines(self, first: int = 0, limit: int = EVERYTHING) -> list[Line]:
        return self._created_state.lines[max(0, first) : max(0, first) + limit]

    def find_report_ids(self, ids: Iterable[bytes]) -> set[bytes]:
        return {id for id in ids if id in self._created_state.report_ids}

    def count_report_ids(self) -> dict[tuple[int, int], int]:
        counts: dict[tuple[int, int], int] = {}
        for place in self._created_state.report_ids.values():
            counts[place] = counts.get(place, 0) + 1
        return counts

    def counts(self) -> dict[int, int]:
        return {cohort: len(bodies) for cohort, bodies in self._created_state.bodies.items()}

    def bodies(self, cohort: int) -> list[bytes]:
        return [body for _, body in sorted(self._created_state.bodies.get(cohort, {}).items())]

    def release(self, number: int) -> bytes | None:
        releases = self._created_state.releases
        return releases[number] if 0 <= number < len(releases) else None

    def releases(self, first: int, limit: int) -> list[bytes]:
        return self._created_state.releases[max(0, first) : max(0, first) + limit]

    def secret(self) -> bytes | None:
        return self._created_state.secret

    def question(self, id: bytes) -> Question | None:
        return self._created_state.questions.get(id)

    def open_questions(self) -> int:
        return sum(question.state == "asked" for question in self._created_state.questions.values())

    def overdue_questions(self, now: int, limit: int) -> list[Question]:
        open_questions = (
            question
            for question in self._created_state.questions.values()
            if question.state == "asked"
        )
        due_questions = [question for question in open_questions if question.due <= now]
        return sorted(due_questions, key=lambda question: (question.round, question.id))[:limit]

    def clients(self, names: Iterable[bytes]) -> dict[bytes, int]:
        places = self._created_state.clients
        return {name: places[name] for name in names if name in places}

    def client_key(self) -> bytes | None:
        return self._created_state.client_key

    def witness(self) -> bytes | None:
        return self._state.witnessed

    @property
    def _state(self) -> _TaskState:
        if self.over:
            raise StoreError("the transaction is over; begin another one with `transaction`")
        return self._task

    @property
    def _created_state(self) -> _TaskState:
        state = self._state
        if state.row is None:
            raise InvalidValueError("the store does not know this task; create it first")
        return state


class _Transaction(_Reader):
    """Writes one task too; after a refusal it is over, and all of it is taken back."""

    def __init__(self, state: _TaskState) -> None:
        super().__init__(state)
        self._notes = state.notes

    def create(self, row: Row) -> None:
        if self._state.row is not None:
            self._refuse(InvalidValueError("the store refuses this: the task is there already"))
        self._set("row", self._check_row(row))

    def change(self, row: Row) -> None:
        if self._state.row is None or self._state.row.config != row.config:
            self._refuse(
                InvalidValueError("the store does not know a task of this configuration; create it")
            )
        self._set("row", self._check_row(row))

    def append(self, lines: Sequence[Line]) -> None:
        chain = self._created_state.lines
        end = len(chain), chain[-1].hash if chain else ROOT
        for line in lines:
            end = line.after(*end)
        self._notes.append(partial(chain.__delitem__, slice(len(chain), None)))
        chain.extend(lines)

    def add_report_ids(self, reports: Iterable[tuple[bytes, int]], *, epoch: int) -> None:
        places = self._created_state.report_ids
        for id, cohort in reports:
            if id in places:
                self._refuse(InvalidValueError("the store refuses this: a report was seen before"))
            self._notes.append(partial(places.pop, id, None))
            places[id] = (epoch, cohort)

    def forget_report_ids(self) -> None:
        assert self._created_state
        self._set("report_ids", {})

    def keep(self, cohort: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        before = self._created_state.bodies
        now = dict(before.get(cohort, {}))
        for id, body in entries:
            if id in now:
                self._refuse(InvalidValueError("the store refuses this: a body is kept already"))
            now[id] = body
        self._set("bodies", {**before, cohort: now})

    def forget(self, cohort: int) -> None:
        remaining = {
            key: bodies for key, bodies in self._created_state.bodies.items() if key != cohort
        }
        self._set("bodies", remaining)

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        releases = self._created_state.releases
        if first != len(releases):
            self._refuse(
                InvalidValueError(f"the store refuses this: release {len(releases)} comes next")
            )
        self._notes.append(partial(releases.__delitem__, slice(first, None)))
        releases.extend(payloads)

    def hide(self, secret: bytes) -> None:
        assert self._created_state
        self._set("secret", secret)

    def ask(self, id: bytes, *, round: int, action: bytes, memo: bytes, due: int) -> None:
        if id in self._created_state.questions:
            self._refuse(InvalidValueError("the store refuses this: the question was asked before"))
        self._put_question(
            Question(
                id=id, round=round, action=action, memo=memo, due=due, state="asked", report=None
            )
        )

    def answer(self, id: bytes, report: bytes) -> None:
        self._put_question(
            dataclasses.replace(self._find_open_question(id), state="answered", report=report)
        )

    def expire(self, id: bytes) -> None:
        self._put_question(dataclasses.replace(self._find_open_question(id), state="expired"))

    def hide_client_key(self, key: bytes) -> None:
        if self._created_state.client_key is not None:
            self._refuse(
                InvalidValueError("the store refuses this: the clients have a key already")
            )
        self._set("client_key", key)

    def count_clients(self, places: Mapping[bytes, int]) -> None:
        counts = self._created_state.clients
        for name, count in places.items():
            before = counts.get(name, 0)
            self._notes.append(partial(_restore_count, counts, name, before))
            counts[name] = before + count

    def forget_clients(self) -> None:
        assert self._created_state
        self._set("clients", {})
        self._set("client_key", None)

    def attest(self, head: bytes) -> None:
        self._set("witnessed", head)

    def _check_row(self, row: Row) -> Row:
        if row.state not in _STATES:
            self._refuse(
                InvalidValueError(f"the store refuses this: the state is {row.state[:20]!r}")
            )
        return row

    def _refuse(self, error: KerchiefError) -> NoReturn:
        self.over = True
        raise error from None

    def _find_open_question(self, id: bytes) -> Question:
        question = self.question(id)
        if question is None or question.state != "asked":
            self._refuse(
                InvalidValueError("the question is not open; `question` says what became of it")
            )
        return question

    def _put_question(self, question: Question) -> None:
        self._set("questions", {**self._created_state.questions, question.id: question})

    def _set(self, name: str, value: object) -> None:
        state, before = self._state, getattr(self._state, name)
        self._notes.append(lambda: setattr(state, name, before))
        setattr(state, name, value)


class MemoryStore:
    """Keeps tasks as long as the process lives; any number of threads may share it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._tasks: dict[bytes, _TaskState] = {}
        self._lock, self._process = threading.Lock(), os.getpid()
        self._inside, self._is_closed = set[int](), False

    @contextmanager
    def transaction(self, task: bytes) -> Iterator[_Transaction]:
        """One exclusive transaction of one task."""
        me = self._check()
        with self._lock:
            state = self._restore_state(task)
            at = _Transaction(state)
            try:
                self._inside.add(me)
                yield at
                assert at._state is state
                state.notes.clear()
            except BaseException:
                state.take_back()
                raise
            finally:
                at.over = True
                self._inside.discard(me)
            self._tasks[task] = state

    @contextmanager
    def read(self, task: bytes) -> Iterator[_Reader]:
        """Look at what is committed."""
        me = self._check()
        with self._lock:
            at = _Reader(self._restore_state(task))
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
            return [task for task, state in self._tasks.items() if state.row is not None]

    def copy_to(self, path: str | Path) -> None:
        """Write everything into a new file, for a store that moves there."""
        store = SQLiteStore(path)
        self._check()
        with self._lock:
            for task in self._tasks:
                with store.transaction(task) as at:
                    _copy_task(self._restore_state(task), at)
        store.close()

    def close(self) -> None:
        """Forget everything."""
        if self._process == os.getpid():
            self._is_closed = True
            self._tasks = {}

    def _restore_state(self, task: bytes) -> _TaskState:
        """Return a task's committed state, after taking back an interrupted change."""
        state = self._tasks.get(task) or _TaskState()
        if state.notes:
            state.take_back()
        return state

    def _check(self) -> int:
        """The thread; refuse a store that came by a fork, is closed, or would wait for itself.

        A transaction that an interrupt left open may be closed by another thread.
        """
        if self._process != os.getpid():
            raise StoreError("the store was opened before a fork; open it again in the child")
        if self._is_closed:
            raise StoreError("the store is closed; open it again")
        me = threading.get_ident()
        if me in self._inside:
            raise StoreError(
                "a transaction is open in this thread; transactions do not nest: leave it, or the "
                "handler of its interrupt, before"
            )
        return me


def _restore_count(counts: dict[bytes, int], name: bytes, before: int) -> None:
    """Put one count back; without one there is no entry."""
    counts[name] = before
    if not before:
        del counts[name]


def _copy_task(state: _TaskState, to: Transaction) -> None:
    """Write one task into a transaction of another store."""
    assert state.row is not None
    to.create(state.row)
    to.append(state.lines)
    for epoch in {report_epoch for report_epoch, _ in state.report_ids.values()}:
        to.add_report_ids(
            [
                (id, at)
                for id, (report_epoch, at) in state.report_ids.items()
                if report_epoch == epoch
            ],
            epoch=epoch,
        )
    for cohort, bodies in state.bodies.items():
        to.keep(cohort, bodies.items())
    to.publish(0, state.releases)
    if state.secret is not None:
        to.hide(state.secret)
    to.count_clients(state.clients)
    if state.client_key is not None:
        to.hide_client_key(state.client_key)
