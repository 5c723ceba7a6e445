"""A store in one SQLite file, or in memory."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from kerchief.stores.link import Link, Values
from kerchief.stores.schema import APPEND_ONLY, Dialect, migrate
from kerchief.stores.sql import SQLStore
from kerchief_protocol.errors import InvalidValueError, KerchiefError, StoreError

_PATIENCE_S = 10.0
_AT_ONCE = 512
# What is sorted, or may have to be taken back, goes into no file of its own: none is overwritten.
_SETTINGS = (
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
    "foreign_keys = ON",
    "cache_size = -16000",
)
_TRIGGERS = (
    "CREATE TRIGGER {0}_update BEFORE UPDATE ON {0} "
    "BEGIN SELECT RAISE(ABORT, '{0} is append-only'); END",
    "CREATE TRIGGER {0}_delete BEFORE DELETE ON {0} "
    "BEGIN SELECT RAISE(ABORT, '{0} is append-only'); END",
    "CREATE TRIGGER {0}_insert BEFORE INSERT ON {0} "
    "WHEN NEW.number <> (SELECT COALESCE(MAX(number), -1) + 1 FROM {0} WHERE task = NEW.task) "
    "BEGIN SELECT RAISE(ABORT, '{0} is numbered without gaps'); END",
)
_DIALECT = Dialect(
    bytes="BLOB",
    whole="INTEGER",
    key="INTEGER PRIMARY KEY",
    strict="STRICT",
    tight="STRICT, WITHOUT ROWID",
    triggers=tuple(trigger.format(table) for table in APPEND_ONLY for trigger in _TRIGGERS),
)
_REMEDIES = {
    "SQLITE_BUSY": f"another process has held it for {_PATIENCE_S:.0f} s; try again",
    "SQLITE_FULL": "the disk is full; make room and try again",
    "SQLITE_READONLY": "the file or its folder cannot be written; see to its permissions",
    "SQLITE_CANTOPEN": "the file cannot be opened; see to its folder and permissions",
    "SQLITE_NOTADB": "the file is no SQLite database; name another one",
}


class SQLiteStore(SQLStore):
    """A store in one file.

    A commit is on disk before its block is left. What is forgotten is overwritten with zeros in
    the file, and its write-ahead log is cut to nothing, as soon as no other process reads an older
    state; nothing is written into any other file.

    >>> store = SQLiteStore.memory()
    >>> store.tasks()
    []
    >>> store.close()
    """

    def __init__(self, path: str | Path) -> None:
        """Open a file, or make it.

        Raises:
            StoreError: it cannot be opened, is something else, or a newer kerchief made it.
        """
        super().__init__()
        if str(path) != ":memory:":
            _make(Path(path))
        self._writer = _connect(str(path))
        self._writing = self._reading = threading.Lock()
        self._reader, self._stale = self._writer, False
        try:
            with self._lend(b"") as link:
                migrate(link, _DIALECT)
            if str(path) != ":memory:":
                self._reader, self._reading = _connect(str(path)), threading.Lock()
                self._scrub()
        except BaseException:
            self.close()
            raise

    @classmethod
    def memory(cls) -> SQLiteStore:
        """A store that ends with its process."""
        return cls(":memory:")

    def close(self) -> None:
        """Let go of the file; in a child made by fork, do nothing."""
        if self._process != os.getpid():
            return
        self._is_closed = True
        for lock, connection in (
            (self._writing, self._writer),
            (self._reading, self._reader),
        ):
            with lock:
                connection.close()

    def copy_to(self, path: str | Path) -> None:
        """Write everything into a new file, for a store that moves there."""
        _make(Path(path))
        with self._writing:
            target = sqlite3.connect(path)
            self._writer.backup(target)
            target.close()

    def _turn(self, *, reading: bool) -> AbstractContextManager[object]:
        return self._reading if reading else self._writing

    def _link(self, *, reading: bool) -> Link:
        return _SQLiteLink(self, self._reader if reading else self._writer)

    def _scrub(self) -> None:
        """Empty the write-ahead log; if someone still reads it, after the next transaction."""
        if self._reader is self._writer:
            return
        connection = self._writer
        try:
            connection.execute("PRAGMA busy_timeout = 0")
            checkpoint = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._stale = bool(checkpoint[0])
        except sqlite3.Error:
            self._stale = True
        finally:
            connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_S * 1000:.0f}")


class _SQLiteLink(Link):
    def __init__(self, store: SQLiteStore, connection: sqlite3.Connection) -> None:
        self._store, self._connection = store, connection

    def begin(self, task: bytes | None) -> None:
        # Interrupts upon interrupts may have kept the one before from ending.
        self.rollback()
        self._connection.execute("BEGIN" if task is None else "BEGIN IMMEDIATE")

    def commit(self) -> None:
        # Before: an interrupt may keep the log from being emptied as this one ends.
        self._store._stale |= self.erased
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        # After a full disk SQLite has rolled back already.
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def end(self) -> None:
        # Again: of two interrupts, the second may have come before.
        self.rollback()
        # Always: an interrupt may come right after the commit.
        if self.erased or (self._store._stale and self._connection is self._store._writer):
            self._store._scrub()

    def run(self, statement: str, values: Values) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)

    def find(
        self, table: str, columns: Sequence[str], key: int, names: Sequence[bytes]
    ) -> Iterator[Any]:
        select = f"SELECT {', '.join(columns)} FROM {table} WHERE task = ? AND {columns[0]} IN"
        for some in (names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)):
            marks = ",".join("?" * len(some))
            yield from self._connection.execute(f"{select} ({marks})", (key, *some))

    def fault(self, error: Exception) -> KerchiefError | None:
        return _translate_error(error)


def _translate_error(error: Exception) -> KerchiefError | None:
    if isinstance(error, sqlite3.IntegrityError):
        return InvalidValueError(f"the store refuses this: {error}")
    if isinstance(error, UnicodeError):
        return StoreError("the store failed: a text in it is none; the file was changed")
    if isinstance(error, sqlite3.Error):
        name = str(getattr(error, "sqlite_errorname", ""))
        remedies = (text for start, text in _REMEDIES.items() if name.startswith(start))
        return StoreError(f"the store failed: {next(remedies, str(error))}")
    return None


def _make(path: Path) -> None:
    """Make a file that nobody else may read, unless it is there."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no file has such a name"
        raise StoreError(f"the store failed: {path} cannot be opened: {why}") from error


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
    )
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        mode = _log_ahead(connection)
    except (sqlite3.Error, UnicodeError) as error:
        connection.close()
        raise (_translate_error(error) or error) from None
    if mode != ("memory" if path == ":memory:" else "wal"):
        connection.close()
        raise StoreError(f"the store failed: {path} allows no write-ahead log; use a local disk")
    return connection


def _log_ahead(connection: sqlite3.Connection) -> str:
    """Switch to a write-ahead log; SQLite itself does not wait for others who do the same."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            busy = str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > end:
                raise
            time.sleep(0.01)
