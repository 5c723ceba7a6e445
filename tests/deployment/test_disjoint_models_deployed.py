"""Arms with models of their own, deployed: every trust, exact noise, and a store on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deployment.field import promise

from kerchief import Bandit, Problem
from kerchief.core.errors import InvalidValueError
from kerchief.deployment.deployment import deploy, read_deployment
from kerchief.deployment.learner import Learner
from kerchief.deployment.library_code import LibraryCode
from kerchief.policies.disjoint_models import DisjointSampling
from kerchief_device import Device, Pending
from kerchief_device.disjoint_models import encode
from kerchief_device.promise import check
from kerchief_protocol.model import Status
from kerchief_protocol.programs import DisjointModels
from kerchief_protocol.report import Report
from kerchief_protocol.task import Task

FACTS = Problem(
    dim=3, arms=4, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=60, constant=0.5, own=3
)
USER = np.tile([0.3, -0.4, 0.5], (4, 1))


@pytest.mark.parametrize(
    "trust",
    [
        "none",
        "joint",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("local", "shuffle", "central")),
    ],
)
def test_a_bandit_serves_everyone_with_a_model_per_arm(trust: str) -> None:
    bandit = Bandit(problem=FACTS, guarantee=promise(trust), window_s=0)
    for number in range(FACTS.horizon):
        choice = bandit.decide(USER)
        bandit.reward(choice.id, float(choice.arm == number % 2))
    bandit.expire()
    assert bandit.task.name == "own-models"
    assert bandit.users == FACTS.horizon
    assert bandit.model["estimate"].shape == (4, 3)
    if trust != "none":
        assert bandit.spent().epsilon <= 1.0


@pytest.mark.nightly
def test_without_noise_it_ends_with_the_arm_that_pays() -> None:
    facts = dataclasses.replace(FACTS, horizon=300)
    bandit, played = Bandit(problem=facts, guarantee=promise("none"), window_s=0), []
    for _ in range(facts.horizon):
        choice = bandit.decide(USER)
        played.append(choice.arm)
        bandit.reward(choice.id, float(choice.arm == 2))
    assert played[-100:].count(2) > 90


@pytest.mark.parametrize("trust", ["local", "shuffle"])
def test_device_recomputes_guarantee_of_disjoint_task(trust: str) -> None:
    task = deploy(policy="best", problem=FACTS, guarantee=promise(trust)).task
    assert isinstance(task.program, DisjointModels)
    assert check(Task.read(task.data)).recomputed
    policy = DisjointSampling.of(FACTS, public=USER)
    unasked = deploy(policy=policy, problem=FACTS, guarantee=promise(trust)).task
    assert isinstance(unasked.program, DisjointModels)
    assert (unasked.program.balance, check(Task.read(unasked.data)).recomputed) == (0, True)
    weak = dataclasses.replace(task.program, balance=40 * task.program.balance)
    if trust == "shuffle":
        with pytest.raises(InvalidValueError, match="do not take part"):
            check(dataclasses.replace(task, program=weak))


def test_a_task_says_whether_arms_have_models_of_their_own() -> None:
    deployment = deploy(policy="best", problem=FACTS, guarantee=promise("central"))
    assert deployment.task.problem["own"] == 3
    assert read_deployment(Task.read(deployment.task.data)).problem == FACTS
    shared = dataclasses.replace(FACTS, own=0)
    deployment = deploy(policy="best", problem=shared, guarantee=promise("central"))
    assert deployment.task.problem["own"] == 0
    assert read_deployment(Task.read(deployment.task.data)).problem == shared


def test_device_follows_program_when_task_hides_disjoint_models() -> None:
    deployment = deploy(policy="best", problem=FACTS, guarantee=promise("none"), window_s=0)
    task = dataclasses.replace(deployment.task, problem={**deployment.task.problem, "own": 0})
    bandit = Bandit(problem=FACTS, guarantee=promise("none"), window_s=0)
    device = Device(task)
    choice = device.decide(dataclasses.replace(bandit._learner.model, task=task.id), USER)
    device.reward(choice.id, 1.0)
    status = Status(task=task.id, state="running", epoch=0, label=0)
    Report.read(device.report(choice.id, status), task)


def test_the_number_of_the_arm_survives_on_disk(tmp_path: Path) -> None:
    deployment = deploy(policy="best", problem=FACTS, guarantee=promise("none"), window_s=0)
    bandit = Bandit(problem=FACTS, guarantee=promise("none"), window_s=0)
    model = dataclasses.replace(bandit._learner.model, task=deployment.task.id)
    device = Device(deployment.task, pending=Pending(tmp_path / "device.db"))
    allowed = [False, False, True, False]
    choice = device.decide(model, USER, allowed)
    again = Device(deployment.task, pending=Pending(tmp_path / "device.db"))
    again.reward(choice.id, 1.0)
    seen: list[Any] = []
    statistics = again._code.statistics
    again._code.statistics = lambda *given: seen.append(statistics(*given)) or seen[-1]  # type: ignore[method-assign, func-returns-value]
    again.report(choice.id, Status(task=deployment.task.id, state="running", epoch=0, label=0))
    program = deployment.task.program
    assert isinstance(program, DisjointModels)
    assert choice.arm == 2
    np.testing.assert_array_equal(seen[0][0], encode(program, USER[2], 2, 1.0))


def test_arm_names_are_rejected_for_disjoint_models() -> None:
    """The order of the arms selects their models."""
    bandit = Bandit(problem=FACTS, guarantee=promise("none"), window_s=0)
    with pytest.raises(InvalidValueError, match="known by the number of its row"):
        bandit.decide({"a": [0.3, -0.4, 0.5], "b": [0.3, -0.4, 0.5]})


@pytest.mark.parametrize("public", [False, True])
def test_disjoint_statistics_match_in_library_and_light_device(public: bool) -> None:
    policy = DisjointSampling.of(FACTS, public=USER) if public else "own-models"
    deployment = deploy(policy=policy, problem=FACTS, guarantee=promise("none"))
    model = Learner(deployment).model
    program = deployment.task.program
    assert isinstance(program, DisjointModels)
    given = np.array([0.3, -0.4, 0.5, 3.0])
    (found,) = LibraryCode(deployment).statistics(model, given, 1.0)
    np.testing.assert_allclose(found, encode(program, given[:3], 3, 1.0), rtol=1e-14)


def test_bandit_accepts_policy_object() -> None:
    policy = dataclasses.replace(DisjointSampling.of(FACTS), exploration=0.5)
    bandit = Bandit(policy=policy, problem=FACTS, guarantee=promise("central"), window_s=0)
    choice = bandit.decide(USER)
    bandit.reward(choice.id, 1.0)
    assert choice.arm in range(4)
