"""Sums of randomized bits: bills, views, the twin, and the roles apart."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.batches import grow_batches
from kerchief.core.contracts import Clock
from kerchief.core.errors import InvalidValueError, UnknownNameError
from kerchief.core.queries import RegressionMoments
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.environments import make_environment
from kerchief.mechanisms.randomized_bits import ExactResponse
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust, epsilon_at
from kerchief.privacy.randomized_bits import KEEP_UNIT, local_epsilon
from kerchief.privatizers import At, BitSums, Protection, ShuffledSums, protect

QUERY = RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0)
PROMISE = Guarantee(epsilon=2.0, delta=1e-5, trust=Trust.SHUFFLE)


@pytest.fixture(scope="module")
def sums() -> BitSums:
    schedule = At(ends=grow_batches(400, first=100, growth=2.0))
    return BitSums.of(QUERY, promise=PROMISE, schedule=schedule, bits=8)


def test_every_batch_keeps_the_promise_by_its_own_certificate(sums: BitSums) -> None:
    charges = sums.charges(400)
    assert [(c.cohort.first, c.cohort.last) for c in charges] == [(0, 100), (100, 200), (200, 400)]
    spent = [epsilon_at([charge.event], 1e-5) for charge in charges]
    assert all(0.97 * 2.0 <= epsilon <= 2.0 for epsilon in spent)
    ledger = MemoryLedger(PROMISE)
    ledger.charge_all(charges)
    assert ledger.spent().epsilon == max(spent)


@pytest.mark.parametrize(
    ("users", "deviation"), [(250, 19.8), pytest.param(400, 23.3, marks=pytest.mark.nightly)]
)
def test_numbers_are_coded_in_a_tight_box(users: int, deviation: float) -> None:
    """In [-1, 1], and not in [-2.1, 2.1]: with one bit the noise of rounding is half as large."""
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.SHUFFLE)
    one = BitSums.of(QUERY, promise=promise, schedule=At(ends=(users,)), bits=1)
    (batch,) = one.batches
    assert batch.bound == 1.0
    assert batch.std == pytest.approx(deviation, rel=0.005)
    (charge,) = one.charges(users)
    event: Any = charge.event
    assert event.sensitivity == QUERY.sensitivity
    assert epsilon_at([event], 1e-5) <= 1.0


def test_a_box_holds_every_statistic_of_queries_that_name_none() -> None:
    class Shifted:
        size, sensitivity, center, radius = 2, 1.0, np.array([3.0, -4.0]), 0.5
        importance, batches, readings = 1.0, (), ()
        encode: Any = None

    query: Any = Shifted()
    made = BitSums.of(query, promise=PROMISE, schedule=At(ends=(100,)), bits=1)
    assert made.batches[0].bound == 4.5
    # The most that a statistic's absolute values can add up to, in boxes.
    most = math.sqrt(2) * 5.5 / 4.5
    wire = local_epsilon(made.batches[0].keep, bits=1, dimension=2, taxicab=most)
    assert made.views(1e-5)["device wire"].epsilon == wire


@pytest.mark.parametrize(
    ("bits", "local"),
    [
        (1, 2.0),
        (8, 0.5),
        *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((1, 0.5), (8, 2.0))),
    ],
)
def test_a_report_and_the_sums_keep_a_promise_each(bits: int, local: float) -> None:
    query = dataclasses.replace(QUERY, local=local)
    schedule = At(ends=(100, 500))
    made = BitSums.of(query, promise=PROMISE, schedule=schedule, bits=bits)
    views = made.views(1e-5)
    assert 0.99 * local <= views["device wire"].epsilon <= local
    assert views["shuffler output"].epsilon < PROMISE.epsilon
    assert len({one.keep for one in made.batches}) == 1
    assert made.exact().batches == made.batches


def test_a_local_promise_is_never_less_noise_than_the_sums_need() -> None:
    loose, free = (
        BitSums.of(query, promise=PROMISE, schedule=At(ends=(100,)), bits=1).batches
        for query in (dataclasses.replace(QUERY, local=50.0), QUERY)
    )
    assert loose == free


def test_keep_probability_does_not_exceed_the_requested_one() -> None:
    query = dataclasses.replace(QUERY, keep=1 / 9)
    (one,) = BitSums.of(query, promise=PROMISE, schedule=At(ends=(100,)), bits=1).batches
    assert 1 / 9 - KEEP_UNIT < one.keep <= 1 / 9


@pytest.mark.parametrize(("trust", "word"), [("shuffle", "best"), ("joint", "best")])
def test_noise_without_a_promise_for_one_report_is_refused(trust: str, word: str) -> None:
    policy = POLICIES["linucb"].build(make_environment(dim=2, arms=3).problem(300), "tuned")
    asked = dataclasses.replace(policy, query=dataclasses.replace(policy.query, local=1.0))
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust))
    with pytest.raises(InvalidValueError, match="choose shuffling 'bit'"):
        protect(asked, Protection(guarantee=promise, mechanism=word), horizon=300)


def test_three_observers_have_separate_guarantees(sums: BitSums) -> None:
    views = sums.views(1e-5)
    assert list(views) == ["device wire", "shuffler output", "published model"]
    wire, output, model = views.values()
    assert (wire.trust, output.trust, model.trust) == (Trust.LOCAL, Trust.SHUFFLE, Trust.JOINT)
    assert wire.delta == 0.0
    assert wire.epsilon > output.epsilon == model.epsilon
    assert output.epsilon <= 2.0


@pytest.mark.nightly
def test_totals_are_right_on_average_and_as_noisy_as_stated(sums: BitSums) -> None:
    """400 copies of a batch of a hundred users; each test errs at five standard errors."""
    statistic = jnp.array([0.5, -0.3, 0.2, 0.1, 0.7])

    @jax.jit
    @jax.vmap
    def copy(number: jax.Array) -> tuple[jax.Array, jax.Array]:
        root = Stream.of(seed=3, replicate=number)
        memory, tally = sums.open()

        def code(user: jax.Array) -> Any:
            return sums.report(statistic, _clock(0), root.at(DEVICE, round=user))

        tally = sums.collect(tally, jax.vmap(code)(jnp.arange(100)).sum(0))
        release, _ = sums.release(memory, tally, None, _clock(99), root.at(AGGREGATOR))
        return release.total, release.noise

    totals, noises = copy(jnp.arange(400, dtype=jnp.uint32))
    noise = float(noises[0])
    assert (np.abs(totals.mean(0) - 100 * statistic) < 5 * noise / math.sqrt(400)).all()
    # What is stated is at the worst place for rounding: never less than it is, and little more.
    spread = np.asarray(totals.std(0))
    assert (spread < noise * (1 + 5 / math.sqrt(800))).all()
    assert (spread > 0.75 * noise).all()


def _clock(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def test_the_twin_counts_randomized_bits(sums: BitSums) -> None:
    twin = sums.exact()
    assert not twin.idealized
    assert all(isinstance(one, ExactResponse) for one in twin.batches)
    assert twin.charges(400) == sums.charges(400)
    report = twin.report(np.zeros(5), _clock(150), None)
    assert ((report >= 0) & (report <= 8)).all()
    np.testing.assert_array_equal(twin.report(np.zeros(5), _clock(400), None), np.zeros(5))
    assert twin.exact() == twin
    for call in (twin.aggregator.prepare, twin.aggregator.add):  # type: ignore[union-attr]
        with pytest.raises(InvalidValueError, match="call the privatizer"):
            call(np.zeros(5), None)


def test_other_batches_need_other_certificates(sums: BitSums) -> None:
    assert sums.with_schedule(sums.schedule) == sums
    with pytest.raises(InvalidValueError, match="build the privatizer anew"):
        sums.with_schedule(At(ends=(50, 100, 150)))


def test_words_choose_the_protocol() -> None:
    policy = POLICIES["linucb"].build(make_environment(dim=2, arms=3).problem(300), "tuned")
    kinds = {
        word: type(
            protect(policy, Protection(guarantee=PROMISE, mechanism=word), horizon=300)["moments"]
        )
        for word in ("best", "theorem", "bit")
    }
    assert kinds == {"best": ShuffledSums, "theorem": ShuffledSums, "bit": BitSums}
    with pytest.raises(UnknownNameError, match="shuffle protocol"):
        protect(policy, Protection(guarantee=PROMISE, mechanism="x"), horizon=300)
    batched = POLICIES["glm-batched"].build(
        make_environment(link="probit", dim=2, arms=3).problem(300), "tuned"
    )
    with pytest.raises(InvalidValueError, match="answers one sum"):
        protect(batched, Protection(guarantee=PROMISE, mechanism="bits"), horizon=300)
