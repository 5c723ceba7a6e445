"""Roles apart: false statuses, signed ones, and two runs of one task."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.deployment.field import ARMS, FACTS, TRUSTS, promise

from kerchief.core.problems import ContextFreeProblem, PopulationProblem
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.deployed_statistic import build_statistics
from kerchief.deployment.deployment import Deployment, deploy, read_deployment
from kerchief.deployment.learner import Learner
from kerchief.deployment.population import PopulationLearner
from kerchief.deployment.questions import Asker
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Device
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.model import Status
from kerchief_protocol.parties import Party
from kerchief_protocol.report import Release, Report
from kerchief_protocol.signing import Signer, public_key
from kerchief_protocol.task import Task

KEYS = {"aggregator": bytes([1]) * 32, "learner": bytes([2]) * 32}
PARTIES = [
    Party(role=role, operator="Example Ltd", keys=(public_key(key),)) for role, key in KEYS.items()
]


def shuffled(mechanism: str = "best", **more: Any) -> Deployment:
    return deploy(
        policy="linucb",
        problem=FACTS,
        guarantee=promise("shuffle", honest=(4, 5)),
        mechanism=mechanism,
        window_s=0,
        nonce=bytes(16),
        **more,
    )


def begun(deployment: Deployment) -> Aggregator:
    kind = Asker if deployment.task.bandit == "context-free" else Aggregator
    return kind(deployment, store=SQLiteStore.memory())


def lying(aggregator: Aggregator, label: int) -> Status:
    """The open cohort is the first; the status names another."""
    status = aggregator.status()
    assert status.label == 0
    return dataclasses.replace(status, label=label)


def report(device: Device, model: Any, status: Any) -> bytes:
    decision = device.decide(model, ARMS)
    device.reward(decision.id, 1.0)
    return device.report(decision.id, status)


def words(aggregator: Aggregator, *reports: bytes) -> list[str | None]:
    return [None if refused is None else refused.word for refused in aggregator.take(reports)]


def test_cohorts_have_equal_coins_unless_labels_are_signed() -> None:
    own, signed, plain = shuffled(in_process=True), shuffled(parties=PARTIES), shuffled()
    noises: list[Any] = [one.task.noise[0] for one in (own, signed, plain)]
    tables = [list(noise.coins) for noise in noises]
    assert tables[0] == tables[1]
    assert len(set(tables[0])) > 1
    assert tables[2] == [max(tables[0])] * len(tables[0])
    for role in range(2):
        (only,) = shuffled(parties=PARTIES[role : role + 1]).task.noise
        assert only == plain.task.noise[0]
    for one in (own, signed, plain):
        assert read_deployment(Task.read(one.task.data)).task == one.task


@pytest.mark.parametrize("mechanism", ["best", "bits"])
def test_lying_status_lowers_no_noise_and_wastes_no_report(mechanism: str) -> None:
    deployment = shuffled(mechanism)
    aggregator, model = begun(deployment), Learner(deployment).model
    assert deployment.task.has_equal_noise
    for label in range(len(deployment.task.needs)):
        sent = report(Device(deployment.task), model, lying(aggregator, label))
        assert Report.read(sent, deployment.task).label == label
        assert words(aggregator, sent) == [None]


def test_false_status_is_refused_and_the_signed_one_counts() -> None:
    deployment = shuffled(parties=PARTIES)
    aggregator, learner = begun(deployment), Learner(deployment)
    signers = {role: Signer(deployment.task, key) for role, key in KEYS.items()}
    model, device = signers["learner"].sign(learner.model), Device(deployment.task)
    decision = device.decide(model, ARMS)
    with pytest.raises(InvalidValueError, match="the status has no signature"):
        device.report(decision.id, lying(aggregator, len(deployment.task.needs) - 1))
    sent = device.report(decision.id, signers["aggregator"].sign(aggregator.status()))
    assert Report.read(sent, deployment.task).label == 0
    assert words(aggregator, sent) == [None]
    device.confirm(decision.id)
    for _ in range(deployment.task.need(0) - 1):
        sent = report(device, model, signers["aggregator"].sign(aggregator.status()))
        assert words(aggregator, sent) == [None]
    learner.follow(aggregator.releases())
    assert learner.users == deployment.task.need(0)
    AuditLog.of(aggregator.chain()).check(deployment)


def test_device_outside_the_process_brings_the_most_coins() -> None:
    """A task whose cohorts differ, whose keys are missing, and a status that names the largest."""
    deployment = shuffled(in_process=True)
    noise: Any = deployment.task.noise[0]
    aggregator, model = begun(deployment), Learner(deployment).model
    fewest = int(np.argmin(noise.coins))
    sent = report(Device(deployment.task), model, lying(aggregator, fewest))
    label = Report.read(sent, deployment.task).label
    assert noise.coins[label] == max(noise.coins) > noise.coins[fewest]
    assert words(aggregator, sent) == [None]
    inside = Device(deployment.task, in_process=True)
    assert (
        Report.read(report(inside, model, lying(aggregator, fewest)), deployment.task).label
        == fewest
    )


@pytest.mark.parametrize("mechanism", ["best", "bits"])
def test_stated_noise_is_that_of_equal_reports(mechanism: str) -> None:
    """A whole cohort of zeros, whose reports carry wrong labels: its total has the stated noise."""
    deployment = shuffled(mechanism)
    aggregator, (statistic,) = begun(deployment), build_statistics(deployment)
    model, need = Learner(deployment).model, deployment.task.need(0)
    device, last = Device(deployment.task), len(deployment.task.needs) - 1
    sent = []
    for _ in range(need):
        decision = device.decide(model, np.zeros((1, 2)))
        sent.append(device.report(decision.id, lying(aggregator, last)))
    assert set(aggregator.take(sent)) == {None}
    (release,) = map(Release.read, aggregator.releases())
    total = statistic.wire.estimate(release.total, users=need, label=release.cohort)
    stated = statistic.variance(0, need)
    assert np.abs(total).max() < 6 * stated**0.5
    if mechanism == "best":
        noise: Any = deployment.task.noise[0]
        assert stated == 4.0**-noise.step_bits * need * (1 + max(noise.coins)) / 4


def test_bits_are_kept_least_unless_labels_are_signed() -> None:
    own, plain = shuffled("bits", in_process=True), shuffled("bits")
    tables: list[Any] = [one.task.noise[0] for one in (own, plain)]
    assert len(set(tables[0].keep)) > 1
    assert set(tables[1].keep) == {min(tables[0].keep)}
    for one in (own, plain):
        assert read_deployment(Task.read(one.task.data)).task == one.task
        begun(one)


@pytest.mark.parametrize("trust", TRUSTS)
def test_equal_runs_take_no_reports_of_each_other(trust: str) -> None:
    one, other = (
        deploy(policy="linucb", problem=FACTS, guarantee=promise(trust), window_s=0)
        for _ in range(2)
    )
    assert one.task.id != other.task.id
    aggregators = [begun(deployment) for deployment in (one, other)]
    sent = report(Device(one.task), Learner(one).model, aggregators[0].status())
    assert words(aggregators[1], sent) == ["task"]
    assert words(aggregators[0], sent) == [None]


@pytest.mark.parametrize("trust", TRUSTS)
def test_stores_begun_apart_take_no_reports_of_each_other(trust: str) -> None:
    """The same bytes of a task, opened in two stores: a report counts in one of them."""
    deployment = deploy(policy="linucb", problem=FACTS, guarantee=promise(trust), window_s=0)
    first, second = begun(deployment), begun(deployment)
    assert first.status().epoch != second.status().epoch
    sent = report(Device(deployment.task), Learner(deployment).model, first.status())
    assert words(second, sent) == ["epoch"]
    assert words(first, sent, sent) == [None, None]
    for aggregator in (first, second):
        (first_epoch,) = AuditLog.of(aggregator.chain()).epochs
        assert first_epoch.epoch == aggregator.status().epoch


def test_questions_of_stores_begun_apart_do_not_meet() -> None:
    problem = ContextFreeProblem(horizon=100, low=0.0, high=1.0, arms=3)
    guarantee = Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL)
    deployment = deploy(policy="tsallis", problem=problem, guarantee=guarantee, window_s=0)
    first, second = (Asker(deployment, store=SQLiteStore.memory()) for _ in range(2))
    (question,) = first.ask(1)
    device = Device(deployment.task)
    id = device.accept_question(question.id)
    device.reward(id, 0.5)
    sent = device.report(id, first.status())
    assert words(second, sent) == ["epoch"]
    assert words(first, sent) == [None]


def test_deploy_takes_an_hour_of_validity_and_no_lone_one() -> None:
    assert shuffled(parties=PARTIES).task.valid_s == 3600
    assert shuffled(parties=PARTIES, valid_s=60).task.valid_s == 60
    with pytest.raises(InvalidValueError, match="valid_s is 60 with 0 parties"):
        shuffled(valid_s=60)


def test_client_of_phases_takes_a_place_by_signed_messages_alone() -> None:
    problem = PopulationProblem(
        dim=2,
        arms=3,
        norm=1.0,
        radius=1.0,
        low=-1.0,
        high=1.0,
        horizon=1000,
        clients=3000,
        spread=0.1,
    )
    guarantee = Guarantee(epsilon=8.0, delta=1e-4, trust=Trust.SHUFFLE)
    deployment = deploy(
        policy="pe", problem=problem, guarantee=guarantee, window_s=0, parties=PARTIES
    )
    aggregator, learner = begun(deployment), PopulationLearner(deployment, ARMS)
    signer, poster = (Signer(deployment.task, key) for key in KEYS.values())
    device, true = Device(deployment.task), poster.sign(learner.model)
    false: list[tuple[Any, Any]] = [
        (learner.model, signer.sign(aggregator.status())),
        (true, aggregator.status()),
        (true, true),
    ]
    for model, status in false:
        with pytest.raises(InvalidValueError, match=r"signed|signature"):
            device.join(model, status)
    assert device.due() == ()
    place = device.join(true, signer.sign(aggregator.status()))
    device.reward(place.id, np.zeros(len(place.atoms)))
    with pytest.raises(InvalidValueError, match="the status has no signature"):
        device.report(place.id, lying(aggregator, 1))
    sent = device.report(place.id, signer.sign(aggregator.status()))
    assert words(aggregator, sent) == [None]
