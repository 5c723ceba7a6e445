"""All schedules of a small field: nothing bad is found, and every planted fault is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.field import field
from tests.deployment.interleavings import Bound, Broken, Search

from kerchief.core.errors import CapacityExceededError
from kerchief.deployment import aggregator as aggregators
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog, charge_epoch
from kerchief.stores import FileWitness
from kerchief.stores.sqlite import SQLiteStore
from kerchief_protocol.errors import FencedError, RejectedError
from kerchief_protocol.report import Release

CRASHES = Bound(kills=1)
COPIES = Bound(copies=1, renewals=1, reports=2)
EPOCHS = Bound(copies=1, renewals=2, reports=2)
NIGHT = {
    "kills": Bound(kills=3),
    "copies-kills": Bound(kills=1, copies=1, renewals=1, reports=3),
    "long": Bound(copies=1, renewals=3, reports=3),
}


@pytest.mark.parametrize(
    "trust",
    [
        "shuffle",
        "late",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("joint", "central")),
    ],
)
@pytest.mark.parametrize(
    "bound",
    [
        pytest.param(CRASHES, id="crashes"),
        pytest.param(COPIES, id="copies"),
        pytest.param(EPOCHS, id="epochs", marks=pytest.mark.nightly),
        *(pytest.param(one, id=id, marks=pytest.mark.nightly) for id, one in NIGHT.items()),
    ],
)
def test_no_schedule_breaks_a_promise(trust: str, bound: Bound) -> None:
    search = Search(trust)
    search.run(bound)
    print(f"{trust}, {bound}: {search.states} worlds, {search.steps} steps of an aggregator")
    assert search.states > 100


class Planted:
    """A transaction that does one thing wrongly."""

    def __init__(self, at: Any) -> None:
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._at, name)


class Forgetful(Planted):
    """Remembers no report."""

    def add_report_ids(self, reports: Iterable[tuple[bytes, int]], *, epoch: int) -> None:
        pass


class Careless(Planted):
    """Acknowledges reports, and keeps all of them but one."""

    def keep(self, cohort: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self._at.keep(cohort, list(entries)[1:])


class Redrawing(Aggregator):
    """Adds noise when it serves, and so anew after every start."""

    def releases(self, first: int = 0, limit: int = 1000) -> tuple[bytes, ...]:
        found = [Release.read(one) for one in super().releases(first, limit)]
        noise = self._source(1)[0] * 2**20
        return tuple(dataclasses.replace(one, total=one.total + noise).write() for one in found)


class Hasty(Aggregator):
    """Serves before the witness knows."""

    def _bear_witness(self, row: Any) -> None:
        pass


class Impatient(Aggregator):
    """Releases a cohort when all but one are there."""

    def _take_reports(self, at: Any, row: Any, read: Any, clients: Any) -> Any:
        task, short = self.task, dataclasses.replace(self.task, needs=(1, 1))
        self.task = short
        try:
            return super()._take_reports(at, row, read, clients)
        finally:
            self.task = task


class Lenient(Aggregator):
    """Takes reports of an epoch that is over."""

    def _choose_cohort(self, one: Any, epoch: int, *known: Any) -> int | RejectedError | None:
        return super()._choose_cohort(dataclasses.replace(one, epoch=epoch), epoch, *known)


class Lying(Aggregator):
    """Counts a report and says that it was refused."""

    def take(
        self, reports: Iterable[bytes], clients: Any = None
    ) -> tuple[RejectedError | None, ...]:
        return tuple(RejectedError("over", "not today") for _ in super().take(reports, clients))


class Showing(Aggregator):
    """Begins a new epoch over draws that were never shown."""

    def _check_witness(self, at: Any, row: Any) -> None:
        """As if another copy were faster between the look at the witness and the draw."""

    def _check_hidden_draws(self, at: Any, row: Any, seen: Any) -> None:
        pass


FAULTS: dict[str, tuple[dict[str, Any], Bound, str]] = {
    "forgets who reported": ({"plant": Forgetful}, CRASHES, "released or waits|kept"),
    "loses what it acknowledged": ({"plant": Careless}, CRASHES, "released or waits"),
    "draws again after a start": (
        {"aggregator": Redrawing},
        CRASHES,
        "chain names",
    ),
    "serves before the witness": ({"aggregator": Hasty}, CRASHES, "witness"),
    "releases a cohort early": ({"aggregator": Impatient}, CRASHES, "full cohort"),
    "takes reports of old epochs": ({"aggregator": Lenient}, COPIES, "one release in its life"),
    "counts what it refuses": ({"aggregator": Lying}, CRASHES, "refused"),
    "shows what was hidden": ({"aggregator": Showing}, COPIES, "one payload|one release"),
}


class Losing(Planted):
    """Loses reports that wait for a cohort which is not open."""

    def keep(self, cohort: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        if cohort == self._at.row().cohort:
            self._at.keep(cohort, entries)


def test_a_late_report_that_was_lost_is_found() -> None:
    with pytest.raises(Broken, match="released or waits"):
        Search("late", plant=Losing).run(CRASHES)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    fault, bound, words = FAULTS[name]
    with pytest.raises(Broken, match=words):
        Search("central", **fault).run(bound)


@pytest.mark.nightly
def test_epochs_that_are_numbered_in_turn_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies would both begin epoch 1, and a report of it could be in both."""
    monkeypatch.setattr(aggregators, "_choose_epoch", lambda epochs, context: len(epochs))
    with pytest.raises(Broken, match=r"one payload|one release"):
        Search("central").run(EPOCHS)


