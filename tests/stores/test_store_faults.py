"""What stores refuse, what they leave on disk, and how they fail."""

from __future__ import annotations

import copy
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.stores.cluster import Cluster
from tests.stores.traffic import TASK, audit, begin, names, take

from kerchief.stores import Store, open_store, postgres, sqlite
from kerchief.stores.memory import MemoryStore
from kerchief.stores.postgres import PostgresStore
from kerchief.stores.sqlite import SQLiteStore
from kerchief_protocol.errors import KerchiefError, StoreError

_ID = bytes(16)


def _raw(where: str, store: Any, *statements: str) -> None:
    """Run statements behind a store's back."""
    if where.startswith("postgresql"):
        import psycopg

        with psycopg.connect(where) as connection:
            for one in ("SET search_path = kerchief", *statements):
                connection.execute(one.encode())
    elif where == ":memory:":
        for one in statements:
            store._writer.execute(one)
    else:
        with closing(sqlite3.connect(where, isolation_level=None)) as connection_:
            for one in statements:
                connection_.execute(one)


@pytest.mark.parametrize("table", ["chain", "releases"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {} SET number = number",
        "DELETE FROM {}",
        "INSERT INTO {} SELECT * FROM {} LIMIT 1",
    ],
)
def test_chain_and_releases_are_append_only(
    store: Store, where: str, table: str, statement: str
) -> None:
    if where == ":memory:":
        pytest.skip("nothing but a transaction reaches a store in memory")
    with store.transaction(TASK) as transaction:
        transaction.publish(0, [b"release"])
    with pytest.raises(Exception, match=f"{table} is (append-only|numbered without gaps)"):
        _raw(where, store, statement.format(table, table))
    with store.read(TASK) as reader:
        assert (reader.release(0), len(reader.lines())) == (b"release", 1)


def test_no_line_is_replaced_nor_truncated(store: Store, where: str) -> None:
    if where == ":memory:":
        pytest.skip("nothing but a transaction reaches a store in memory")
    with store.transaction(TASK) as transaction:
        transaction.publish(0, [b"release"])
    replace = "INSERT OR REPLACE INTO releases VALUES (1, 0, x'00')"
    statement = "TRUNCATE releases" if where.startswith("postgresql") else replace
    with pytest.raises(Exception, match="releases is"):
        _raw(where, store, statement)


def test_a_newer_schema_is_refused(shared: str) -> None:
    _raw(shared, None, "UPDATE meta SET version = 99")
    with pytest.raises(StoreError, match="schema 99"):
        open_store(shared)


@pytest.mark.parametrize("version", [None, 0, -1, "1", 1.5])
def test_schema_without_a_number_is_refused(tmp_path: Path, version: Any) -> None:
    path = tmp_path / "changed.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE meta (version)")
        connection.execute("INSERT INTO meta VALUES (?)", (version,))
    with pytest.raises(StoreError, match="schema without a number"):
        open_store(path)


def test_a_store_is_opened_again_as_it_was(shared: str) -> None:
    for run in range(2):
        store = open_store(shared)
        with store.transaction(TASK) as transaction:
            take(transaction, names(run, 0))
        store.close()
    store = open_store(shared)
    assert audit(store) == {*names(0, 0), *names(1, 0)}
    store.close()


