"""Attacks that worked on roles with floating-point sums, clocks on billboards and no store."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.deployment.field import (
    ARMS,
    TRUSTS,
    Field,
    bandit,
    build_deployment,
    field,
    read,
    reopened,
    witness_of,
)

from kerchief.core.errors import BudgetExceededError, CodecError, InvalidValueError, KerchiefError
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.deployment import read_deployment
from kerchief.deployment.learner import Learner
from kerchief.deployment.library_code import LibraryCode
from kerchief.deployment.release_batch import ReleaseBatch
from kerchief.deployment.verify import check_releases, verify
from kerchief.stores import FileWitness
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Budget, Device, Pending
from kerchief_device.randomize import randomize
from kerchief_protocol.canonical import write
from kerchief_protocol.chain import Line, check_chain, read_chain, write_chain
from kerchief_protocol.errors import FencedError, RejectedError
from kerchief_protocol.model import Numbers
from kerchief_protocol.noise import Statistic
from kerchief_protocol.report import Release, Report
from kerchief_protocol.task import Task

LATE = pytest.mark.filterwarnings("ignore::kerchief.DelayedLearningWarning")
FIRST = 50
"""Users of the first cohort."""


def words(answers: tuple[RejectedError | None, ...]) -> list[str | None]:
    return [None if one is None else one.word for one in answers]


def extremes(one: Field) -> list[NDArray[np.int64]]:
    """The farthest that false users may send: the box, or records where statistics are exact."""
    (noise,), bounds = one.task.noise, one.task.bounds(0)
    if not isinstance(noise, Statistic):
        return [bounds.high, bounds.low, bounds.high - 2]
    unit = 2**noise.grid_bits
    return [np.array([unit, 0, 0, unit, 0]), np.array([0, 0, unit, 0, -unit]), 0 * bounds.low]


# 1. Rounding.


@pytest.mark.parametrize("trust", ["shuffle", "central", "joint", "local"])
@pytest.mark.parametrize("far", [2**62, -(2**62), 2**63 - 1, -(2**63), 2**53 + 1])
def test_oversized_report_entries_are_rejected(trust: str, far: int) -> None:
    one = field(trust)
    assert words(one.aggregator.take([one.forged(np.full(one.task.size, far))])) == ["bounds"]
    assert one.aggregator.releases() == ()


@pytest.mark.parametrize("trust", ["shuffle", "central"])
def test_colluders_cannot_change_the_sum_of_other_users(trust: str) -> None:
    """Whatever two of them send, the total less their numbers is the exact sum of all others."""
    one = field(trust, source=lambda count: bytes(count))
    high, low = extremes(one)[:2]
    others = [one.report() for _ in range(FIRST - 2)]
    assert set(one.aggregator.take([one.forged(high), *others, one.forged(low)])) == {None}
    (release,) = one.totals()
    left = release.total - high - low
    exact = sum(read(report, one.task) for report in others)
    noise = left - exact
    if trust == "shuffle":
        assert (noise == 0).all()
    else:
        assert 0 < np.abs(noise).max() < 12 * one.scale


def test_three_colluders_learn_nothing_beyond_the_noise() -> None:
    """Once their own numbers are taken off, what is left is the others' sum and all the noise."""
    one = field("central")
    odd = extremes(one)
    others = [one.report(reward=1.0)] + [one.report(reward=0.0) for _ in range(FIRST - 4)]
    assert set(one.aggregator.take([*map(one.forged, odd), *others])) == {None}
    left = one.totals()[0].total - sum(odd) - sum(read(each, one.task) for each in others)
    assert 0.1 < np.abs(left).mean() / one.scale < 4


# 2. The clock does not decide the noise.


def test_a_learner_that_lies_about_time_changes_no_coin() -> None:
    """Coins depend on the label alone, and the mixer takes no report that brings too few."""
    one = field("shuffle")
    noise: Any = one.task.noise[0]
    for label in range(len(noise.coins)):
        numbers = randomize(noise, np.zeros(one.task.size), label, os.urandom)
        fits = None if noise.coins[label] >= noise.coins[0] else "label"
        assert words(one.aggregator.take([one.forged(numbers, label=label)])) == [fits]


