"""A user who returns pays again, from a ledger on the user's own device."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import pytest

from kerchief.core.contracts import Arms, Clock
from kerchief.core.errors import BudgetExceeded, InvalidValue
from kerchief.core.random import Stream
from kerchief.environments.worlds import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.privatizers.protect import protect
from kerchief.roles.device import Device
from kerchief.roles.messages import Post, Reports

ONCE = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
ROOT = Stream.of(seed=0, replicate=0)
ARMS = Arms(features=jnp.eye(3), allowed=jnp.ones(3, bool))


class User:
    """A person with one device and a budget over all visits."""

    def __init__(self, budget: Guarantee, *, exact: bool) -> None:
        """Give the person a device."""
        policy: Any = POLICIES["linucb"].build(
            make_environment(dim=3, arms=3).problem(100), "tuned"
        )
        privatizers = protect(policy, Protection(guarantee=ONCE), horizon=100)
        if exact:
            privatizers = {name: one.exact() for name, one in privatizers.items()}
        self.model = policy.publish(policy.init({n: p.outlook for n, p in privatizers.items()}))
        self.ledger = MemoryLedger(budget)
        self.device = Device(policy=policy, privatizers=privatizers, ledger=self.ledger)

    def visit(self, round: int) -> Reports:
        """Act and report."""
        since = {"moments": jnp.int32(1)}
        post = Post(model=self.model, clock=Clock(round=jnp.int32(round), since=since))
        self.device.act(post, ARMS, ROOT)
        return self.device.reports(1.0, ROOT)


@pytest.mark.parametrize("exact", [False, True])
def test_every_visit_is_charged_and_the_cap_is_kept(exact: bool) -> None:
    """Three visits fit into three times the budget of one; the fourth makes no report."""
    user = User(Guarantee(epsilon=3.0, delta=1e-4, trust=Trust.LOCAL), exact=exact)
    for visit in range(3):
        user.visit(7 * visit)
        assert len(user.ledger.receipts) == visit + 1
    assert 1.0 < user.ledger.spent().epsilon <= 3.0
    with pytest.raises(BudgetExceeded, match="3"):
        _come(user, times=100)
    assert user.ledger.spent().epsilon <= 3.0


def _come(user: User, *, times: int) -> None:
    for visit in range(times):
        user.visit(visit)


@pytest.mark.parametrize("trust", ["shuffle", "joint", "central"])
def test_only_reports_with_all_their_noise_can_be_charged_one_by_one(trust: str) -> None:
    """Two visits in one sum cost more than two sums: a device that would say less is refused."""
    policy: Any = POLICIES["linucb"].build(make_environment(dim=3, arms=3).problem(200), "tuned")
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust))
    privatizers = protect(policy, Protection(guarantee=promise), horizon=200)
    with pytest.raises(InvalidValue, match="choose local trust"):
        Device(policy=policy, privatizers=privatizers, ledger=MemoryLedger(promise))


def test_a_report_that_is_asked_for_again_costs_nothing() -> None:
    """The same report, and one receipt."""
    user = User(Guarantee(epsilon=3.0, delta=1e-4, trust=Trust.LOCAL), exact=True)
    first = user.visit(0)
    assert user.device.reports(1.0, ROOT) is first
    assert len(user.ledger.receipts) == 1


@pytest.mark.parametrize("exact", [False, True])
def test_a_model_that_does_not_fit_costs_nothing(exact: bool) -> None:
    """A hostile billboard must not empty a user's budget."""
    facts = make_environment(dim=3, arms=3).problem(100)
    policy: Any = POLICIES["glm-descent"].build(facts, "tuned")
    privatizers = protect(policy, Protection(guarantee=ONCE), horizon=100)
    if exact:
        privatizers = {name: one.exact() for name, one in privatizers.items()}
    model = policy.publish(policy.init({n: p.outlook for n, p in privatizers.items()}))
    since = {name: jnp.int32(1) for name in privatizers}
    clock = Clock(round=jnp.int32(0), since=since)
    ledger = MemoryLedger(ONCE)
    device = Device(policy=policy, privatizers=privatizers, ledger=ledger)
    refused = 0
    for field in dataclasses.fields(model):
        leaf = getattr(model, field.name)
        if getattr(leaf, "ndim", 0) == 0:
            continue
        wrong = dataclasses.replace(model, **{field.name: jnp.zeros((7, 7), leaf.dtype)})
        try:
            device.act(Post(model=wrong, clock=clock), ARMS, ROOT)
            device.reports(1.0, ROOT)
        except InvalidValue:
            refused += 1
    assert refused
    assert ledger.receipts == ()


def test_a_first_visit_costs_what_the_run_promises() -> None:
    """One visit spends what one user was promised."""
    user = User(ONCE, exact=False)
    user.visit(0)
    assert math.isclose(user.ledger.spent().epsilon, 1.0, rel_tol=2e-5)
    with pytest.raises(BudgetExceeded):
        user.visit(1)