def test_an_epoch_that_was_not_paid_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        aggregators,
        "charge_epoch",
        lambda deployment, epoch: charge_epoch(deployment, epoch) if epoch == 0 else [],
    )
    with pytest.raises(Broken, match="charges are on the chain"):
        Search("central").run(COPIES)


def fork(trust: str, folder: Path) -> tuple[Any, Any, list[bytes]]:
    """Two copies that both go on, and what they would both release."""
    witness = FileWitness(folder / "witness")
    first = field(trust, store=SQLiteStore(folder / "m.db"), witness=witness)
    SQLiteStore(folder / "m.db").copy_to(folder / "twin.db")
    twin = field(trust, store=SQLiteStore(folder / "twin.db"), witness=witness)
    return first, twin, [first.report() for _ in range(50)]


@pytest.mark.parametrize("trust", ["shuffle", "joint", "central"])
def test_a_copy_draws_nothing_once_another_went_on(trust: str, tmp_path: Path) -> None:
    first, twin, reports = fork(trust, tmp_path)
    first.aggregator.take(reports)
    before = len(twin.totals())
    with pytest.raises(FencedError, match="witness"):
        twin.aggregator.take([*reports[1:], twin.report()])
    assert len(twin.totals()) == before


@pytest.mark.parametrize("trust", ["shuffle", "joint", "central"])
def test_new_epoch_does_not_reveal_release_of_another_copy(
    trust: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, twin, reports = fork(trust, tmp_path)
    first.aggregator.take(reports)
    assert first.aggregator.releases()
    # As if the first were faster between the other's look at the witness and its draw.
    monkeypatch.setattr(twin.aggregator, "_check_witness", lambda at, row: None)
    with pytest.raises(FencedError, match="witness"):
        twin.aggregator.take([*reports[1:], twin.report()])
    for renew in (
        twin.aggregator.renew,
        lambda: Aggregator(
            twin.deployment, store=twin.store, witness=FileWitness(tmp_path / "witness"), renew=True
        ),
    ):
        with pytest.raises(FencedError, match="nobody may see"):
            renew()
    with pytest.raises(FencedError, match="witness"):
        twin.aggregator.releases()


@pytest.mark.parametrize("trust", ["shuffle", "joint", "central"])
def test_no_two_copies_begin_the_same_epoch(trust: str, tmp_path: Path) -> None:
    first, twin, _ = fork(trust, tmp_path)
    first.aggregator.renew()
    reports = [first.report() for _ in range(50)]
    assert set(first.aggregator.take(reports)) == {None}
    twin.aggregator.renew()
    assert {one.word for one in twin.aggregator.take(reports) if one} == {"epoch"}
    assert twin.aggregator.releases() == ()


@pytest.mark.parametrize("trust", ["shuffle", "joint", "central"])
def test_a_store_that_was_rolled_back_goes_on_in_a_new_epoch(trust: str, tmp_path: Path) -> None:
    first, twin, reports = fork(trust, tmp_path)
    first.aggregator.take(reports)
    witness = FileWitness(tmp_path / "witness")
    with pytest.raises(FencedError, match="rolled back"):
        Aggregator(twin.deployment, store=twin.store, witness=witness)
    again = Aggregator(twin.deployment, store=twin.store, witness=witness, renew=True)
    assert {one.word for one in again.take(reports) if one} == {"epoch"}
    new = dataclasses.replace(twin, aggregator=again)
    new.serve(50)
    AuditLog.of(again.chain()).check(again.deployment)
    assert sum(one.users for one in new.totals()) == 50
    with pytest.raises(FencedError):
        first.aggregator.take([first.report() for _ in range(50)])


@pytest.mark.parametrize("trust", ["joint", "central"])
def test_the_bill_is_for_the_epochs_that_released_something(trust: str) -> None:
    one = field(trust)
    one.aggregator.renew()
    one.serve(50)
    one.aggregator.close()
    books = AuditLog.of(one.aggregator.chain())
    horizon = one.task.horizon
    used = {r.cohort.first for r in books.receipts if r.used is None}
    # Of earlier epochs another copy may have released everything: they stay charged.
    assert {place for place in used if place >= horizon} == {horizon}
    assert len(used) == 1 + sum(r.cohort.first < horizon for r in books.receipts)
    books.check(one.deployment)
    assert one.aggregator.spent().epsilon > 0.9


def test_a_task_that_is_over_begins_no_epoch() -> None:
    one = field("joint")
    one.aggregator.close()
    with pytest.raises(CapacityExceededError):
        one.aggregator.renew()
    AuditLog.of(one.aggregator.chain()).check(one.deployment)


def test_a_learner_notices_that_releases_were_rolled_back(tmp_path: Path) -> None:
    first, twin, reports = fork("joint", tmp_path)
    first.aggregator.take(reports[:3])
    learner = first.learner
    learner.follow(first.aggregator.releases())
    witness = FileWitness(tmp_path / "witness")
    again = Aggregator(twin.deployment, store=twin.store, witness=witness, renew=True)
    dataclasses.replace(twin, aggregator=again).serve(5)
    with pytest.raises(FencedError):
        learner.follow(again.releases(learner.releases))
