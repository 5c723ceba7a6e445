"""Where a device's decisions are kept: in plain dictionaries, or in a file of SQLite.

Both keep the same rows. A step is all or nothing, and one at a time; what happens in it is up to
`Pending`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from kerchief_wire.errors import StoreFailed

__all__ = ["Cost", "FileRows", "MemoryRows", "Row", "Rows"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (name BLOB PRIMARY KEY, data BLOB NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (id BLOB PRIMARY KEY, task BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('decided', 'rewarded', 'encoded', 'gone')),
    version INTEGER, model BLOB, features BLOB, due REAL NOT NULL, reward REAL, report BLOB)
    STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_by_model ON decisions (model);
CREATE INDEX IF NOT EXISTS decisions_by_due ON decisions (task, due);
CREATE TABLE IF NOT EXISTS chains (task BLOB PRIMARY KEY, length INTEGER NOT NULL,
    head BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS charges (task BLOB PRIMARY KEY, epsilon REAL NOT NULL,
    delta REAL NOT NULL, reports INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""
_SETTINGS = ("secure_delete=ON", "synchronous=FULL", "temp_store=MEMORY", "journal_mode=WAL")
_PATIENCE = 10.0
_EMPTY = "PRAGMA wal_checkpoint(TRUNCATE)"
_COLUMNS = "state, version, model, features, due, reward, report"


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
    """What is kept; everything but `step`, `erase`, `copy_to` and `close` is called in a step."""

    def step(self) -> AbstractContextManager[object]:
        """Exclusive use, all or nothing."""

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


class MemoryRows:
    """Rows for as long as the object lives; a step that fails is taken back, write by write."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock, self._closed = threading.Lock(), False
        self._decisions: dict[bytes, tuple[bytes, Row]] = {}
        self._chains: dict[bytes, tuple[int, bytes]] = {}
        self._charges: dict[bytes, tuple[Cost, int]] = {}
        self._before: list[tuple[dict[bytes, Any], bytes, Any]] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """Exclusive use, all or nothing."""
        with self._lock:
            if self._closed:
                raise StoreFailed("the device's store is closed; make another one")
            try:
                yield
            except BaseException:
                self._take_back()
                raise
            finally:
                self._before.clear()

    def find(self, id: bytes, task: bytes) -> Row | None:
        """A decision of a task that is not gone."""
        owner, row = self._decisions.get(id, (b"", None))
        return None if row is None or owner != task or row.state == "gone" else row

    def add(self, id: bytes, task: bytes, row: Row) -> None:
        """Begin a decision, unless its id is known."""
        if id not in self._decisions:
            self._put(self._decisions, id, (task, row))

    def change(self, id: bytes, row: Row) -> None:
        """Replace a decision, which holds its model."""
        self._put(self._decisions, id, (self._decisions[id][0], row))

    def drop(self, id: bytes) -> None:
        """Remove a decision."""
        self._put(self._decisions, id, None)

    def sweep(self, model: bytes | None) -> None:
        """Nothing is left to do: decisions hold their models."""

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Decisions that are due or encoded, in the order in which they are due."""
        found = [
            (row.due, id)
            for id, (owner, row) in self._decisions.items()
            if owner == task
            and (row.state == "encoded" or (row.state != "gone" and row.due <= now))
        ]
        return tuple(id for _, id in sorted(found))

    def chain(self, task: bytes) -> tuple[int, bytes] | None:
        """Length and head of the longest chain that was seen."""
        return self._chains.get(task)

    def lengthen(self, task: bytes, length: int, head: bytes) -> None:
        """Remember a chain."""
        self._put(self._chains, task, (length, head))

    def spent(self) -> Cost:
        """What all reports have cost."""
        paid = self._charges.values()
        return Cost(
            sum(cost.epsilon * reports for cost, reports in paid),
            sum(cost.delta * reports for cost, reports in paid),
        )

    def charge(self, task: bytes, cost: Cost) -> None:
        """Charge one report."""
        first, reports = self._charges.get(task, (cost, 0))
        self._put(self._charges, task, (first, reports + 1))

    def erase(self, *, only_late: bool = False) -> None:
        """There is no journal."""

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file."""
        with closing(FileRows(path)) as file, self.step(), file.step():
            for id, (task, row) in self._decisions.items():
                file.add(id, task, row)
                file.change(id, row)
            for task, (length, head) in self._chains.items():
                file.lengthen(task, length, head)
            for task, (cost, reports) in self._charges.items():
                file.charge(task, cost, reports)

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            for table in (self._decisions, self._chains, self._charges):
                table.clear()

    def _put(self, table: dict[bytes, Any], key: bytes, value: Any) -> None:
        """Write one entry, or remove it, and note what was there."""
        self._before.append((table, key, table.get(key)))
        if value is None:
            del table[key]
        else:
            table[key] = value

    def _take_back(self) -> None:
        for table, key, value in reversed(self._before):
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value


