"""A device's decisions in a file of SQLite."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kerchief_device.rows import Cost, PostedModel, Row, T
from kerchief_protocol.errors import StoreError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (name BLOB PRIMARY KEY, data BLOB NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (task BLOB NOT NULL, id BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('decided', 'rewarded', 'encoded', 'gone')),
    version INTEGER, model BLOB, features BLOB, due REAL NOT NULL, reward REAL, report BLOB,
    PRIMARY KEY (task, id)) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_by_model ON decisions (model);
CREATE INDEX IF NOT EXISTS decisions_by_due ON decisions (task, due);
CREATE TABLE IF NOT EXISTS chains (task BLOB PRIMARY KEY, length INTEGER NOT NULL,
    head BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS charges (task BLOB PRIMARY KEY, epsilon REAL NOT NULL,
    delta REAL NOT NULL, reports INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS client (only INTEGER PRIMARY KEY CHECK (only = 0),
    secret BLOB NOT NULL) STRICT;
"""
# Of the tables; a file that another version wrote has another number.
_VERSION = 2
_SETTINGS = ("secure_delete=ON", "synchronous=FULL", "temp_store=MEMORY", "journal_mode=WAL")
_PATIENCE = 10.0
_EMPTY = "PRAGMA wal_checkpoint(TRUNCATE)"
_COLUMNS = "state, version, model, features, due, reward, report"


