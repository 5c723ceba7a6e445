"""What both databases have in common: statements, and who may begin a transaction."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kerchief.stores.link import Link, Values
from kerchief.stores.store import EVERYTHING, Question, Row
from kerchief_protocol.chain import ROOT, Line
from kerchief_protocol.errors import InvalidValueError, StoreError

_ROW = "config, state, epoch, cohort, releases, length, head, witnessed"
_QUESTION = "id, round, action, memo, due, state, report"


class SQLReader:
    """One committed state of one task."""

    def __init__(self, link: Link, task: bytes) -> None:
        """Read a task over a link."""
        self._link, self._task = link, task
        self._row_key: int | None = None

    def row(self) -> Row | None:
        """Where the task stands; None if the store does not know it."""
        rows = self._run(f"SELECT key, {_ROW} FROM tasks WHERE id = ?", self._task)
        if not rows:
            return None
        self._row_key, config, state, epoch, cohort, releases, length, head, witnessed = rows[0]
        return Row(
            config=config,
            state=state,
            epoch=epoch,
            cohort=cohort,
            releases=releases,
            length=length,
            head=head,
            witnessed=witnessed,
        )

    def lines(self, first: int = 0, limit: int = EVERYTHING) -> list[Line]:
        """Read at most `limit` lines of the chain, from line `first` on."""
        sql = (
            "SELECT number, kind, prev, body FROM chain WHERE task = ? AND number >= ? "
            "ORDER BY number LIMIT ?"
        )
        rows = self._run(sql, self._key, first, limit)
        return [Line(number=n, kind=kind, prev=prev, body=body) for n, kind, prev, body in rows]

    def find_report_ids(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return the ids of those reports that were seen already."""
        key = self._key
        with self._link.guard():
            return {id for (id,) in self._link.find("seen", ("id",), key, list(ids))}

    def count_report_ids(self) -> dict[tuple[int, int], int]:
        """How many reports were seen, by epoch and cohort."""
        sql = "SELECT epoch, cohort, COUNT(*) FROM seen WHERE task = ? GROUP BY epoch, cohort"
        return {(epoch, cohort): count for epoch, cohort, count in self._run(sql, self._key)}

    def counts(self) -> dict[int, int]:
        """How many bodies are kept, by cohort."""
        return dict(self._run("SELECT cohort, kept FROM cohorts WHERE task = ?", self._key))

    def bodies(self, cohort: int) -> list[bytes]:
        """The bodies of a cohort, ordered by id."""
        sql = "SELECT body FROM bodies WHERE task = ? AND cohort = ? ORDER BY id"
        return [body for (body,) in self._run(sql, self._key, cohort)]

    def release(self, number: int) -> bytes | None:
        """A release as it was published."""
        sql = "SELECT payload FROM releases WHERE task = ? AND number = ?"
        return _only(self._run(sql, self._key, number))

    def releases(self, first: int, limit: int) -> list[bytes]:
        """Read at most `limit` releases, from number `first` on."""
        sql = "SELECT payload FROM releases WHERE task = ? AND number >= ? ORDER BY number LIMIT ?"
        return [payload for (payload,) in self._run(sql, self._key, first, limit)]

    def secret(self) -> bytes | None:
        """The state of the noise."""
        return _only(self._run("SELECT secret FROM secrets WHERE task = ?", self._key))

    def question(self, id: bytes) -> Question | None:
        """Return a question, whether it is asked, answered or expired."""
        questions = self._questions("id = ?", id, limit=1)
        return questions[0] if questions else None

    def open_questions(self) -> int:
        """Count the questions that are neither answered nor expired."""
        sql = "SELECT COUNT(*) FROM questions WHERE task = ? AND state = 'asked'"
        ((count,),) = self._run(sql, self._key)
        return int(count)

    def overdue_questions(self, now: int, limit: int) -> list[Question]:
        """List open questions that are due by now, ordered by round."""
        return self._questions("state = 'asked' AND due <= ?", now, limit=limit)

    def clients(self, names: Iterable[bytes]) -> dict[bytes, int]:
        """How many places each of these clients took."""
        key = self._key
        with self._link.guard():
            return dict(self._link.find("clients", ("name", "used"), key, list(names)))

    def client_key(self) -> bytes | None:
        """The key under which clients are named."""
        return _only(self._run("SELECT client_key FROM client_keys WHERE task = ?", self._key))

    def witness(self) -> bytes | None:
        """Return the head that this store remembers on behalf of another store."""
        return _only(self._run("SELECT head FROM witnessed WHERE task = ?", self._task))

    @property
    def _key(self) -> int:
        """The task's number in this database."""
        if self._row_key is None and self.row() is None:
            raise InvalidValueError("the store does not know this task; create it first")
        assert self._row_key is not None
        return self._row_key

    def _questions(self, condition: str, value: Any, *, limit: int) -> list[Question]:
        sql = (
            f"SELECT {_QUESTION} FROM questions WHERE task = ? AND {condition} "
            "ORDER BY round, id LIMIT ?"
        )
        return [
            Question(id=id, round=n, action=action, memo=memo, due=due, state=state, report=report)
            for id, n, action, memo, due, state, report in self._run(sql, self._key, value, limit)
        ]

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with self._link.guard():
            return self._link.run(statement, values)

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        with self._link.guard():
            self._link.insert(table, columns, rows)


