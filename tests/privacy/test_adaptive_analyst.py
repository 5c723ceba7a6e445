"""An analyst who chooses the next charge by earlier answers stays within the ledger's budget.

The analyst asks binary randomized response alone, so the privacy loss of an interaction is a sum of
known steps, and the true delta at the promised epsilon is a finite sum: nothing is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import BudgetExceededError
from kerchief.privacy import (
    Cohort,
    Event,
    Gaussian,
    Guarantee,
    MemoryLedger,
    RandomizedResponse,
    Repeated,
    Trust,
    epsilon_at,
    gaussian_noise_multiplier,
)
from kerchief.privacy.calibration import zcdp_rho
from kerchief.privacy.events import Binomial, Zcdp
from kerchief.privacy.randomized_bits import RandomizedBits
from kerchief.privacy.receipts import Charge

Floats = NDArray[np.float64]
Answers = tuple[int, float]
"""How many responses are asked for, and the epsilon of each."""

USERS = Cohort(first=0, last=1)


def budget(epsilon: float, delta: float) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, trust=Trust.CENTRAL)


def admits(ledger: MemoryLedger, *answers: Answers) -> bool:
    """Whether a copy of the ledger admits these charges, one bill after another."""
    copy = MemoryLedger.loads(ledger.dumps())
    try:
        for count, epsilon in answers:
            copy.charge(RandomizedResponse(epsilon=epsilon), cohort=USERS, capacity=count)
    except BudgetExceededError:
        return False
    return True


def largest(ledger: MemoryLedger, charged: Sequence[Answers], epsilon: float) -> int:
    """How many responses of this epsilon the ledger admits after what was charged."""
    low, high = 0, 1
    while admits(ledger, *charged, (high, epsilon)):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fits = admits(ledger, *charged, (middle, epsilon))
        low, high = (middle, high) if fits else (low, middle)
    return low


def worst_delta(
    ledger: MemoryLedger, charged: tuple[Answers, ...], left: int, scales: Sequence[float]
) -> float:
    """The true delta of the best strategy that asks `left` times more, by the loss so far."""

    def value(charged: tuple[Answers, ...], left: int, margins: Floats) -> Floats:
        best = np.maximum(0.0, -np.expm1(np.minimum(0.0, margins)))
        for epsilon in scales if left else ():
            most = largest(ledger, charged, epsilon)
            for count in {most} if left == 1 else {most, most // 2}:
                if count:
                    losses, chances = responses(count, epsilon)
                    after = value(
                        (*charged, (count, epsilon)), left - 1, margins[..., None] - losses
                    )
                    best = np.maximum(best, after @ chances)
        return best

    losses, chances = responses(*charged[0])
    return float(chances @ value(charged, left, ledger.budget.epsilon - losses))


def responses(count: int, epsilon: float) -> tuple[Floats, Floats]:
    """Privacy losses of so many responses, and their chances."""
    truths = np.arange(count + 1, dtype=np.float64)
    chances: Floats = stats.binom.pmf(truths, count, 1 / (1 + math.exp(-epsilon)))
    losses: Floats = (2 * truths - count) * epsilon
    return losses, chances


@pytest.mark.parametrize(
    ("epsilon", "delta", "first", "left"),
    [(0.3, 1e-6, (40, 0.02), 1), (1.0, 1e-4, (12, 0.05), 1), (0.3, 1e-6, (40, 0.02), 2)],
    ids=["two-stages", "two-stages-large-delta", "three-stages"],
)
def test_adaptive_charges_keep_the_promised_delta(
    epsilon: float, delta: float, first: Answers, left: int
) -> None:
    ledger = MemoryLedger(budget(epsilon, delta))
    charged = (first[0], first[1] * epsilon)
    assert admits(ledger, charged)
    scales = [part * epsilon for part in (0.02, 0.05, 0.1, 0.2, 0.55)]
    assert 0.0 < worst_delta(ledger, (charged,), left, scales) / delta <= 1.0


def test_first_bill_is_priced_as_a_whole() -> None:
    """What is fixed before the first answer costs its privacy loss distribution, and no more."""
    answers = Repeated(event=RandomizedResponse(epsilon=0.05), count=60)
    price = epsilon_at([answers], 1e-6)
    ledger = MemoryLedger(budget(price, 1e-6))
    ledger.charge_all([Charge(event=RandomizedResponse(epsilon=0.05), cohort=USERS)] * 60)
    assert ledger.spent().epsilon == pytest.approx(price, rel=1e-9)
    with pytest.raises(BudgetExceededError):
        MemoryLedger(budget(price, 1e-6)).charge_all(
            [Charge(event=RandomizedResponse(epsilon=0.05), cohort=USERS)] * 61
        )
    with pytest.raises(BudgetExceededError, match="after a user's first bill must add up"):
        ledger.charge(RandomizedResponse(epsilon=1e-6), cohort=USERS)


def test_later_bills_add_up_in_epsilon_or_in_rho() -> None:
    pure = MemoryLedger(budget(1.0, 1e-6))
    for _ in range(4):
        pure.charge(RandomizedResponse(epsilon=0.25), cohort=USERS)
    assert pure.spent().epsilon == 1.0
    concentrated = MemoryLedger(budget(1.0, 1e-6))
    for _ in range(4):
        concentrated.charge(Zcdp(rho=zcdp_rho(1.0, 1e-6) / 4), cohort=USERS)
    for ledger in (pure, concentrated):
        with pytest.raises(BudgetExceededError):
            ledger.charge(Zcdp(rho=1e-6), cohort=USERS)
        with pytest.raises(BudgetExceededError):
            ledger.charge(RandomizedResponse(epsilon=1e-3), cohort=USERS)


def test_settled_first_bill_gives_nothing_back_beyond_the_filter() -> None:
    """How much of it was used may follow from its releases, so the filter holds for all of it."""
    noise = Gaussian(noise_multiplier=4 * gaussian_noise_multiplier(1.0, 1e-6))
    ledger = MemoryLedger(budget(1.0, 1e-6))
    receipt = ledger.charge(noise, cohort=USERS, capacity=16)
    ledger.settle(receipt, used=1)
    assert ledger.spent().epsilon < 0.3
    with pytest.raises(BudgetExceededError):
        ledger.charge(noise, cohort=USERS)
    less = MemoryLedger(budget(1.0, 1e-6))
    less.settle(less.charge(noise, cohort=USERS, capacity=12), used=1)
    less.charge(noise, cohort=USERS, capacity=12)


def test_bill_of_which_nothing_was_used_leaves_the_ledger_empty() -> None:
    noise = Gaussian(noise_multiplier=gaussian_noise_multiplier(1.0, 1e-6))
    ledger = MemoryLedger(budget(1.0, 1e-6))
    ledger.settle(ledger.charge(noise, cohort=USERS), used=0)
    ledger.charge(noise, cohort=USERS)


def test_every_user_has_a_first_bill() -> None:
    noise = Gaussian(noise_multiplier=gaussian_noise_multiplier(1.0, 1e-6))
    ledger = MemoryLedger(budget(1.0, 1e-6))
    for place in range(3):
        ledger.charge(noise, cohort=Cohort(first=place, last=place + 1))
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(BudgetExceededError):
        ledger.charge(Gaussian(noise_multiplier=1e6), cohort=Cohort(first=2, last=4))


@pytest.mark.parametrize(
    "event",
    [
        Binomial(sensitivity=1.0, scale=400, dimension=3),
        RandomizedBits(users=1000, bits=1, keep=2.0**-5, sensitivity=2.0, dimension=1, tail=1e-9),
    ],
    ids=["binomial", "randomized-bits"],
)
def test_events_without_filter_price_allow_only_the_first_charge(event: Event) -> None:
    ledger = MemoryLedger(budget(5.0, 1e-6))
    ledger.charge(event, cohort=USERS)
    before = ledger.dumps()
    for later in (event, RandomizedResponse(epsilon=0.01)):
        with pytest.raises(BudgetExceededError, match="coins and randomized bits"):
            ledger.charge(later, cohort=USERS)
    assert ledger.dumps() == before