def test_transaction_that_waits_too_long_raises_error(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_PATIENCE_S", 0.05)
    settings = ("SET lock_timeout = '50ms'", *postgres._SETTINGS[1:])
    monkeypatch.setattr(postgres, "_SETTINGS", settings)
    store, other = open_store(shared), open_store(shared)
    with (
        store.transaction(TASK),
        pytest.raises(StoreError, match="has held"),
        other.transaction(TASK),
    ):
        pass
    assert audit(other) == set()
    with other.transaction(TASK) as transaction:
        take(transaction, names(0, 0))
    assert audit(store) == set(names(0, 0))
    store.close()
    other.close()


def test_a_commit_waits_for_the_disk(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    careful = {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}
    for setting, value in careful.items():
        assert store._writer.execute(f"PRAGMA {setting}").fetchone() == (value,)
    store.close()


def test_a_careless_server_is_told_to_wait_for_the_disk(cluster: Cluster) -> None:
    import psycopg

    where = cluster.database()
    with psycopg.connect(where) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
    store = PostgresStore(where)
    with store.read(TASK) as reader:
        assert reader._run("SHOW synchronous_commit") == [("on",)]
    store.close()


def test_two_interrupts_leave_no_lock_held(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes before the transaction of the first is rolled back."""
    import psycopg

    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    where = cluster.database()
    store = PostgresStore(where)
    begin(store)
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "rollback", interrupted)
        with pytest.raises(KeyboardInterrupt), store.transaction(TASK):
            raise KeyboardInterrupt
    other = PostgresStore(where)
    for one in (other, store):
        with one.transaction(TASK) as transaction:
            assert transaction.row() is not None
        one.close()


def _fill(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        for batch in range(100):
            take(transaction, names(1, batch))


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    begin(store)
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match="disk is full"):
        _fill(store)
    assert audit(store) == set()
    store._writer.execute("PRAGMA max_page_count = 1000000")
    _fill(store)
    assert len(audit(store)) == 800
    store.close()


@pytest.mark.parametrize("name", ["no/such/folder.db", ".", "text.db"])
def test_opening_a_file_that_is_no_store_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.db").write_text("this is a text, and a long one" * 100)
    with pytest.raises(StoreError, match="the store failed"):
        open_store(tmp_path / name)


@pytest.mark.parametrize("rest", ["/none?host=/nowhere", "[::1/none", "host:port/none", "/a?b=c"])
def test_unreachable_server_error_hides_the_password(rest: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="the store failed") as caught:
        open_store(f"postgresql://name:password@{rest}")
    assert "password" not in str(caught.value)


def test_errors_quote_no_row(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        transaction.add_report_ids([(b"planted-value-16", 0)], epoch=0)
    with pytest.raises(KerchiefError) as caught, store.transaction(TASK) as transaction:
        transaction.add_report_ids([(b"planted-value-16", 0)], epoch=0)
    text = str(caught.value)
    assert "planted" not in text
    assert b"planted".hex() not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def _bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.glob("store.db*")))


@pytest.mark.parametrize("size", [100, 5000, 50_000])
def test_forgotten_rows_are_erased_from_the_file(tmp_path: Path, size: int) -> None:
    planted, secret = b"planted body", b"planted secret"
    store = SQLiteStore(tmp_path / "store.db")
    begin(store)
    with store.transaction(TASK) as transaction:
        transaction.keep(0, [(bytes([n]) * 16, planted * (size // 12)) for n in range(20)])
        transaction.keep(1, [(_ID, b"stays" * 10)])
    with store.transaction(TASK) as transaction:
        transaction.hide(secret * (size // 14))
    assert planted in _bytes(tmp_path)
    assert secret in _bytes(tmp_path)
    with store.transaction(TASK) as transaction:
        transaction.forget(0)
        transaction.hide(b"another")
    assert planted not in _bytes(tmp_path)
    assert secret not in _bytes(tmp_path)
    assert b"stays" in _bytes(tmp_path)
    store.close()


def test_reports_that_are_sorted_are_in_no_other_file(tmp_path: Path) -> None:
    """SQLite puts what it sorts beyond its cache into a file that it then deletes as it is."""
    store = SQLiteStore(tmp_path / "store.db")
    begin(store)
    with store.transaction(TASK) as transaction:
        transaction.keep(0, [(os.urandom(16), bytes(100_000)) for _ in range(100)])
    store._writer.execute("PRAGMA cache_size = 1")
    before = _open_files()
    for _ in store._writer.execute("SELECT body FROM bodies ORDER BY id"):
        assert _open_files() == before
    store.close()


def _open_files() -> set[Path]:
    names = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return {name.readlink() for name in names if name.is_symlink()}


class _InterruptedCommit:
    """A connection that is interrupted as soon as it has committed."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        done = self._base.execute(statement, *values)
        if statement == "COMMIT":
            raise KeyboardInterrupt
        return done


def test_rows_forgotten_by_interrupted_commit_are_erased(tmp_path: Path) -> None:
    store, secret = SQLiteStore(tmp_path / "store.db"), b"planted-exact-total"
    begin(store)
    with store.transaction(TASK) as transaction:
        transaction.keep(0, [(_ID, secret)])
    assert secret in _bytes(tmp_path)
    vars(store)["_writer"] = _InterruptedCommit(store._writer)
    with pytest.raises(KeyboardInterrupt), store.transaction(TASK) as transaction:
        transaction.forget(0)
    assert secret not in _bytes(tmp_path)
    with store.read(TASK) as reader:
        assert reader.bodies(0) == []
    store.close()


def test_erasure_delayed_by_a_reader_happens_next_time(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    begin(store)
    with store.transaction(TASK) as transaction:
        transaction.keep(0, [(_ID, b"planted" * 100)])

    def forget() -> None:
        with store.transaction(TASK) as transaction:
            transaction.forget(0)

    with store.read(TASK) as reader:
        assert reader.counts() == {0: 1}
        thread = threading.Thread(target=forget)
        thread.start()
        thread.join()
        assert len(reader.bodies(0)) == 1
    with store.transaction(TASK):
        pass
    assert b"planted" not in _bytes(tmp_path)
    store.close()


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    begin(store)
    modes = {file.stat().st_mode & 0o777 for file in tmp_path.glob("store.db*")}
    assert modes == {0o600}
    store.close()


def test_a_child_by_fork_is_refused(where: str) -> None:
    code = f"""
import os
from kerchief.stores import open_store
from kerchief_protocol.errors import StoreError
store = open_store({where!r})
if os.fork() == 0:
    try:
        store.tasks()
    except StoreError as error:
        assert "fork" in str(error)
        store.close()
        os._exit(7)
    os._exit(1)
_, status = os.wait()
print(os.waitstatus_to_exitcode(status), store.tasks())
store.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "7 []"


class Interrupting(list[Any]):
    """Notes of a transaction in memory; the next one is interrupted, just before or just after."""

    def __init__(self, notes: list[Any], *, after: bool) -> None:
        super().__init__(notes)
        self._after = after

    def append(self, note: Any) -> None:
        if self._after:
            super().append(note)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "step",
    [
        lambda at: at.add_report_ids([(bytes(16), 1)], epoch=0),
        lambda at: at.keep(1, [(bytes(16), b"body")]),
        lambda at: at.publish(1, [b"second"]),
        lambda at: at.hide(b"other"),
        lambda at: at.append([at.lines()[-1].next("draw", {})]),
    ],
)
def test_an_interrupt_within_a_step_leaves_no_trace_in_memory(
    step: Callable[[Any], None], *, after: bool
) -> None:
    store = MemoryStore()
    begin(store)
    with store.transaction(TASK) as at:
        at.publish(0, [b"first"])
        at.hide(b"secret")
    before = copy.deepcopy(store._tasks[TASK])

    def interrupted() -> None:
        with store.transaction(TASK) as at:
            at._notes = at._state.notes = Interrupting(at._notes, after=after)
            step(at)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store._tasks[TASK] == before


def test_interrupt_during_rollback_leaves_no_trace_in_memory() -> None:
    store = MemoryStore()
    begin(store)
    before, again = copy.deepcopy(store._tasks[TASK]), iter([True])

    def interrupt() -> None:
        if next(again, False):
            raise KeyboardInterrupt

    def interrupted() -> None:
        with store.transaction(TASK) as at:
            at.publish(0, [b"first"])
            at._notes.append(interrupt)
            at.hide(b"secret")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store._tasks[TASK] != before
    with store.read(TASK) as reader:
        assert (reader.releases(0, 9), reader.secret()) == ([], before.secret)
    assert store._tasks[TASK] == before
