"""Prefix totals without a horizon: epochs that double, each paid for by its own users."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.checks import PRIVATIZER_LAWS, CheckFailedError, PrivatizerCase
from kerchief.checks.errors import Law
from kerchief.checks.privatizer import noise_has_the_stated_deviation, noise_is_what_was_charged
from kerchief.checks.statistics import fits_deviation, least_draws, normal_bound
from kerchief.core.contracts import BoundedSum, Clock, Example
from kerchief.core.errors import CapacityExceededError, InvalidValueError
from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments
from kerchief.core.random import AGGREGATOR, Stream
from kerchief.deployment import Bandit
from kerchief.environments import make_environment
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import FIRST, Doubling, lengths
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.policies import POLICIES
from kerchief.privacy import Cohort, Gaussian, Guarantee, MemoryLedger, Trust, epsilon_at
from kerchief.privatizers import CONTINUALS, At, Every, PrefixSums, Privatizer, Protection, protect
from kerchief.privatizers.schedule import OnDemand, Schedule
from kerchief.simulation import simulate

QUERY = RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0)
RECORD = Example(features=jnp.array([0.6, 0.8]), reward=jnp.float64(0.5))
ENCODED = np.asarray(jax.jit(QUERY.encode)(RECORD))
ROOT = Stream.of(seed=3, replicate=0)
PROMISE = Guarantee(epsilon=8.0, delta=1e-6, trust=Trust.JOINT)
WORLD = make_environment(dim=3, arms=6, fewest=3)
# Epochs of 3, 6, 12 and 24 places.
FIRST_3, HORIZON = 3, 30

Floats = NDArray[np.float64]


def noise(
    horizon: int = HORIZON, *, multiplier: float = 3.0, first: int = FIRST_3, sensitivity: float = 1
) -> ContinualNoise:
    factor = Doubling(horizon=horizon, first=first)
    return ContinualNoise.of(factor, noise_multiplier=multiplier, sensitivity=sensitivity)


def epochs(
    query: BoundedSum, multiplier: float, horizon: int, *, first: int = FIRST_3
) -> PrefixSums:
    made = noise(horizon, multiplier=multiplier, first=first, sensitivity=query.sensitivity)
    return PrefixSums(query=query, schedule=Every(), noise=made)


def played(privatizer: PrefixSums, rounds: int, source: Any) -> list[Any]:
    memory, tally = privatizer.open()
    releases = []
    for round in range(rounds):
        clock = Clock(round=jnp.int32(round), since={})
        tally = privatizer.collect(tally, privatizer.randomize(RECORD, clock, None))
        at = source.at(AGGREGATOR, round=round) if isinstance(source, Stream) else source
        release, memory = privatizer.release(memory, tally, None, clock, at)
        tally = privatizer.clear(tally)
        releases.append(release)
    return releases


@functools.partial(jax.jit, static_argnames=("size", "rounds"))
def draws(made: ContinualNoise, *, size: int, rounds: int) -> Array:
    """The noise on each prefix, drawn as the compiled loop draws it."""

    def one(state: Array, round: Array) -> tuple[Array, Array]:
        released, state = made.step(state, round, ROOT.at(AGGREGATOR, round=round))
        return state, released

    return jax.lax.scan(one, made.open(size), jnp.arange(rounds, dtype=jnp.int32))[1]


class Scripted:
    """A stream that gives a known vector."""

    def __init__(self, vector: Array) -> None:
        self.vector = vector

    def normal(self, size: int) -> Array:
        assert self.vector.shape == (size,)
        return self.vector


def mixing(made: ContinualNoise) -> Floats:
    """The matrix B that the stream applies: the noise when the seed vectors are unit vectors."""

    def one(state: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        stream: Any = Scripted(given[1])
        released, state = made.step(state, given[0], stream)
        return state, released

    seeds = jnp.arange(made.horizon), jnp.eye(made.horizon, dtype=jnp.float32)
    return np.asarray(jax.lax.scan(one, made.open(made.horizon), seeds)[1]) / float(made.std)


class TestNoise:
    def test_epochs_double_and_their_users_are_disjoint(self) -> None:
        assert lengths(HORIZON, FIRST_3) == (3, 6, 12, 24)
        assert [lengths(t, 3) for t in (1, 3, 4, 9, 10)] == [
            (3,),
            (3,),
            (3, 6),
            (3, 6),
            (3, 6, 12),
        ]

    def test_epoch_matrix_matches_note_and_is_block_diagonal(self) -> None:
        made = noise(21)
        b = mixing(made)
        c = np.linalg.solve(b, np.tri(21))
        # C is block diagonal: an epoch's columns are zero outside it.
        for start, end in ((0, 3), (3, 9), (9, 21)):
            outside = np.r_[0:start, end:21]
            assert np.abs(c[outside, start:end]).max(initial=0) < 1e-6
            np.testing.assert_allclose(np.linalg.norm(c[:, start]), 1.0, rtol=1e-6)
            # Within an epoch it is the noise of BLT for that length, to scale.
            own = BLT(horizon=end - start, buffers=5)
            rows = np.linalg.norm(b[start:end, start:end], axis=1)
            wanted = own.column_norm * own.row_norm(np.arange(1, end - start + 1), np)
            np.testing.assert_allclose(rows, wanted, rtol=1e-6)
        assert np.linalg.norm(c, axis=0).max() <= made.column_norm * (1 + 1e-6)
        stated = made.std_at(jnp.arange(1, 22)) / made.std
        np.testing.assert_allclose(np.linalg.norm(b, axis=1), stated, rtol=1e-6)

    def test_the_deviation_is_the_stated_one_across_borders(self) -> None:
        made = noise()
        drawn = np.asarray(draws(made, size=3 * least_draws(), rounds=HORIZON))
        for count in (1, 3, 4, 8, 9, 10, 21, 22, 30):
            stated = float(made.std_at(jnp.int32(count)))
            assert fits_deviation(drawn[count - 1], stated)
            assert not fits_deviation(drawn[count - 1], stated * 2 / 3)
            assert not fits_deviation(drawn[count - 1], stated * 3 / 2)

    def test_successive_releases_are_correlated_as_they_must_be(self) -> None:
        made, size = noise(12), 20_000
        drawn, mix = np.asarray(draws(made, size=size, rounds=12)), float(made.std) * mixing(made)
        wanted, found = mix @ mix.T, drawn @ drawn.T / size
        spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / size)
        assert (np.abs(found - wanted) < normal_bound(144) * spread).all()
        # What the first epoch left is in every later release.
        np.testing.assert_allclose(wanted[2, 3:], wanted[2, 2], rtol=1e-6)

    def test_no_place_depends_on_the_horizon(self) -> None:
        short, long = draws(noise(10), size=4, rounds=10), draws(noise(60), size=4, rounds=10)
        np.testing.assert_array_equal(short, long)

    def test_rounds_beyond_the_paid_horizon_are_nan(self) -> None:
        drawn = np.asarray(draws(noise(5), size=2, rounds=6))
        assert np.isfinite(drawn[:5]).all()
        assert np.isnan(drawn[5]).all()

    def test_the_cost_of_not_knowing_the_horizon(self) -> None:
        """The factors of `doubling.md`."""
        for horizon, factor in ((5_000, 1.58), (20_000, 1.95)):
            known = BLT.of(horizon=horizon)
            made = noise(horizon, multiplier=1.0, first=FIRST)
            wanted = known.column_norm * known.row_norm(horizon, np)
            found = float(made.std_at(jnp.int32(horizon))) / wanted
            assert found == pytest.approx(factor, abs=0.01)

    @pytest.mark.parametrize("bad", [{"horizon": 0}, {"horizon": 10**8}, {"first": 0}])
    def test_values_out_of_bounds_are_refused(self, bad: dict[str, int]) -> None:
        with pytest.raises(InvalidValueError):
            noise(**{"horizon": 10} | bad)


@pytest.mark.parametrize("exact", [False, True])
def test_every_release_is_the_total_within_its_noise(exact: bool) -> None:
    plain = epochs(QUERY, 3.0, HORIZON)
    privatizer: Any = plain.exact() if exact else plain
    for count, release in enumerate(played(privatizer, HORIZON, None if exact else ROOT), 1):
        error = np.asarray(release.total) - count * ENCODED
        # Beyond 6 deviations with probability below 3e-9 a coordinate.
        assert (np.abs(error) < 6 * float(release.noise)).all()
        assert int(release.count) == count


def test_without_noise_every_prefix_is_exact() -> None:
    for count, release in enumerate(played(epochs(QUERY, 0.0, HORIZON), HORIZON, ROOT), 1):
        np.testing.assert_allclose(release.total, count * ENCODED, atol=1e-12)
        assert float(release.noise) == 0.0


class TestBill:
    def test_each_epoch_is_paid_for_by_its_own_users(self) -> None:
        charges = epochs(QUERY, 3.0, HORIZON).charges(HORIZON)
        ends = [(charge.cohort.first, charge.cohort.last) for charge in charges]
        assert ends == [(0, 3), (3, 9), (9, 21), (21, 30)]
        (event,) = {charge.event for charge in charges}
        assert isinstance(event, Gaussian)
        assert event.noise_multiplier == pytest.approx(3.0, rel=1e-12)

    @pytest.mark.parametrize("exact", [False, True])
    def test_the_ledger_charges_one_epoch_and_what_was_reached(self, exact: bool) -> None:
        policy = POLICIES["linucb"].build(WORLD.problem(5_000), "tuned")
        ledger = MemoryLedger(PROMISE)
        for one in protect(
            policy, Protection(guarantee=PROMISE, mechanism="doubling"), horizon=5_000
        ).values():
            charged = (one.exact() if exact else one).charges(5_000)
            assert len(charged) == 3
            receipts = ledger.charge_all(charged)
            for receipt in receipts:
                reached = one.took_part(receipt.cohort, users=2_000, covered=2_000, releases=2_000)
                assert reached == (receipt.cohort.first < 2_000)
                ledger.settle(receipt, used=reached)
        assert [receipt.used for receipt in ledger.receipts] == [1, 1, 0]
        assert ledger.spent().epsilon == pytest.approx(PROMISE.epsilon, rel=1e-5)
        assert ledger.spent().epsilon <= PROMISE.epsilon

    def test_rare_releases_leave_nobody_uncharged(self) -> None:
        rare = epochs(QUERY, 3.0, 4).with_schedule(At(ends=(50, 100)))
        assert [one.cohort for one in rare.charges(105)] == [Cohort(first=0, last=105)]
        with pytest.raises(CapacityExceededError, match="5 releases over 5 rounds"):
            epochs(QUERY, 3.0, 4).charges(5)


class TestTwin:
    def test_every_epoch_has_noise_of_its_own_on_one_grid(self) -> None:
        exact = epochs(QUERY, 3.0, HORIZON).exact()
        assert isinstance(exact, PrefixSums)
        assert isinstance(exact.noise, ExactContinualNoise)
        assert exact.exact() is exact
        assert [epoch.horizon for epoch in exact.noise.factor.parts] == [3, 6, 12, 24]
        assert {seed.grid for seed in exact.noise.seeds} == {exact.noise.grid}
        for release in played(exact, 10, None):
            assert (np.asarray(release.total) % exact.noise.grid == 0).all()
        with pytest.raises(CapacityExceededError, match="paid for 30"):
            exact.noise.step(exact.noise.open(5), 30, None)
        with pytest.raises(InvalidValueError, match="sums would not be exact"):
            exact.noise.prepare(np.full(QUERY.size, 2.0**53 * exact.noise.grid / HORIZON))

    def test_it_states_the_deviation_of_the_simulated(self) -> None:
        simulated = epochs(QUERY, 3.0, HORIZON)
        counts = jnp.arange(1, HORIZON + 1)
        wanted = np.asarray(simulated.noise.std_at(counts))
        stated = np.asarray(simulated.exact().noise.std_at(counts))
        np.testing.assert_allclose(stated, wanted, rtol=1e-5)
        assert (stated >= wanted).all()

    def test_it_has_the_deviation_and_the_memory_that_it_states(self) -> None:
        made = noise(10).exact(2 * least_draws())
        state, rows = made.open(2 * least_draws()), []
        for round in range(10):
            row, state = made.step(state, round, np.random.default_rng(round).bytes)
            rows.append(row)
        for count in (1, 3, 4, 9, 10):
            stated = float(made.std_at(count))
            verdict = [fits_deviation(rows[count - 1], stated * f) for f in (1.0, 2 / 3, 3 / 2)]
            assert verdict == [True, False, False]
        # What an epoch left stays: the rest of the noise is that of the epoch alone.
        for place, epoch in ((3, 1), (9, 2)):
            own = float(made.seeds[epoch].std) * made.factor.parts[epoch].row_norm(1, np)
            assert fits_deviation(rows[place] - rows[place - 1], own)

    def test_no_epoch_costs_more_than_is_charged(self) -> None:
        made = epochs(QUERY, 3.0, 3000).exact().noise
        assert isinstance(made, ExactContinualNoise)
        for delta in (1e-3, 1e-6, 1e-12):
            charged = epsilon_at([made.event()], delta)
            for part, seed in zip(made.factor.parts, made.seeds, strict=True):
                assert epsilon_at([part.price(seed.event())], delta) <= charged
            assert charged <= epsilon_at([Gaussian(noise_multiplier=3.0)], delta)

    def test_exact_places_do_not_depend_on_the_horizon(self) -> None:
        short, long = (epochs(QUERY, 3.0, horizon).exact().noise for horizon in (10, 500))
        assert isinstance(short, ExactContinualNoise)
        assert isinstance(long, ExactContinualNoise)
        assert long.seeds[: len(short.seeds)] == short.seeds
        assert long.factor.parts[: len(short.seeds)] == short.factor.parts


def protocol(make: Any = epochs) -> PrivatizerCase:
    """Short epochs, so that the laws' few releases cross two borders."""
    entry = dataclasses.replace(CONTINUALS["doubling"], make=make)
    return dataclasses.replace(PrivatizerCase.of("joint", entry), name="joint, doubling")


