from __future__ import annotations

import json
import math
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerchief.core.errors import (
    BudgetExceededError,
    CapacityExceededError,
    CodecError,
    InvalidValueError,
    UnsupportedEventError,
)
from kerchief.privacy import (
    Cohort,
    DiscreteGaussian,
    Event,
    Gaussian,
    Guarantee,
    Ledger,
    MemoryLedger,
    NonPrivate,
    RandomizedResponse,
    Receipt,
    Repeated,
    Trust,
    epsilon_at,
    gaussian_noise_multiplier,
    share,
    worst_case,
)
from kerchief.privacy.calibration import zcdp_rho
from kerchief.privacy.composition import filter_epsilon
from kerchief.privacy.events import Zcdp
from kerchief.privacy.receipts import Charge

BUDGET = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT, rounds=100)
ALL = Cohort(first=0, last=100)
FULL = Gaussian(noise_multiplier=gaussian_noise_multiplier(1.0, 1e-5))

multipliers = st.floats(2.0, 40.0)
charges = st.lists(
    st.tuples(multipliers, st.integers(0, 30), st.integers(1, 30), st.integers(1, 4)),
    min_size=1,
    max_size=6,
)


def wide() -> MemoryLedger:
    return MemoryLedger(Guarantee(epsilon=1e3, delta=1e-5, trust=Trust.JOINT))


def test_memory_ledger_is_a_ledger() -> None:
    ledger: Ledger = MemoryLedger(BUDGET)
    assert ledger.spent() == replace(BUDGET, epsilon=0.0)
    assert ledger.remaining() == BUDGET


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_a_calibrated_multiplier_fits_its_own_budget(epsilon: float, delta: float) -> None:
    m = gaussian_noise_multiplier(epsilon, delta)
    for parts in ([m], share(m, [1.0, 2.0, 0.3])):
        ledger = MemoryLedger(Guarantee(epsilon=epsilon, delta=delta, trust=Trust.CENTRAL))
        ledger.charge_all([Charge(event=Gaussian(noise_multiplier=m), cohort=ALL) for m in parts])
        assert ledger.spent().epsilon == pytest.approx(epsilon, rel=1e-9)
        with pytest.raises(BudgetExceededError):
            ledger.charge(Gaussian(noise_multiplier=1000 * m), cohort=ALL)


def test_a_multiplier_a_third_too_small_is_refused() -> None:
    ledger = MemoryLedger(BUDGET)
    with pytest.raises(BudgetExceededError):
        ledger.charge(Gaussian(noise_multiplier=FULL.noise_multiplier * 2 / 3), cohort=ALL)
    with pytest.raises(BudgetExceededError):
        ledger.charge(Gaussian(noise_multiplier=FULL.noise_multiplier * (1 - 1e-6)), cohort=ALL)


def test_a_discrete_release_needs_its_slack() -> None:
    scale, dimension = 2**10, 200
    naive = DiscreteGaussian(
        sensitivity=scale / FULL.noise_multiplier, scale=scale, dimension=dimension
    )
    with pytest.raises(BudgetExceededError):
        MemoryLedger(BUDGET).charge(naive, cohort=ALL)
    fair = replace(naive, sensitivity=naive.sensitivity / 1.01)
    MemoryLedger(BUDGET).charge(fair, cohort=ALL)


def test_capacity_is_charged_in_full() -> None:
    m = FULL.noise_multiplier
    ledger = MemoryLedger(BUDGET)
    with pytest.raises(BudgetExceededError):
        ledger.charge(Gaussian(noise_multiplier=m), cohort=ALL, capacity=2)
    ledger.charge(Gaussian(noise_multiplier=4 * m), cohort=ALL, capacity=16)
    assert ledger.remaining().epsilon == pytest.approx(0.0, abs=1e-8)


def test_open_receipts_count_at_capacity_and_settled_at_use() -> None:
    ledger = MemoryLedger(BUDGET)
    event = Zcdp(rho=zcdp_rho(1.0, 1e-5) / 16)
    receipt = ledger.charge(event, cohort=ALL, capacity=16)
    with pytest.raises(BudgetExceededError):
        ledger.charge(event, cohort=ALL)
    settled = ledger.settle(receipt, used=15)
    assert settled.used == 15
    ledger.charge(event, cohort=ALL)
    with pytest.raises(BudgetExceededError):
        ledger.charge(event, cohort=ALL)


def test_settling_is_strict() -> None:
    ledger = MemoryLedger(BUDGET)
    receipt = ledger.charge(Gaussian(noise_multiplier=50.0), cohort=ALL, capacity=3)
    before = ledger.dumps()
    with pytest.raises(CapacityExceededError):
        ledger.settle(receipt, used=4)
    with pytest.raises(InvalidValueError):
        ledger.settle(receipt, used=-1)
    with pytest.raises(InvalidValueError, match="not in this ledger"):
        ledger.settle(replace(receipt, number=7), used=1)
    with pytest.raises(InvalidValueError, match="differs"):
        ledger.settle(replace(receipt, capacity=9), used=1)
    assert ledger.dumps() == before
    ledger.settle(receipt, used=0)
    assert ledger.spent().epsilon == 0.0
    with pytest.raises(InvalidValueError, match="settled already"):
        ledger.settle(receipt, used=0)


