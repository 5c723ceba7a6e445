"""A small field: tasks, aggregators, learners and honest devices, for the tests of this room."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.core.problems import Problem
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.deployment import Deployment, deploy
from kerchief.deployment.learner import Learner
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.stores import Store, Witness
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Device
from kerchief_protocol.report import Release, Report
from kerchief_protocol.task import Task

FACTS = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=500)
TRUSTS = ("local", "shuffle", "joint", "central")
ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])


def promise(trust: str, **more: Any) -> Guarantee:
    if trust == "none":
        return Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE, **more)
    return Guarantee(epsilon=1.0, delta=1e-6, trust=Trust(trust), **more)


def build_deployment(
    trust: str,
    *,
    horizon: int = 500,
    policy: str = "linucb",
    mechanism: str = "best",
    **more: Any,
) -> Deployment:
    facts = dataclasses.replace(FACTS, horizon=horizon)
    guarantee = promise(trust, **more)
    return deploy(
        policy=policy,
        problem=facts,
        guarantee=guarantee,
        mechanism=mechanism,
        window_s=0,
        in_process=True,
        nonce=bytes(16),
    )


def bandit(trust: str = "local", *, path: Path | None = None, **more: Any) -> Bandit:
    """A bandit whose rewards come before the next decision, with its witness beside its folder."""
    given: dict[str, Any] = {"policy": "linucb", "problem": FACTS, "guarantee": promise(trust)}
    if path is not None:
        given |= {"path": path, "witness": witness_of(path)}
    return Bandit(**{**given, "window_s": 0, **more})


def reopened(path: Path, **more: Any) -> Bandit:
    return Bandit.open(path, witness=witness_of(path), **more)


def kill(bandit: Bandit) -> None:
    """Let go of a bandit's files as a process does that is killed."""
    bandit._store.close()
    bandit._pending.close()


def witness_of(path: Path) -> Path:
    return path.with_name("witness")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """All roles of one task around one store."""

    deployment: Deployment
    store: Store
    aggregator: Aggregator
    learner: Learner

    @property
    def task(self) -> Task:
        return self.deployment.task

    def device(self, **more: Any) -> Device:
        return Device(self.task, in_process=True, **more)

    def report(self, reward: float = 0.5, device: Device | None = None) -> bytes:
        """The report of one honest visit, made and not sent."""
        own = device or self.device()
        decision = own.decide(self.learner.model, ARMS)
        own.reward(decision.id, reward)
        return own.report(decision.id, self.aggregator.status())

    def serve(self, visits: int, reward: float = 0.5) -> None:
        """So many honest users, one after another."""
        device = self.device()
        for _ in range(visits):
            assert self.aggregator.take([self.report(reward, device)]) == (None,)
            self.follow()

    def follow(self) -> None:
        self.learner.follow(self.aggregator.releases(self.learner.releases))

    def forged(self, numbers: NDArray[np.int64], *, label: int | None = None) -> bytes:
        """What a false user may send: any whole numbers."""
        status = self.aggregator.status()
        return Report(
            label=status.label if label is None else label,
            epoch=status.epoch,
            id=os.urandom(16),
            numbers=numbers,
        ).write(self.task)

    @property
    def scale(self) -> int:
        """Of the curator's noise under central trust, in units."""
        privatizer: Any = self.deployment.privatizers["moments"]
        return int(privatizer.aggregator.scale)

    def totals(self) -> list[Release]:
        return [Release.read(one) for one in self.aggregator.releases()]


def field(
    trust: str,
    *,
    store: Store | None = None,
    witness: Witness | None = None,
    source: Callable[[int], bytes] = os.urandom,
    **more: Any,
) -> Field:
    task = build_deployment(trust, **more)
    kept = store or SQLiteStore.memory()
    aggregator = Aggregator(task, store=kept, witness=witness, source=source)
    return Field(deployment=task, store=kept, aggregator=aggregator, learner=Learner(task))


def read(report: bytes, task: Task) -> NDArray[np.int64]:
    return Report.read(report, task).numbers
