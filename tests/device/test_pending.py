"""The store: one transaction per step, nothing raw afterwards, many threads and processes."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from kerchief_device.file_rows import FileRows
from kerchief_device.pending import Bill, Budget, Cost, Pending, PostedModel, Row
from kerchief_protocol.errors import BudgetExceededError, FencedError, InvalidValueError, StoreError

TASK, OTHER = b"t" * 32, b"o" * 32
ID = b"i" * 16
SECRET = b"a secret of thirty-two long bytes"


def report(row: Row) -> bytes:
    return b"report " + os.urandom(8)


def decided(store: Pending, id: bytes = ID, due: float = 0.0) -> None:
    store.decided(
        id,
        TASK,
        due=due,
        version=1,
        model=PostedModel.stored(b"m", b"the model"),
        chain=(1, b"h"),
        features=SECRET,
    )


def _mentions(store: Pending, data: bytes) -> bool:
    """Whether bytes are anywhere in a store."""
    rows = store._rows
    if isinstance(rows, FileRows):
        return any(data.hex().upper() in line for line in rows._base.iterdump())
    kept = [row for row in vars(rows)["_decisions"].values()]
    models = [vars(row.posted) for row in kept if row.posted is not None]
    return data.decode() in repr([*map(vars, kept), *models])


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Pending:
    return Pending(tmp_path / "d.db" if request.param == "file" else None)


def test_decision_moves_from_due_to_rewarded_to_encoded(store: Pending) -> None:
    decided(store, due=5.0)
    assert store.due(TASK, 4.0) == ()
    assert store.due(TASK, 5.0) == (ID,)
    assert store.rewarded(ID, TASK, 0.25)
    assert not store.rewarded(ID, TASK, 0.75)
    row = store.row(ID, TASK)
    assert (row.state, row.reward, row.features) == ("rewarded", 0.25, SECRET)
    assert row.posted is not None
    assert row.posted.data == b"the model"
    sent = store.encoded(ID, TASK, report)
    row = store.row(ID, TASK)
    assert (row.state, row.report) == ("encoded", sent)
    assert (row.version, row.posted, row.features, row.reward) == (None,) * 4
    assert not store.rewarded(ID, TASK, 0.75)
    assert store.encoded(ID, TASK, report) == sent
    assert store.due(TASK, 0.0) == (ID,)
    store.gone(ID, TASK)
    store.gone(ID, TASK)
    assert store.due(TASK, 9.0) == ()
    with pytest.raises(InvalidValueError, match="no decision 6969"):
        store.encoded(ID, TASK, report)


def test_tasks_are_apart(store: Pending) -> None:
    decided(store)
    assert store.due(OTHER, 1.0) == ()
    for step in (store.row, lambda id, task: store.rewarded(id, task, 1.0)):
        with pytest.raises(InvalidValueError, match="no decision"):
            step(ID, OTHER)
    store.gone(ID, OTHER)
    assert store.row(ID, TASK).state == "decided"


def test_a_report_that_was_not_made_leaves_everything(store: Pending) -> None:
    bill = Cost(1.0, 0.0), Budget(epsilon=2.0)
    decided(store)

    def fails(row: Row) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.encoded(ID, TASK, fails, bill=bill)
    assert store.row(ID, TASK).features == SECRET
    assert store.spent() == (0.0, 0.0)
    store.encoded(ID, TASK, report, bill=bill)
    assert store.spent() == (1.0, 0.0)


def test_a_step_that_fails_leaves_the_chain_and_the_charges(store: Pending) -> None:
    decided(store)

    def fails(row: Row) -> bytes:
        raise ValueError("by accident")

    with pytest.raises(StoreError, match="by accident"):
        store.encoded(ID, TASK, fails, bill=(Cost(1.0, 0.0), None))
    assert store.spent() == (0.0, 0.0)
    with pytest.raises(FencedError, match="another chain of 1;"):
        store.decided(b"j" * 16, TASK, due=0.0, chain=(1, b"other"))
    with pytest.raises(InvalidValueError, match="no decision"):
        store.row(b"j" * 16, TASK)


def test_a_store_moves_into_a_file(store: Pending, tmp_path: Path) -> None:
    for number, name in enumerate((b"a", b"b", b"c", b"d")):
        decided(store, name * 16, due=float(number))
    store.rewarded(b"b" * 16, TASK, 0.25)
    sent = store.encoded(b"c" * 16, TASK, report, bill=(Cost(0.5, 1e-6), None))
    store.gone(b"d" * 16, TASK, remember=True)
    store.copy_to(tmp_path / "moved.db")
    moved = Pending(tmp_path / "moved.db")
    assert moved.due(TASK, 9.0) == store.due(TASK, 9.0) == (b"a" * 16, b"b" * 16, b"c" * 16)
    for name in (b"a", b"b", b"c"):
        rows = moved.row(name * 16, TASK), store.row(name * 16, TASK)
        one, other = (dataclasses.replace(row, posted=None) for row in rows)
        assert one == other
        names = [row.posted and (row.posted.name, row.posted.data) for row in rows]
        assert names[0] == names[1]
    assert moved.encoded(b"c" * 16, TASK, report) == sent
    assert moved.spent() == store.spent() == (0.5, 1e-6)
    decided(moved, b"d" * 16)
    assert len(moved.due(TASK, 9.0)) == 3
    with pytest.raises(FencedError):
        moved.decided(b"k" * 16, TASK, due=0.0, chain=(0, b"h"))


def test_a_closed_store_says_so(store: Pending) -> None:
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.spent()


def test_a_budget_pays_until_it_is_spent(store: Pending) -> None:
    bill: Bill = Cost(0.1, 1e-6), Budget(epsilon=1.0, delta=1e-5)
    for number in range(12):
        decided(store, bytes([number]) * 16)
    for number in range(10):
        store.encoded(bytes([number]) * 16, TASK, report, bill=bill)
        store.encoded(bytes([number]) * 16, TASK, report, bill=bill)

    def never(row: Row) -> bytes:
        raise AssertionError("nothing may be drawn")

    with pytest.raises(BudgetExceededError, match=r"epsilon 1 and delta 1e-05 are spent"):
        store.encoded(bytes([10]) * 16, TASK, never, bill=bill)
    with pytest.raises(InvalidValueError, match="no decision"):
        store.row(bytes([10]) * 16, TASK)
    with pytest.raises(BudgetExceededError):
        store.encoded(bytes([11]) * 16, TASK, report, bill=(Cost(0.0, 1e-6), bill[1]))
    assert store.spent() == pytest.approx((1.0, 1e-5))


@pytest.mark.parametrize("wrong", [(-1.0, 0.0), (1.0, -0.1), (1.0, 1.0), (float("nan"), 0.0)])
def test_budgets_have_bounds(wrong: tuple[float, float]) -> None:
    with pytest.raises(InvalidValueError, match="the budget is"):
        Budget(epsilon=wrong[0], delta=wrong[1])


def test_shorter_and_other_chains_are_refused(store: Pending) -> None:
    store.decided(ID, TASK, due=0.0, chain=(5, b"h"))
    store.decided(b"j" * 16, TASK, due=0.0, chain=(5, b"h"))
    for chain in ((4, b"h"), (5, b"g")):
        with pytest.raises(FencedError, match="another chain of 5;"):
            store.decided(b"k" * 16, TASK, due=0.0, chain=chain)
    with pytest.raises(InvalidValueError, match="no decision"):
        store.row(b"k" * 16, TASK)
    store.decided(b"l" * 16, OTHER, due=0.0, chain=(1, b"g"))
    store.decided(b"k" * 16, TASK, due=0.0, chain=(6, b"g"))


def test_forgetting_a_chain_keeps_everything_else(store: Pending) -> None:
    store.decided(ID, TASK, due=0.0, chain=(2**40, b"false"))
    store.decided(b"j" * 16, OTHER, due=0.0, chain=(7, b"h"))
    sent = store.encoded(ID, TASK, report, bill=(Cost(0.5, 1e-6), None))
    store.decided(b"k" * 16, TASK, due=0.0)
    store.gone(b"k" * 16, TASK, remember=True)
    store.forget_chain(TASK)
    store.forget_chain(TASK)
    store.decided(b"l" * 16, TASK, due=0.0, chain=(1, b"h"))
    assert store.encoded(ID, TASK, report) == sent
    assert store.spent() == (0.5, 1e-6)
    decided(store, b"k" * 16)
    assert store.due(TASK, 1.0) == (ID, b"l" * 16)
    with pytest.raises(FencedError, match="another chain of 7;"):
        store.decided(b"m" * 16, OTHER, due=0.0, chain=(1, b"h"))


def test_ids_of_two_tasks_do_not_meet(store: Pending) -> None:
    store.decided(ID, OTHER, due=0.0, features=b"other")
    store.gone(ID, OTHER, remember=True)
    decided(store)
    store.decided(b"j" * 16, OTHER, due=0.0, features=b"other")
    decided(store, b"j" * 16)
    assert store.due(TASK, 1.0) == (ID, b"j" * 16)
    assert store.rewarded(ID, TASK, 0.25)
    sent = store.encoded(ID, TASK, report)
    store.gone(b"j" * 16, TASK)
    assert store.row(b"j" * 16, OTHER).features == b"other"
    assert (store.due(OTHER, 1.0), store.due(TASK, 1.0)) == ((b"j" * 16,), (ID,))
    assert store.encoded(ID, TASK, report) == sent


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.execute("CREATE TABLE decisions (id BLOB PRIMARY KEY, task BLOB NOT NULL)")
    with pytest.raises(StoreError, match="written by another version of kerchief"):
        Pending(tmp_path / "old.db")


def test_answered_query_is_remembered_without_its_record(store: Pending) -> None:
    decided(store)
    store.gone(ID, TASK, remember=True)
    decided(store)
    assert store.due(TASK, 1.0) == ()
    with pytest.raises(InvalidValueError, match="no decision"):
        store.encoded(ID, TASK, report)


def test_models_stay_as_long_as_they_are_needed(store: Pending) -> None:
    decided(store)
    decided(store, b"j" * 16)
    store.encoded(ID, TASK, report)
    needed = store.row(b"j" * 16, TASK).posted
    assert needed is not None
    assert needed.data == b"the model"
    assert _mentions(store, b"the model")
    store.encoded(b"j" * 16, TASK, report)
    assert not _mentions(store, b"the model")


@pytest.mark.parametrize("step", ["encoded", "gone", "crash"])
def test_nothing_raw_stays_in_any_file(tmp_path: Path, step: str) -> None:
    path = tmp_path / "d.db"
    store = Pending(path)
    for number in range(40):
        decided(store, bytes([number]) * 16)
    files = list(tmp_path.iterdir())
    assert any(SECRET in one.read_bytes() for one in files), "the test can see it"
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in files)
    for number in range(40):
        if step == "gone":
            store.gone(bytes([number]) * 16, TASK)
        else:
            store.encoded(bytes([number]) * 16, TASK, report)
    if step == "crash":
        store = Pending(path)
    assert not any(SECRET in one.read_bytes() for one in tmp_path.iterdir())
    store.close()


def test_a_store_survives(tmp_path: Path) -> None:
    first = Pending(tmp_path / "d.db")
    decided(first)
    sent = first.encoded(ID, TASK, report, bill=(Cost(0.5, 0.0), Budget(epsilon=1.0)))
    first.close()
    second = Pending(tmp_path / "d.db")
    assert second.encoded(ID, TASK, report) == sent
    assert second.spent() == (0.5, 0.0)
    with pytest.raises(FencedError):
        second.decided(b"k" * 16, TASK, due=0.0, chain=(0, b"h"))


def test_sixteen_threads_make_one_report(store: Pending) -> None:
    for number in range(20):
        decided(store, bytes([number]) * 16)
    made: list[bytes] = []
    bill = Cost(1.0, 0.0), Budget(epsilon=20.0)

    def work() -> None:
        for number in range(20):
            made.append(store.encoded(bytes([number]) * 16, TASK, report, bill=bill))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(made) == 320
    assert len(set(made)) == 20
    assert store.spent().epsilon == 20


def _shared(path: Path, sent: multiprocessing.Queue[set[bytes]]) -> None:
    store, bill = Pending(path), (Cost(1.0, 0.0), Budget(epsilon=30.0))
    sent.put({store.encoded(bytes([n]) * 16, TASK, report, bill=bill) for n in range(30)})


def test_four_processes_make_one_report(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    store = Pending(path)
    for number in range(30):
        decided(store, bytes([number]) * 16)
    context = multiprocessing.get_context("spawn")
    sent: multiprocessing.Queue[set[bytes]] = context.Queue()
    processes = [context.Process(target=_shared, args=(path, sent)) for _ in range(4)]
    for one in processes:
        one.start()
    found = [sent.get(timeout=120) for _ in processes]
    for one in processes:
        one.join()
        assert one.exitcode == 0
    assert len(set.union(*found)) == 30
    assert store.spent().epsilon == 30


def _opened(path: Path, ready: Barrier, sent: multiprocessing.Queue[str]) -> None:
    ready.wait()
    try:
        Pending(path)
        sent.put("")
    except BaseException as fault:
        sent.put(repr(fault))


@pytest.mark.nightly
def test_many_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    for number in range(10):
        ready, sent = context.Barrier(6), context.Queue()
        given = (tmp_path / f"{number}.db", ready, sent)
        processes = [context.Process(target=_opened, args=given) for _ in range(6)]
        for one in processes:
            one.start()
        assert {sent.get(timeout=120) for _ in processes} == {""}
        for one in processes:
            one.join()


def test_a_row_shows_nothing_raw(store: Pending) -> None:
    decided(store)
    store.rewarded(ID, TASK, 0.87654321)
    shown = repr(store.row(ID, TASK))
    assert "secret" not in shown
    assert "0.8765" not in shown


def test_a_forked_store_is_refused(store: Pending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_process", os.getpid() + 1)
    with pytest.raises(InvalidValueError, match="open it in this one"):
        store.spent()


_MAKER = """
import os, sys
from kerchief_device.pending import Budget, Cost, Pending
store, task = Pending(sys.argv[1]), b"t" * 32
bill = Cost(1.0, 0.0), Budget(epsilon=1e9)
while True:
    id = os.urandom(16)
    store.decided(id, task, due=0.0, features=b"x")
    sent = store.encoded(id, task, lambda row: os.urandom(8), bill=bill)
    print(id.hex(), sent.hex(), flush=True)