def test_refusal_leaves_no_trace_and_says_what_to_do() -> None:
    ledger = MemoryLedger(BUDGET)
    ledger.charge(Gaussian(noise_multiplier=6.0), cohort=Cohort(first=0, last=50))
    before = ledger.dumps()
    with pytest.raises(BudgetExceededError) as caught:
        ledger.charge(FULL, cohort=Cohort(first=40, last=60))
    assert ledger.dumps() == before
    text = str(caught.value)
    for phrase in ("rounds 40 to 59", "budget is 1", "is spent", "is left", "nothing was charged"):
        assert phrase in text
    offer = float(text.split("noise multiplier of ")[1].split(" ")[0])
    ledger.charge(Gaussian(noise_multiplier=offer), cohort=Cohort(first=40, last=60))
    after = ledger.dumps()
    with pytest.raises(InvalidValueError):
        ledger.charge(FULL, cohort=ALL, capacity=0)
    with pytest.raises(UnsupportedEventError):
        ledger.charge(Event(), cohort=ALL)
    assert ledger.dumps() == after


def test_overlap_in_a_single_user_is_charged() -> None:
    ledger = MemoryLedger(BUDGET)
    ledger.charge(FULL, cohort=Cohort(first=0, last=50))
    ledger.charge(FULL, cohort=Cohort(first=50, last=100))
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(BudgetExceededError):
        ledger.charge(FULL, cohort=Cohort(first=99, last=200))
    ledger.charge(FULL, cohort=Cohort(first=100, last=200))


def test_non_private_only_without_a_promise() -> None:
    with pytest.raises(BudgetExceededError):
        MemoryLedger(BUDGET).charge(NonPrivate(), cohort=ALL)
    free = MemoryLedger(Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE))
    free.charge(NonPrivate(), cohort=ALL)
    assert free.spent().epsilon == math.inf
    assert free.remaining().epsilon == math.inf
    assert MemoryLedger.loads(free.dumps()).spent() == free.spent()


def test_a_pure_budget() -> None:
    ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL))
    for _ in range(10):
        ledger.charge(RandomizedResponse(epsilon=0.1), cohort=ALL)
    assert ledger.spent().epsilon == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError):
        ledger.charge(RandomizedResponse(epsilon=1e-6), cohort=ALL)
    with pytest.raises(BudgetExceededError):
        ledger.charge(Gaussian(noise_multiplier=1e6), cohort=Cohort(first=500, last=501))


@given(charges=charges, data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_worst_user_pays_and_the_order_does_not_matter(
    charges: list[tuple[float, int, int, int]], data: st.DataObject
) -> None:
    def run(items: list[tuple[float, int, int, int]]) -> float:
        ledger = wide()
        for m, first, length, capacity in items:
            cohort = Cohort(first=first, last=first + length)
            ledger.charge(Gaussian(noise_multiplier=m), cohort=cohort, capacity=capacity)
        return ledger.spent().epsilon

    def price(user: int) -> float:
        events = [
            Repeated(event=Gaussian(noise_multiplier=m), count=capacity)
            for m, first, length, capacity in charges
            if first <= user < first + length
        ]
        return (epsilon_at if len(events) < 2 else filter_epsilon)(events, 1e-5)

    spent = run(charges)
    assert spent == max(map(price, range(60)))
    assert run(data.draw(st.permutations(charges))) == spent


@given(m=multipliers, n=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_disjoint_takes_the_worst_and_overlap_adds(m: float, n: int) -> None:
    event = Gaussian(noise_multiplier=m)

    def receipts(step: int) -> list[Receipt]:
        return [
            Receipt(
                number=i,
                event=event,
                cohort=Cohort(first=i * step, last=i * step + 10),
                capacity=1,
            )
            for i in range(n)
        ]

    assert worst_case(receipts(10), 1e-5) == epsilon_at([event], 1e-5)
    assert worst_case(receipts(1), 1e-5) == epsilon_at([Repeated(event=event, count=n)], 1e-5)


@given(charges=charges)
@settings(max_examples=25, deadline=None)
def test_round_trip_is_exact(charges: list[tuple[float, int, int, int]]) -> None:
    ledger = wide()
    for m, first, length, capacity in charges:
        cohort = Cohort(first=first, last=first + length)
        receipt = ledger.charge(Gaussian(noise_multiplier=m), cohort=cohort, capacity=capacity)
        if capacity > 2:
            ledger.settle(receipt, used=1)
    again = MemoryLedger.loads(ledger.dumps())
    assert again.dumps() == ledger.dumps()
    assert again.receipts == ledger.receipts
    assert again.spent() == ledger.spent()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": "kerchief-ledger/9", "budget": {}, "receipts": []}'],
)
def test_malformed_ledger_text_does_not_load(text: str) -> None:
    with pytest.raises(CodecError):
        MemoryLedger.loads(text)


def test_a_ledger_with_a_receipt_torn_out_does_not_load() -> None:
    ledger = MemoryLedger(BUDGET)
    for _ in range(3):
        ledger.charge(Gaussian(noise_multiplier=50.0), cohort=ALL)
    content = json.loads(ledger.dumps())
    del content["receipts"][1]
    with pytest.raises(CodecError, match="missing"):
        MemoryLedger.loads(json.dumps(content))
    content = json.loads(ledger.dumps())
    content["receipts"][2]["bill"] = 0
    with pytest.raises(CodecError, match="bills are not numbered"):
        MemoryLedger.loads(json.dumps(content))
    content["receipts"] = [3]
    with pytest.raises(CodecError):
        MemoryLedger.loads(json.dumps(content))


def test_threads_cannot_overspend() -> None:
    ledger = MemoryLedger(BUDGET)
    event = Zcdp(rho=zcdp_rho(1.0, 1e-5) / 16)
    refused: list[int] = []

    def work() -> None:
        for _ in range(5):
            try:
                ledger.charge(event, cohort=ALL)
            except BudgetExceededError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.receipts) == 16
    assert len(refused) == 24
    assert [receipt.number for receipt in ledger.receipts] == list(range(16))
