"""What roles read and write is bounded by a page: rows and statements are counted, not seconds."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deployment.field import Field, field
from tests.deployment.test_admission import strangers, words
from tests.deployment.test_questions import build_deployment as build_question_deployment
from tests.deployment.test_questions import served

from kerchief.core.errors import InvalidValueError
from kerchief.deployment import witnessed_store
from kerchief.deployment.aggregator import Aggregator
from kerchief.stores import FileWitness
from kerchief.stores.sql import SQLReader, SQLTransaction
from kerchief.stores.sqlite import SQLiteStore
from kerchief_protocol.chain import check_chain
from kerchief_protocol.errors import FencedError

PAGE = 16
RELEASES = 100


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many lines of a chain were read, in transactions that write and in others."""
    counted = Counter[str]()

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(reader: SQLReader, *words: Any) -> Any:
            lines = real(reader, *words)
            exclusive = isinstance(reader, SQLTransaction)
            counted["exclusive" if exclusive else "reading"] += len(lines)
            counted["largest"] = max(counted["largest"], len(lines))
            return lines

        return call

    monkeypatch.setattr(SQLReader, "lines", counting(SQLReader.lines))
    monkeypatch.setattr(SQLReader, "releases", counting(SQLReader.releases))
    monkeypatch.setattr(witnessed_store, "PAGE", PAGE)
    return counted


def long(path: Path | str = ":memory:", **more: Any) -> Field:
    """A task with a line of the chain for every report."""
    roles = field("joint", store=SQLiteStore(path), **more)
    assert set(roles.aggregator.take(strangers(roles.aggregator, RELEASES))) == {None}
    return roles


# Starts.


def test_a_start_reads_one_page_in_its_exclusive_transaction(
    rows: Counter[str],
) -> None:
    roles = long()
    length, _ = roles.aggregator.head()
    rows.clear()
    Aggregator(roles.deployment, store=roles.store)
    assert rows["exclusive"] < PAGE
    assert rows["reading"] >= length
    assert rows["largest"] == PAGE


