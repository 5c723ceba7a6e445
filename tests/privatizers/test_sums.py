"""Totals over cohorts: noise levels, bills, and the exact twin.

The statistical test fails by chance with probability at most 1e-6; its seed is fixed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Clock, Example
from kerchief.core.errors import BudgetExceededError, UnknownNameError
from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.policies import POLICIES
from kerchief.privacy import Cohort, Guarantee, MemoryLedger, NonPrivate, Trust, epsilon_at
from kerchief.privacy import Gaussian as GaussianEvent
from kerchief.privatizers import (
    TRUSTS,
    At,
    CohortSums,
    Every,
    OnDemand,
    PrefixSums,
    Protection,
    protect,
)
from kerchief.privatizers.schedule import Schedule

QUERY = RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0)
NOISE = Gaussian.of(noise_multiplier=3.0, sensitivity=QUERY.sensitivity)
PROBLEM = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=200)
RECORD = Example(features=jnp.array([0.6, 0.8]), reward=jnp.float64(0.5))
NOTHING: Any = None  # the deployed twin draws from the operating system, not from a stream


def sums(
    schedule: Schedule | None = None,
    *,
    device: Gaussian | None = None,
    aggregator: Gaussian | None = None,
) -> CohortSums:
    return CohortSums(
        query=QUERY, schedule=schedule or Every(), device=device, aggregator=aggregator
    )


def clock(round: int | Array) -> Clock:
    return Clock(round=jnp.asarray(round, jnp.int32), since={})


def played(privatizer: CohortSums, replicate: Array, ends: tuple[int, ...]) -> tuple[Array, Array]:
    """The same record from every user, released at the ends; the last total and its noise level."""
    root = Stream.of(seed=9, replicate=replicate)
    memory, tally = privatizer.open()
    release = None
    for round in range(ends[-1]):
        report = privatizer.randomize(RECORD, clock(round), root.at(DEVICE, round=round))
        tally = privatizer.collect(tally, report)
        if round + 1 in ends:
            at = root.at(AGGREGATOR, round=round)
            release, memory = privatizer.release(memory, tally, None, clock(round), at)
            tally = privatizer.clear(tally)
    assert release is not None
    return release.total, release.noise


@pytest.mark.parametrize(
    ("device", "aggregator", "expected"),
    [(None, None, 0.0), (NOISE, None, math.sqrt(6)), (None, NOISE, math.sqrt(2))],
)
def test_the_stated_noise_is_the_noise(
    device: Gaussian | None, aggregator: Gaussian | None, expected: float
) -> None:
    privatizer = sums(device=device, aggregator=aggregator)
    draw = jax.jit(jax.vmap(lambda replicate: played(privatizer, replicate, (4, 6))))
    totals, noise = draw(jnp.arange(4000, dtype=jnp.uint32))
    np.testing.assert_allclose(np.asarray(noise), expected * float(NOISE.std), rtol=1e-12)
    errors = np.asarray(totals - 6 * QUERY.encode(RECORD), np.float64).ravel()
    if expected == 0:
        np.testing.assert_allclose(errors, 0, atol=1e-12)
        return
    scores = errors / (expected * float(NOISE.std))
    # The sum of n squares is chi-squared; the mean is normal. Two tests, 5e-7 each, two-sided.
    low, high = special.chdtri(scores.size, [1 - 2.5e-7, 2.5e-7])
    assert low < (scores**2).sum() < high
    assert high / scores.size < (3 / 2) ** 2
    assert low / scores.size > (2 / 3) ** 2
    assert abs(scores.mean()) * math.sqrt(scores.size) < -special.ndtri(2.5e-7)


def test_a_release_counts_everyone_so_far() -> None:
    privatizer = sums(At(ends=(2, 5)))
    memory, tally = privatizer.open()
    tally = privatizer.collect(tally, jnp.ones(QUERY.size))
    release, memory = privatizer.release(
        memory, tally, None, clock(1), Stream.of(seed=0, replicate=0)
    )
    assert int(release.count) == 2
    assert int(memory.releases) == 1
    assert (privatizer.clear(tally).total == 0).all()
    release, memory = privatizer.release(
        memory, tally, None, clock(4), Stream.of(seed=0, replicate=0)
    )
    assert int(release.count) == 5
    assert (release.total == 2).all()
    assert int(memory.releases) == 2


def test_inputs_are_not_edited() -> None:
    privatizer = sums(aggregator=NOISE)
    memory, tally = privatizer.open()
    privatizer.collect(tally, jnp.ones(QUERY.size))
    privatizer.release(memory, tally, None, clock(0), Stream.of(seed=0, replicate=0))
    assert (tally.total == 0).all()
    assert (memory.total == 0).all()


def test_noise_info_states_whether_sums_are_noisy() -> None:
    assert not sums().outlook.noisy
    assert sums(device=NOISE).outlook.noisy
    assert sums(aggregator=NOISE).outlook.noisy
    assert not sums().idealized
    assert sums(device=NOISE).idealized


def cohorts(privatizer: CohortSums, horizon: int) -> list[tuple[int, int]]:
    return [(charge.cohort.first, charge.cohort.last) for charge in privatizer.charges(horizon)]


def test_sums_charge_the_cohorts_of_their_releases() -> None:
    batches = At(ends=(10, 30, 70))
    assert cohorts(sums(), 40) == [(0, 40)]
    assert cohorts(sums(device=NOISE), 40) == [(0, 40)]
    assert cohorts(sums(batches, device=NOISE), 40) == [(0, 40)]
    assert cohorts(sums(OnDemand(limit=5), aggregator=NOISE), 40) == [(0, 40)]
    assert cohorts(sums(batches, aggregator=NOISE), 100) == [(0, 10), (10, 30), (30, 70)]
    assert cohorts(sums(batches, aggregator=NOISE), 70) == [(0, 10), (10, 30), (30, 70)]


@pytest.mark.parametrize(
    ("horizon", "expected"),
    [
        (40, [(0, 10), (10, 30), (30, 40)]),
        (31, [(0, 10), (10, 30), (30, 31)]),
        (30, [(0, 10), (10, 30)]),
        (11, [(0, 10), (10, 11)]),
        (3, [(0, 3)]),
    ],
)
def test_batches_are_cut_at_the_horizon(horizon: int, expected: list[tuple[int, int]]) -> None:
    assert cohorts(sums(At(ends=(10, 30, 70)), aggregator=NOISE), horizon) == expected


def test_sums_charge_the_event_of_their_noise() -> None:
    (charge,) = sums(device=NOISE).charges(10)
    assert charge.event == GaussianEvent(noise_multiplier=float(NOISE.std) / NOISE.sensitivity)
    assert charge.event.noise_multiplier == pytest.approx(3.0, rel=1e-15)
    (charge,) = sums().charges(10)
    assert charge.event == NonPrivate()
    silent = dataclasses.replace(NOISE, std=0.0)
    assert sums(device=silent).charges(10)[0].event == NonPrivate()


@pytest.mark.parametrize(
    ("trust", "word"),
    [(Trust.LOCAL, "best"), (Trust.JOINT, "best"), (Trust.CENTRAL, "gaussian")],
)
def test_the_bill_is_exactly_the_promise(trust: Trust, word: str) -> None:
    promise = Guarantee(epsilon=2.0, delta=1e-5, trust=trust)
    protection = Protection(guarantee=promise, mechanism=word)
    policy = POLICIES["linucb"].build(PROBLEM, "tuned")
    privatizer = protect(policy, protection, horizon=200)["moments"]
    ledger = MemoryLedger(promise)
    for charge in privatizer.charges(200):
        ledger.charge(charge.event, cohort=charge.cohort)
    # A pure randomizer costs a little less than epsilon at a positive delta, which it does not use.
    rel = 1e-5 if trust is Trust.LOCAL else 1e-9
    assert ledger.spent().epsilon == pytest.approx(2.0, rel=rel)
    with pytest.raises(BudgetExceededError):
        ledger.charge(privatizer.charges(200)[0].event, cohort=Cohort(first=0, last=1))


def test_protect_places_the_noise_by_trust() -> None:
    policy = POLICIES["linucb"].build(PROBLEM, "tuned")
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    local = protect(policy, Protection(guarantee=promise), horizon=200)["moments"]
    assert local.noisy_device
    assert not local.noisy_aggregator
    assert local.schedule == Every()
    central = protect(
        policy, Protection(guarantee=dataclasses.replace(promise, trust=Trust.CENTRAL)), horizon=200
    )
    assert not central["moments"].noisy_device
    assert central["moments"].noisy_aggregator
    assert central["moments"].schedule == At(ends=(50, 85, 144))
    joint = protect(
        policy, Protection(guarantee=dataclasses.replace(promise, trust=Trust.JOINT)), horizon=200
    )
    assert isinstance(joint["moments"], PrefixSums)
    assert joint["moments"].schedule == Every()
    free = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    assert not protect(policy, Protection(guarantee=free), horizon=200)["moments"].outlook.noisy
    assert (
        protect(
            POLICIES["uniform"].build(PROBLEM, "tuned"), Protection(guarantee=promise), horizon=200
        )
        == {}
    )


def test_a_trust_that_is_not_built_is_refused() -> None:
    policy = POLICIES["linucb"].build(PROBLEM, "tuned")
    assert {"none", "local", "central"} <= set(TRUSTS)
    for trust in set(Trust) - {Trust(name) for name in TRUSTS}:
        with pytest.raises(UnknownNameError):
            protect(
                policy,
                Protection(guarantee=Guarantee(epsilon=1.0, delta=1e-5, trust=trust)),
                horizon=200,
            )


@pytest.mark.parametrize("place", ["device", "aggregator"])
def test_the_exact_twin_keeps_the_protocol_and_the_price(place: str) -> None:
    ideal = sums(At(ends=(2,)), **{place: NOISE})
    exact = ideal.exact()
    assert (exact.query, exact.schedule) == (ideal.query, ideal.schedule)
    assert not exact.idealized
    noise = getattr(exact, place)
    assert isinstance(noise, ExactGaussian)
    assert getattr(exact, "aggregator" if place == "device" else "device") is None
    assert noise.std == pytest.approx(float(NOISE.std), rel=1e-4)
    assert noise.std >= float(NOISE.std)
    (before,), (after,) = ideal.charges(2), exact.charges(2)
    assert before.cohort == after.cohort
    assert epsilon_at([after.event], 1e-5) == pytest.approx(
        epsilon_at([before.event], 1e-5), rel=1e-4
    )


def test_the_exact_twin_of_no_noise_is_itself() -> None:
    assert sums().exact() == sums()


def test_the_exact_twin_runs_on_its_grid() -> None:
    for privatizer in (sums(device=NOISE).exact(), sums(aggregator=NOISE).exact()):
        noise = privatizer.device or privatizer.aggregator
        assert isinstance(noise, ExactGaussian)
        memory, tally = privatizer.open()
        for _ in range(3):
            tally = privatizer.collect(tally, privatizer.randomize(RECORD, clock(0), NOTHING))
        release, _ = privatizer.release(memory, tally, None, clock(2), NOTHING)
        steps = np.asarray(release.total) / noise.grid
        assert (steps == np.rint(steps)).all()
        error = np.asarray(release.total) - 3 * np.asarray(QUERY.encode(RECORD))
        # Each of the 5 coordinates is beyond 6 standard deviations with probability below 3e-9.
        assert (np.abs(error) < 6 * float(release.noise)).all()
        assert np.abs(error).max() > 0


def test_the_exact_twin_rounds_before_it_sums() -> None:
    privatizer = sums(aggregator=NOISE).exact()
    assert isinstance(privatizer.aggregator, ExactGaussian)
    report = np.asarray(privatizer.randomize(RECORD, clock(0), NOTHING))
    np.testing.assert_allclose(
        report, np.asarray(QUERY.encode(RECORD)), atol=privatizer.aggregator.grid
    )
    assert (report % privatizer.aggregator.grid == 0).all()
