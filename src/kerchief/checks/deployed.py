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

from kerchief.checks.case import SEED, Case, by_reports, policy_of
from kerchief.checks.deviations import pure_epsilon
from kerchief.checks.domains import first_action
from kerchief.checks.errors import expect, law, refused
from kerchief.checks.leakage import charged_multiplier
from kerchief.checks.statistics import Floats, fits_chances, fits_deviation, fits_scale
from kerchief.core.contracts import Stops
from kerchief.core.errors import BudgetExceeded
from kerchief.policies.context_free.base import LOSS
from kerchief.privacy import RandomizedResponse, Trust
from kerchief.roles.context_free import unit_of
from kerchief.roles.deployment import Deployment, TaskOptions, assembled
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Budget, Device
from kerchief_device.randomize import randomize
from kerchief_wire.model import Question, Status
from kerchief_wire.noise import OneBit
from kerchief_wire.report import Report

_ASKED, _AT_ONCE, _EXACT = 12, 3, 1600
# What is held against the reports beside the truth: a third too little noise, and too much.
_FACTORS = (1.0, 3 / 2, 2 / 3)
_CAUGHT = [True, False, False]


def _one_number(case: Case) -> bool:
    """Whether it hears one number of each user: all that a device can be asked for."""
    return by_reports(case) and all(one.size == 1 for one in policy_of(case).queries.values())


@law(when=_one_number)
def deployed_parties_agree_with_the_simulation(case: Case) -> None:
    """A server learns as the simulated one; a device's exact reports have the law charged for them.

    The server, with three questions open that are answered in turned order, comes to the same
    state as the bare functions of the policy, and names and stops as they do. Exact reports, 1600
    for each of three numbers from a seeded source of bytes, have the law that is charged for. A
    device sends what that noise makes of its clipped answer, repeats itself when it is asked again,
    and pays once per question. A server whose promise does not pay begins nothing.
    """
    made = _deployed(case)
    _expect_same_learner(case, made)
    if case.trust == Trust.LOCAL:
        _expect_law(made)
        _expect_same_device(case, made)
        _expect_one_charge(case, made)
        _expect_refusal(case, made)


def _deployed(case: Case) -> Deployment:
    made, problem = case.arranged(), case.problem
    promise = dataclasses.replace(case.promise(), rounds=problem.horizon)
    rule = {"window_s": 0, "jitter_s": 0, "default": None}
    options = TaskOptions(name=case.name, rule=rule, nonce=bytes(16))
    return assembled(made, problem, promise, {}, options)


def _expect_same_learner(case: Case, made: Deployment) -> None:
    policy: Any = made.policy
    rng = np.random.default_rng(SEED)
    with contextlib.closing(SQLiteStore.memory()) as store:
        server = case.asker(made, store=store, source=rng.bytes)
        outlook = {name: one.outlook for name, one in made.privatizers.items()}
        state, answered = policy.init(outlook), 0
        while answered < _ASKED and (questions := server.ask(_AT_ONCE)):
            asked = [
                (one, _memo(policy, state, one.action.array, np.int32(round)))
                for round, one in enumerate(questions, start=answered)
            ]
            epoch = server.status().epoch
            reports = [_honest(made, one, epoch, rng) for one in questions]
            server.take([one.write(made.task) for one in reversed(reports)])
            for (question, memo), report in reversed(list(zip(asked, reports, strict=True))):
                heard = made.task.noise[0].estimate(report.numbers, users=1, label=0)
                given = question.action.array, memo, heard / unit_of(policy), jnp.int32(answered)
                state, answered = _learned(policy, state, *given), answered + 1
            _expect_same_state(server, policy, state, answered)


def _expect_same_state(server: Any, policy: Any, state: Any, answered: int) -> None:
    named, over = _shown(policy, state)
    pairs = zip(jax.tree.leaves(server.state), jax.tree.leaves(state), strict=True)
    close = all(np.allclose(one, other, rtol=1e-9, atol=1e-9) for one, other in pairs)
    close = close and np.allclose(server.recommendation, named, rtol=1e-9, atol=1e-9)
    seen = f"{server.recommendation} and {server.stopped} after {answered}: {server.state}"
    expected = f"{named} and {over}: {state}"
    expect(close and server.stopped == bool(over), seen=seen, expected=expected)


def _honest(made: Deployment, question: Question, epoch: int, rng: np.random.Generator) -> Report:
    """A report about a random end of the interval."""
    query: Any = made.privatizers[LOSS].query
    value = np.array([rng.choice([query.low, query.high])])
    numbers = randomize(made.task.noise[0], value, 0, rng.bytes)
    return Report(label=0, epoch=epoch, id=question.id, numbers=numbers)


_memo = jax.jit(lambda policy, *given: policy.memo(*given))
_learned = jax.jit(lambda policy, *given: policy.learn(*given))


@jax.jit
def _shown(policy: Any, state: Any) -> tuple[Array, Array]:
    """What a state would name, and whether it stops."""
    over = policy.stopped(state) if isinstance(policy, Stops) else jnp.asarray(False)
    return policy.recommend(state), over


