"""When reports are sent: nothing public tells whether a reward came, or which one."""

from __future__ import annotations

import dataclasses
import itertools
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.deployment.field import ARMS, FACTS, TRUSTS, bandit, field, kill, promise, reopened

from kerchief.core.errors import CapacityExceededError, DelayedLearningWarning, InvalidValueError
from kerchief.deployment import aggregator as aggregators
from kerchief.deployment import bandit as module
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.deployment import deploy
from kerchief.stores.memory import MemoryStore
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Device, Pending
from kerchief_protocol.report import Report

pytestmark = pytest.mark.filterwarnings(
    "ignore::kerchief.DelayedLearningWarning", "ignore::kerchief.WeakGuaranteeWarning"
)
# Under shuffle and central trust cohorts have 50 and 35 users; the victim is the last of the first.
SHORT = dataclasses.replace(FACTS, horizon=85)
USERS, VICTIM = 87, 49


class Watcher:
    """Writes down all that anyone sees of a bandit, call by call of the application."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[Any] = []
        self.decisions: list[str] = []
        self.calls, self.now = 0, 1e9
        clock = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now)
        monkeypatch.setattr(module, "time", clock)
        # Nonce and first epoch are drawn: here they are the same in every run.
        monkeypatch.setattr(module, "deploy", partial(deploy, nonce=bytes(16)))
        monkeypatch.setattr(aggregators, "_choose_epoch", lambda epochs, context: len(epochs))
        take = Aggregator.take

        def watched(aggregator: Aggregator, reports: Any) -> Any:
            sent = [Report.read(report, aggregator.task) for report in reports]
            self.seen.append(
                [(self._user(report.id), report.label, report.epoch) for report in sent]
            )
            answers = take(aggregator, reports)
            self.seen.append([answer and answer.word for answer in answers])
            return answers

        monkeypatch.setattr(Aggregator, "take", watched)
        for store, name in itertools.product((MemoryStore, SQLiteStore), ("transaction", "read")):
            self._count(monkeypatch, store, name)

    def look(self, service: Bandit) -> None:
        """What stands in the model, the chain and the store, and how often the store was called."""
        self.bandit, calls = service, self.calls
        with service._store.read(service.task.id) as at:
            counts = at.counts()
        model, aggregator = service._learner.model, service._aggregator
        self.seen.append((calls, service.users, model.version, model.release, counts))
        self.seen.append((len(aggregator.releases()), len(aggregator.chain()), aggregator.status()))
        self.calls = calls

    def _user(self, id: bytes) -> int:
        derive_id = self.bandit._device._derive_report_id
        return [derive_id(bytes.fromhex(decision)) for decision in self.decisions].index(id)

    def _count(self, monkeypatch: pytest.MonkeyPatch, store: Any, name: str) -> None:
        real = getattr(store, name)

        def counted(*args: Any) -> Any:
            self.calls += 1
            return real(*args)

        monkeypatch.setattr(store, name, counted)


def watch(
    trust: str, reward: float | None, window_s: int, *, end: str = "close", home: Path | None = None
) -> list[Any]:
    """What is seen of users who come one after another, of whom the victim gets this reward.

    With a home the bandit moves there before the victim comes, and is killed after the victim's
    reward and once more later.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        watcher = Watcher(monkeypatch)
        service = bandit(trust, problem=SHORT, window_s=window_s)
        watcher.look(service)
        for user in range(USERS if home is None else VICTIM + 4):
            watcher.now += 20
            if home is not None and user == VICTIM - 1:
                service.save(home)
            try:
                choice = service.decide(ARMS)
            except CapacityExceededError as error:
                watcher.seen.append(str(error))
                continue
            watcher.decisions.append(choice.id)
            watcher.look(service)
            if user != VICTIM or reward is not None:
                service.reward(choice.id, 0.5 if user != VICTIM else float(reward or 0.0))
            watcher.look(service)
            if home is not None and user in (VICTIM, VICTIM + 1):
                kill(service)
                service = Bandit.open(home)
                watcher.look(service)
        watcher.now += 20
        if end != "close":
            watcher.seen.append(str(getattr(service, end)()))
            watcher.look(service)
        service.close()
        watcher.seen.append((service.users, watcher.calls))
    return watcher.seen


@pytest.mark.parametrize(("window_s", "end"), [(0, "close"), (0, "settle"), (50, "expire")])
@pytest.mark.parametrize("trust", TRUSTS)
def test_nothing_public_tells_a_click_from_silence(trust: str, window_s: int, end: str) -> None:
    silent, *others = (watch(trust, reward, window_s, end=end) for reward in (None, 0.0, 1.0))
    assert len(silent) > 3 * USERS
    assert others == [silent, silent]