def test_a_device_tosses_the_coins_of_its_label() -> None:
    """Whatever round the model claims: the parity of a report is that of the label's coins."""
    one = field("shuffle")
    noise: Any = one.task.noise[0]
    for label, coins in enumerate(noise.coins):
        drawn = [randomize(noise, np.zeros(5), label, os.urandom) for _ in range(40)]
        assert all((each % 2 == coins % 2).all() for each in drawn)
        spread = np.concatenate(drawn).std() / np.sqrt(coins)
        assert 0.8 < spread < 1.25


@pytest.mark.parametrize("policy", ["linucb", "elimination"])
def test_every_cohort_has_the_coins_of_its_honest_part(policy: str) -> None:
    """However labels arrive, what a cohort takes in brings what it needs."""
    one = field("shuffle", policy=policy, honest=(4, 5), excluded=(1, 100))
    noise: Any = one.task.noise[0]
    for label, cohort in itertools.product(range(len(one.task.needs)), repeat=2):
        if one.task.enters(label, cohort):
            counted = one.task.promise.counted(one.task.needs[cohort])
            assert noise.coins[label] * counted >= 4 * noise.scale**2


def test_a_task_with_too_few_coins_is_no_task() -> None:
    task = build_deployment("shuffle").task
    noise: Any = task.noise[0]
    fewer = dataclasses.replace(noise, coins=tuple(coins - 1 for coins in noise.coins))
    with pytest.raises(InvalidValueError, match="coins"):
        dataclasses.replace(task, noise=(fewer,))


def test_a_report_is_not_refused_and_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third cohort would take what the second must refuse, and a device hears one answer."""
    monkeypatch.setattr(
        Aggregator, "_choose_later_cohort", lambda *_: None
    )  # nowhere is room to wait
    one = field("shuffle")
    noise: Any = one.task.noise[0]
    first, second, third = noise.coins[:3]
    assert third <= first < second
    late = one.report()
    one.serve(one.task.need(0))
    rest = [one.report() for _ in range(one.task.need(1))]
    answers = one.aggregator.take([late, *rest, late])
    assert answers[1:-1] == (None,) * len(rest)
    for answer in (answers[0], answers[-1]):
        assert answer is not None
        assert answer.word == "label"
    assert len(one.totals()) == 2


def test_reports_of_an_earlier_cohort_bring_enough_coins() -> None:
    """Devices that read the status before a cohort ended are no danger to the next one.

    It needs more coins than they tossed, so they wait for the one after it.
    """
    one = field("shuffle")
    noise: Any = one.task.noise[0]
    _, need, more, *_ = one.task.needs
    assert noise.coins[1] > noise.coins[0] > noise.coins[2]
    overlap = [one.report() for _ in range(FIRST + 20)]
    assert set(words(one.aggregator.take(overlap))) == {None}
    one.follow()
    second = [one.report() for _ in range(need + 5)]
    assert set(words(one.aggregator.take([*overlap, *second]))) == {None}
    one.follow()
    third = [one.report() for _ in range(more - 25)]
    assert set(words(one.aggregator.take(third))) == {None}
    groups = [overlap[:FIRST], second[:need], [*overlap[FIRST:], *second[need:], *third]]
    exact = [np.sum([read(each, one.task) for each in group], 0).tolist() for group in groups]
    assert [total.total.tolist() for total in one.totals()] == exact


def test_late_reports_leave_a_place_in_every_later_cohort() -> None:
    one = field("shuffle")
    first, second, *rest = one.task.needs
    room = sum(rest) - len(rest)
    late = [one.report() for _ in range(first + room + 2)]
    assert words(one.aggregator.take(late)) == [None] * (first + room) + ["label"] * 2
    assert len(one.totals()) == 1
    for more in (second, *[1] * len(rest)):
        one.follow()
        assert set(words(one.aggregator.take([one.report() for _ in range(more)]))) == {None}
    assert [total.users for total in one.totals()] == list(one.task.needs)
    AuditLog.of(one.aggregator.chain()).check(one.deployment)


def test_a_late_report_looks_at_few_cohorts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: strangers may send many reports that no cohort takes."""
    one = field("shuffle")
    noise: Any = one.task.noise[0]
    cohorts = 1000
    coins = (noise.coins[0], *(2 * noise.coins[0],) * (cohorts - 1))
    many = dataclasses.replace(
        one.task,
        noise=(dataclasses.replace(noise, coins=coins),),
        needs=(one.task.need(0),) * cohorts,
        horizon=one.task.need(0) * cohorts,
    )
    asked, enters = [], Task.enters

    def counted(task: Task, label: int, cohort: int) -> bool:
        asked.append(cohort)
        return enters(task, label, cohort)

    monkeypatch.setattr(Task, "enters", counted)
    monkeypatch.setattr(one.aggregator, "task", many)
    assert one.aggregator._choose_later_cohort(0, 0, {}) is None
    assert len(asked) == 64