@pytest.mark.nightly
@pytest.mark.parametrize("law", PRIVATIZER_LAWS, ids=str)
def test_every_law_of_privatizers(law: Law[PrivatizerCase]) -> None:
    law(protocol())


@pytest.mark.nightly
@pytest.mark.parametrize("law", [noise_has_the_stated_deviation, noise_is_what_was_charged])
def test_noise_a_third_too_small_is_caught(law: Law[PrivatizerCase]) -> None:
    @dataclasses.dataclass(frozen=True)
    class Faint:
        inner: ContinualNoise

        def step(self, state: Any, round: Any, stream: Any) -> Any:
            released, state = self.inner.step(state, round, stream)
            return released * 2 / 3, state

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    jax.tree_util.register_dataclass(Faint, ["inner"], [])

    def faint(query: BoundedSum, multiplier: float, horizon: int) -> Privatizer:
        return epochs(query, multiplier, horizon).with_noise(Faint)

    with pytest.raises(CheckFailedError) as caught:
        law(protocol(faint))
    assert "no error" not in str(caught.value)


class TestPlaying:
    """With epochs of 8, 16, 32 and 64, in 60 rounds."""

    ROUNDS = 60
    FACTS: Problem = WORLD.problem(ROUNDS)

    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        short = dataclasses.replace(CONTINUALS["doubling"], make=functools.partial(epochs, first=8))
        monkeypatch.setitem(CONTINUALS._entries, "doubling", short)

    def protected(self) -> tuple[Any, dict[str, Privatizer]]:
        policy = POLICIES["linucb"].build(self.FACTS, "tuned")
        return policy, dict(
            protect(
                policy, Protection(guarantee=PROMISE, mechanism="doubling"), horizon=self.ROUNDS
            )
        )

    def test_the_compiled_loop_pays_for_every_epoch(self) -> None:
        policy, privatizers = self.protected()
        books = MemoryLedger(PROMISE)
        run = simulate(
            policy=policy,
            privatizers=privatizers,
            environment=WORLD,
            horizon=self.ROUNDS,
            seed=7,
            ledger=books,
            replicates=1,
            ticks=self.ROUNDS,
        )
        assert [receipt.used for receipt in books.receipts] == [1, 1, 1, 1]
        assert run.spent.epsilon == pytest.approx(PROMISE.epsilon, rel=1e-6)

    def test_bandit_with_doubling_epochs_spends_its_guarantee(self) -> None:
        bandit = Bandit(
            policy="linucb",
            problem=self.FACTS,
            guarantee=PROMISE,
            mechanism="doubling",
            window_s=0,
        )
        for _ in range(20):
            bandit.reward(bandit.decide(np.eye(3)).id, 0.5)
        bandit.expire()
        assert bandit.users == 20
        assert PROMISE.epsilon * (1 - 1e-5) < bandit.spent().epsilon <= PROMISE.epsilon


@pytest.mark.parametrize(
    ("schedule", "horizon", "borders"),
    [
        (At(ends=tuple(range(2, 41, 3))), 45, (11, 35, 45)),
        (OnDemand(limit=13), 13, (4, 12, 13)),
        (OnDemand(limit=13), 5, (4, 5)),
        (OnDemand(limit=13), 2, (2,)),
    ],
)
def test_every_user_is_charged_once_whenever_totals_are_read(
    schedule: Schedule, horizon: int, borders: tuple[int, ...]
) -> None:
    factor = Doubling(horizon=13, first=4)
    noise = ContinualNoise.of(factor, noise_multiplier=1.0, sensitivity=QUERY.sensitivity)
    charges = PrefixSums(query=QUERY, schedule=schedule, noise=noise).charges(horizon)
    found = [(one.cohort.first, one.cohort.last) for one in charges]
    assert found == list(itertools.pairwise((0, *borders)))
