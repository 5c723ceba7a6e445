"""Middles in processes of their own, devices that resend, and what must hold after any crash."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from tests.roles.field import ARMS, made

from kerchief.roles.books import Books
from kerchief.roles.desks import desks_of, read_secret
from kerchief.roles.learner import Learner
from kerchief.roles.middle import Middle
from kerchief.stores import FileWitness, open_store
from kerchief.stores.link import Link
from kerchief_device import Device
from kerchief_wire.chain import follow
from kerchief_wire.errors import Refused
from kerchief_wire.model import Status
from kerchief_wire.report import Release, Report

__all__ = ["Crowd", "Fault", "Place", "Process", "audited", "opened"]

# Children are forked from a process that has imported everything and computed nothing.
_APART = multiprocessing.get_context("forkserver")
_APART.set_forkserver_preload([__name__])
Answers: TypeAlias = list[str | None]


class Place(NamedTuple):
    """Where a task is kept: a store, and a file for its witness."""

    store: str
    witness: str


Fault: TypeAlias = tuple[str, int, bool]
"""Before or after which call to die, the how-manieth, and whether that counts the opening."""


def opened(trust: str, horizon: int, place: Place) -> Middle:
    """A middle on a shared store."""
    store, witness = open_store(place.store), FileWitness(place.witness)
    return Middle(made(trust, horizon=horizon), store=store, witness=witness)


class Process:
    """A middle in a process of its own."""

    def __init__(self, trust: str, horizon: int, place: Place, fault: Fault | None = None) -> None:
        self._here, there = _APART.Pipe()
        words = (there, trust, horizon, place, fault)
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

    def send(self, reports: list[bytes]) -> None:
        self._here.send(reports)

    def answers(self, until: float) -> Answers | None:
        """What it answers by a time; None if it does not."""
        if not self._here.poll(max(0.0, until - time.monotonic())):
            return None
        try:
            found, self.status = self._here.recv()
        except EOFError:
            return None
        taken: Answers = found
        return taken

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


def _serve(pipe: Connection, trust: str, horizon: int, place: Place, fault: Fault | None) -> None:
    if fault is not None and fault[2]:
        _plant(*fault[:2])
    middle = opened(trust, horizon, place)
    pipe.send(middle.status())
    if fault is not None and not fault[2]:
        _plant(*fault[:2])
    while (reports := pipe.recv()) is not None:
        answers = middle.take(reports)
        words = [None if one is None else one.word for one in answers]
        pipe.send((words, middle.status()))


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


class Crowd:
    """Users with devices: each sends its report until someone says that it arrived."""

    def __init__(self, trust: str, horizon: int, seed: int = 0) -> None:
        self.made = made(trust, horizon=horizon)
        self.learner = Learner(self.made)
        self._model = self.learner.model
        self._device, self._random = Device(self.made.task), random.Random(seed)
        self._waiting: list[str] = []
        self.sent: dict[bytes, bytes] = {}
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self._last: list[tuple[str, bytes]] = []

    def reports(self, status: Status, new: int) -> list[bytes]:
        """What is sent next: old reports again, new ones, in any order, some of them twice."""
        for _ in range(new if status.state == "running" else 0):
            decision = self._device.decide(self._model, ARMS)
            self._device.reward(decision.id, self._random.random())
            self._waiting.append(decision.id)
        found = []
        for id in self._waiting[:]:
            try:
                found.append((id, self._device.report(id, status, early=True)))
            except Refused:
                self._device.refused(id)
                self._waiting.remove(id)
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
        for (id, report), refused in zip(self._last, answers, strict=True):
            (self.acknowledged if refused is None else self.refused).add(self._id(report))
            if id in self._waiting:
                (self._device.arrived if refused is None else self._device.refused)(id)
                self._waiting.remove(id)
        assert not self.acknowledged & self.refused

    def _id(self, report: bytes) -> bytes:
        return Report.read(report, self.made.task).id

    def numbers(self, ids: set[bytes]) -> Any:
        read = [Report.read(self.sent[id], self.made.task).numbers for id in ids]
        return np.sum([np.zeros(self.made.task.size, np.int64), *read], axis=0)


def audited(crowd: Crowd, place: Place, before: tuple[bytes, ...] = ()) -> tuple[bytes, ...]:
    """All releases of a store, after looking at all that must hold of it."""
    deployed, store = crowd.made, open_store(place.store)
    task = deployed.task
    with store.read(task.id) as at:
        row, lines, secret = at.row(), at.lines(), at.secret()
        payloads, known = tuple(at.releases(0, 10**6)), at.known(crowd.sent)
        seen, counts = at.seen(), at.counts()
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
    assert all(one.users == task.need(one.cohort) == seen[0, one.cohort] for one in totals)
    _chained(crowd, row, lines, payloads)
    waiting = np.sum([np.zeros(task.size, np.int64), *bodies], axis=0)
    exact = crowd.numbers(known)
    if task.trust in ("local", "shuffle"):
        assert (sum(one.total for one in totals) + waiting == exact).all()
    if task.trust == "joint":
        drawn, kept = read_secret(secret or b"", desks_of(deployed))
        assert drawn == len(totals)
        assert (kept[0].total == exact).all()
    return payloads


def _chained(crowd: Crowd, row: Any, lines: list[Any], payloads: tuple[bytes, ...]) -> None:
    assert follow(lines) == row.head
    books = Books.of(lines)
    books.check(crowd.made)
    if crowd.made.task.trust == "local":
        assert books.drawn == ()
        return
    names = [hashlib.sha256(one).digest() for one in payloads]
    assert [one.payload for one in books.drawn] == names
    need, horizon = crowd.made.task.need, crowd.made.task.horizon
    users = sum(need(one.cohort) for one in books.drawn)
    assert all(
        any(r.cohort.first <= user < r.cohort.last for r in books.receipts)
        for user in range(min(users, horizon))
    )