class SQLTransaction(SQLReader):
    """Exclusive use of one task."""

    _end: tuple[int, bytes] | None = None

    def create(self, row: Row) -> None:
        """Begin the task."""
        sql = f"INSERT INTO tasks (id, {_ROW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._run(sql, self._task, row.config, *_state(row))

    def change(self, row: Row) -> None:
        """Say where the task stands now."""
        sql = (
            "UPDATE tasks SET state = ?, epoch = ?, cohort = ?, releases = ?, length = ?, "
            "head = ?, witnessed = ? WHERE id = ? AND config = ? RETURNING key"
        )
        if not self._run(sql, *_state(row), self._task, row.config):
            raise InvalidValueError(
                "the store does not know a task of this configuration; create it"
            )

    def append(self, lines: Sequence[Line]) -> None:
        """Add the next lines to the chain; they stay for ever."""
        end, key = self._end or self._find_end(), self._key
        for line in lines:
            end = line.after(*end)
        rows = [(key, line.number, line.kind, line.prev, line.body) for line in lines]
        self._insert("chain", ("task", "number", "kind", "prev", "body"), rows)
        self._end = end

    def add_report_ids(self, reports: Iterable[tuple[bytes, int]], *, epoch: int) -> None:
        """Remember reports for ever."""
        key = self._key
        rows = [(key, id, epoch, cohort) for id, cohort in reports]
        self._insert("seen", ("task", "id", "epoch", "cohort"), rows)

    def forget_report_ids(self) -> None:
        """Forget which reports were seen: none is taken any more."""
        self._link.erased = True
        self._run("DELETE FROM seen WHERE task = ?", self._key)

    def keep(self, cohort: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep bodies until their cohort is forgotten."""
        key = self._key
        rows = [(key, cohort, id, body) for id, body in entries]
        count = (
            "INSERT INTO cohorts (task, cohort, kept) VALUES (?, ?, ?) "
            "ON CONFLICT (task, cohort) DO UPDATE SET kept = cohorts.kept + excluded.kept"
        )
        self._run(count, key, cohort, len(rows))
        self._insert("bodies", ("task", "cohort", "id", "body"), rows)

    def forget(self, cohort: int) -> None:
        """Delete the bodies of a cohort."""
        self._link.erased = True
        for table in ("bodies", "cohorts"):
            self._run(f"DELETE FROM {table} WHERE task = ? AND cohort = ?", self._key, cohort)

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        """Store the next releases; they stay for ever."""
        key = self._key
        rows = [(key, number, payload) for number, payload in enumerate(payloads, first)]
        self._insert("releases", ("task", "number", "payload"), rows)

    def hide(self, secret: bytes) -> None:
        """Replace the state of the noise; the old one is overwritten."""
        self._link.erased = True
        sql = (
            "INSERT INTO secrets (task, secret) VALUES (?, ?) "
            "ON CONFLICT (task) DO UPDATE SET secret = excluded.secret"
        )
        self._run(sql, self._key, secret)

    def ask(self, id: bytes, *, round: int, action: bytes, memo: bytes, due: int) -> None:
        """Open a question."""
        sql = f"INSERT INTO questions (task, {_QUESTION}) VALUES (?, ?, ?, ?, ?, ?, 'asked', NULL)"
        self._run(sql, self._key, id, round, action, memo, due)

    def answer(self, id: bytes, report: bytes) -> None:
        """Close an open question with the id of the report that answers it."""
        self._close(id, "answered", report)

    def expire(self, id: bytes) -> None:
        """Close an open question without an answer."""
        self._close(id, "expired", None)

    def hide_client_key(self, key: bytes) -> None:
        """Store the key under which clients are named."""
        self._insert("client_keys", ("task", "client_key"), [(self._key, key)])

    def count_clients(self, places: Mapping[bytes, int]) -> None:
        """Add the places that clients took."""
        counts, key = self.clients(places), self._key
        update = "UPDATE clients SET used = used + ? WHERE task = ? AND name = ?"
        for name in counts:
            self._run(update, places[name], key, name)
        rows = [(key, name, count) for name, count in places.items() if name not in counts]
        self._insert("clients", ("task", "name", "used"), rows)

    def forget_clients(self) -> None:
        """Delete all counts of clients, and the key of their names."""
        self._link.erased = True
        for table in ("clients", "client_keys"):
            self._run(f"DELETE FROM {table} WHERE task = ?", self._key)

    def attest(self, head: bytes) -> None:
        """Remember a head on behalf of another store."""
        sql = (
            "INSERT INTO witnessed (task, head) VALUES (?, ?) "
            "ON CONFLICT (task) DO UPDATE SET head = excluded.head"
        )
        self._run(sql, self._task, head)

    def _find_end(self) -> tuple[int, bytes]:
        """Return the number and previous hash of the next line of the chain."""
        sql = (
            "SELECT number, kind, prev, body FROM chain WHERE task = ? ORDER BY number DESC LIMIT 1"
        )
        for number, kind, prev, body in self._run(sql, self._key):
            return number + 1, Line(number=number, kind=kind, prev=prev, body=body).hash
        return 0, ROOT

    def _close(self, id: bytes, state: str, report: bytes | None) -> None:
        sql = (
            "UPDATE questions SET state = ?, report = ? "
            "WHERE task = ? AND id = ? AND state = 'asked' RETURNING id"
        )
        if not self._run(sql, state, report, self._key, id):
            raise InvalidValueError("the question is not open; `question` says what became of it")


class SQLStore(ABC):
    """A store over links; it belongs to the process that opened it."""

    def __init__(self) -> None:
        """Remember the process."""
        self._process = os.getpid()
        self._is_closed = False
        self._inside: set[int] = set()

    @abstractmethod
    def _turn(self, *, reading: bool) -> AbstractContextManager[object]:
        """What is held while a link is lent."""

    @abstractmethod
    def _link(self, *, reading: bool) -> Link:
        """A link that nobody else uses in this turn."""

    @contextmanager
    def transaction(self, task: bytes) -> Iterator[SQLTransaction]:
        """One exclusive transaction of one task."""
        with self._lend(task) as link:
            yield SQLTransaction(link, task)

    @contextmanager
    def read(self, task: bytes) -> Iterator[SQLReader]:
        """Look at what is committed, without the exclusive lock."""
        with self._lend(None) as link:
            yield SQLReader(link, task)

    def tasks(self) -> list[bytes]:
        """The tasks that were created here, in this order."""
        with self._lend(None) as link, link.guard():
            return [id for (id,) in link.run("SELECT id FROM tasks ORDER BY key", ())]

    @contextmanager
    def _lend(self, task: bytes | None) -> Iterator[Link]:
        """A link for one transaction of a task, or for reading: everything or nothing.

        An interrupt may come as a generator is left, which then stays open until its traceback is
        forgotten, and is closed by whichever thread forgets it. So there is one, which begins and
        ends with the turn: until it is closed nobody else begins, and the caller is refused.
        """
        self._check()
        me = threading.get_ident()
        with self._turn(reading=task is None):
            link = self._link(reading=task is None)
            try:
                self._inside.add(me)
                link.broken = False
                with link.guard():
                    link.begin(task)
                yield link
                with link.guard():
                    link.commit()
            except BaseException:
                link.rollback()
                raise
            finally:
                link.broken = True
                self._inside.discard(me)
                link.end()

    def _check(self) -> None:
        """Refuse what would wait for itself, and a store that came here by a fork."""
        if self._process != os.getpid():
            raise StoreError("the store was opened before a fork; open it anew in the child")
        if self._is_closed:
            raise StoreError("the store is closed; open it anew")
        if threading.get_ident() in self._inside:
            raise StoreError(
                "transactions of one store do not nest; leave the first one before, or the handler "
                "of its interrupt"
            )


def _state(row: Row) -> tuple[str, int, int, int, int, bytes, bytes | None]:
    return (
        row.state,
        row.epoch,
        row.cohort,
        row.releases,
        row.length,
        row.head,
        row.witnessed,
    )


def _only(rows: list[Any]) -> bytes | None:
    value: bytes | None = rows[0][0] if rows else None
    return value
