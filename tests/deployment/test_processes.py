"""Sixteen threads and four processes on one store: each report once, one payload each."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tests.deployment.field import TRUSTS
from tests.deployment.traffic import Place, Process, Visitors, audited, opened

from kerchief.deployment.aggregator import Aggregator
from kerchief_protocol.report import Release

HORIZON = 1000


def sizes(day: int, night: int) -> pytest.MarkDecorator:
    many = [day, pytest.param(night, marks=pytest.mark.nightly)]
    return pytest.mark.parametrize("many", many, ids=["day", "night"])


def agreed(shown: list[tuple[bytes, ...]], payloads: tuple[bytes, ...]) -> None:
    """Whatever anyone was shown at any time is what is there now."""
    assert all(one == payloads[: len(one)] for one in shown)


@sizes(96, 800)
@pytest.mark.parametrize("trust", TRUSTS)
def test_sixteen_threads(trust: str, place: Place, many: int) -> None:
    crowd, aggregator = Visitors(trust, HORIZON), opened(trust, HORIZON, place)
    other = opened(trust, HORIZON, place)
    shown: list[tuple[bytes, ...]] = []

    def send(reports: list[bytes]) -> list[str | None]:
        one: Aggregator = random.choice([aggregator, other])
        answers = one.take(reports)
        shown.append(one.releases())
        return [None if each is None else each.word for each in answers]

    with ThreadPoolExecutor(16) as pool:
        for _ in range(4):
            reports = crowd.reports(aggregator.status(), many // 4)
            parts = [reports[at : at + 3] for at in range(0, len(reports), 3)]
            crowd.heard([word for words in pool.map(send, parts) for word in words])
    for one in (aggregator, other):
        one._store.close()
    payloads = audited(crowd, place)
    agreed(shown, payloads)
    assert set(crowd.sent) == crowd.acknowledged | crowd.refused


# Sixteen threads serve all trusts by day; the store and the aggregator are the same for two of
# them.
@sizes(2, 20)
@pytest.mark.parametrize("trust", [*TRUSTS[:3], pytest.param(TRUSTS[3], marks=pytest.mark.nightly)])
def test_four_processes(trust: str, place: Place, many: int) -> None:
    crowd, before = Visitors(trust, HORIZON), tuple[bytes, ...]()
    processes = [Process(partial(opened, trust, HORIZON), place) for _ in range(4)]
    assert all([one.up() for one in processes])
    for _ in range(many):
        status = processes[0].status
        assert status is not None
        reports = crowd.reports(status, 40)
        for one in processes:
            one.send(reports)
        words = [one.answers(time.monotonic() + 60.0) for one in processes]
        for each in zip(*filter(None, words), strict=True):
            # A report that one process has taken has arrived for all of them.
            assert len(set(each)) == 1
        assert words[0] is not None
        crowd.heard(words[0])
        before = audited(crowd, place, before)
    for one in processes:
        one.stop()
    assert [Release.read(one).number for one in before] == list(range(len(before)))
    assert sum(Release.read(one).users for one in before) > 0
