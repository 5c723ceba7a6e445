"""Aggregators in processes of their own, devices that resend, and what holds after any crash."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from tests.deployment.field import ARMS, build_deployment

from kerchief.core.problems import PopulationProblem
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.deployed_statistic import build_statistics, read_secret
from kerchief.deployment.deployment import Deployment, deploy
from kerchief.deployment.learner import Learner, ReleaseConsumer
from kerchief.deployment.population import PopulationLearner
from kerchief.deployment.questions import Asker
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.stores import FileWitness, open_store
from kerchief.stores.link import Link
from kerchief_device import Device
from kerchief_protocol.chain import check_chain
from kerchief_protocol.errors import InvalidValueError, RejectedError
from kerchief_protocol.model import Question, Status
from kerchief_protocol.report import Release, Report

__all__ = [
    "Clients",
    "Crowd",
    "Fault",
    "Opening",
    "Place",
    "Process",
    "Visitors",
    "audited",
    "opened",
    "opened_by_phases",
]

# Children are forked from a process that has imported everything and computed nothing.
_APART = multiprocessing.get_context("forkserver")
_APART.set_forkserver_preload([__name__])
Answers: TypeAlias = list[str | None]


class Place(NamedTuple):
    """Where a task is kept: a store, and a file for its witness."""

    store: str
    witness: str


Opening: TypeAlias = Callable[[Place], Aggregator]
"""Opens an aggregator, in whatever process."""
Fault: TypeAlias = tuple[str, int, bool]
"""Before or after which call to die, the how-manieth, and whether that counts the opening."""


def opened(trust: str, horizon: int, place: Place) -> Aggregator:
    """An aggregator on a shared store."""
    store, witness = open_store(place.store), FileWitness(place.witness)
    return Aggregator(build_deployment(trust, horizon=horizon), store=store, witness=witness)


def by_phases(trust: str, horizon: int) -> Deployment:
    """Phases of eight groups; with a horizon of 4000, of 128 clients and then of 256 each."""
    facts = PopulationProblem(
        dim=4,
        arms=8,
        norm=1.0,
        radius=1.0,
        low=-1.0,
        high=1.0,
        horizon=horizon,
        clients=2 * horizon,
        spread=0.1,
    )
    promised = Guarantee(epsilon=8.0, delta=1e-4, trust=Trust(trust))
    return deploy(policy="pe", problem=facts, guarantee=promised, window_s=0, nonce=bytes(16))


def opened_by_phases(trust: str, horizon: int, place: Place) -> Aggregator:
    """An aggregator of a population, on a shared store."""
    store, witness = open_store(place.store), FileWitness(place.witness)
    return Aggregator(by_phases(trust, horizon), store=store, witness=witness)


class Process:
    """An aggregator in a process of its own."""

    def __init__(self, opening: Opening, place: Place, fault: Fault | None = None) -> None:
        self._here, there = _APART.Pipe()
        words = (there, opening, place, fault)
        self._process = _APART.Process(target=_serve, args=words, daemon=True)
        self._process.start()
        there.close()
        self.status: Status | None = None

    def up(self) -> bool:
        """Wait until it is there; whether it is."""
        try:
            self.status = self._here.recv()
        except EOFError:
            return False
        return True

    def send(self, sent: list[bytes] | int) -> None:
        """Reports to take, or how many questions to ask."""
        self._here.send(sent)

    def answers(self, until: float) -> Any:
        """What it answers by a time; None if it does not."""
        if not self._here.poll(max(0.0, until - time.monotonic())):
            return None
        try:
            found, self.status = self._here.recv()
        except EOFError:
            return None
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._here.close()

    def stop(self) -> None:
        """Let it finish, and see that nothing went wrong in it."""
        self._here.send(None)
        self._process.join()
        assert self._process.exitcode == 0
        self._here.close()


def _serve(pipe: Connection, opening: Opening, place: Place, fault: Fault | None) -> None:
    if fault is not None and fault[2]:
        _plant(*fault[:2])
    aggregator = opening(place)
    pipe.send(aggregator.status())
    if fault is not None and not fault[2]:
        _plant(*fault[:2])
    while (sent := pipe.recv()) is not None:
        pipe.send((_done(aggregator, sent), aggregator.status()))


def _done(aggregator: Aggregator, sent: list[bytes] | int) -> Answers | tuple[Question, ...]:
    if isinstance(sent, int):
        assert isinstance(aggregator, Asker)
        return aggregator.ask(sent)
    return [None if one is None else one.word for one in aggregator.take(sent)]


def _plant(point: str, count: int) -> None:
    """Die at a commit, or at a swap of the witness: before or after it."""
    moment, _, what = point.partition("-")
    left = count

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and moment == "before":
                os._exit(9)
            found = real(*words)
            if left == 0:
                os._exit(9)
            return found

        return call

    if what == "swap":
        FileWitness.swap = mortal(FileWitness.swap)  # type: ignore[method-assign]
        return
    for kind in Link.__subclasses__():
        kind.commit = mortal(kind.commit)  # type: ignore[method-assign]


class Crowd(ABC):
    """Users with devices: each sends its report until someone says that it arrived."""

    def __init__(self, task: Deployment, seed: int = 0) -> None:
        self.deployment, self._random = task, random.Random(seed)
        self.learner = self.new_learner()
        self._waiting: list[str] = []
        self.sent: dict[bytes, bytes] = {}
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self._last: list[tuple[str, bytes]] = []

    def reports(self, status: Status, new: int) -> list[bytes]:
        """What is sent next: old reports again, new ones, in any order, some of them twice."""
        for _ in range(new if status.state == "running" else 0):
            self._waiting += self._come(status)
        found = []
        for user in self._waiting[:]:
            try:
                found.append((user, self._report(user, status)))
            except RejectedError:
                self._told(user, arrived=False)
        known = [("", report) for id, report in self.sent.items() if id in self.acknowledged]
        found += self._random.sample(found, len(found) // 2)
        found += self._random.sample(known, min(2, len(known)))
        self._random.shuffle(found)
        self._last = found
        for _, report in found:
            self.sent[self._id(report)] = report
        return [report for _, report in found]

    def heard(self, answers: Answers) -> None:
        """Take in what became of the last reports."""
        for (user, report), refused in zip(self._last, answers, strict=True):
            (self.acknowledged if refused is None else self.refused).add(self._id(report))
            if user in self._waiting:
                self._told(user, arrived=refused is None)
        assert not self.acknowledged & self.refused

    def _told(self, user: str, *, arrived: bool) -> None:
        device, id = self._place(user)
        (device.confirm if arrived else device.discard)(id)
        self._waiting.remove(user)

    def _report(self, user: str, status: Status) -> bytes:
        device, id = self._place(user)
        return device.report(id, status)

    @abstractmethod
    def new_learner(self) -> ReleaseConsumer:
        """One that has read nothing."""

    @abstractmethod
    def _come(self, status: Status) -> list[str]:
        """A new user, or nobody."""

    @abstractmethod
    def _place(self, user: str) -> tuple[Device, str]:
        """The device of a user, and the id of the decision there."""

    def _id(self, report: bytes) -> bytes:
        return Report.read(report, self.deployment.task).id

    def numbers(self, ids: set[bytes]) -> Any:
        read = [Report.read(self.sent[id], self.deployment.task).numbers for id in ids]
        return np.sum([np.zeros(self.deployment.task.size, np.int64), *read], axis=0)


class Visitors(Crowd):
    """Users who choose among their own arms, all with one device."""

    def __init__(self, trust: str, horizon: int) -> None:
        super().__init__(build_deployment(trust, horizon=horizon))
        self._model, self._device = (
            self.learner.model,
            Device(self.deployment.task, in_process=True),
        )

    def new_learner(self) -> ReleaseConsumer:
        return Learner(self.deployment)

    def _come(self, status: Status) -> list[str]:
        decision = self._device.decide(self._model, ARMS)
        self._device.reward(decision.id, self._random.random())
        return [decision.id]

    def _place(self, user: str) -> tuple[Device, str]:
        return self._device, user


class Clients(Crowd):
    """Clients of a population, each with a device of its own; they come while a phase is posted."""

    def __init__(self, trust: str, horizon: int) -> None:
        super().__init__(by_phases(trust, horizon))
        self._places: list[tuple[Device, str]] = []

    def new_learner(self) -> ReleaseConsumer:
        return PopulationLearner(self.deployment, np.concatenate([np.eye(4), -np.eye(4)]))

    def _come(self, status: Status) -> list[str]:
        device = Device(self.deployment.task)
        try:
            place = device.join(self.learner.model, status)
        except (InvalidValueError, RejectedError):
            return []
        device.reward(place.id, [self._random.uniform(-1.0, 1.0) for _ in place.atoms])
        self._places.append((device, place.id))
        return [str(len(self._places) - 1)]

    def _place(self, user: str) -> tuple[Device, str]:
        return self._places[int(user)]


def audited(crowd: Crowd, place: Place, before: tuple[bytes, ...] = ()) -> tuple[bytes, ...]:
    """All releases of a store, after looking at all that must hold of it."""
    deployment, store = crowd.deployment, open_store(place.store)
    task = deployment.task
    with store.read(task.id) as at:
        row, lines, secret = at.row(), at.lines(), at.secret()
        payloads, known = tuple(at.releases(0, 10**6)), at.find_report_ids(crowd.sent)
        seen, counts = at.count_report_ids(), at.counts()
        bodies = [np.frombuffer(body, "<i8") for cohort in counts for body in at.bodies(cohort)]
    store.close()
    assert row is not None
    assert payloads[: len(before)] == before
    assert crowd.acknowledged <= known
    assert not crowd.refused & known
    totals = [Release.read(one) for one in payloads]
    assert [(one.number, one.cohort) for one in totals] == [(n, n) for n in range(len(totals))]
    assert row.cohort == row.releases == len(totals)
    released = sum(one.users for one in totals)
    assert released + len(bodies) == released + sum(counts.values()) == len(known)
    assert sum(seen.values()) == len(known)
    assert all(one.users == task.need(one.cohort) == seen[one.epoch, one.cohort] for one in totals)
    _chained(crowd, row, lines, payloads)
    waiting = np.sum([np.zeros(task.size, np.int64), *bodies], axis=0)
    exact = crowd.numbers(known)
    if task.trust in ("local", "shuffle"):
        assert (sum(one.total for one in totals) + waiting == exact).all()
    if task.trust == "joint":
        drawn, kept = read_secret(secret or b"", build_statistics(deployment))
        assert drawn == len(totals)
        assert (kept[0].total == exact).all()
    return payloads


def _chained(crowd: Crowd, row: Any, lines: list[Any], payloads: tuple[bytes, ...]) -> None:
    assert check_chain(lines) == row.head
    books = AuditLog.of(lines)
    books.check(crowd.deployment)
    if crowd.deployment.task.trust == "local" and not crowd.deployment.task.needs:
        assert books.draw_lines == ()
        return
    names = [hashlib.sha256(one).digest() for one in payloads]
    assert [one.payload for one in books.draw_lines] == names
    need, horizon = crowd.deployment.task.need, crowd.deployment.task.horizon
    users = sum(need(one.cohort) for one in books.draw_lines)
    assert all(
        any(r.cohort.first <= user < r.cohort.last for r in books.receipts)
        for user in range(min(users, horizon))
    )
