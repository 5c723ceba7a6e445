"""A store in a PostgreSQL database, for any number of processes and machines."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from kerchief.stores.link import Link, Values
from kerchief.stores.schema import APPEND_ONLY, Dialect, migrate
from kerchief.stores.sql import SQLStore
from kerchief_protocol.errors import InvalidValueError, KerchiefError, StoreError

if TYPE_CHECKING:
    import psycopg

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_CONNECTIONS = 16
_SETTINGS = (
    "SET lock_timeout = '10s'",
    "SET client_min_messages = warning",
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'",
    "SET search_path = kerchief",
)
_FUNCTIONS = (
    """CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = '23000'; END $$""",
    """CREATE FUNCTION no_gaps() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE next bigint; BEGIN
    EXECUTE format('SELECT COALESCE(MAX(number), -1) + 1 FROM %I.%I WHERE task = $1',
                   TG_TABLE_SCHEMA, TG_TABLE_NAME) INTO next USING NEW.task;
    IF NEW.number <> next THEN
        RAISE EXCEPTION '% is numbered without gaps', TG_TABLE_NAME USING ERRCODE = '23000';
    END IF;
    RETURN NEW; END $$""",
)
_TRIGGERS = (
    "CREATE TRIGGER change BEFORE UPDATE OR DELETE OR TRUNCATE ON {0} "
    "FOR EACH STATEMENT EXECUTE FUNCTION append_only()",
    "CREATE TRIGGER add BEFORE INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION no_gaps()",
)
_DIALECT = Dialect(
    bytes="bytea",
    whole="bigint",
    key="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    strict="",
    tight="",
    triggers=(
        *_FUNCTIONS,
        *(trigger.format(name) for name in APPEND_ONLY for trigger in _TRIGGERS),
    ),
)
_BYTES = ("id", "prev", "body", "payload", "name", "client_key")
_TYPES = {"kind": "text[]", **dict.fromkeys(_BYTES, "bytea[]")}


class PostgresStore(SQLStore):
    """A store in the schema `kerchief` of a database.

    PostgreSQL deletes rows without overwriting them: what is forgotten may lie in its files until
    they are vacuumed, and in its log until that is recycled. Keep its disk as you keep a secret.
    """

    def __init__(self, url: str) -> None:
        """Connect to a database, and make the tables unless they are there.

        Raises:
            StoreError: nobody answers, or a newer kerchief made the tables.
        """
        super().__init__()
        _check_driver()
        self._url = url
        self._idle: list[Connection] = []
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        try:
            with self._lend(b"kerchief/1 schema") as link:
                with link.guard():
                    link.run("CREATE SCHEMA IF NOT EXISTS kerchief", ())
                migrate(link, _DIALECT)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connections; in a child made by fork, do nothing."""
        if self._process != os.getpid():
            return
        self._is_closed = True
        while (connection := self._take()) is not None:
            connection.close()

    def _take(self) -> Connection | None:
        """Take an idle connection; None if there is none."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self) -> Connection:
        import psycopg

        try:
            connection = psycopg.connect(self._url, autocommit=True)
            for setting in _SETTINGS:
                connection.execute(setting.encode())
            connection.autocommit = False
        except psycopg.ProgrammingError:
            # The driver's own text quotes the address, with its password.
            raise StoreError(
                "the store failed: its address is none of PostgreSQL's; write it as "
                "postgresql://USER@HOST/DATABASE"
            ) from None
        except psycopg.Error as error:
            raise (_translate_error(error) or error) from None
        return connection

    def _turn(self, *, reading: bool) -> AbstractContextManager[object]:
        return self._slots

    def _link(self, *, reading: bool) -> Link:
        return _PostgresLink(self)


class _PostgresLink(Link):
    """A connection of the store's; an idle one that the server has closed is replaced."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._idle = store._take()
        self._connection = self._idle or store._connect()

    def begin(self, task: bytes | None) -> None:
        import psycopg

        try:
            self._begin(task)
        except psycopg.OperationalError:
            if self._idle is None or not self._connection.closed:
                raise
            self._connection = self._store._connect()
            self._begin(task)

    def _begin(self, task: bytes | None) -> None:
        """Begin; the lock comes first, so that everything after it sees what others committed."""
        from psycopg import IsolationLevel

        self._connection.read_only = task is None
        if task is None:
            self._connection.isolation_level = IsolationLevel.REPEATABLE_READ
            self.run("SELECT 1", ())
        else:
            self._connection.isolation_level = IsolationLevel.READ_COMMITTED
            self.run("SELECT pg_advisory_xact_lock(?)", (_lock(task),))

    def commit(self) -> None:
        import psycopg

        try:
            self._connection.commit()
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
            raise StoreError(
                "the store failed: it went away during the commit, which may have happened or "
                "not; read what is there before you try again"
            ) from None

    def rollback(self) -> None:
        import psycopg

        try:
            self._connection.rollback()
        except psycopg.Error:
            self._connection.close()

    def end(self) -> None:
        from psycopg.pq import TransactionStatus

        # One that was interrupted as it rolled back still holds the task's lock.
        idle = self._connection.info.transaction_status == TransactionStatus.IDLE
        if self._store._is_closed or not idle:
            self._connection.close()
        else:
            self._store._idle.append(self._connection)

    def run(self, statement: str, values: Values) -> list[Any]:
        cursor = self._connection.cursor(binary=True)
        cursor.execute(_spell_statement(statement), values or None)
        return cursor.fetchall() if cursor.description else []

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        lists = ", ".join(f"?::{_TYPES.get(name, 'bigint[]')}" for name in columns)
        sql = f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({lists})"
        self.run(sql, [list(column) for column in zip(*rows, strict=True)] or [[]] * len(columns))

    def find(
        self, table: str, columns: Sequence[str], key: int, names: Sequence[bytes]
    ) -> Iterable[Any]:
        select = f"SELECT {', '.join(columns)} FROM {table} WHERE task = ? AND {columns[0]}"
        return self.run(f"{select} = ANY(?::bytea[])", (key, names))

    def fault(self, error: Exception) -> KerchiefError | None:
        return _translate_error(error)


def _translate_error(error: Exception) -> KerchiefError | None:
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    # Never the details: they quote the row.
    text = error.diag.message_primary or str(error).strip()
    if isinstance(error, psycopg.IntegrityError):
        return InvalidValueError(f"the store refuses this: {text}")
    if isinstance(error, psycopg.errors.LockNotAvailable):
        text = "another process has held the task for 10 s; try again"
    elif isinstance(error, psycopg.errors.DiskFull):
        text = "the disk is full; make room and try again"
    return StoreError(f"the store failed: {text}")


def _lock(task: bytes) -> int:
    """The number of a task's lock."""
    hashed = hashlib.sha256(b"kerchief/1 lock\0" + task).digest()
    return int.from_bytes(hashed[:8], "big", signed=True)


@functools.cache
def _spell_statement(statement: str) -> bytes:
    # Many bytes at once travel as they are, not as text.
    return statement.replace("?::bytea[]", "%b::bytea[]").replace("?", "%s").encode()


def _check_driver() -> None:
    if importlib.util.find_spec("psycopg") is None:
        raise StoreError("a store in PostgreSQL needs psycopg; pip install 'kerchief[postgres]'")
