"""Aggregators that are killed amid traffic, and bandits that are killed between two calls."""

from __future__ import annotations

import multiprocessing
import random
import time
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.field import ARMS, TRUSTS, bandit, kill, reopened
from tests.deployment.traffic import (
    Clients,
    Crowd,
    Fault,
    Opening,
    Place,
    Process,
    Visitors,
    audited,
    opened,
    opened_by_phases,
)

from kerchief.core.errors import InvalidValueError
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.bandit import Bandit
from kerchief_device import Device

_LONG_S = 60.0


PHASED = ("local in phases", "shuffle in phases", "central in phases")
# By day the phases of one trust, and its rounds by night: the aggregator is the same for all.
BY_NIGHT = [pytest.param(one, marks=pytest.mark.nightly) for one in (*PHASED[:2], "central")]
KINDS = [*(one for one in TRUSTS if one != "central"), *BY_NIGHT, PHASED[2]]


def scene(kind: str, horizon: int) -> tuple[Crowd, Opening]:
    """Users of a trust, and what opens their aggregator."""
    trust = kind.removesuffix(" in phases")
    if kind in PHASED:
        return Clients(trust, horizon), partial(opened_by_phases, trust, horizon)
    return Visitors(trust, horizon), partial(opened, trust, horizon)


def finish(crowd: Crowd, opening: Opening, place: Place, payloads: tuple[bytes, ...]) -> None:
    """Serve everyone who waits and some more; then look at everything, with a learner too."""
    process = Process(opening, place)
    assert process.up()
    for new in (60, 0):
        assert process.status is not None
        process.send(crowd.reports(process.status, new))
        answers = process.answers(time.monotonic() + _LONG_S)
        assert answers is not None
        crowd.heard(answers)
    process.stop()
    payloads = audited(crowd, place, payloads)
    assert payloads
    assert set(crowd.sent) == crowd.acknowledged | crowd.refused
    crowd.learner.follow(payloads[crowd.learner.releases :])
    again = crowd.new_learner()
    again.follow(payloads)
    assert again.users == crowd.learner.users
    assert again.model.arrays == crowd.learner.model.arrays


@pytest.mark.nightly
@pytest.mark.parametrize("times", [100])
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments(kind: str, place: Place, times: int) -> None:
    (crowd, opening), moments = scene(kind, horizon=100 * times), random.Random(times)
    payloads: tuple[bytes, ...] = ()
    for _ in range(times):
        process = Process(opening, place)
        if moments.random() < 0.8:
            assert process.up()
        else:
            time.sleep(moments.uniform(0.0, 0.3))
        until = time.monotonic() + moments.uniform(0.0, 0.08)
        while process.status is not None and time.monotonic() < until:
            process.send(crowd.reports(process.status, new=moments.randrange(12)))
            answers = process.answers(until)
            if answers is not None:
                crowd.heard(answers)
        process.kill()
        if crowd.sent:
            payloads = audited(crowd, place, payloads)
            crowd.learner.follow(payloads[crowd.learner.releases :])
    finish(crowd, opening, place, payloads)


POINTS: list[Fault] = [
    (f"{moment}-{what}", count, opening)
    for opening in (False, True)
    for moment in ("before", "after")
    for what, counts in (("commit", (1, 2, 3, 4, 5)), ("swap", (1, 2)))
    for count in counts
]


@pytest.mark.parametrize(
    "points", [POINTS[2::9], pytest.param(POINTS, marks=pytest.mark.nightly)], ids=["day", "night"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_chosen_points(kind: str, place: Place, points: list[Fault]) -> None:
    (crowd, opening), payloads = scene(kind, horizon=4000), tuple[bytes, ...]()
    died = 0
    for point in points:
        process = Process(opening, place, point)
        died += not (process.up() and all(_served(process, crowd) for _ in range(6)))
        process.kill()
        if crowd.sent:
            payloads = audited(crowd, place, payloads)
            crowd.learner.follow(payloads[crowd.learner.releases :])
    # Nothing is witnessed where the aggregator draws nothing.
    assert died >= len([one for one in points if kind != "local" or "swap" not in one[0]]) // 2
    finish(crowd, opening, place, payloads)


def _served(process: Process, crowd: Crowd) -> bool:
    assert process.status is not None
    process.send(crowd.reports(process.status, new=30))
    answers = process.answers(time.monotonic() + _LONG_S)
    if answers is not None:
        crowd.heard(answers)
    return answers is not None


class Crash(BaseException):
    """The process is gone."""


def crashing(real: Any, *, after: bool) -> Any:
    def call(*words: Any, **more: Any) -> Any:
        if after:
            real(*words, **more)
        raise Crash

    return call


STEPS: dict[str, tuple[Any, str, bool]] = {
    "before the reward is noted": (Device, "reward", False),
    "before the report is made": (Device, "report", False),
    "before the report is sent": (Aggregator, "take", False),
    "before the device knows": (Aggregator, "take", True),
    "before the learner knows": (Device, "confirm", True),
}


def counted(bandit: Bandit) -> int:
    """How many reports the aggregator has taken, each of them once."""
    AuditLog.of(bandit._aggregator.chain()).check(bandit._deployment)
    with bandit._store.read(bandit.task.id) as at:
        waiting, seen = sum(at.counts().values()), sum(at.count_report_ids().values())
    assert bandit.users + waiting == seen
    return seen


def finish_visit(bandit: Bandit, id: str) -> None:
    bandit.reward(id, 0.5)
    bandit.expire()


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_bandit_that_was_killed_reports_once(
    trust: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, path = bandit(trust, path=tmp_path / "b"), tmp_path / "b"
    for served, (owner, name, after) in enumerate(STEPS.values()):
        choice = one.decide(ARMS)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, crashing(getattr(owner, name), after=after))
            with pytest.raises(Crash):
                finish_visit(one, choice.id)
        before = one._aggregator.releases()
        kill(one)
        one = reopened(path)
        assert one._aggregator.releases()[: len(before)] == before
        with suppress(InvalidValueError):
            one.reward(choice.id, 0.5)
        one.expire()
        one.expire()
        assert counted(one) == served + 1
        with pytest.raises(InvalidValueError, match="pending"):
            one.reward(choice.id, 0.5)
    one.close()


def _live(pipe: Connection, path: Path) -> None:
    one = reopened(path)
    while True:
        choice = one.decide(ARMS)
        pipe.send(("decided", choice.id))
        one.reward(choice.id, 0.5)
        pipe.send(("rewarded", choice.id))


@pytest.mark.nightly
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_bandit_is_killed_at_random_moments(trust: str, tmp_path: Path) -> None:
    times = 50
    apart, moments = multiprocessing.get_context("forkserver"), random.Random(times)
    bandit(trust, path=tmp_path / "b").close()
    said: dict[str, set[str]] = {"decided": set(), "rewarded": set()}
    for _ in range(times):
        here, there = apart.Pipe()
        process = apart.Process(target=_live, args=(there, tmp_path / "b"), daemon=True)
        process.start()
        there.close()
        here.poll(_LONG_S)
        time.sleep(moments.uniform(0.0, 0.02))
        process.kill()
        process.join()
        try:
            while here.poll():
                kind, id = here.recv()
                said[kind].add(id)
        except EOFError:
            pass
    with reopened(tmp_path / "b") as one:
        one.expire()
        # One decision for each kill may have been made and not told.
        assert len(said["decided"]) <= counted(one) <= len(said["decided"]) + times
        assert said["rewarded"] <= said["decided"]
