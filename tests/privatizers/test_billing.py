"""A bill is paid whole, before anything is drawn, and only for what the budget's words promise."""

from __future__ import annotations

import pytest

from kerchief.core.errors import BudgetExceededError, InvalidValueError
from kerchief.core.problems import Problem
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.privatizers.billing import pay, settle
from kerchief.simulation import simulate

FACTS = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=200)
POLICY = POLICIES["linucb"].build(FACTS, "tuned")


def promise(trust: str, *, epsilon: float = 1.0, rounds: int | None = None) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=1e-5, trust=Trust(trust), rounds=rounds)


@pytest.mark.parametrize(
    ("trust", "word"), [("local", "best"), ("joint", "best"), ("central", "gaussian")]
)
def test_a_run_is_paid_and_settled_at_the_promise(trust: str, word: str) -> None:
    ledger = MemoryLedger(promise(trust))
    protection = Protection(guarantee=promise(trust), mechanism=word)
    privatizers = protect(POLICY, protection, horizon=200)
    receipts = pay(privatizers, ledger, horizon=200)
    # A pure randomizer costs a little less than epsilon at a positive delta, which it does not use.
    near = 2e-5 if trust == "local" else 1e-6
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=near)
    settle(
        privatizers, ledger, receipts, users=200, covered={"moments": 200}, releases={"moments": 9}
    )
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=near)
    assert all(receipt.used == 1 for receipt in ledger.receipts)


def test_a_bill_that_is_too_high_is_not_paid_in_part() -> None:
    ledger = MemoryLedger(promise("central", epsilon=0.9))
    with pytest.raises(BudgetExceededError):
        pay(
            protect(POLICY, Protection(guarantee=promise("central")), horizon=200),
            ledger,
            horizon=200,
        )
    assert ledger.receipts == ()


def test_a_local_promise_is_not_kept_by_a_curator() -> None:
    ledger = MemoryLedger(promise("local"))
    with pytest.raises(InvalidValueError, match="no device adds noise to moments"):
        pay(
            protect(POLICY, Protection(guarantee=promise("central")), horizon=200),
            ledger,
            horizon=200,
        )
    assert ledger.receipts == ()


def test_a_promise_over_fewer_rounds_than_are_played_is_refused() -> None:
    ledger = MemoryLedger(promise("local", rounds=5))
    with pytest.raises(InvalidValueError, match="5 rounds and the run has 200"):
        pay(
            protect(POLICY, Protection(guarantee=promise("local")), horizon=200),
            ledger,
            horizon=200,
        )
    assert ledger.receipts == ()


def test_exact_noise_is_refused_by_a_simulation_before_it_pays() -> None:
    ledger = MemoryLedger(promise("local"))
    exact = {
        k: p.exact()
        for k, p in protect(POLICY, Protection(guarantee=promise("local")), horizon=200).items()
    }
    with pytest.raises(InvalidValueError, match="is exact"):
        simulate(
            policy=POLICY,
            privatizers=exact,
            environment=make_environment(dim=2, arms=3),
            ledger=ledger,
            horizon=200,
            replicates=1,
            seed=0,
        )
    assert ledger.receipts == ()