@pytest.mark.parametrize("trust", ["local", "shuffle", "central"])
def test_task_of_a_billion_users_can_renew_repeatedly(trust: str) -> None:
    """Places of all epochs together are no longer counted in 32 bits."""
    one = field(trust, horizon=2**30)
    for _ in range(5):
        one.aggregator.renew()
    assert one.aggregator.take([one.report()]) == (None,)
    assert one.aggregator.close().epsilon <= 1.0
    found = verify(one.aggregator.chain())
    assert found.audit_log.receipts[-1].cohort.last > 2**32
    assert found.review.kept


@pytest.mark.parametrize("trust", TRUSTS)
def test_report_ids_are_kept_only_while_a_replay_is_possible(trust: str) -> None:
    """Past its cohort and past its epoch; what is refused is never remembered."""
    one = field(trust)
    device, aggregator = one.device(), one.aggregator
    decision = device.decide(one.learner.model, ARMS)
    report = device.report(decision.id, aggregator.status())
    assert words(aggregator.take([report, report[:-8]])) == [None, "length"]
    one.serve(FIRST)
    aggregator.renew()
    moved = dataclasses.replace(Report.read(report, one.task), epoch=aggregator.status().epoch)
    label = aggregator.status().label
    numbers = randomize(one.task.noise[0], np.zeros(one.task.size), label, os.urandom)
    again = dataclasses.replace(moved, label=label, numbers=numbers)
    assert words(aggregator.take([report, again.write(one.task)])) == ["epoch", None]
    with one.store.read(one.task.id) as at:
        assert sum(at.count_report_ids().values()) == FIRST + 1
    aggregator.close()
    with one.store.read(one.task.id) as at:
        assert at.count_report_ids() == {}


def test_the_end_of_a_task_forgets_exact_totals() -> None:
    one = field("joint")
    found = []
    for step in (lambda: one.serve(3), one.aggregator.close, lambda: None):
        with one.store.read(one.task.id) as at:
            found.append(at.secret())
        step()
    assert found[0] != found[1]
    assert found[0] == found[2]


