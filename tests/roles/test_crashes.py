"""Middles that are killed amid traffic, and bandits that are killed between two calls."""

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
from tests.roles.field import ARMS, FACTS, TRUSTS, promise
from tests.roles.traffic import (
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

from kerchief.core.errors import InvalidValue
from kerchief.roles.bandit import Bandit
from kerchief.roles.books import Books
from kerchief.roles.middle import Middle
from kerchief_device import Device

_LONG_S = 60.0


PHASED = ("local in phases", "shuffle in phases", "central in phases")
# By day the phases of one trust, and its rounds by night: the middle is the same for all.
BY_NIGHT = [pytest.param(one, marks=pytest.mark.nightly) for one in (*PHASED[:2], "central")]
KINDS = [*(one for one in TRUSTS if one != "central"), *BY_NIGHT, PHASED[2]]


def scene(kind: str, horizon: int) -> tuple[Crowd, Opening]:
    """Users of a trust, and what opens their middle."""
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
    # Nothing is witnessed where the middle draws nothing.
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
    "before the report is sent": (Middle, "take", False),
    "before the device knows": (Middle, "take", True),
    "before the learner knows": (Device, "arrived", True),
}


def counted(bandit: Bandit) -> int:
    """How many reports the middle has taken, each of them once."""
    Books.of(bandit._middle.chain()).check(bandit._made)
    with bandit._store.read(bandit.task.id) as at:
        waiting, seen = sum(at.counts().values()), sum(at.seen().values())
    assert bandit.users + waiting == seen
    return seen


def made(trust: str, path: Path, **more: Any) -> Bandit:
    return Bandit(policy="linucb", problem=FACTS, guarantee=promise(trust), path=path, **more)


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_bandit_that_was_killed_reports_once(
    trust: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bandit, path, rewarded = made(trust, tmp_path / "b"), tmp_path / "b", 0
    waits = bandit.decide(ARMS)
    for owner, name, after in STEPS.values():
        choice = bandit.decide(ARMS)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, crashing(getattr(owner, name), after=after))
            with pytest.raises(Crash):
                bandit.reward(choice.id, 0.5)
        before = bandit._middle.releases()
        bandit.close()
        bandit = Bandit.open(path)
        assert bandit._middle.releases()[: len(before)] == before
        for _ in range(2):
            with suppress(InvalidValue):
                bandit.reward(choice.id, 0.5)
        bandit.expire()
        bandit.expire(time.time() + 2 * 86_400 if name == "report" else None)
        rewarded += 1
        if name == "report":
            # The time of all others who wait was over, too.
            rewarded, waits = rewarded + 1, bandit.decide(ARMS)
        assert counted(bandit) == rewarded
        with pytest.raises(InvalidValue, match="pending"):
            bandit.reward(choice.id, 0.5)
    bandit.reward(waits.id, 1.0)
    assert counted(bandit) == rewarded + 1
    bandit.close()


def _live(pipe: Connection, path: Path) -> None:
    bandit = Bandit.open(path)
    while True:
        bandit.expire()
        choice = bandit.decide(ARMS)
        pipe.send(("decided", choice.id))
        bandit.reward(choice.id, 0.5)
        pipe.send(("rewarded", choice.id))


@pytest.mark.nightly
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_bandit_is_killed_at_random_moments(trust: str, tmp_path: Path) -> None:
    times = 50
    apart, moments = multiprocessing.get_context("forkserver"), random.Random(times)
    made(trust, tmp_path / "b").close()
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
    with Bandit.open(tmp_path / "b") as bandit:
        bandit.expire(time.time() + 2 * 86_400)
        # One decision for each kill may have been made and not told.
        assert len(said["decided"]) <= counted(bandit) <= len(said["decided"]) + times
        assert said["rewarded"] <= said["decided"]
