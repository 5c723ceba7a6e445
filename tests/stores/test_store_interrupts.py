"""Interrupts as a transaction is left: what stays open then keeps its turn, and harms nobody."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, FunctionType

import pytest
from tests.stores.traffic import TASK, audit, begin, names, take

from kerchief.stores.sqlite import SQLiteStore, _SQLiteLink
from kerchief.stores.store import Store
from kerchief.stores.witness import FileWitness
from kerchief_protocol.errors import StoreError

LENT = pytest.mark.parametrize(
    "name", ["transaction", pytest.param("_lend", marks=pytest.mark.nightly)]
)
_EXIT = contextlib._GeneratorContextManager.__exit__.__code__


@contextlib.contextmanager
def interrupted(where: Callable[[FrameType], bool]) -> Iterator[None]:
    """One interrupt as the first such function is entered."""

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and where(frame):
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(trace)
    try:
        yield
    finally:
        sys.setprofile(None)


def _leaving(name: str) -> Callable[[FrameType], bool]:
    return lambda frame: frame.f_code is _EXIT and frame.f_locals["self"].gen.__name__ == name


def _cut_short(store: Store, name: str) -> None:
    """Take two reports, and be interrupted as a generator is left."""
    with interrupted(_leaving(name)), store.transaction(TASK) as at:
        take(at, names(0, 0))


@LENT
def test_next_thread_waits_for_an_interrupted_transaction(store: Store, name: str) -> None:
    done = threading.Event()

    def other() -> None:
        with store.transaction(TASK) as at:
            take(at, names(1, 0))
        done.set()

    thread = threading.Thread(target=other)
    one_generator = type(store).__name__ == "MemoryStore"
    with contextlib.suppress(KeyboardInterrupt):
        try:
            _cut_short(store, "transaction" if one_generator else name)
        except KeyboardInterrupt:
            thread.start()
            assert not done.wait(0.2)
            with pytest.raises(StoreError, match="handler"), store.transaction(TASK):
                pass
            raise
        pytest.fail("nothing was interrupted")
    gc.collect()
    thread.join(10)
    assert done.is_set()
    assert audit(store) == set(names(1, 0))


@LENT
def test_transaction_closed_by_another_thread_blocks_nobody(store: Store, name: str) -> None:
    kept: list[BaseException] = []
    one_generator = type(store).__name__ == "MemoryStore"
    try:
        _cut_short(store, "transaction" if one_generator else name)
    except KeyboardInterrupt as error:
        kept.append(error)

    def close() -> None:
        kept.clear()
        gc.collect()

    closer = threading.Thread(target=close)
    closer.start()
    closer.join()
    with store.transaction(TASK) as at:
        take(at, names(2, 0))
    assert audit(store) == set(names(2, 0))


def test_second_interrupt_leaves_no_transaction_open(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    begin(store)
    code = _SQLiteLink.rollback.__code__
    with (
        contextlib.suppress(KeyboardInterrupt),
        store.transaction(TASK) as at,
    ):
        at.hide(b"not committed")
        sys.setprofile(None)
        with interrupted(lambda frame: frame.f_code is code):
            raise KeyboardInterrupt
    assert not store._writer.in_transaction
    with store.read(TASK) as reader:
        assert reader.secret() != b"not committed"
    store.close()


@pytest.mark.parametrize("step", [_SQLiteLink.end, SQLiteStore._scrub])
def test_overwrite_stopped_by_interrupt_happens_next_time(
    tmp_path: Path, step: FunctionType
) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    begin(store)
    with store.transaction(TASK) as at:
        at.keep(0, [(bytes(16), b"planted")])
    with (
        contextlib.suppress(KeyboardInterrupt),
        interrupted(lambda frame: frame.f_code is step.__code__),
        store.transaction(TASK) as at,
    ):
        at.forget(0)
    gc.collect()
    with store.transaction(TASK) as at:
        assert at.bodies(0) == []
    files = sorted(tmp_path.glob("store.db*"))
    assert b"planted" not in b"".join(file.read_bytes() for file in files)
    store.close()


def test_an_interrupt_leaves_no_witness_locked(tmp_path: Path) -> None:
    witness = FileWitness(tmp_path / "heads")
    try:
        with interrupted(lambda frame: frame.f_code is _EXIT):
            witness.swap(TASK, None, bytes(32))
    except KeyboardInterrupt:
        with (tmp_path / "heads.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        pytest.fail("nothing was interrupted")
    assert witness.read(TASK) == bytes(32)
