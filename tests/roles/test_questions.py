"""A server that asks and devices that answer, with exact noise and their own ledgers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kerchief.core.convex import Ball
from kerchief.core.errors import BudgetExceeded, CapacityExceeded, InvalidValue
from kerchief.core.problems import ContextFreeProblem
from kerchief.environments import Population, make_environment
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.roles.arrange import Arranged, arrange
from kerchief.roles.questions import Answerer, Asker

PROMISE = Guarantee(epsilon=4.0, delta=0.0, trust=Trust.LOCAL)
ARMS = ContextFreeProblem(horizon=600, low=0.0, high=1.0, arms=3)


def made(name: str, problem: ContextFreeProblem = ARMS) -> Arranged:
    return arrange(name, problem, Protection(guarantee=PROMISE))


def asker(name: str, problem: ContextFreeProblem = ARMS) -> tuple[Asker, Answerer]:
    arranged = made(name, problem)
    return Asker(arranged, ledger=MemoryLedger(PROMISE)), Answerer(arranged)


def test_it_learns_which_arm_is_best() -> None:
    """Arm 1 never loses, the others always do; every report is one of two numbers."""
    server, device = asker("tsallis")
    seen = set()
    for _ in range(600):
        action = server.ask()
        report = device.answer(server.round, action, [float(action != 1)])
        seen.add(round(float(report[0]), 9))
        server.learn(report)
    assert len(seen) == 2
    assert int(server.recommendation) == 1
    assert server.stopped
    assert math.isclose(server.settle().epsilon, 4.0, rel_tol=1e-6)
    with pytest.raises(CapacityExceeded, match="600 users were asked"):
        server.ask()


def test_it_stops_when_the_best_arm_is_known() -> None:
    """And asks nobody after that."""
    server, device = asker("lil-ucb")
    while not server.stopped:
        action = server.ask()
        server.learn(device.answer(server.round, action, [float(action != 2)]))
    assert server.round < 600
    assert int(server.recommendation) == 2


def test_two_questions_are_answered_by_one_number() -> None:
    """On a convex set; the number stays within its bounds, whatever the losses are."""
    problem = ContextFreeProblem(horizon=50, low=0.0, high=1.0, domain=Ball(dim=2), lipschitz=1.0)
    server, device = asker("two-point", problem)
    points = server.ask()
    assert points.shape == (2, 2)
    reports = {float(device.answer(i, points, [1e9, np.nan])[0]) for i in range(20)}
    assert len(reports) <= 2
    server.learn([max(reports)])
    assert server.round == 1


def test_asking_twice_is_one_question() -> None:
    """The action is drawn once a user."""
    server, device = asker("tsallis")
    first = server.ask()
    assert all((server.ask() == first).all() for _ in range(5))
    report = device.answer(0, first, [0.5])
    assert all(device.answer(0, first, [0.5]) is report for _ in range(5))
    server.learn(report)
    with pytest.raises(InvalidValue, match="nobody was asked"):
        server.learn([0.0])
    server.ask()
    with pytest.raises(InvalidValue, match="one finite number"):
        server.learn([np.nan])


def test_a_user_who_returns_pays_again() -> None:
    """Two answers fit into twice the budget, and the third is refused before noise is drawn."""
    own = MemoryLedger(Guarantee(epsilon=8.0, delta=0.0, trust=Trust.LOCAL))
    device = Answerer(made("tsallis"), ledger=own)
    for visit in range(2):
        device.answer(visit, 0, [0.5])
    assert math.isclose(own.spent().epsilon, 8.0, rel_tol=1e-6)
    with pytest.raises(BudgetExceeded):
        device.answer(2, 0, [0.5])
    assert len(own.receipts) == 2


def test_a_budget_that_is_too_small_is_refused_before_anyone_is_asked() -> None:
    """Nothing was charged."""
    small = MemoryLedger(Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL))
    with pytest.raises(BudgetExceeded):
        Asker(made("ucb"), ledger=small)
    assert small.receipts == ()


@pytest.mark.parametrize(("policy", "heard"), [("linucb", "totals"), ("dpe", "phases")])
def test_a_bandit_that_hears_no_reports_is_refused_by_both_roles(policy: str, heard: str) -> None:
    """In one line that names what it hears; nothing was charged."""
    problem = Population.of(dim=2, arms=4, clients=2000).problem(2000)
    facts = problem if policy == "dpe" else make_environment(dim=2, arms=4).problem(50)
    arranged = arrange(policy, facts, Protection(guarantee=PROMISE))
    ledger = MemoryLedger(PROMISE)
    with pytest.raises(InvalidValue, match=f"hears {heard}"):
        Asker(arranged, ledger=ledger)
    with pytest.raises(InvalidValue, match=f"hears {heard}"):
        Answerer(arranged)
    assert ledger.receipts == ()
