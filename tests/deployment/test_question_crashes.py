"""Servers without contexts that are killed amid questions and answers, and who resend both."""

from __future__ import annotations

import random
import time
from typing import Any

import jax
import numpy as np
import pytest
from tests.deployment.traffic import Fault, Place, Process

from kerchief.core.problems import ContextFreeProblem
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.deployment import Deployment, deploy
from kerchief.deployment.questions import Answer, Asker
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.stores import FileWitness, open_store
from kerchief_device import Device
from kerchief_protocol import canonical
from kerchief_protocol.model import Question, Status
from kerchief_protocol.report import Report

_LONG_S = 60.0
_HORIZON = 5000


def build_deployment() -> Deployment:
    problem = ContextFreeProblem(horizon=_HORIZON, low=0.0, high=1.0, arms=3)
    promise = Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL)
    return deploy(policy="tsallis", problem=problem, guarantee=promise, window_s=0, nonce=bytes(16))


def opened(place: Place, late_s: float = 0.0) -> Asker:
    """A server whose clock is so late; questions have a second."""
    store, witness = open_store(place.store), FileWitness(place.witness)
    return Asker(
        build_deployment(),
        store=store,
        witness=witness,
        patience_s=1,
        clock=lambda: time.time() + late_s,
    )


class Public:
    """Users who are asked; each sends its answer until someone says what became of it."""

    def __init__(self) -> None:
        self.task = build_deployment().task
        self._device, self._random = Device(self.task), random.Random(0)
        self.asked: dict[bytes, Question] = {}
        self.sent: dict[bytes, bytes] = {}
        self.waiting: list[bytes] = []
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self._last: list[bytes] = []

    def heard(self, questions: tuple[Question, ...]) -> None:
        for one in questions:
            assert one.id not in self.asked
            self.asked[one.id] = one
            self._device.reward(self._device.accept_question(one.id), self._random.random())
            self.waiting.append(one.id)

    def answers(self, status: Status) -> list[bytes]:
        """Answers that wait, in any order and some of them twice, and some that arrived before."""
        for id in self.waiting:
            self.sent[id] = self._device.report(id.hex(), status)
        known = sorted(self.acknowledged)
        again = self._random.sample(known, min(2, len(known)))
        held = self._random.sample(self.waiting, len(self.waiting) // 2)
        self._last = [*self.waiting, *held, *again]
        self._random.shuffle(self._last)
        return [self.sent[id] for id in self._last]

    def told(self, words: list[str | None]) -> None:
        for id, refused in zip(self._last, words, strict=True):
            assert refused in (None, "question")
            (self.acknowledged if refused is None else self.refused).add(id)
            if id in self.waiting:
                self.waiting.remove(id)
                self._device.confirm(id.hex())
        assert not self.acknowledged & self.refused


def audited(public: Public, place: Place, before: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """All releases of a store, after looking at all that must hold of it."""
    store = open_store(place.store)
    with store.read(public.task.id) as at:
        row, lines, payloads = at.row(), at.lines(), tuple(at.releases(0, 10**6))
        stored = {id: at.question(id) for id in public.asked}
        open_ones = at.open_questions()
    store.close()
    assert row is not None
    AuditLog.of(lines).check(build_deployment())
    assert payloads[: len(before)] == before
    # What was given out was stored before, and each round has one answer at the most.
    assert all(one is not None for one in stored.values())
    found = [canonical.read_as(Answer, one) for one in payloads]
    assert [one.number for one in found] == list(range(len(found)))
    assert row.cohort == row.releases == len(found)
    rounds = [one.round for one in found]
    assert len(set(rounds)) == len(rounds)
    assert max(rounds, default=0) < row.cohort + open_ones <= _HORIZON
    answered = {one.round: one for one in stored.values() if one and one.state == "answered"}
    assert sorted(rounds) == sorted(answered)
    assert public.acknowledged <= {one.id for one in answered.values()} <= set(public.sent)
    assert not public.refused & {one.id for one in answered.values()}
    for one in found:
        question = answered[one.round]
        report = Report.read(public.sent[question.id], public.task)
        assert one.action == public.asked[question.id].action
        assert one.numbers.array.tolist() == report.numbers.tolist()
    return payloads


def exchanged(process: Process, public: Public, count: int, until: float) -> bool:
    """Ask some, and send what waits; whether the server was there for both."""
    process.send(count)
    questions = process.answers(until)
    if questions is None:
        return False
    public.heard(questions)
    assert process.status is not None
    process.send(public.answers(process.status))
    words = process.answers(until)
    if words is not None:
        public.told(words)
    return words is not None


def finish(public: Public, place: Place, payloads: tuple[bytes, ...]) -> None:
    """Let questions that nobody heard expire, have them answered, and look at the learners."""
    server = opened(place, late_s=10.0)
    with server._store.read(server.task.id) as at:
        left = at.open_questions()
    public.heard(server.ask(left + 1))
    answers = server.take(public.answers(server.status()))
    public.told([None if one is None else one.word for one in answers])
    assert public.waiting == []
    payloads = audited(public, place, payloads)
    rounds = {canonical.read_as(Answer, one).round for one in payloads}
    assert rounds == set(range(len(payloads)))
    again: Any = opened(place)
    for mine, theirs in zip(
        jax.tree.leaves(server.state), jax.tree.leaves(again.state), strict=True
    ):
        assert np.asarray(mine).tolist() == np.asarray(theirs).tolist()
    for one in (server, again):
        one._store.close()


@pytest.mark.nightly
def test_killed_at_random_moments(place: Place) -> None:
    public, moments, payloads = Public(), random.Random(100), tuple[bytes, ...]()
    for _ in range(100):
        process = Process(opened, place)
        if moments.random() < 0.8:
            assert process.up()
            # The first exchange compiles.
            assert exchanged(process, public, 3, time.monotonic() + _LONG_S)
        else:
            time.sleep(moments.uniform(0.0, 0.3))
        until = time.monotonic() + moments.uniform(0.0, 0.08)
        while process.status is not None and time.monotonic() < until:
            exchanged(process, public, moments.randrange(1, 12), until)
        process.kill()
        if public.asked:
            payloads = audited(public, place, payloads)
    finish(public, place, payloads)


POINTS: list[Fault] = [
    (f"{moment}-commit", count, opening)
    for opening in (False, True)
    for moment in ("before", "after")
    for count in range(1, 6)
]


@pytest.mark.parametrize(
    "points", [POINTS[1::8], pytest.param(POINTS, marks=pytest.mark.nightly)], ids=["day", "night"]
)
def test_killed_at_chosen_points(place: Place, points: list[Fault]) -> None:
    public, payloads, died = Public(), tuple[bytes, ...](), 0
    for point in points:
        process = Process(opened, place, point)
        died += not (
            process.up()
            and all(exchanged(process, public, 5, time.monotonic() + _LONG_S) for _ in range(4))
        )
        process.kill()
        if public.asked:
            payloads = audited(public, place, payloads)
    assert died >= len(points) // 2
    finish(public, place, payloads)