def test_a_chain_does_not_show_whether_noise_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/field.md says of what a verifier does not check."""
    monkeypatch.setattr(ReleaseBatch, "_add_noise", lambda self, totals: totals)
    roles = field("central")
    roles.serve(50)
    assert roles.totals()
    assert verify(roles.aggregator.chain()).review.kept
    page = (Path(__file__).parents[2] / "docs" / "field.md").read_text()
    assert "Not checked are\n\n- whether the aggregator really drew the noise" in page


def test_full_cohorts_keep_exact_totals_until_the_task_ends() -> None:
    """As docs/field.md says: the status is closed then, but a new epoch may begin."""
    roles = field("joint", horizon=3)
    roles.serve(3)
    with roles.store.read(roles.task.id) as at:
        full = at.secret()
    assert roles.aggregator.status().state == "closed"
    assert np.frombuffer(full or b"", "<i8")[1:6].any()
    roles.aggregator.close()
    with roles.store.read(roles.task.id) as at:
        assert not np.frombuffer(at.secret() or b"", "<i8")[1:6].any()
    page = (Path(__file__).parents[2] / "docs" / "field.md").read_text()
    assert "ends the task; the release of the last cohort does not" in page


def test_a_new_epoch_forgets_late_reports_that_wait() -> None:
    one = field("shuffle")
    assert set(words(one.aggregator.take([one.report() for _ in range(FIRST + 1)]))) == {None}
    one.aggregator.renew()
    with one.store.read(one.task.id) as at:
        assert at.counts() == {}


# 3. Locks.


@pytest.mark.parametrize("trust", TRUSTS)
def test_sixteen_threads_get_one_noise_for_one_payment(trust: str, tmp_path: Path) -> None:
    one = field(trust, store=SQLiteStore(tmp_path / "m.db"), horizon=300)
    reports = [one.report() for _ in range(160)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda report: one.aggregator.take([report]), reports))
        shown = list(pool.map(lambda _: one.aggregator.releases(), range(64)))
    assert len({tuple(each) for each in shown}) == 1
    totals = one.totals()
    assert [release.number for release in totals] == list(range(len(totals)))
    kept = sum(answer == (None,) for answer in answers)
    with one.store.read(one.task.id) as at:
        waiting = sum(at.counts().values())
    assert kept == sum(r.users for r in totals) + waiting
    AuditLog.of(one.aggregator.chain()).check(one.deployment)


@LATE
def test_four_threads_on_one_bandit() -> None:
    one = bandit(window_s=60)

    def visits() -> None:
        for _ in range(25):
            one.reward(one.decide(ARMS).id, 0.5)

    threads = [threading.Thread(target=visits) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.expire(time.time() + 61) == 100
    assert one.users == 100


# 4. Rollback, fork, replay.


@pytest.mark.parametrize("trust", ["joint", "central", "shuffle"])
def test_a_store_that_was_rolled_back_draws_nothing(trust: str, tmp_path: Path) -> None:
    path, witness = tmp_path / "m.db", FileWitness(tmp_path / "witness")
    one = field(trust, store=SQLiteStore(path), witness=witness)
    one.serve(10)
    one.store.close()
    shutil.copy(path, tmp_path / "old.db")
    one = field(trust, store=SQLiteStore(path), witness=witness)
    one.serve(45)
    one.store.close()
    with pytest.raises(FencedError, match="rolled back"):
        field(trust, store=SQLiteStore(tmp_path / "old.db"), witness=witness)


@pytest.mark.parametrize("trust", ["joint", "central", "shuffle"])
def test_only_first_of_two_copies_releases(trust: str, tmp_path: Path) -> None:
    path, witness = tmp_path / "m.db", FileWitness(tmp_path / "witness")
    one = field(trust, store=SQLiteStore(path), witness=witness)
    one.serve(10)
    one.store.close()
    shutil.copy(path, tmp_path / "twin.db")
    first = field(trust, store=SQLiteStore(path), witness=witness)
    second = field(trust, store=SQLiteStore(tmp_path / "twin.db"), witness=witness)
    first.follow()
    first.serve(45)
    before = len(second.totals())
    with pytest.raises(FencedError):
        second.aggregator.take([second.report() for _ in range(45)])
    assert len(second.totals()) == before


def test_copy_cannot_settle_releases_of_another_copy(tmp_path: Path) -> None:
    path, witness = tmp_path / "m.db", FileWitness(tmp_path / "witness")
    field("central", store=SQLiteStore(path), witness=witness).store.close()
    shutil.copy(path, tmp_path / "twin.db")
    first = field("central", store=SQLiteStore(path), witness=witness)
    second = field("central", store=SQLiteStore(tmp_path / "twin.db"), witness=witness)
    first.serve(FIRST)
    for _ in range(2):
        with pytest.raises(FencedError, match="rolled back"):
            second.aggregator.close()
    with second.store.read(second.task.id) as reader:
        audit_log = AuditLog.of(reader.lines())
    assert not audit_log.ended
    assert audit_log.spent() == first.aggregator.spent()


def test_sixty_copies_of_a_bandit_are_sixty_refusals(tmp_path: Path) -> None:
    with bandit("joint", path=tmp_path / "b") as one:
        one.reward(one.decide(ARMS).id, 0.5)
    for number in range(60):
        copy = tmp_path / f"copy{number}"
        copy.mkdir()
        shutil.copy(tmp_path / "b" / "aggregator.db", copy)
        with pytest.raises(FencedError, match="copied"):
            Bandit.open(copy)
    with reopened(tmp_path / "b") as again:
        assert again.users == 1


@pytest.mark.parametrize("moved", [-1, 1])
def test_noise_state_that_disagrees_with_releases_is_fenced(moved: int) -> None:
    one = field("joint")
    one.serve(2)
    one.aggregator.renew()
    one.serve(3)
    with one.store.transaction(one.deployment.task.id) as at:
        kept = at.secret() or b""
        number = int.from_bytes(kept[:8], "little")
        at.hide((number + moved).to_bytes(8, "little") + kept[8:])
    assert number == 3
    with pytest.raises(
        FencedError, match=f"stands after {3 + moved} releases of its epoch, and 3 were"
    ):
        field("joint", store=one.store)
    Aggregator(one.deployment, store=one.store, renew=True)
    assert len(field("joint", store=one.store).totals()) == 5


@pytest.mark.parametrize("trust", ["joint", "central", "shuffle"])
def test_store_with_altered_release_is_fenced(trust: str, tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    one = field(trust, store=SQLiteStore(path))
    one.serve(FIRST)
    one.store.close()
    base = sqlite3.connect(path)
    base.execute("DROP TRIGGER releases_update")
    base.execute("UPDATE releases SET payload = x'00' WHERE number = 0")
    base.commit()
    base.close()
    with pytest.raises(FencedError, match="release 0 is not the one that was drawn"):
        field(trust, store=SQLiteStore(path))


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("ended", [False, True])
def test_store_that_disagrees_with_its_chain_is_fenced(trust: str, ended: bool) -> None:
    one = field(trust)
    one.serve(FIRST)
    if ended:
        one.aggregator.close()
    with one.store.read(one.task.id) as reader:
        row = reader.row()
    assert row is not None
    for change in (
        {"state": "running" if ended else "closed"},
        {"epoch": 7},
        {"cohort": row.cohort - 1},
        {"cohort": row.cohort + 1},
        {"releases": row.releases - 1, "cohort": row.cohort - 1},
        {"releases": row.releases + 1, "cohort": row.cohort + 1},
    ):
        with one.store.transaction(one.task.id) as at:
            at.change(dataclasses.replace(row, **change))
        with pytest.raises(FencedError, match="not those of its chain"):
            Aggregator(one.deployment, store=one.store)
    with one.store.transaction(one.task.id) as at:
        at.change(row)
    Aggregator(one.deployment, store=one.store)


@pytest.mark.parametrize("trust", ["central", "shuffle"])
@pytest.mark.parametrize("lost", [-1, 1])
def test_cohort_with_miscounted_reports_is_not_released(trust: str, lost: int) -> None:
    """With one fewer, a cohort has less noise than was charged for."""
    store = SQLiteStore.memory()
    one = field(trust, store=store)
    one.serve(FIRST - 2)
    store._writer.execute("UPDATE cohorts SET kept = kept + ?", (lost,))
    with pytest.raises(FencedError, match=f"cohort 0 has {FIRST - lost} reports"):
        one.aggregator.take([one.report() for _ in range(3)])
    assert one.totals() == []
    Aggregator(one.deployment, store=store, renew=True)
    one.serve(FIRST)
    assert [release.users for release in one.totals()] == [FIRST]


def test_a_new_epoch_takes_no_old_report_and_charges_new_places(tmp_path: Path) -> None:
    path, witness = tmp_path / "m.db", FileWitness(tmp_path / "witness")
    one = field("joint", store=SQLiteStore(path), witness=witness, horizon=100)
    one.serve(10)
    old = one.report()
    one.aggregator.renew()
    assert words(one.aggregator.take([old])) == ["epoch"]
    one.serve(10)
    audit_log = AuditLog.of(one.aggregator.chain())
    audit_log.check(one.deployment)
    assert [r.cohort.first for r in audit_log.receipts] == [0, 100]
    assert audit_log.spent().epsilon <= 1.0
    assert one.learner.users == 20
    again = Learner(one.deployment)
    again.follow(one.aggregator.releases())
    assert again.model.arrays == one.learner.model.arrays


# 5. Fragile clocks.


def test_batch_of_reports_rejects_only_those_out_of_bounds() -> None:
    one = field("shuffle")
    good = [one.report() for _ in range(3)]
    bad = good[1][:-8] + (2**40).to_bytes(8, "little")
    assert words(one.aggregator.take([good[0], bad, b"", good[2]])) == [
        None,
        "bounds",
        "length",
        None,
    ]


@pytest.mark.parametrize("trust", TRUSTS)
def test_lost_doubled_late_and_swapped_messages_change_nothing(trust: str) -> None:
    one = field(trust)
    reports = [one.report() for _ in range(FIRST + 10)]
    lost, sent = reports[:5], reports[5:]
    shuffled = [sent[i] for i in np.random.default_rng(0).permutation(len(sent))]
    for report in shuffled:
        one.aggregator.take([report, report])
        one.aggregator.take([report])
    one.aggregator.take(shuffled[:7])
    users = sum(release.users for release in one.totals())
    with one.store.read(one.task.id) as at:
        waiting = sum(at.counts().values())
    assert users + waiting == len(sent)
    assert words(one.aggregator.take(lost)) == [None] * len(lost)
    one.follow()
    assert one.learner.users >= FIRST


# 6. Wrong person.


@LATE
def test_a_reward_goes_to_its_own_decision() -> None:
    one = bandit("none", window_s=60)
    a = one.decide({"left": [1.0, 0.0]})
    b = one.decide({"right": [0.0, 1.0]})
    one.reward(b.id, 0.0)
    one.reward(a.id, 1.0)
    one.expire(time.time() + 61)
    estimate = one.model["estimate"]
    assert estimate[0] > 0.2 > abs(estimate[1])
    with pytest.raises(InvalidValueError, match="no decision"):
        one.reward(a.id, 0.0)


@LATE
def test_silence_counts_with_the_default() -> None:
    one = bandit("none", window_s=60, default=1.0)
    silent = one.decide({"left": [1.0, 0.0]})
    assert one.expire() == 0
    assert one.expire(time.time() + 61) == 1
    assert one.users == 1
    assert one.model["estimate"][0] > 0.2
    with pytest.raises(InvalidValueError):
        one.reward(silent.id, 0.0)


# 7. Unmixed reports.


def test_a_learner_takes_no_reports() -> None:
    one = field("shuffle")
    with pytest.raises(CodecError):
        one.learner.follow([one.report()])
    single = Release(
        number=0,
        epoch=0,
        cohort=0,
        users=1,
        previous=one.task.id,
        total=read(one.report(), one.task),
    )
    with pytest.raises(FencedError, match="users"):
        one.learner.follow([single.write()])


# 8. Payment is tied to noise.


@pytest.mark.parametrize("trust", TRUSTS)
def test_noise_that_was_not_paid_for_is_not_drawn(trust: str) -> None:
    """A task whose noise was made smaller, and whose name was computed anew, is refused."""
    one = build_deployment(trust)
    noise = one.task.noise[0]
    for name in ("scale", "units", "grid_bits"):
        if not hasattr(noise, name):
            continue
        data = one.task.data.replace(
            f'"{name}":{getattr(noise, name)}'.encode(),
            f'"{name}":{max(1, getattr(noise, name) - 3)}'.encode(),
        )
        assert data != one.task.data
        with pytest.raises((FencedError, InvalidValueError)):
            read_deployment(Task.read(data))


def test_a_chain_without_its_charges_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    one = field("joint", store=SQLiteStore(path))
    one.serve(3)
    one.store.close()
    base = sqlite3.connect(path)
    (trigger,) = base.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'chain' "
        "AND sql LIKE '%DELETE%'"
    ).fetchone()
    base.execute(f"DROP TRIGGER {trigger}")
    base.execute("DELETE FROM chain WHERE kind = 'charge'")
    base.commit()
    base.close()
    with pytest.raises(FencedError):
        field("joint", store=SQLiteStore(path))


# 9. Charges are not lost.


def test_chain_without_one_line_fails_or_has_another_head() -> None:
    one = field("joint")
    one.serve(4)
    lines = one.aggregator.chain()
    head = check_chain(lines)
    assert read_chain(write_chain(lines)) == lines
    assert check_chain(lines[:-1]) != head
    for number in range(1, len(lines) - 1):
        with pytest.raises(FencedError):
            check_chain(lines[:number] + lines[number + 1 :])
    text = write_chain(lines)
    with pytest.raises(FencedError):
        check_chain(read_chain(text.replace(b'release\\":0', b'release\\":1', 1)))
    with pytest.raises(CodecError):
        read_chain(text + b"{}")


# 10. Strangers.


def test_malformed_and_foreign_reports_are_rejected() -> None:
    one = field("local")
    good = one.report()
    size = len(good)
    answers = words(
        one.aggregator.take(
            [
                b"",
                good[:-1],
                good + b"\0",
                b"xxxx" + good[4:],
                good[:4] + b"\2" + good[5:],
                good[:6] + b"\1\0" + good[8:],
                good[:12] + bytes(32) + good[44:],
                good[:-8] + (2**61).to_bytes(8, "little"),
            ]
        )
    )
    assert answers == [
        "length",
        "length",
        "length",
        "malformed",
        "malformed",
        "label",
        "task",
        "bounds",
    ]
    assert size == len(one.report())
    assert one.aggregator.releases() == ()
    one.serve(3)
    assert np.isfinite(one.learner.model["estimate"]).all()


def test_a_restart_counts_everyone_once(tmp_path: Path) -> None:
    path = tmp_path / "b"
    total = 0
    for _ in range(4):
        with reopened(path) if path.exists() else bandit("central", path=path) as one:
            for _ in range(17):
                one.reward(one.decide(ARMS).id, 0.5)
            one.expire()
            total += 17
            with one._store.read(one.task.id) as at:
                assert one.users + sum(at.counts().values()) == total


# 11. What fresh eyes found.


def forged(lines: Any, kind: str, content: Any, *, before_end: bool = False) -> tuple[Line, ...]:
    """A chain with one more line, all hashes computed anew."""
    said = [(line.kind, line.content) for line in lines]
    said.insert(len(said) - 1 if before_end else len(said), (kind, content))
    first = Line(number=0, kind=said[0][0], prev=bytes(32), body=write(said[0][1]))
    linked = [first]
    for kind, content in said[1:]:
        linked.append(linked[-1].next(kind, content))
    return tuple(linked)


@pytest.mark.parametrize("trust", ["joint", "central", "shuffle", "local"])
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("settle", {"receipt": 0, "used": 0}),
        ("draw", {"cohort": 0, "epoch": 0, "payload": "00" * 32, "release": 0, "users": 50}),
        ("open", {"config": {}}),
        ("charge", {}),
        ("epoch", {"epoch": 7}),
    ],
)
def test_a_forged_line_does_not_verify(trust: str, kind: str, content: Any) -> None:
    one = field(trust)
    one.serve(50)
    lines = one.aggregator.chain()
    verify(lines)
    with pytest.raises(KerchiefError):
        verify(forged(lines, kind, content))
    one.aggregator.close()
    with pytest.raises(KerchiefError):
        verify(forged(one.aggregator.chain(), "settle", {"receipt": 0, "used": 0}, before_end=True))


@pytest.mark.parametrize("trust", ["joint", "central", "shuffle"])
def test_a_draw_that_stands_twice_does_not_verify(trust: str) -> None:
    one = field(trust)
    one.serve(50)
    lines = one.aggregator.chain()
    last = lines[-1]
    assert last.kind == "draw"
    with pytest.raises(FencedError):
        verify(forged(lines, "draw", last.content))


@pytest.mark.parametrize("trust", ["joint", "central", "shuffle"])
def test_a_release_that_was_never_drawn_does_not_verify(trust: str) -> None:
    audit_log = AuditLog.of(field(trust).aggregator.chain())
    with pytest.raises(FencedError):
        check_releases(audit_log, [b"without noise"])


@pytest.mark.parametrize("trust", ["joint", "central"])
def test_users_of_an_epoch_that_was_lost_stay_charged(trust: str, tmp_path: Path) -> None:
    path, witness = tmp_path / "m.db", FileWitness(tmp_path / "witness")
    one = field(trust, store=SQLiteStore(path), witness=witness)
    one.store.close()
    shutil.copy(path, tmp_path / "old.db")
    one = field(trust, store=SQLiteStore(path), witness=witness)
    one.serve(50)
    again = Aggregator(
        one.deployment, store=SQLiteStore(tmp_path / "old.db"), witness=witness, renew=True
    )
    assert again.close().epsilon > 0.9
    assert verify(again.chain()).review.spent.epsilon > 0.9


def test_a_device_that_was_restored_is_counted_once(tmp_path: Path) -> None:
    one, pending = field("joint"), Pending(tmp_path / "device.db")
    device = one.device(pending=pending)
    decision = device.decide(one.learner.model, ARMS)
    device.reward(decision.id, 0.5)
    pending.close()
    for number in range(5):
        copy = tmp_path / f"{number}.db"
        shutil.copy(tmp_path / "device.db", copy)
        own = one.device(pending=Pending(copy))
        report = own.report(decision.id, one.aggregator.status())
        assert one.aggregator.take([report]) == (None,)
    assert sum(release.users for release in one.totals()) == 1


def test_a_copied_folder_is_noticed(tmp_path: Path) -> None:
    with bandit("joint", path=tmp_path / "b") as one:
        one.reward(one.decide(ARMS).id, 0.5)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    with pytest.raises(FencedError, match="copied or restored"):
        Bandit.open(tmp_path / "copy")
    other = tmp_path / "another witness"
    shutil.copy(witness_of(tmp_path / "b"), other)
    with Bandit.open(tmp_path / "copy", witness=other, renew=True) as again:
        again.reward(again.decide(ARMS).id, 0.5)
        again.expire()
        assert again.users == 2
    with reopened(tmp_path / "b") as still:
        assert still.users == 1


def test_folder_killed_at_creation_is_not_mistaken_for_a_copy(tmp_path: Path) -> None:
    with bandit("joint", path=tmp_path / "b") as one:
        one.reward(one.decide(ARMS).id, 0.5)
    (tmp_path / "b" / "place").write_text("")
    with reopened(tmp_path / "b") as again:
        assert again.users == 1
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    with pytest.raises(FencedError, match="copied or restored"):
        Bandit.open(tmp_path / "copy")


def test_a_store_that_has_a_witness_is_not_opened_without(tmp_path: Path) -> None:
    path, witness = tmp_path / "m.db", FileWitness(tmp_path / "witness")
    field("joint", store=SQLiteStore(path), witness=witness).store.close()
    with pytest.raises(FencedError, match="has a witness"):
        field("joint", store=SQLiteStore(path))


def test_a_changed_task_in_the_folder_is_noticed(tmp_path: Path) -> None:
    with bandit("joint", path=tmp_path / "b") as one:
        one.reward(one.decide(ARMS).id, 0.5)
    other = build_deployment("joint", horizon=100).task.data
    base = sqlite3.connect(tmp_path / "b" / "aggregator.db")
    base.execute("UPDATE tasks SET config = ?", (other,))
    base.commit()
    base.close()
    with pytest.raises(FencedError):
        reopened(tmp_path / "b")


@LATE
def test_all_reports_that_expire_together_are_counted() -> None:
    one = bandit("shuffle", window_s=60, default=1.0)
    for _ in range(85):
        one.decide(ARMS)
    assert one.expire(time.time() + 61) == 85
    assert one.users == 85


def test_a_report_does_not_show_its_numbers() -> None:
    one = field("joint")
    assert "numbers" not in repr(Report.read(one.report(), one.task))


def test_a_budget_sees_reports_of_a_device_that_had_none(tmp_path: Path) -> None:
    """The store is the user's, whoever opened it: what left it was charged."""
    one, pending = field("local"), Pending(tmp_path / "device.db")
    for _ in range(2):
        one.report(device=one.device(pending=pending))
    budgeted = one.device(pending=pending, budget=Budget(epsilon=2.5))
    assert budgeted.spent().epsilon == pytest.approx(2.0)
    with pytest.raises(BudgetExceededError):
        one.report(device=budgeted)


@pytest.mark.parametrize("wrong", [-np.inf, np.nan])
@pytest.mark.parametrize("policy", ["glm-greedy", "elimination"])
def test_no_model_makes_library_code_play_masked_arms(policy: str, wrong: float) -> None:
    task = build_deployment("local", policy=policy)
    model = Learner(task).model
    arrays = {
        name: Numbers.of(np.full(one.shape, wrong, one.dtype)) if "f" in one.dtype else one
        for name, one in model.arrays.items()
    }
    hostile = dataclasses.replace(model, arrays=arrays)
    device = Device(task.task, code=LibraryCode(task))
    assert device.decide(hostile, ARMS, [False, False, True]).arm == 2