class FileRows:
    """Rows in a file that nobody but its owner can read; several processes may open it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create it."""
        self._lock, self._late = threading.Lock(), False
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._base = sqlite3.connect(
            path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        _set_up(self._base)
        with self.step():
            for statement in _SCHEMA.split(";")[:-1]:
                self._base.execute(statement)
        self.erase()

    @contextmanager
    def step(self) -> Iterator[None]:
        """One transaction, alone: in this process by the lock, among processes by the file's."""
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._base.execute("COMMIT")
            finally:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")

    def find(self, id: bytes, task: bytes) -> Row | None:
        """A decision of a task that is not gone."""
        found = self._base.execute(
            f"SELECT {_COLUMNS}, data FROM decisions LEFT JOIN models ON name = model "
            "WHERE id = ? AND task = ? AND state <> 'gone'",
            (id, task),
        ).fetchone()
        if found is None:
            return None
        state, version, model, features, due, reward, report, data = found
        return Row(
            state=state,
            due=due,
            version=version,
            model=model,
            features=features,
            reward=reward,
            report=report,
            data=data,
        )

    def add(self, id: bytes, task: bytes, row: Row) -> None:
        """Begin a decision, unless its id is known."""
        begun = self._base.execute(
            "INSERT OR IGNORE INTO decisions VALUES (?, ?, 'decided', ?, ?, ?, ?, NULL, NULL)",
            (id, task, row.version, row.model, row.features, row.due),
        )
        if row.model is not None and begun.rowcount:
            self._base.execute("INSERT OR IGNORE INTO models VALUES (?, ?)", (row.model, row.data))

    def change(self, id: bytes, row: Row) -> None:
        """Replace all of a decision but when it is due and the bytes of its model."""
        self._base.execute(
            "UPDATE decisions SET state = ?, version = ?, model = ?, features = ?, reward = ?, "
            "report = ? WHERE id = ?",
            (row.state, row.version, row.model, row.features, row.reward, row.report, id),
        )

    def drop(self, id: bytes) -> None:
        """Remove a decision."""
        self._base.execute("DELETE FROM decisions WHERE id = ?", (id,))

    def sweep(self, model: bytes | None) -> None:
        """Drop a model that no decision needs any more."""
        self._base.execute(
            "DELETE FROM models WHERE name = ? "
            "AND NOT EXISTS (SELECT 1 FROM decisions WHERE model = ?)",
            (model, model),
        )

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Decisions that are due or encoded, in the order in which they are due."""
        found = self._base.execute(
            "SELECT id FROM decisions WHERE task = ? AND state <> 'gone' "
            "AND (due <= ? OR state = 'encoded') ORDER BY due, id",
            (task, now),
        )
        return tuple(one for (one,) in found)

    def chain(self, task: bytes) -> tuple[int, bytes] | None:
        """Length and head of the longest chain that was seen."""
        found: tuple[int, bytes] | None = self._base.execute(
            "SELECT length, head FROM chains WHERE task = ?", (task,)
        ).fetchone()
        return found

    def lengthen(self, task: bytes, length: int, head: bytes) -> None:
        """Remember a chain."""
        self._base.execute("INSERT OR REPLACE INTO chains VALUES (?, ?, ?)", (task, length, head))

    def spent(self) -> Cost:
        """What all reports have cost."""
        rows = self._base.execute("SELECT epsilon * reports, delta * reports FROM charges")
        paid = rows.fetchall()
        return Cost(sum(row[0] for row in paid), sum(row[1] for row in paid))

    def charge(self, task: bytes, cost: Cost, reports: int = 1) -> None:
        """Charge reports, mostly one."""
        self._base.execute(
            "INSERT INTO charges VALUES (?, ?, ?, ?) "
            "ON CONFLICT (task) DO UPDATE SET reports = reports + excluded.reports",
            (task, *cost, reports),
        )

    def erase(self, *, only_late: bool = False) -> None:
        """Empty the journal, where erased records would stay; if someone reads it, soon after."""
        if only_late and not self._late:
            return
        with self._lock:
            self._base.execute("PRAGMA busy_timeout = 0")
            ((busy, *_),) = self._base.execute(_EMPTY).fetchall()
            self._base.execute(f"PRAGMA busy_timeout = {_PATIENCE * 1000:.0f}")
            self._late = bool(busy)

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file."""
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with self._lock, closing(sqlite3.connect(path)) as target:
            self._base.backup(target)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._base.close()


def _set_up(base: sqlite3.Connection) -> None:
    """Set everything; others who open the file at the same time may make it wait."""
    end = time.monotonic() + _PATIENCE
    for setting in _SETTINGS:
        while True:
            try:
                base.execute(f"PRAGMA {setting}").fetchall()
                break
            except sqlite3.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