def _expect_law(made: Deployment) -> None:
    """Hold the reports of the least number, the center and the greatest against the charge."""
    query: Any = made.privatizers[LOSS].query
    noise, rng = made.task.noise[0], np.random.default_rng(SEED)
    event = made.privatizers[LOSS].charges(made.task.horizon)[0].event
    for place in (-1, 0, 1):
        value = np.array([query.center + place * query.radius])
        told = [randomize(noise, value, 0, rng.bytes) for _ in range(_EXACT)]
        reports = np.concatenate([noise.estimate(one, users=1, label=0) for one in told])
        verdict = [_fits(made, event, place, reports - value, factor) for factor in _FACTORS]
        # The center's coin is fair whatever epsilon is.
        fair = isinstance(noise, OneBit) and place == 0
        wanted = [True] * 3 if fair else _CAUGHT
        seen = f"reports of deviation {reports.std():.4g} at {value}: {verdict}"
        expect(verdict == wanted, seen=seen, expected=f"what {event} charges for, alone")


def _fits(made: Deployment, event: Any, place: int, errors: Floats, factor: float) -> bool:
    """Whether errors have the law of an event, at so many times its epsilon."""
    query: Any = made.privatizers[LOSS].query
    if isinstance(made.task.noise[0], OneBit):
        chance = 1 / (1 + math.exp(-place * event.epsilon * factor))
        high = errors + place * query.radius > 0
        return fits_chances(high, np.full(len(errors), chance))
    if isinstance(event, RandomizedResponse):
        return fits_scale(errors, query.sensitivity / pure_epsilon(event) / factor)
    return fits_deviation(errors, charged_multiplier(event) * query.sensitivity / factor)


def _expect_same_device(case: Case, made: Deployment) -> None:
    task, policy = made.task, made.policy
    mine, other = (np.random.default_rng(SEED).bytes for _ in range(2))
    device, action = case.device(task, source=mine), first_action(policy)
    for number, losses in enumerate(_wild_losses(policy)):
        found = [_told(device, number, losses) for _ in range(2)]
        again = found[0] == found[1]
        expect(again, seen=f"{found[1]!r}, asked again", expected=f"{found[0]!r}, as before")
        # Where it draws the time of its report, before its noise and for each time it is asked.
        other(8)
        wanted = randomize(task.noise[0], _encoded(made, action, losses), 0, other)
        other(8)
        seen = Report.read(found[0], task).numbers
        expect(seen.tolist() == wanted.tolist(), seen=f"{seen} for {losses}", expected=wanted)


def _encoded(made: Deployment, action: Any, losses: Floats) -> Floats:
    policy: Any = made.policy
    query: Any = made.privatizers[LOSS].query
    number = policy.answer(jnp.asarray(action), jnp.asarray(losses)) * unit_of(policy)
    return np.asarray(query.encode(number), np.float64)


def _expect_one_charge(case: Case, made: Deployment) -> None:
    promise = made.guarantee
    own = Budget(epsilon=2.1 * promise.epsilon, delta=3 * promise.delta)
    device, losses = case.device(made.task, budget=own), np.zeros_like(_losses(made.policy))
    for number, bills in ((0, 1), (0, 1), (1, 2), (2, 2)):
        broke = refused(BudgetExceeded, partial(_told, device, number, losses))
        paid = math.isclose(device.spent().epsilon, bills * promise.epsilon)
        seen = f"epsilon {device.spent().epsilon} for {bills} questions; refused: {broke}"
        expect(paid and broke == (number == 2), seen=seen, expected="one charge for each of two")


def _expect_refusal(case: Case, made: Deployment) -> None:
    less = dataclasses.replace(made.guarantee, epsilon=made.guarantee.epsilon * 2 / 3)
    with contextlib.closing(SQLiteStore.memory()) as store:
        begin = partial(case.asker, dataclasses.replace(made, guarantee=less), store=store)
        right = refused(BudgetExceeded, begin)
        seen = f"refused: {right}; begun: {store.tasks()}"
        expect(right and not store.tasks(), seen=seen, expected="refusal, and nothing is begun")


def _told(device: Device, number: int, losses: Floats) -> bytes:
    """Ask a device a question, and hear its report."""
    task = device.task
    id = device.asked(number.to_bytes(16, "big"))
    device.reward(id, losses)
    return device.report(id, Status(task=task.id, state="running", epoch=0, label=0))


def _losses(policy: Any) -> Floats:
    """One for each point of an action, of alternating sign."""
    action = first_action(policy)
    return np.where(np.arange(len(action) if np.ndim(action) else 1) % 2, -1.0, 1.0)


def _wild_losses(policy: Any) -> Iterator[Floats]:
    """Losses far beyond any range, one for each question."""
    for size in (0.0, 0.5, 10.0, 1e9, 1e30, 1e300):
        for side in (1, -1):
            yield side * size * _losses(policy)
