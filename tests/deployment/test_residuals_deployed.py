"""Bandits that report surprises, deployed: one direction of many is what leaves a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.deployment.field import ARMS, FACTS, Field, field, promise, read

from kerchief import Bandit
from kerchief.core.errors import FencedError, InvalidValueError
from kerchief.deployment.deployment import deploy, read_deployment
from kerchief.deployment.learner import Learner
from kerchief.deployment.library_code import LibraryCode
from kerchief.policies.thompson_sampling import LinearSampling
from kerchief_device import Device
from kerchief_device.promise import check, sensitivity
from kerchief_device.randomize import candidates
from kerchief_device.record import RULE
from kerchief_protocol.model import Model, Numbers
from kerchief_protocol.noise import Compass
from kerchief_protocol.programs import Optimist
from kerchief_protocol.report import Report
from kerchief_protocol.task import Task

TRUE = np.array([0.6, -0.3])
MADE = deploy(policy="best", problem=FACTS, guarantee=promise("local"))


def weighing(given: Model, number: int) -> Model:
    """The model with a matrix and a reference, as a learner posts them once it has learned."""
    rng = np.random.default_rng(number)
    half = np.eye(2) + 0.5 * rng.normal(size=(2, 2))
    posted = {"weights": half @ half.T, "reference": 0.3 * rng.normal(size=2)}
    arrays = {name: Numbers.of(one.astype(np.float32)) for name, one in posted.items()}
    return dataclasses.replace(given, arrays={**given.arrays, **arrays})


def test_residual_task_states_its_noise_and_rule() -> None:
    task = Task.read(MADE.task.data)
    assert isinstance(task.program, Optimist)
    assert isinstance(task.noise[0], Compass)
    assert task.program.reweighed == RULE
    assert read_deployment(task).task.data == MADE.task.data
    found = check(task)
    assert (found.recomputed, found.delta) == (True, 0.0)
    assert 0.999 < found.epsilon <= 1.0
    query: Any = MADE.policy.queries["moments"]
    assert sensitivity(task.program) == pytest.approx(query.sensitivity, rel=1e-15)


def test_a_task_by_another_rule_is_refused_everywhere() -> None:
    assert isinstance(MADE.task.program, Optimist)
    older = dataclasses.replace(MADE.task.program, reweighed=RULE - 1)
    task = dataclasses.replace(MADE.task, program=older)
    with pytest.raises(FencedError, match="not what its promise needs"):
        read_deployment(task)
    with pytest.raises(
        InvalidValueError, match=f"by rule {RULE - 1}, and those of this device by rule"
    ):
        Device(task)


@pytest.mark.parametrize("mechanism", ["best", "gaussian", "laplace", "shortlist", "compass"])
def test_roles_serve_residual_reports_within_bounds_and_budget(mechanism: str) -> None:
    one = field("local", policy="sampling", mechanism=mechanism)
    device = one.device()
    assert device.checked.recomputed
    for number in range(40):
        report = one.report(float(number % 2), device)
        assert one.task.within(read(report, one.task), 0)
        assert one.aggregator.take([report]) == (None,)
        one.follow()
    assert one.learner.users == 40
    assert 0.999 < one.aggregator.spent().epsilon <= 1.0


def test_deployed_residual_learner_gets_noise_of_the_simulation() -> None:
    one = field("local", policy="sampling")
    one.serve(30)
    (total,) = one.learner._sums.values()
    privatizer: Any = one.deployment.privatizers["moments"]
    stated = float(privatizer.noise_after(np.int64(30), np.int64(30)))
    assert total.variance**0.5 == pytest.approx(stated, rel=1e-9)
    simulated = LinearSampling.of(FACTS, trust="local").query
    assert simulated == one.deployment.policy.queries["moments"]


@pytest.mark.parametrize("link", ["linear", "logistic", "probit", "poisson"])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_residual_statistics_match_in_library_and_light_device(epsilon: float, link: str) -> None:
    """In both forms: directions and weights apart, or where epsilon is large their product."""
    promised = dataclasses.replace(promise("local"), epsilon=epsilon)
    facts = dataclasses.replace(FACTS, link=link)
    deployment = deploy(policy="best", problem=facts, guarantee=promised, window_s=0)
    code, light_code, posted = (
        LibraryCode(deployment),
        Device(deployment.task)._code,
        Learner(deployment).model,
    )
    assert isinstance(deployment.task.program, Optimist)
    assert deployment.task.program.reweighed == RULE
    assert deployment.task.program.weighted == (epsilon > 1)
    for number in range(20):
        model = weighing(posted, number)
        for features in (*ARMS, np.zeros(2)):
            (found,) = code.statistics(model, features, 0.75)
            (light,) = light_code.statistics(model, features, 0.75)
            np.testing.assert_allclose(light, found, rtol=1e-14, atol=1e-15)


def reported(one: Field, users: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Reports of users of a posted matrix, and what they are about, in the statistics' units."""
    device, rng = one.device(), np.random.default_rng(7)
    noise, seen, meant = one.task.noise[0], [], []
    for number in range(users):
        model = weighing(one.learner.model, number % 3)
        choice = device.decide(model, ARMS)
        reward = float(rng.uniform() < 0.5 + 0.4 * ARMS[choice.arm] @ TRUE)
        device.reward(choice.id, reward)
        report = device.report(choice.id, one.aggregator.status())
        numbers = Report.read(report, one.task).numbers
        seen.append(noise.estimate(numbers, users=1, label=0))
        (statistic,) = device._code.statistics(model, ARMS[choice.arm], reward)
        meant.append(statistic)
    return np.array(seen), np.array(meant)


@pytest.mark.parametrize("users", [1500, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_reports_are_right_on_average(users: int) -> None:
    """Within 5 standard errors of what devices noted, and with the noise that is stated."""
    one = field("local", policy="sampling", horizon=users)
    seen, meant = reported(one, users)
    apart = seen - meant
    assert (np.abs(apart.mean(0)) < 5 * apart.std(0) / np.sqrt(users)).all()
    privatizer: Any = one.deployment.privatizers["moments"]
    stated = float(privatizer.device.std)
    assert max((apart[:, :3] ** 2).mean(), (apart[:, 3:] ** 2).mean()) ** 0.5 < 1.3 * stated


def test_a_bandit_in_memory_draws_ahead_and_uses_each_list_once() -> None:
    bandit, used = Bandit(problem=FACTS, guarantee=promise("local"), window_s=0), []
    ahead = bandit._device._draw_candidates
    (noise,) = bandit.task.noise
    assert isinstance(noise, Compass)

    def listed(count: int, size: int, source: Any) -> Any:
        used.append(ahead(count, size, source))
        assert (count, size) == (noise.candidates + 1, noise.dim + 1)
        return used[-1]

    bandit._device._draw_candidates = listed
    for number in range(30):
        choice = bandit.decide(ARMS)
        bandit.reward(choice.id, float(number % 2))
    bandit.expire()
    assert ahead is not candidates
    assert bandit.users == len(used) == 30
    assert len({one.tobytes() for one in used}) == 30
    assert bandit.spent().epsilon <= 1.0


@pytest.mark.parametrize("trust", ["none", "joint", "shuffle"])
def test_residuals_are_deployed_only_with_noise_per_report(trust: str) -> None:
    surprising = LinearSampling.of(FACTS, trust="local")
    assert deploy(policy=surprising, problem=FACTS, guarantee=promise("local")).task.size == 5
    with pytest.raises(InvalidValueError, match="built to report surprises"):
        deploy(policy=surprising, problem=FACTS, guarantee=promise(trust))