"""


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.nightly)])
def test_a_killed_device_made_no_report_twice(tmp_path: Path, kills: int) -> None:
    path, chance = tmp_path / "d.db", random.Random(1)
    sent: dict[str, str] = {}
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", _MAKER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        time.sleep(chance.uniform(0, 0.2))
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        sent |= dict(line.split() for line in lines if line.endswith("\n"))
    store = Pending(path)
    for id, data in sent.items():
        assert store.encoded(bytes.fromhex(id), TASK, report).hex() == data
    with closing(sqlite3.connect(path)) as base:
        rows = base.execute("SELECT count(*) FROM decisions WHERE state = 'encoded'").fetchone()
    assert store.spent().epsilon == rows[0] >= len(sent) >= kills


def test_a_reader_delays_erasure_and_does_not_prevent_it(tmp_path: Path) -> None:
    """What could not be erased while someone read the file is erased at the next step."""
    path, secret = tmp_path / "device.db", b"planted-features"
    store = Pending(path)
    store.decided(bytes(16), bytes(32), due=0.0, features=secret)
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM decisions").fetchall()
        store.encoded(bytes(16), bytes(32), lambda row: b"report")
        assert any(secret in file.read_bytes() for file in tmp_path.iterdir())
    store.due(bytes(32), 0.0)
    assert not any(secret in file.read_bytes() for file in tmp_path.iterdir())
    store.close()


@pytest.mark.parametrize("refused", [False, True])
def test_erasure_stopped_by_interrupt_happens_at_next_step(
    tmp_path: Path, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Pending(tmp_path / "device.db")
    decided(store)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "_erase", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.gone(ID, TASK) if refused else store.encoded(ID, TASK, report)
    assert any(SECRET in file.read_bytes() for file in tmp_path.iterdir())
    store.due(TASK, 0.0)
    assert not any(SECRET in file.read_bytes() for file in tmp_path.iterdir())
    store.close()


class _Interrupted:
    """A connection that is interrupted as soon as it has done one statement."""

    def __init__(self, base: sqlite3.Connection, statement: str) -> None:
        self._base, self._statement = base, statement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        done = self._base.execute(statement, *values)
        if statement.startswith(self._statement):
            self._statement = "no statement begins like this"
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT", "COMMIT"])
def test_an_interrupt_leaves_no_transaction_open(tmp_path: Path, statement: str) -> None:
    """It may come while the store waits for another process: then as soon as it has begun."""
    store, other = Pending(tmp_path / "d.db"), Pending(tmp_path / "d.db")
    base = vars(store._rows)["_base"]
    vars(store._rows)["_base"] = _Interrupted(base, statement)
    with pytest.raises(KeyboardInterrupt):
        decided(store)
    assert not base.in_transaction
    decided(other)
    assert store.row(ID, TASK).state == "decided"


@pytest.mark.parametrize("statement", ["COMMIT", "PRAGMA busy_timeout = 0"])
def test_an_interrupt_delays_erasure_and_does_not_prevent_it(
    tmp_path: Path, statement: str
) -> None:
    store = Pending(tmp_path / "d.db")
    decided(store)
    base = vars(store._rows)["_base"]
    vars(store._rows)["_base"] = _Interrupted(base, statement)
    with pytest.raises(KeyboardInterrupt):
        store.encoded(ID, TASK, report)
    assert any(SECRET in one.read_bytes() for one in tmp_path.iterdir()), "the test can see it"
    assert store.due(TASK, 0.0) == (ID,)
    assert not any(SECRET in one.read_bytes() for one in tmp_path.iterdir())
    assert base.execute("PRAGMA busy_timeout").fetchone() == (10_000,)
