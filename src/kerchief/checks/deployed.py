"""The server and the device of a bandit that hears reports: what is deployed is what was simulated.

What is deployed of other bandits is looked at in `checks.twins`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.deviations import pure_epsilon
from kerchief.checks.domains import first_action
from kerchief.checks.errors import expect, law, refused
from kerchief.checks.leakage import charged_multiplier
from kerchief.checks.policy_fixture import SEED, PolicyFixture, by_reports, policy_of
from kerchief.checks.statistics import Floats, fits_chances, fits_deviation, fits_scale
from kerchief.core.contracts import Stops
from kerchief.core.errors import BudgetExceededError
from kerchief.deployment.context_free import compute_unit
from kerchief.deployment.deployment import Deployment, assemble_deployment
from kerchief.deployment.task_building import TaskOptions
from kerchief.policies.context_free.base import LOSS
from kerchief.privacy import RandomizedResponse, Trust
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Budget, Device
from kerchief_device.randomize import randomize
from kerchief_protocol.model import Question, Status
from kerchief_protocol.noise import OneBit
from kerchief_protocol.report import Report

_QUESTIONS, _AT_ONCE, _EXACT = 12, 3, 1600
# What is held against the reports beside the truth: a third too little noise, and too much.
_FACTORS = (1.0, 3 / 2, 2 / 3)
_EXPECTED_VERDICT = [True, False, False]


def _hears_one_number(case: PolicyFixture) -> bool:
    """Whether it hears one number of each user: all that a device can be asked for."""
    return by_reports(case) and all(query.size == 1 for query in policy_of(case).queries.values())


@law(when=_hears_one_number)
def deployed_parties_agree_with_the_simulation(case: PolicyFixture) -> None:
    """A server learns as the simulated one; a device's exact reports have the law charged for them.

    The server, with three questions open that are answered in turned order, comes to the same
    state as the bare functions of the policy, and names and stops as they do. Exact reports, 1600
    for each of three numbers from a seeded source of bytes, have the law that is charged for. A
    device sends what that noise makes of its clipped answer, repeats itself when it is asked again,
    and pays once per question. A server whose promise does not pay begins nothing.
    """
    deployment = _build_deployment(case)
    _expect_same_learner(case, deployment)
    if case.trust == Trust.LOCAL:
        _expect_law(deployment)
        _expect_same_device(case, deployment)
        _expect_one_charge(case, deployment)
        _expect_refusal(case, deployment)


def _build_deployment(case: PolicyFixture) -> Deployment:
    bandit, problem = case.arranged(), case.problem
    promise = dataclasses.replace(case.promise(), rounds=problem.horizon)
    rule = {"window_s": 0, "jitter_s": 0, "default": None}
    options = TaskOptions(name=case.name, rule=rule, nonce=bytes(16))
    return assemble_deployment(bandit, problem, promise, {}, options)


def _expect_same_learner(case: PolicyFixture, deployment: Deployment) -> None:
    policy: Any = deployment.policy
    rng = np.random.default_rng(SEED)
    with contextlib.closing(SQLiteStore.memory()) as store:
        server = case.asker(deployment, store=store, source=rng.bytes)
        outlook = {name: privatizer.outlook for name, privatizer in deployment.privatizers.items()}
        state, answer_count = policy.init(outlook), 0
        while answer_count < _QUESTIONS and (questions := server.ask(_AT_ONCE)):
            pending = [
                (question, _compute_memo(policy, state, question.action.array, np.int32(round)))
                for round, question in enumerate(questions, start=answer_count)
            ]
            epoch = server.status().epoch
            reports = [_make_report(deployment, question, epoch, rng) for question in questions]
            server.take([report.write(deployment.task) for report in reversed(reports)])
            for (question, memo), report in reversed(list(zip(pending, reports, strict=True))):
                estimate = deployment.task.noise[0].estimate(report.numbers, users=1, label=0)
                arguments = (
                    question.action.array,
                    memo,
                    estimate / compute_unit(policy),
                    jnp.int32(answer_count),
                )
                state, answer_count = _learn(policy, state, *arguments), answer_count + 1
            _expect_same_state(server, policy, state, answer_count)


def _expect_same_state(server: Any, policy: Any, state: Any, answer_count: int) -> None:
    recommendation, is_over = _read_decision(policy, state)
    pairs = zip(jax.tree.leaves(server.state), jax.tree.leaves(state), strict=True)
    close = all(
        np.allclose(deployed_leaf, simulated_leaf, rtol=1e-9, atol=1e-9)
        for deployed_leaf, simulated_leaf in pairs
    )
    close = close and np.allclose(server.recommendation, recommendation, rtol=1e-9, atol=1e-9)
    observed = (
        f"{server.recommendation} and {server.is_stopped} after {answer_count}: {server.state}"
    )
    expected = f"{recommendation} and {is_over}: {state}"
    expect(close and server.is_stopped == bool(is_over), seen=observed, expected=expected)


def _make_report(
    deployment: Deployment, question: Question, epoch: int, rng: np.random.Generator
) -> Report:
    """Make a report about a random end of the interval."""
    query: Any = deployment.privatizers[LOSS].query
    value = np.array([rng.choice([query.low, query.high])])
    numbers = randomize(deployment.task.noise[0], value, 0, rng.bytes)
    return Report(label=0, epoch=epoch, id=question.id, numbers=numbers)


_compute_memo = jax.jit(lambda policy, *arguments: policy.memo(*arguments))
_learn = jax.jit(lambda policy, *arguments: policy.learn(*arguments))


@jax.jit
def _read_decision(policy: Any, state: Any) -> tuple[Array, Array]:
    """Return what a state recommends and whether it stops."""
    is_over = policy.is_stopped(state) if isinstance(policy, Stops) else jnp.asarray(False)
    return policy.recommend(state), is_over


def _expect_law(deployment: Deployment) -> None:
    """Hold the reports of the least number, the center and the greatest against the charge."""
    query: Any = deployment.privatizers[LOSS].query
    noise, rng = deployment.task.noise[0], np.random.default_rng(SEED)
    event = deployment.privatizers[LOSS].charges(deployment.task.horizon)[0].event
    for place in (-1, 0, 1):
        value = np.array([query.center + place * query.radius])
        draws = [randomize(noise, value, 0, rng.bytes) for _ in range(_EXACT)]
        reports = np.concatenate([noise.estimate(draw, users=1, label=0) for draw in draws])
        verdict = [
            _fits_law(deployment, event, place, reports - value, factor) for factor in _FACTORS
        ]
        # The center's coin is fair whatever epsilon is.
        fair = isinstance(noise, OneBit) and place == 0
        expected = [True] * 3 if fair else _EXPECTED_VERDICT
        observed = f"reports of deviation {reports.std():.4g} at {value}: {verdict}"
        expect(verdict == expected, seen=observed, expected=f"what {event} charges for, alone")


def _fits_law(
    deployment: Deployment, event: Any, place: int, errors: Floats, factor: float
) -> bool:
    """Whether errors have the law of an event, at so many times its epsilon."""
    query: Any = deployment.privatizers[LOSS].query
    if isinstance(deployment.task.noise[0], OneBit):
        chance = 1 / (1 + math.exp(-place * event.epsilon * factor))
        high = errors + place * query.radius > 0
        return fits_chances(high, np.full(len(errors), chance))
    if isinstance(event, RandomizedResponse):
        return fits_scale(errors, query.sensitivity / pure_epsilon(event) / factor)
    return fits_deviation(errors, charged_multiplier(event) * query.sensitivity / factor)


def _expect_same_device(case: PolicyFixture, deployment: Deployment) -> None:
    task, policy = deployment.task, deployment.policy
    device_source, reference_source = (np.random.default_rng(SEED).bytes for _ in range(2))
    device, action = case.device(task, source=device_source), first_action(policy)
    for number, losses in enumerate(_make_wild_losses(policy)):
        reports = [_request_report(device, number, losses) for _ in range(2)]
        is_repeated = reports[0] == reports[1]
        expect(
            is_repeated, seen=f"{reports[1]!r}, asked again", expected=f"{reports[0]!r}, as before"
        )
        # Where it draws the time of its report, before its noise and for each time it is asked.
        reference_source(8)
        expected = randomize(
            task.noise[0], _encode_answer(deployment, action, losses), 0, reference_source
        )
        reference_source(8)
        numbers = Report.read(reports[0], task).numbers
        expect(
            numbers.tolist() == expected.tolist(), seen=f"{numbers} for {losses}", expected=expected
        )


def _encode_answer(deployment: Deployment, action: Any, losses: Floats) -> Floats:
    policy: Any = deployment.policy
    query: Any = deployment.privatizers[LOSS].query
    number = policy.answer(jnp.asarray(action), jnp.asarray(losses)) * compute_unit(policy)
    return np.asarray(query.encode(number), np.float64)


def _expect_one_charge(case: PolicyFixture, deployment: Deployment) -> None:
    promise = deployment.guarantee
    budget = Budget(epsilon=2.1 * promise.epsilon, delta=3 * promise.delta)
    device, losses = (
        case.device(deployment.task, budget=budget),
        np.zeros_like(_make_losses(deployment.policy)),
    )
    for number, bills in ((0, 1), (0, 1), (1, 2), (2, 2)):
        is_refused = refused(BudgetExceededError, partial(_request_report, device, number, losses))
        is_paid = math.isclose(device.spent().epsilon, bills * promise.epsilon)
        observed = f"epsilon {device.spent().epsilon} for {bills} questions; refused: {is_refused}"
        expect(
            is_paid and is_refused == (number == 2),
            seen=observed,
            expected="one charge for each of two",
        )


def _expect_refusal(case: PolicyFixture, deployment: Deployment) -> None:
    short_guarantee = dataclasses.replace(
        deployment.guarantee, epsilon=deployment.guarantee.epsilon * 2 / 3
    )
    with contextlib.closing(SQLiteStore.memory()) as store:
        begin = partial(
            case.asker, dataclasses.replace(deployment, guarantee=short_guarantee), store=store
        )
        is_refused = refused(BudgetExceededError, begin)
        observed = f"refused: {is_refused}; begun: {store.tasks()}"
        expect(
            is_refused and not store.tasks(),
            seen=observed,
            expected="refusal, and nothing is begun",
        )


def _request_report(device: Device, number: int, losses: Floats) -> bytes:
    """Ask a device a question and return its report."""
    task = device.task
    id = device.accept_question(number.to_bytes(16, "big"))
    device.reward(id, losses)
    return device.report(id, Status(task=task.id, state="running", epoch=0, label=0))


def _make_losses(policy: Any) -> Floats:
    """Make one loss of alternating sign for each point of an action."""
    action = first_action(policy)
    return np.where(np.arange(len(action) if np.ndim(action) else 1) % 2, -1.0, 1.0)


def _make_wild_losses(policy: Any) -> Iterator[Floats]:
    """Losses far beyond any range, one for each question."""
    for size in (0.0, 0.5, 10.0, 1e9, 1e30, 1e300):
        for side in (1, -1):
            yield side * size * _make_losses(policy)