@pytest.mark.parametrize("window_s", [0, 50])
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_kill_does_not_tell_a_click_from_silence(
    trust: str, window_s: int, tmp_path: Path
) -> None:
    silent = watch(trust, None, window_s, home=tmp_path / "silent")
    assert watch(trust, 1.0, window_s, home=tmp_path / "click") == silent


@pytest.mark.parametrize("call", ["decide", "expire", "settle", "close"])
def test_four_calls_report_the_pending_decision_first(call: str) -> None:
    service = bandit("joint")
    service.reward(service.decide(ARMS).id, 1.0)
    assert service.users == 0
    getattr(service, call)(*([ARMS] if call == "decide" else []))
    assert service.users == 1
    service.close()
    service.close()
    assert service.users == 1 + (call == "decide")


def test_rewards_saves_and_openings_report_nothing(tmp_path: Path) -> None:
    service = bandit("joint")
    choice = service.decide(ARMS)
    service.save(tmp_path / "b")
    service.reward(choice.id, 1.0)
    assert (service.users, service.model["width"].size) == (0, 1)
    assert service.spent().epsilon <= 1.0
    kill(service)
    with Bandit.open(tmp_path / "b") as again:
        assert again.users == 0
        with pytest.raises(InvalidValueError, match="the first one counts"):
            again.reward(choice.id, 0.0)
        assert again.expire() == again.users == 1


@pytest.mark.parametrize("moments", [(1e9,), (1e9, 0.0, -1e9)], ids=["still", "back"])
def test_no_clock_decides_what_is_due_without_a_window(moments: tuple[float, ...]) -> None:
    clock = itertools.chain(moments, itertools.repeat(moments[-1]))
    roles = field("joint")
    device = roles.device(clock=lambda: next(clock))
    ids = {device.decide(roles.learner.model, ARMS).id for _ in range(5)}
    device.reward(min(ids), 1.0)
    assert set(device.due()) == set(device.due(-1e300)) == ids
    for id in ids:
        assert roles.aggregator.take([device.report(id, roles.aggregator.status())]) == (None,)


@pytest.mark.parametrize("window_s", [0, 60])
def test_the_order_of_due_reports_ignores_rewards(window_s: int, tmp_path: Path) -> None:
    deployment = deploy(
        policy="linucb", problem=FACTS, guarantee=promise("joint"), window_s=window_s
    )
    model = field("joint").learner.model
    model = dataclasses.replace(model, task=deployment.task.id)
    for pending in (Pending(), Pending(tmp_path / "device.db")):
        device = Device(deployment.task, pending=pending)
        ids = [device.decide(model, ARMS).id for _ in range(20)]
        before = device.due(time.time() + 61)
        for id in ids[::3]:
            device.reward(id, 1.0)
        assert device.due(time.time() + 61) == before
        assert set(before) == set(ids)


def test_clock_moving_back_delays_no_due_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was due when a look began is reported in it."""
    moments = iter([100.0, 160.5])
    clock = SimpleNamespace(time=lambda: next(moments, 0.0), monotonic=lambda: 0.0)
    monkeypatch.setattr(module, "time", clock)
    service = bandit("joint", window_s=60)
    service.decide(ARMS)
    assert service.expire() == service.users == 1


def test_a_bandit_says_once_that_it_learns_after_the_window() -> None:
    with pytest.warns(DelayedLearningWarning, match="window_s=0") as caught:
        service = bandit(window_s=3600)
    assert len(caught) == 1
    assert "3600 seconds" in str(caught[0].message)
    assert caught[0].filename.endswith("field.py")
    assert "its window of 3600 seconds" in service.statement()
    statement = bandit().statement()
    assert "report what is due, with or without a reward" in statement
    assert "without regard to rewards" in statement


def test_a_aggregator_says_when_applications_may_ask_for_reports() -> None:
    assumption = "due reports at times that do not depend on rewards"
    for trust in TRUSTS:
        assert assumption in field(trust).aggregator.statement()
    assert assumption not in field("none").aggregator.statement()


def test_a_delay_without_a_window_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="jitter_s is 5 and window_s is 0"):
        deploy(policy="linucb", problem=FACTS, guarantee=promise("joint"), window_s=0, jitter_s=5)


def test_failed_last_report_releases_the_files(tmp_path: Path) -> None:
    service = bandit("joint", path=tmp_path / "b")
    choice = service.decide(ARMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Aggregator, "take", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            service.close()
    service.close()
    with reopened(tmp_path / "b") as again:
        assert again.expire() == again.users == 1
        with pytest.raises(InvalidValueError, match="pending"):
            again.reward(choice.id, 1.0)
