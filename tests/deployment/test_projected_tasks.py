"""Tasks whose devices project features first: the same promise, and what the library computes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerchief.core.errors import CodecError, InvalidValueError
from kerchief.core.problems import PopulationProblem, Problem
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.deployment import deploy, read_deployment
from kerchief.deployment.learner import Learner
from kerchief.policies.linear.linucb import LinUCB
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief_device import Device
from kerchief_protocol import canonical
from kerchief_protocol.model import Status
from kerchief_protocol.projection import Projection
from kerchief_protocol.report import Report
from kerchief_protocol.task import Task

FACTS = Problem(dim=80, arms=4, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=200)
SHORT = dataclasses.replace(FACTS, dim=6)
TRUSTS = ("local", "shuffle", "joint", "central")


def promise(trust: str) -> Guarantee:
    return Guarantee(epsilon=1.0, delta=1e-6, trust=Trust(trust))


def rows(seed: int) -> Any:
    found = np.random.default_rng(seed).normal(size=(4, 80))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("own", [False, True])
def test_task_equals_that_of_short_features_except_projection(trust: str, own: bool) -> None:
    long, short = (
        dataclasses.replace(facts, own=facts.dim if own else 0) for facts in (FACTS, SHORT)
    )
    deployment = deploy(
        policy="best", problem=long, guarantee=promise(trust), project=6, nonce=bytes(16)
    )
    plain = deploy(policy="best", problem=short, guarantee=promise(trust), nonce=bytes(16))
    assert deployment.task.projection == Projection(dim=80, onto=6, norm=1.0)
    assert dataclasses.replace(deployment.task, projection=None).data == plain.task.data
    assert deployment.task.id != plain.task.id
    again = read_deployment(Task.read(deployment.task.data))
    assert again.task == deployment.task


def test_task_has_one_encoding_that_omits_a_missing_projection() -> None:
    task = deploy(policy="linucb", problem=SHORT, guarantee=promise("joint")).task
    tree = canonical.read(task.data)
    assert "projection" not in tree
    with pytest.raises(CodecError, match="names none of parties, projection, valid_s"):
        Task.read(canonical.write({**tree, "projection": None}))
    through = {**canonical.pack(Projection(dim=80, onto=6, norm=1.0)), "more": 1}
    with pytest.raises(CodecError):
        Task.read(canonical.write({**tree, "projection": through}))


@pytest.mark.parametrize("wrong", [{"onto": 7}, {"norm": 2.0}])
def test_task_rejects_projection_to_another_problem(wrong: dict[str, Any]) -> None:
    task = deploy(policy="linucb", problem=SHORT, guarantee=promise("joint")).task
    through = Projection(**{"dim": 80, "onto": 6, "norm": 1.0, **wrong})
    with pytest.raises(InvalidValueError, match="make the task anew"):
        dataclasses.replace(task, projection=through)


@pytest.mark.parametrize("policy", ["linucb", "own"])
def test_a_report_is_of_projected_features(policy: Any) -> None:
    given = LinUCB.of(SHORT) if policy == "own" else policy
    common: Any = {"policy": given, "guarantee": promise("joint"), "window_s": 0}
    deployment = deploy(problem=FACTS, project=6, **common)
    plain = deploy(problem=SHORT, **common)
    assert deployment.task.projection is not None
    short = deployment.task.projection.apply(rows(3))
    numbers = []
    for one, features in ((deployment, rows(3)), (plain, short)):
        device = Device(one.task)
        decision = device.decide(Learner(one).model, features, [False, True, False, False])
        device.reward(decision.id, 0.5)
        status = Status(task=one.task.id, state="running", epoch=0, label=0)
        data = device.report(decision.id, status)
        numbers.append(Report.read(data, one.task).numbers)
    assert (numbers[0] == numbers[1]).all()
    assert numbers[0].any()


def test_features_are_checked_before_they_are_projected() -> None:
    deployment = deploy(
        policy="linucb", problem=FACTS, guarantee=promise("local"), project=6, window_s=0
    )
    device, model = Device(deployment.task), Learner(deployment).model
    for wrong, said in ((rows(1)[:, :6], "arms of 80"), (3 * rows(1), "too long")):
        with pytest.raises(InvalidValueError, match=said):
            device.decide(model, wrong)


@pytest.mark.parametrize(
    "trust", [*TRUSTS[:1], *(pytest.param(one, marks=pytest.mark.nightly) for one in TRUSTS[1:])]
)
def test_a_bandit_goes_on_after_a_restart(trust: str, tmp_path: Path) -> None:
    given: Any = {"problem": FACTS, "guarantee": promise(trust), "project": 6, "window_s": 0}
    with Bandit(**given, path=tmp_path / "b", witness=tmp_path / "witness") as bandit:
        for visit in range(60):
            bandit.reward(bandit.decide(rows(visit)).id, 0.5)
        bandit.expire()
        seen, users = bandit.model, bandit.users
        assert "projected onto 6" in bandit.statement()
        assert bandit.spent().epsilon <= 1.0
    assert users
    with Bandit.open(tmp_path / "b", witness=tmp_path / "witness") as again:
        assert again.users == users
        assert again.task.projection == bandit.task.projection
        for name, one in again.model.items():
            assert (one == seen[name]).all()
        again.reward(again.decide(rows(0)).id, 0.5)


def test_custom_projection_must_fit_the_problem() -> None:
    other = Projection(dim=80, onto=6, norm=1.0, seed=7)
    deployment = deploy(policy="linucb", problem=FACTS, guarantee=promise("joint"), project=other)
    assert deployment.task.projection == other
    wrong = dataclasses.replace(other, norm=2.0)
    with pytest.raises(InvalidValueError, match="for this problem it must be"):
        deploy(policy="linucb", problem=FACTS, guarantee=promise("joint"), project=wrong)


@pytest.mark.parametrize(
    ("facts", "onto", "said"),
    [
        (FACTS, 80, "project is 80; it must be at least 1 and at most 79"),
        (FACTS, 0, "at least 1"),
        (
            dataclasses.replace(FACTS, dim=1),
            1,
            "project is 1, and features have 1 number: no fewer can",
        ),
        (
            dataclasses.replace(FACTS, dim=2, constant=0.5),
            2,
            "have 2 numbers, one of which is the constant: no",
        ),
        (dataclasses.replace(FACTS, dim=2), 2, "project is 2; it must be at least 1 and at most 1"),
        (dataclasses.replace(FACTS, own=3), 6, "own is 3 of 80"),
        (PopulationProblem(**vars(FACTS), clients=100, spread=0.1), 6, "leave project out"),
    ],
)
def test_deploy_rejects_invalid_projection(facts: Any, onto: int, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        deploy(policy="best", problem=facts, guarantee=promise("central"), project=onto)