class FileRows:
    """Rows in a file that only its owner can read, and several processes may open."""

    def __init__(self, path: str | os.PathLike[str], *, secret: bytes | None = None) -> None:
        """Open or create the file; a new file gets this secret, or a random one."""
        self._lock, self._late = threading.Lock(), False
        self._last: PostedModel | None = None
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._base = sqlite3.connect(
            path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            _set_up(self._base)
            self.secret: bytes = self.step(lambda: self._create_tables(secret or os.urandom(32)))
            self.erase()
        except BaseException:
            self._base.close()
            raise

    def step(self, work: Callable[[], T]) -> T:
        """Run one exclusive transaction, under the lock and the lock of the file."""
        with self._lock:
            try:
                self._base.execute("BEGIN IMMEDIATE")
                result = work()
                self._base.execute("COMMIT")
                return result
            except BaseException:
                # An interrupt may come right after the commit, before anything is erased.
                self._late |= not self._base.in_transaction
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    def _create_tables(self, secret: bytes) -> Any:
        """Create the tables if they are missing, and return the stored secret."""
        ((version,),) = self._base.execute("PRAGMA user_version").fetchall()
        ((tables,),) = self._base.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()
        if version != _VERSION and tables:
            raise StoreError(
                "the device's file was written by another version of kerchief, or is not a "
                "device's; give the path of a new file"
            )
        self._base.execute(f"PRAGMA user_version = {_VERSION}")
        for statement in _SCHEMA.split(";")[:-1]:
            self._base.execute(statement)
        self._base.execute("INSERT OR IGNORE INTO client VALUES (0, ?)", (secret,))
        ((stored_secret,),) = self._base.execute("SELECT secret FROM client").fetchall()
        return stored_secret

    def find(self, id: bytes, task: bytes) -> Row | None:
        """Return a decision of a task, or None if it is gone."""
        columns = self._base.execute(
            f"SELECT {_COLUMNS}, data FROM decisions LEFT JOIN models ON name = model "
            "WHERE task = ? AND id = ? AND state <> 'gone'",
            (task, id),
        ).fetchone()
        if columns is None:
            return None
        state, version, model, features, due, reward, report, data = columns
        return Row(
            state=state,
            due=due,
            version=version,
            posted=None if model is None else self._read_posted_model(model, data),
            features=features,
            reward=reward,
            report=report,
        )

    def add(self, id: bytes, task: bytes, row: Row) -> None:
        """Add a decision, unless its id exists in this task."""
        cursor = self._base.execute(
            "INSERT OR IGNORE INTO decisions VALUES (?, ?, 'decided', ?, ?, ?, ?, NULL, NULL)",
            (task, id, row.version, _name_of(row.posted), row.features, row.due),
        )
        if row.posted is not None and cursor.rowcount:
            self._last = row.posted
            self._base.execute(
                "INSERT OR IGNORE INTO models VALUES (?, ?)", (row.posted.name, row.posted.data)
            )

    def change(self, id: bytes, task: bytes, row: Row) -> None:
        """Replace a decision, except its due time and the bytes of its model."""
        # A report takes the record's place: an interrupt may come before that one is erased.
        self._late |= row.report is not None
        self._base.execute(
            "UPDATE decisions SET state = ?, version = ?, model = ?, features = ?, reward = ?, "
            "report = ? WHERE task = ? AND id = ?",
            (
                row.state,
                row.version,
                _name_of(row.posted),
                row.features,
                row.reward,
                row.report,
                task,
                id,
            ),
        )

    def drop(self, id: bytes, task: bytes) -> None:
        """Remove a decision."""
        self._base.execute("DELETE FROM decisions WHERE task = ? AND id = ?", (task, id))

    def sweep(self, model: PostedModel | None) -> None:
        """Drop a model that no decision needs any more; a record went before it."""
        self._late |= model is not None
        self._base.execute(
            "DELETE FROM models WHERE name = ? "
            "AND NOT EXISTS (SELECT 1 FROM decisions WHERE model = ?)",
            (_name_of(model), _name_of(model)),
        )

    def _read_posted_model(self, name: bytes, data: bytes) -> PostedModel:
        """Return a stored model; the latest one is read only once."""
        if self._last is None or self._last.name != name:
            self._last = PostedModel.stored(name, data)
        return self._last

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Return ids of decisions that are due or encoded, ordered by due time."""
        cursor = self._base.execute(
            "SELECT id FROM decisions WHERE task = ? AND state <> 'gone' "
            "AND (due <= ? OR state = 'encoded') ORDER BY due, id",
            (task, now),
        )
        return tuple(id for (id,) in cursor)

    def chain(self, task: bytes) -> tuple[int, bytes] | None:
        """Return length and head of the longest chain that a signed model named."""
        longest: tuple[int, bytes] | None = self._base.execute(
            "SELECT length, head FROM chains WHERE task = ?", (task,)
        ).fetchone()
        return longest

    def lengthen(self, task: bytes, length: int, head: bytes) -> None:
        """Remember a chain."""
        self._base.execute("INSERT OR REPLACE INTO chains VALUES (?, ?, ?)", (task, length, head))

    def forget_chain(self, task: bytes) -> None:
        """Remember no chain of a task."""
        self._base.execute("DELETE FROM chains WHERE task = ?", (task,))

    def spent(self) -> Cost:
        """Return the privacy cost of all reports."""
        rows = self._base.execute("SELECT epsilon * reports, delta * reports FROM charges")
        charges = rows.fetchall()
        return Cost(sum(row[0] for row in charges), sum(row[1] for row in charges))

    def charge(self, task: bytes, cost: Cost, reports: int = 1) -> None:
        """Charge reports, mostly one."""
        self._base.execute(
            "INSERT INTO charges VALUES (?, ?, ?, ?) "
            "ON CONFLICT (task) DO UPDATE SET reports = reports + excluded.reports",
            (task, *cost, reports),
        )

    def erase(self, *, only_late: bool = False) -> None:
        """Empty the journal, which holds erased records; retry later if it is in use."""
        if only_late and not self._late:
            return
        with self._lock:
            self._late = True
            try:
                self._base.execute("PRAGMA busy_timeout = 0")
                ((busy, *_),) = self._base.execute(_EMPTY).fetchall()
                self._late = bool(busy)
            finally:
                self._base.execute(f"PRAGMA busy_timeout = {_PATIENCE * 1000:.0f}")

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file."""
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with self._lock, closing(sqlite3.connect(path)) as target:
            self._base.backup(target)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()


def _name_of(model: PostedModel | None) -> bytes | None:
    return None if model is None else model.name


def _set_up(base: sqlite3.Connection) -> None:
    """Apply the settings, waiting while other processes open the file."""
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
