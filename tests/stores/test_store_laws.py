"""One suite for every store: what a transaction may do, and what it leaves behind."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.stores.traffic import TASK, audit, begin, fresh, ingest, names

from kerchief.stores import Question, Row, Store, open_store
from kerchief.stores.memory import MemoryStore
from kerchief_protocol.canonical import write
from kerchief_protocol.chain import ROOT, Line, check_chain
from kerchief_protocol.errors import FencedError, InvalidValueError, StoreError

_A, _B, _C = (bytes([n]) * 16 for n in (1, 2, 3))


def _row(store: Store, task: bytes = TASK) -> Row:
    with store.read(task) as reader:
        row = reader.row()
    assert row is not None
    return row


def test_a_row_comes_back_as_it_was(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        before = transaction.row()
        assert before is not None
        after = replace(before, state="closed", epoch=3, cohort=7, releases=2**40, witnessed=_A)
        transaction.change(after)
        assert transaction.row() == after
    assert _row(store) == after


def test_tasks_are_apart(store: Store) -> None:
    begin(store, b"other")
    assert store.tasks() == [TASK, b"other"]
    with store.transaction(TASK) as transaction:
        transaction.add_report_ids([(_A, 0)], epoch=0)
        transaction.keep(0, [(_A, b"body")])
        transaction.publish(0, [b"release"])
    with store.transaction(b"other") as transaction:
        assert transaction.find_report_ids([_A]) == set()
        assert transaction.counts() == {}
        assert transaction.releases(0, 9) == []
        transaction.add_report_ids([(_A, 0)], epoch=0)
        transaction.forget(0)
    with store.read(TASK) as reader:
        assert reader.bodies(0) == [b"body"]


def test_an_unknown_task_has_no_row_and_nothing_else(store: Store) -> None:
    with store.read(b"unknown") as reader:
        assert reader.row() is None
        with pytest.raises(InvalidValueError, match="create it first"):
            reader.counts()


def test_a_task_begins_once_and_keeps_its_configuration(store: Store) -> None:
    with pytest.raises(InvalidValueError), store.transaction(TASK) as transaction:
        transaction.create(fresh())
    with pytest.raises(InvalidValueError), store.transaction(TASK) as transaction:
        transaction.change(replace(fresh(), config=b"x"))
    with pytest.raises(InvalidValueError), store.transaction(b"new") as transaction:
        transaction.create(replace(fresh(), state="asleep"))
    assert store.tasks() == [TASK]


def test_the_chain_grows_at_its_end_only(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        (first,) = transaction.lines()
        second = first.next("charge", {"a": 1})
        third = second.next("draw", {"b": 2})
        transaction.append([second])
        transaction.append([third])
        assert transaction.lines(1) == [second, third]
    for wrong in (second, third, replace(third.next("draw", {}), prev=ROOT)):
        with pytest.raises(FencedError), store.transaction(TASK) as transaction:
            transaction.append([wrong])
    with store.read(TASK) as reader:
        assert check_chain(reader.lines()) == third.hash


def test_a_chain_begins_at_the_root(store: Store) -> None:
    line = Line(number=0, kind="open", prev=_A * 2, body=write({}))
    with store.transaction(b"new") as transaction:
        transaction.create(fresh())
        with pytest.raises(FencedError):
            transaction.append([line])


def test_reports_are_remembered_once(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        transaction.add_report_ids([(_A, 4), (_B, 4)], epoch=0)
        transaction.add_report_ids([(_C, 0)], epoch=1)
        assert transaction.find_report_ids([_A, _C, bytes(16)]) == {_A, _C}
    for again in ([_A], [bytes(16), bytes(16)]):
        with pytest.raises(InvalidValueError), store.transaction(TASK) as transaction:
            transaction.add_report_ids([(one, 0) for one in again], epoch=0)
    with store.read(TASK) as reader:
        assert reader.count_report_ids() == {(0, 4): 2, (1, 0): 1}
        assert reader.find_report_ids([]) == set()


def test_forget_seen_affects_one_task_alone(store: Store) -> None:
    other = b"another".ljust(32, b"-")
    with store.transaction(other) as transaction:
        transaction.create(fresh())
        transaction.add_report_ids([(_A, 0)], epoch=0)
    with store.transaction(TASK) as transaction:
        transaction.add_report_ids([(_A, 0), (_B, 0)], epoch=0)
        transaction.forget_report_ids()
        assert transaction.find_report_ids([_A, _B]) == set()
        transaction.add_report_ids([(_A, 1)], epoch=0)

    def interrupted() -> None:
        with store.transaction(TASK) as transaction:
            transaction.forget_report_ids()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with store.read(TASK) as reader:
        assert reader.count_report_ids() == {(0, 1): 1}
    with store.read(other) as reader:
        assert reader.find_report_ids([_A]) == {_A}


def test_many_reports_at_once(store: Store) -> None:
    ids = [n.to_bytes(16, "big") for n in range(3000)]
    with store.transaction(TASK) as transaction:
        transaction.add_report_ids([(one, 0) for one in ids[::2]], epoch=0)
        transaction.keep(0, [(id, id) for id in ids])
        assert transaction.find_report_ids(ids) == set(ids[::2])
        assert transaction.counts() == {0: 3000}
        assert transaction.bodies(0) == ids


def test_bodies_are_counted_sorted_and_forgotten(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        transaction.keep(0, [(_B, b"b"), (_A, b"a")])
        transaction.keep(1, [(_B, b"")])
        transaction.keep(0, [(_C, b"c")])
        transaction.keep(2, [])
        assert transaction.counts() == {0: 3, 1: 1, 2: 0}
        assert transaction.bodies(0) == [b"a", b"b", b"c"]
    with store.transaction(TASK) as transaction:
        transaction.forget(0)
        transaction.forget(5)
        assert (transaction.bodies(0), transaction.bodies(1)) == ([], [b""])
        assert transaction.counts() == {1: 1, 2: 0}


def test_releases_are_served_as_they_were(store: Store) -> None:
    payloads = [bytes([n]) * 300 for n in range(5)]
    with store.transaction(TASK) as transaction:
        for number, payload in enumerate(payloads):
            transaction.publish(number, [payload])
    with store.read(TASK) as reader:
        assert reader.releases(1, 3) == payloads[1:4]
        assert (reader.release(4), reader.release(5)) == (payloads[4], None)
    for number in (4, 6):
        with pytest.raises(InvalidValueError), store.transaction(TASK) as transaction:
            transaction.publish(number, [b"another"])


def test_lines_are_read_in_pages(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        lines = transaction.lines()
        for number in range(5):
            lines.append(lines[-1].next("draw", {"number": number}))
        transaction.append(lines[1:])
        assert transaction.lines(2, 3) == lines[2:5]
    with store.read(TASK) as reader:
        assert reader.lines(0, 2) == lines[:2]
        assert reader.lines(4, 9) == lines[4:]
        assert reader.lines(6, 9) == []


def test_places_of_clients_are_counted_and_forgotten(store: Store) -> None:
    begin(store, b"other")
    with store.transaction(TASK) as transaction:
        assert transaction.client_key() is None
        transaction.hide_client_key(_C * 2)
        transaction.count_clients({_A: 2, _B: 1})
        transaction.count_clients({_A: 3})
    with store.transaction(b"other") as transaction:
        transaction.hide_client_key(_A * 2)
        transaction.count_clients({_A: 7})
    with store.read(TASK) as reader:
        assert reader.clients([_A, _B, _C]) == {_A: 5, _B: 1}
        assert reader.clients([]) == {}
        assert reader.client_key() == _C * 2
    with pytest.raises(InvalidValueError), store.transaction(TASK) as transaction:
        transaction.hide_client_key(_A * 2)

    def interrupted() -> None:
        with store.transaction(TASK) as transaction:
            transaction.count_clients({_A: 1, _C: 1})
            transaction.forget_clients()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with store.transaction(TASK) as transaction:
        assert transaction.clients([_A, _B, _C]) == {_A: 5, _B: 1}
        transaction.forget_clients()
    with store.read(TASK) as reader:
        assert (reader.clients([_A, _B]), reader.client_key()) == ({}, None)
    with store.read(b"other") as reader:
        assert (reader.clients([_A]), reader.client_key()) == ({_A: 7}, _A * 2)


def test_counts_of_clients_move_with_a_store(tmp_path: Path) -> None:
    memory = MemoryStore()
    begin(memory)
    with memory.transaction(TASK) as transaction:
        transaction.hide_client_key(_C * 2)
        transaction.count_clients({_A: 2})
    memory.copy_to(tmp_path / "store.db")
    store = open_store(tmp_path / "store.db")
    with store.read(TASK) as reader:
        assert (reader.clients([_A]), reader.client_key()) == ({_A: 2}, _C * 2)
    store.close()


def test_a_secret_is_replaced(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        transaction.hide(_A)
        transaction.hide(_B * 500)
    with store.read(TASK) as reader:
        assert reader.secret() == _B * 500


def test_questions_are_answered_or_expire_once(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        for n, id in enumerate((_C, _B, _A)):
            transaction.ask(id, round=n, action=b"a%d" % n, memo=b"m%d" % n, due=100 + n)
        transaction.answer(_C, b"report")
        assert transaction.open_questions() == 2
        assert [one.id for one in transaction.overdue_questions(101, 9)] == [_B]
        assert [one.id for one in transaction.overdue_questions(102, 9)] == [_B, _A]
        assert [one.id for one in transaction.overdue_questions(102, 1)] == [_B]
        transaction.expire(_B)
    for done in (_C, _B, bytes(16)):
        with (
            pytest.raises(InvalidValueError, match="not open"),
            store.transaction(TASK) as transaction,
        ):
            transaction.answer(done, b"late")
    with store.read(TASK) as reader:
        assert reader.question(bytes(16)) is None
        assert reader.question(_C) == Question(
            id=_C, round=0, action=b"a0", memo=b"m0", due=100, state="answered", report=b"report"
        )
        states = [one and one.state for one in map(reader.question, (_B, _A))]
        assert states == ["expired", "asked"]


def test_an_exception_leaves_no_trace(store: Store) -> None:
    before = _row(store)

    def interrupted() -> None:
        with store.transaction(TASK) as transaction:
            transaction.change(replace(before, epoch=9))
            transaction.add_report_ids([(_A, 0)], epoch=0)
            transaction.keep(0, [(_A, b"body")])
            transaction.publish(0, [b"release"])
            transaction.hide(b"secret")
            transaction.append([transaction.lines()[-1].next("draw", {})])
            transaction.ask(_A, round=0, action=b"", memo=b"", due=0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert audit(store) == set()
    with store.read(TASK) as reader:
        assert reader.row() == before
        assert reader.open_questions() == 0


def test_swallowed_failure_prevents_the_commit(store: Store) -> None:
    def swallowing() -> None:
        with store.transaction(TASK) as transaction:
            transaction.add_report_ids([(_A, 0)], epoch=0)
            with pytest.raises(InvalidValueError):
                transaction.add_report_ids([(_A, 0)], epoch=0)
            with pytest.raises(StoreError, match="over"):
                transaction.add_report_ids([(_B, 0)], epoch=0)

    with pytest.raises(StoreError, match="over"):
        swallowing()
    assert audit(store) == set()


def test_a_transaction_is_no_use_after_it_was_left(store: Store) -> None:
    with store.transaction(TASK) as transaction:
        pass
    with pytest.raises(StoreError, match="over"):
        transaction.add_report_ids([(_A, 0)], epoch=0)
    with store.read(TASK) as reader:
        assert not hasattr(reader, "add_report_ids")
    with pytest.raises(StoreError, match="over"):
        reader.row()


def test_transactions_do_not_nest(store: Store) -> None:
    with store.transaction(TASK):
        with pytest.raises(StoreError, match="nest"), store.transaction(TASK):
            pass
        with pytest.raises(StoreError, match="nest"), store.read(TASK):
            pass
    assert audit(store) == set()


def test_a_closed_store_is_closed(where: str) -> None:
    store = open_store(where)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.tasks()


def test_a_reader_sees_nothing_that_is_not_committed(store: Store) -> None:
    looks: list[tuple[set[bytes], bool]] = []
    committed = threading.Event()

    def look() -> None:
        with store.read(TASK) as reader:
            looks.append((reader.find_report_ids([_A]), committed.is_set()))

    with store.transaction(TASK) as transaction:
        transaction.add_report_ids([(_A, 0)], epoch=0)
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(0.1)  # In memory it waits for the transaction, elsewhere for nothing.
        committed.set()
    thread.join()
    look()
    assert all(late or not found for found, late in looks)
    assert looks[-1] == ({_A}, True)


def test_a_reader_sees_one_state(store: Store) -> None:
    def change() -> None:
        with store.transaction(TASK) as transaction:
            transaction.add_report_ids([(_A, 0)], epoch=0)

    thread = threading.Thread(target=change)
    with store.read(TASK) as reader:
        before = reader.find_report_ids([_A])
        thread.start()
        thread.join(0.1)
        assert reader.find_report_ids([_A]) == before == set()
    thread.join()
    with store.read(TASK) as reader:
        assert reader.find_report_ids([_A]) == {_A}


def test_eight_threads_count_each_report_once(store: Store) -> None:
    ids = [id for batch in range(12) for id in names(0, batch)]
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            ingest(store, ids, seed)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert audit(store) == set(ids)