def test_start_reads_reports_that_arrive_meanwhile(
    rows: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are not kept from going on, even by more than a page at once."""
    roles, real, left = long(), SQLiteStore.transaction, [3]

    def transaction(store: SQLiteStore, task: bytes) -> Any:
        if left[0]:
            left[0] -= 1
            monkeypatch.undo()
            assert set(roles.aggregator.take(strangers(roles.aggregator, 20 + left[0]))) == {None}
            monkeypatch.setattr(SQLiteStore, "transaction", transaction)
            monkeypatch.setattr(witnessed_store, "PAGE", PAGE)
        return real(store, task)

    monkeypatch.setattr(SQLiteStore, "transaction", transaction)
    again = Aggregator(roles.deployment, store=roles.store)
    assert left == [0]
    assert len(again.releases()) == RELEASES + 20 + 21 + 22
    assert again.spent() == roles.aggregator.spent()


@pytest.mark.parametrize("row", [0, PAGE, 2 * PAGE - 1, RELEASES - 1])
def test_a_start_finds_a_changed_row_on_every_page(row: int, rows: Counter[str]) -> None:
    roles = long()
    store: Any = roles.store
    store._writer.execute("DROP TRIGGER releases_update")
    store._writer.execute("UPDATE releases SET payload = x'00' WHERE number = ?", (row,))
    with pytest.raises(FencedError, match=f"release {row} is not the one"):
        Aggregator(roles.deployment, store=roles.store)
    assert rows["largest"] == PAGE


# Pages.


def test_the_chain_is_served_in_pages() -> None:
    roles = long()
    length, head = roles.aggregator.head()
    lines = [line for first in range(0, length, 7) for line in roles.aggregator.chain(first, 7)]
    assert lines == list(roles.aggregator.chain())
    assert (len(lines), check_chain(lines)) == (length, head)
    assert roles.aggregator.chain(length) == ()
    assert len(roles.aggregator.chain(0, 1)) == 1


def test_the_bill_reads_new_lines_alone(rows: Counter[str]) -> None:
    roles = long()
    before = roles.aggregator.spent()
    rows.clear()
    assert roles.aggregator.spent() == before
    assert roles.aggregator.statement()
    assert sum(rows.values()) == 0
    roles.aggregator.take(strangers(roles.aggregator, 3))
    rows.clear()
    roles.aggregator.spent()
    assert rows["reading"] == 2 * 3


def test_the_bill_of_a_chain_that_went_back_is_refused(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "m.db")
    roles = field("joint", store=store)
    roles.serve(2)
    store.copy_to(tmp_path / "old.db")
    roles.serve(2)
    roles.aggregator.spent()
    roles.aggregator._store = SQLiteStore(tmp_path / "old.db")
    with pytest.raises(FencedError, match="does not end"):
        roles.aggregator.spent()


@pytest.mark.parametrize("first", [2**70, -1, 2**63, 0.5, "0", None, True])
def test_invalid_page_range_is_rejected(first: Any) -> None:
    for server in (field("local").aggregator, served(build_question_deployment())):
        for call in (server.releases, server.chain):
            for page in ((first, 5), (0, first), (0, 0), (0, 10_001)):
                with pytest.raises(InvalidValueError, match=r"first|limit"):
                    call(*page)


# Races at the witness.


def test_a_race_at_the_witness_reads_the_last_lines_alone(
    tmp_path: Path, rows: Counter[str]
) -> None:
    witness = FileWitness(tmp_path / "witness")
    roles = long(tmp_path / "m.db", witness=witness)
    other = Aggregator(roles.deployment, store=SQLiteStore(tmp_path / "m.db"), witness=witness)
    with roles.store.read(roles.task.id) as at:
        row = at.row()
    assert row is not None
    for _ in range(3):
        # It has told the witness, and was killed before it noted that.
        other.take(strangers(other, 2))
        with roles.store.transaction(roles.task.id) as at:
            now = at.row()
            assert now is not None
            at.change(dataclasses.replace(now, witnessed=row.witnessed))
        rows.clear()
        assert set(roles.aggregator.take(strangers(roles.aggregator, 1))) == {None}
        assert 0 < rows["exclusive"] + rows["reading"] <= 2 * witnessed_store._LAST


def test_a_copy_that_was_rolled_back_reads_the_last_lines_alone(
    tmp_path: Path, rows: Counter[str]
) -> None:
    witness = FileWitness(tmp_path / "witness")
    roles = long(tmp_path / "m.db", witness=witness)
    roles.store.copy_to(tmp_path / "copy.db")  # type: ignore[attr-defined]
    copy = Aggregator(roles.deployment, store=SQLiteStore(tmp_path / "copy.db"), witness=witness)
    roles.aggregator.take(strangers(roles.aggregator, 1))
    reports = strangers(copy, 1)
    rows.clear()
    with pytest.raises(FencedError, match="rolled back"):
        copy.take(reports)
    assert rows["exclusive"] + rows["reading"] <= witnessed_store._LAST


def test_a_witness_that_was_rolled_back_fences(tmp_path: Path) -> None:
    """Two copies could otherwise both go on from the head that it forgot."""
    path = tmp_path / "witness"
    roles = long(tmp_path / "m.db", witness=FileWitness(path))
    old = path.read_bytes()
    roles.aggregator.take(strangers(roles.aggregator, 1))
    path.write_bytes(old)
    with pytest.raises(FencedError, match="rolled back"):
        roles.aggregator.take(strangers(roles.aggregator, 1))
    roles.aggregator.renew()
    assert set(roles.aggregator.take(strangers(roles.aggregator, 1))) == {None}


# Writes.


def writes(store: Any, call: Callable[[], Any]) -> list[str]:
    """The statements of a call that would change a file."""
    statements: list[str] = []
    store._writer.set_trace_callback(statements.append)
    call()
    store._writer.set_trace_callback(None)
    return [sql for sql in statements if sql.split()[0] in ("INSERT", "UPDATE", "DELETE")]


def _answered(take: Callable[..., Any], reports: list[bytes], answers: list[Any]) -> None:
    answers.append(take(reports))


@pytest.mark.parametrize("trust", ["local", "shuffle", "joint", "central"])
def test_a_refused_report_writes_nothing(trust: str, tmp_path: Path) -> None:
    witness = FileWitness(tmp_path / "witness")
    roles = field(trust, store=SQLiteStore(tmp_path / "m.db"), witness=witness)
    good = roles.report()
    assert roles.aggregator.take([good]) == (None,)
    wrong = roles.report()
    old = wrong[:8] + b"\7" + wrong[9:]
    refused = [b"", good[:-1], old, good]
    answers, take = list[Any](), roles.aggregator.take
    log = tmp_path / "m.db-wal"
    before = (tmp_path / "m.db").read_bytes(), log.read_bytes()
    for reports in ([b""], [old], [good], refused):
        assert writes(roles.store, partial(_answered, take, reports, answers)) == []
    assert ((tmp_path / "m.db").read_bytes(), log.read_bytes()) == before
    assert [words(answer) for answer in answers] == [
        ["length"],
        ["epoch"],
        [None],
        ["length", "length", "epoch", None],
    ]
    assert writes(roles.store, lambda: roles.aggregator.take([wrong])) != []


def test_a_refused_answer_writes_nothing(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "q.db")
    server = served(build_question_deployment(), store=store)
    (report,) = strangers(server, 1)
    answers: list[Any] = []
    assert writes(store, lambda: answers.append(server.take([report]))) == []
    assert words(answers[0]) == ["question"]


def test_late_reports_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for each cohort that they wait for, however many reports there are."""
    roles, kept = field("shuffle"), list[tuple[int, int]]()
    first, _, third, *_ = roles.task.needs
    real = SQLTransaction.keep

    def keep(at: SQLTransaction, cohort: int, entries: Any) -> None:
        kept.append((cohort, len(entries)))
        real(at, cohort, entries)

    monkeypatch.setattr(SQLTransaction, "keep", keep)
    late = [roles.report() for _ in range(first + third + 4)]
    assert set(roles.aggregator.take(late)) == {None}
    assert kept == [(2, third - 1), (3, 5)]
    roles.follow()
    second = [roles.report() for _ in range(roles.task.needs[1])]
    kept.clear()
    assert set(roles.aggregator.take([*second, roles.report()])) == {None}
    assert kept == []
    assert [release.users for release in roles.totals()] == list(roles.task.needs[:3])


# What is no report.


@pytest.mark.parametrize("report", [None, 3, "text", 1.5, [], object()])
def test_malformed_report_is_rejected(report: Any) -> None:
    for aggregator in (field("local").aggregator, served(build_question_deployment())):
        assert words(aggregator.take([report])) == ["malformed"]


@pytest.mark.parametrize("reports", [None, 3, "text", b"kch1", np.int64(1)])
def test_take_rejects_argument_that_is_no_list(reports: Any) -> None:
    with pytest.raises(InvalidValueError, match="list"):
        field("local").aggregator.take(reports)
