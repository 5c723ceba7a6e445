"""Shuffled sums: cohorts and bills."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from kerchief.core.batches import grow_batches
from kerchief.core.errors import InvalidValueError
from kerchief.core.queries import RegressionMoments
from kerchief.environments import make_environment
from kerchief.mechanisms.binomial import Binomial, ExactBinomial
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust, gaussian_noise_multiplier
from kerchief.privatizers import At, Protection, ShuffledSums, protect
from kerchief.simulation.run import simulate

QUERY = RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0)
PROMISE = Guarantee(epsilon=4.0, delta=1e-5, trust=Trust.SHUFFLE)
SMALL = ExactBinomial(step=1.0, scale=2, sensitivity=3.0, dimension=2)


def bytes_of(seed: int) -> Any:
    return np.random.default_rng(seed).bytes


def sums(**changes: Any) -> ShuffledSums:
    multiplier = gaussian_noise_multiplier(PROMISE.epsilon, PROMISE.delta)
    facts: dict[str, Any] = {"noise_multiplier": multiplier, "horizon": 500, "first": 50, **changes}
    schedule = At(ends=grow_batches(facts.pop("horizon"), first=facts.pop("first"), growth=2.0))
    return ShuffledSums.of(QUERY, schedule=schedule, **facts)


def test_cohorts_grow_and_a_short_last_one_is_left_out() -> None:
    made = sums()
    assert made.ends == (50, 100, 200, 400)
    assert sums(horizon=420).ends == (50, 100, 200, 400)
    assert sums(horizon=30).ends == (30,)
    assert made.cohort(0) == (0, 50)
    assert made.cohort(399) == (200, 400)
    assert sums(horizon=420).cohort(410) is None
    noise = made.exact().aggregator
    assert isinstance(noise, ExactBinomial)
    with pytest.raises(InvalidValueError, match="end at times"):
        made.with_schedule(
            protect(_linucb(20), Protection(guarantee=_free()), horizon=20)["moments"].schedule
        ).cohort(0)


def _linucb(horizon: int) -> Any:
    return POLICIES["linucb"].build(make_environment(dim=2, arms=3).problem(horizon), "tuned")


def _free() -> Guarantee:
    return Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)


def test_many_shuffled_cohorts_cost_the_same_as_one() -> None:
    spent = []
    for ends in ((500,), (50, 100, 500), tuple(range(1, 501))):
        made = sums().with_schedule(At(ends=ends))
        ledger = MemoryLedger(PROMISE)
        for charge in made.charges(500):
            ledger.charge(charge.event, cohort=charge.cohort, capacity=charge.capacity)
        spent.append(ledger.spent().epsilon)
    assert spent[0] == spent[1] == spent[2]
    assert 0.98 * PROMISE.epsilon < spent[0] <= PROMISE.epsilon


def test_the_theorem_is_hundreds_of_times_as_noisy() -> None:
    schedule = At(ends=grow_batches(500, first=50, growth=2.0))
    proved = ShuffledSums.by_theorem(QUERY, epsilon=1.0, delta=1e-6, schedule=schedule)
    tight = sums(noise_multiplier=gaussian_noise_multiplier(1.0, 1e-6))
    assert isinstance(proved.aggregator, Binomial)
    assert isinstance(tight.aggregator, Binomial)
    assert float(proved.aggregator.std) > 150 * float(tight.aggregator.std)
    ledger = MemoryLedger(PROMISE)
    ledger.charge_all(proved.charges(500))
    assert ledger.spent().epsilon < 0.02
    with pytest.raises(InvalidValueError, match="epsilon"):
        ShuffledSums.by_theorem(QUERY, epsilon=15.0, delta=1e-6, schedule=schedule)


def test_a_shuffle_budget_pays_for_shuffled_sums_alone() -> None:
    policy = _linucb(60)
    central = protect(
        policy, Protection(guarantee=dataclasses.replace(PROMISE, trust=Trust.CENTRAL)), horizon=60
    )
    world = make_environment(dim=2, arms=3)
    ledger = MemoryLedger(PROMISE)
    with pytest.raises(InvalidValueError, match="is not shuffled"):
        simulate(
            policy=policy,
            privatizers=central,
            environment=world,
            ledger=ledger,
            horizon=60,
            replicates=1,
            seed=0,
        )
    assert ledger.receipts == ()
