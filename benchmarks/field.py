"""How long the roles take, apart and together: medians on one core, d = 5, 20 arms, exact noise.

Run it as `python -m benchmarks.field [--cpu]`. With `--cpu` it counts the time of the processor and
not that of the clock: for a machine that others use too, where nothing waits for a disk.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kerchief import Aggregator, Bandit, Guarantee, Learner, Problem, Trust, deploy
from kerchief.deployment.deployed_statistic import build_statistics, hedge_source
from kerchief.stores import open_store
from kerchief_device import Device
from kerchief_device.randomize import randomize
from kerchief_protocol.report import Report

FACTS = Problem(dim=5, arms=20, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=20_000)
TRUSTS = ("local", "shuffle", "joint", "central")
VISITS, GROUP = 1500, 64
CLOCK = time.process_time if "--cpu" in sys.argv else time.perf_counter


def promise(trust: str) -> Guarantee:
    return Guarantee(epsilon=1.0, delta=1e-6, trust=Trust(trust))


def arms(count: int) -> NDArray[np.float64]:
    rows = np.random.default_rng(0).normal(size=(count, FACTS.arms, FACTS.dim))
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows


def median(call: Callable[[int], object], count: int) -> float:
    durations = []
    for number in range(count):
        start = CLOCK()
        call(number)
        durations.append(CLOCK() - start)
    return 1e6 * float(np.median(durations))


def device(trust: str) -> tuple[float, float]:
    """Measure microseconds of a decision, and of a report."""
    deployment = deploy(policy="linucb", problem=FACTS, guarantee=promise(trust), window_s=0)
    aggregator, rows = Aggregator(deployment, store=open_store(":memory:")), arms(VISITS)
    client, model, status, ids = (
        Device(deployment.task),
        Learner(deployment).model,
        aggregator.status(),
        [],
    )
    decides = median(lambda number: ids.append(client.decide(model, rows[number]).id), VISITS)
    for id in ids:
        client.reward(id, 0.5)
    return decides, median(lambda number: client.report(ids[number], status), VISITS)


def reports(aggregator: Aggregator, count: int) -> list[bytes]:
    task, status = aggregator.task, aggregator.status()
    numbers = randomize(task.noise[0], np.zeros(task.size), status.label, os.urandom)
    return [
        Report(label=status.label, epoch=status.epoch, id=os.urandom(16), numbers=numbers).write(
            task
        )
        for _ in range(count)
    ]


def aggregator(trust: str) -> tuple[float, float]:
    """Measure microseconds of a report in groups of 64 on disk, and of a release."""
    deployment = deploy(policy="linucb", problem=FACTS, guarantee=promise(trust))
    with tempfile.TemporaryDirectory() as folder:
        role = Aggregator(deployment, store=open_store(str(Path(folder) / "aggregator.db")))
        take_time = median(lambda _: role.take(reports(role, GROUP)), 40) / GROUP
        build_time = median(lambda _: reports(role, GROUP), 40) / GROUP
        payloads = role.releases()
    # Few releases are of large cohorts: several learners follow them.
    learners, payload_count = (
        [Learner(deployment) for _ in range(-(-200 // len(payloads)))],
        len(payloads),
    )

    def learn(number: int) -> None:
        learners[number // payload_count].follow([payloads[number % payload_count]])

    learns = median(learn, payload_count * len(learners))
    return take_time - build_time, learns


def draw(trust: str) -> float:
    """Measure microseconds of the noise of one release, as an aggregator draws it."""
    (statistic,) = build_statistics(
        deploy(policy="linucb", problem=FACTS, guarantee=promise(trust))
    )
    cohort, state = np.zeros((1, statistic.wire.size), np.int64), statistic.open()
    return median(
        lambda number: statistic.draw(cohort, state, number, hedge_source(bytes(32))), VISITS
    )


def whole(trust: str) -> float:
    """Measure microseconds of a round of a bandit in memory."""
    guarantee, rows = promise(trust), arms(VISITS)
    bandit = Bandit(policy="linucb", problem=FACTS, guarantee=guarantee, window_s=0)
    for number in range(VISITS):
        bandit.reward(bandit.decide(rows[number]).id, 0.5)
    return median(lambda number: bandit.reward(bandit.decide(rows[number]).id, 0.5), VISITS)


def main() -> None:
    table = Table(title="microseconds, medians")
    for name in (
        "trust",
        "decide",
        "report",
        "draw",
        "aggregator, per report",
        "learner, per release",
        "round",
    ):
        table.add_column(name, justify="left" if name == "trust" else "right")
    for trust in TRUSTS:
        figures = (*device(trust), draw(trust), *aggregator(trust), whole(trust))
        table.add_row(trust, *(f"{figure:.0f}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    main()
