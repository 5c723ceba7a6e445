"""Noise for prefix sums: its law, its algebra, its cost. Statistical tests err at 1e-6 or less."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.checks.statistics import fits_deviation, least_draws, normal_bound
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import AGGREGATOR, Stream
from kerchief.mechanisms.blt import BLT, MAX_BUFFERS
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.factor import Factor
from kerchief.mechanisms.toeplitz import SqrtToeplitz, coefficients
from kerchief.mechanisms.tree import Tree
from kerchief.privacy import events

Floats = NDArray[np.float64]
Kind = Callable[..., Factor]

KINDS = [
    pytest.param(Tree, id="tree"),
    pytest.param(SqrtToeplitz, id="toeplitz"),
    pytest.param(BLT.of, id="blt"),
]
# One short horizon and one number of coordinates for most tests, so that they share compilations.
HORIZON, SIZE = 12, 20_000
each = pytest.mark.parametrize("kind", KINDS)


def make(kind: Kind, horizon: int, *, multiplier: float = 1.7, **more: Any) -> ContinualNoise:
    factor = kind(horizon=horizon, **more)
    return ContinualNoise.of(factor, noise_multiplier=multiplier, sensitivity=2.5)


@partial(jax.jit, static_argnames=("size", "rounds"))
def play(noise: ContinualNoise, replicate: Array, *, size: int, rounds: int) -> Array:
    """The noise on each prefix, drawn as the compiled loop draws it."""
    root = Stream.of(seed=5, replicate=replicate)

    def one(state: Array, round: Array) -> tuple[Array, Array]:
        released, state = noise.step(state, round, root.at(AGGREGATOR, round=round))
        return state, released

    return jax.lax.scan(one, noise.open(size), jnp.arange(rounds, dtype=jnp.int32))[1]


def drawn(noise: ContinualNoise, *, size: int = SIZE, replicate: int = 0) -> Floats:
    return np.asarray(play(noise, jnp.uint32(replicate), size=size, rounds=noise.horizon))


class Scripted:
    """A stream that gives a known vector, to the last bit, however it is compiled."""

    def __init__(self, vector: Array) -> None:
        self.vector = vector

    def normal(self, size: int) -> Array:
        assert self.vector.shape == (size,)
        return self.vector


def streamed(noise: Any) -> Floats:
    """The matrix B that the stream applies: the noise when the seed vectors are unit vectors."""

    def one(state: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        released, state = noise.step(state, given[0], Scripted(given[1]))
        return state, released

    given = jnp.arange(noise.horizon), jnp.eye(noise.horizon, dtype=jnp.float32)
    released = jax.lax.scan(one, noise.open(noise.horizon), given)[1]
    return np.asarray(released) / float(noise.std)


def lower(column: Floats) -> Floats:
    """The lower-triangular Toeplitz matrix with this first column."""
    gaps = np.subtract.outer(np.arange(column.size), np.arange(column.size))
    return np.where(gaps >= 0, column[gaps], 0.0)


def mixing(noise: ContinualNoise) -> Floats:
    """The matrix B, written from its definition rather than from the stream."""
    if isinstance(noise.factor, SqrtToeplitz):
        return lower(coefficients(noise.horizon))
    if isinstance(noise.factor, BLT):
        fit, ages = noise.factor.fit, np.arange(noise.horizon)
        fading = np.power.outer(np.array(fit.decays), ages)
        return lower(fit.base + np.array(fit.weights) @ fading)
    matrix = np.zeros((noise.horizon, noise.horizon))
    for count in range(1, noise.horizon + 1):
        rest = count
        while rest:
            matrix[count - 1, rest - 1] = 1.0
            rest &= rest - 1
    return matrix


def strategy(noise: ContinualNoise) -> Floats:
    """The matrix C = B⁻¹ A that the noise protects."""
    return np.asarray(np.linalg.solve(mixing(noise), lower(np.ones(noise.horizon))))


def deviations(noise: ContinualNoise) -> Floats:
    """What `std_at` says of every prefix."""
    return np.asarray(stated_deviations(noise, np.arange(1, noise.horizon + 1)))


@jax.jit
def stated_deviations(noise: ContinualNoise, count: Array) -> Array:
    return noise.std_at(count)


class TestLaw:
    @each
    def test_no_noise_is_no_noise(self, kind: Kind) -> None:
        noise = make(kind, HORIZON, multiplier=0.0)
        assert (drawn(noise) == 0).all()
        assert (deviations(noise) == 0).all()
        assert noise.event() == events.NonPrivate()

    @pytest.mark.nightly
    @each
    def test_deviation_is_accepted_at_std_at_and_rejected_beside_it(self, kind: Kind) -> None:
        noise = make(kind, 100)
        draws, stated = drawn(noise, size=3 * least_draws()), deviations(noise)
        for count in (1, 2, 7, 8, 31, 63, 64, 99, 100):
            sample, std = draws[count - 1], stated[count - 1]
            assert fits_deviation(sample, std)
            assert not fits_deviation(sample, std * 2 / 3)
            assert not fits_deviation(sample, std * 3 / 2)

    @each
    def test_covariance_over_time(self, kind: Kind) -> None:
        noise = make(kind, HORIZON)
        draws, mix = drawn(noise), float(noise.std) * mixing(noise)
        wanted, found = mix @ mix.T, draws @ draws.T / SIZE
        spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / SIZE)
        assert (np.abs(found - wanted) < normal_bound(HORIZON**2) * spread).all()
        assert np.abs(found - np.diag(np.diag(wanted))).max() > 20 * spread.max()

    @each
    def test_coordinates_and_replicates_are_independent(self, kind: Kind) -> None:
        noise = make(kind, HORIZON)
        first, second = (drawn(noise, replicate=r)[-1] for r in (0, 1))
        bound = normal_bound(2) / math.sqrt(SIZE)
        assert abs(np.corrcoef(first, second)[0, 1]) < bound
        assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < bound * 1.01

    @each
    @pytest.mark.parametrize("horizon", [1, 2, 7, 200])
    def test_std_at_is_the_row_norm(self, kind: Kind, horizon: int) -> None:
        noise = make(kind, horizon)
        rows = np.linalg.norm(mixing(noise), axis=1) * float(noise.std)
        assert deviations(noise) == pytest.approx(rows, rel=1e-12)
        assert float(noise.std_at(jnp.array(0))) == 0.0


class TestAlgebra:
    @each
    @pytest.mark.parametrize("horizon", [1, 13, 200])
    def test_the_stream_applies_the_dense_matrix(self, kind: Kind, horizon: int) -> None:
        noise = make(kind, horizon)
        assert np.abs(streamed(noise) - mixing(noise)).max() < 1e-12

    def test_tree_prefixes_share_the_noise_of_common_blocks(self) -> None:
        # A block drawn twice would leave something behind besides the newest block.
        rows = streamed(make(Tree, 37))
        for count in range(1, 38):
            before = count & (count - 1)
            common = rows[before - 1] if before else np.zeros(37)
            assert (rows[count - 1] - common == np.eye(37)[count - 1]).all()

    def test_a_round_of_the_tree_touches_one_block(self) -> None:
        noise: Any = make(Tree, 20)
        state = noise.open(2)
        assert state.shape == (5, 2)
        for t in range(20):
            after = noise.step(state, jnp.int32(t), Scripted(jnp.array([t + 1.0, -1.0])))[1]
            changed = np.flatnonzero((after != state).any(axis=1))
            assert changed.tolist() == [((t + 1) & -(t + 1)).bit_length() - 1]
            state = after

    def test_square_root_is_a_square_root(self) -> None:
        root = lower(coefficients(300))
        assert np.abs(root @ root - lower(np.ones(300))).max() < 1e-12

    @pytest.mark.parametrize("buffers", [2, MAX_BUFFERS])
    def test_blt_keeps_one_running_sum_and_one_a_buffer(self, buffers: int) -> None:
        noise = make(BLT, 200, buffers=buffers)
        assert noise.open(4).shape == (buffers + 1, 4)
        assert np.abs(streamed(noise) - mixing(noise)).max() < 1e-12


class TestCost:
    @each
    @pytest.mark.parametrize("horizon", [1, 2, 3, 127, 128])
    def test_seed_noise_pays_for_the_largest_column(self, kind: Kind, horizon: int) -> None:
        noise = make(kind, horizon)
        norms = np.linalg.norm(strategy(noise), axis=0)
        assert norms.max() == pytest.approx(noise.column_norm, rel=1e-10)
        assert float(noise.std) == pytest.approx(1.7 * 2.5 * norms.max(), rel=1e-10)

    @each
    def test_c_is_causal(self, kind: Kind) -> None:
        matrix = strategy(make(kind, 50))
        assert np.abs(np.triu(matrix, 1)).max() < 1e-12
        assert np.diag(matrix) == pytest.approx(1.0)

    @each
    def test_event_is_read_off_the_noise(self, kind: Kind) -> None:
        noise = make(kind, 100)
        assert stated(noise) == pytest.approx(1.7, rel=1e-14)
        halved = jax.tree.map(lambda leaf: leaf / 2, noise)
        assert stated(halved) == pytest.approx(0.85, rel=1e-14)

    @each
    @pytest.mark.parametrize("place", [0, 5])
    def test_an_adaptive_stream_leaks_what_was_charged(self, kind: Kind, place: int) -> None:
        # The likelihood ratio's score is standard normal without the user's change and shifted by
        # it otherwise, though all other inputs are functions of what was released.
        noise = make(kind, HORIZON)
        norm = np.linalg.norm(strategy(noise)[:, place])
        without, changed = (scores(noise, place, value) for value in (0.0, 2.5))
        shift = norm / noise.column_norm / 1.7
        bound = normal_bound(2) / math.sqrt(SIZE)
        assert abs(without.mean()) < bound
        assert abs(changed.mean() - shift) < bound
        assert fits_deviation(without, 1.0)
        assert fits_deviation(changed - shift, 1.0)


def stated(noise: ContinualNoise) -> float:
    event = noise.event()
    assert isinstance(event, events.Gaussian)
    return event.noise_multiplier


def scores(noise: ContinualNoise, place: int, value: float) -> Floats:
    """The best attacker's score for each run of an adaptive stream, one run a coordinate."""
    draws, matrix = drawn(noise), strategy(noise)
    inputs, prefixes = np.zeros_like(draws), np.zeros_like(draws)
    for t in range(noise.horizon):
        inputs[t] = np.tanh(prefixes[t - 1]) if t else 0.5
        inputs[t] = value if t == place else inputs[t]
        prefixes[t] = inputs[: t + 1].sum(axis=0) + draws[t]
    inputs[place] = 0.0
    innovations = np.linalg.solve(mixing(noise), prefixes) - matrix @ inputs
    direction = matrix[:, place] / np.linalg.norm(matrix[:, place])
    return np.asarray(direction @ innovations / float(noise.std))


class TestTable:
    @pytest.mark.parametrize(
        ("horizon", "buffers", "worst"),
        [
            (1000, 2, 3.32),
            (1000, 4, 3.265),
            (20_000, 4, 4.228),
            (20_000, 5, 4.220),
            (1_000_000, 4, 5.548),
            (1_000_000, 6, 5.470),
        ],
    )
    def test_blt(self, horizon: int, buffers: int, worst: float) -> None:
        noise = make(BLT, horizon, buffers=buffers)
        found = float(noise.std_at(jnp.array(horizon))) / (1.7 * 2.5)
        assert found == pytest.approx(worst, rel=1e-3)

    @pytest.mark.parametrize(("horizon", "worst"), [(1000, 3.265), (20_000, 4.219)])
    def test_square_root(self, horizon: int, worst: float) -> None:
        noise = make(SqrtToeplitz, horizon)
        assert deviations(noise).max() / (1.7 * 2.5) == pytest.approx(worst, rel=1e-3)

    @pytest.mark.parametrize(
        ("horizon", "worst"), [(1000, 9.49), (20_000, 14.49), (1_000_000, 19.49)]
    )
    def test_tree(self, horizon: int, worst: float) -> None:
        noise = make(Tree, horizon)
        assert deviations(noise).max() / (1.7 * 2.5) == pytest.approx(worst, rel=1e-3)

    @pytest.mark.parametrize(("horizon", "mean"), [(1000, 3.098), (20_000, 4.054)])
    def test_blt_on_average(self, horizon: int, mean: float) -> None:
        noise = make(BLT.of, horizon)
        assert deviations(noise).mean() / (1.7 * 2.5) == pytest.approx(mean, rel=3e-3)


class TestBest:
    @pytest.mark.parametrize("horizon", [1, 2, 3, 4, 8, 40, 101, 10_001])
    def test_blt_deviation_is_no_worse_than_other_factors(self, horizon: int) -> None:
        worst = deviations(make(BLT.of, horizon)).max()
        assert worst <= deviations(make(Tree, horizon)).max() * (1 + 1e-9)
        assert worst <= 1.7 * 2.5 * math.sqrt(horizon) * (1 + 1e-9)
        assert worst <= deviations(make(SqrtToeplitz, horizon)).max() * 1.004

    @pytest.mark.parametrize("horizon", [1_000_000, BLT.longest])
    def test_within_its_promise_of_the_square_root_for_long_streams(self, horizon: int) -> None:
        steps = np.arange(1, horizon)
        root = 1 + np.sum(np.exp(2 * np.cumsum(np.log1p(-0.5 / steps))))
        worst = float(make(BLT.of, horizon).std_at(jnp.array(horizon)))
        assert worst <= 1.7 * 2.5 * root * 1.004


class TestUse:
    @pytest.mark.nightly
    @each
    def test_mapped_over_replicates_inside_a_scan(self, kind: Kind) -> None:
        noise, replicates = make(kind, HORIZON), jnp.arange(4, dtype=jnp.uint32)
        root = jax.vmap(lambda r: Stream.of(seed=5, replicate=r))(replicates)

        def one(states: Array, round: Array) -> tuple[Array, Array]:
            at = jax.vmap(lambda stream: stream.at(AGGREGATOR, round=round))(root)
            released, states = jax.vmap(noise.step, in_axes=(0, None, 0))(states, round, at)
            return states, released

        states = jnp.stack([noise.open(3)] * 4)
        released = jax.jit(lambda: jax.lax.scan(one, states, jnp.arange(HORIZON))[1])()
        assert released.dtype == jnp.float64
        for replicate in range(4):
            alone = np.asarray(play(noise, jnp.uint32(replicate), size=3, rounds=HORIZON + 3))
            # The generator works in float32, and compilers may round its logarithm either way.
            assert np.abs(released[:, replicate] - alone[:HORIZON]).max() < 1e-5

    @each
    def test_one_compilation_serves_every_multiplier(self, kind: Kind) -> None:
        traces = []

        @jax.jit
        def last(noise: ContinualNoise) -> Array:
            traces.append(noise)
            return noise.std_at(jnp.int32(8))

        found = [float(last(make(kind, 8, multiplier=value))) for value in (1.0, 2.0)]
        assert found[1] == pytest.approx(2 * found[0])
        assert len(traces) == 1

    @each
    def test_same_address_same_noise(self, kind: Kind) -> None:
        noise = make(kind, HORIZON)
        assert (drawn(noise) == drawn(make(kind, HORIZON))).all()
        assert (drawn(noise) != drawn(noise, replicate=1)).mean() > 0.99

    @each
    def test_nothing_can_be_read_beyond_the_horizon(self, kind: Kind) -> None:
        released = play(make(kind, HORIZON), jnp.uint32(0), size=3, rounds=HORIZON + 3)
        assert np.isfinite(released[:HORIZON]).all()
        assert np.isnan(released[HORIZON:]).all()

    @each
    def test_noise_is_declared_idealized(self, kind: Kind) -> None:
        assert make(kind, 2).idealized

    @each
    @pytest.mark.parametrize(
        "values",
        [
            {"noise_multiplier": -1.0},
            {"noise_multiplier": math.nan},
            {"noise_multiplier": math.inf},
            {"sensitivity": 0.0},
            {"sensitivity": math.inf},
            {"horizon": 0},
            {"horizon": 2.5},
            {"horizon": 2**31},
        ],
    )
    def test_bad_values_are_refused(self, kind: Kind, values: dict[str, Any]) -> None:
        good = {"noise_multiplier": 1.0, "sensitivity": 1.0, "horizon": 4}
        given = {**good, **values}
        with pytest.raises(InvalidValueError, match=next(iter(values))):
            ContinualNoise.of(kind(horizon=given.pop("horizon")), **given)

    def test_factors_reject_horizon_and_buffers_beyond_limits(self) -> None:
        with pytest.raises(InvalidValueError, match="horizon"):
            make(SqrtToeplitz, SqrtToeplitz.longest + 1)
        with pytest.raises(InvalidValueError, match="horizon"):
            make(BLT.of, BLT.longest + 1)
        for buffers in (1, MAX_BUFFERS + 1):
            with pytest.raises(InvalidValueError, match="buffers"):
                make(BLT, 10, buffers=buffers)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]])
def test_a_million_rounds(kind: Kind) -> None:
    noise, horizon = make(kind, 1_000_000), 1_000_000
    root = Stream.of(seed=1, replicate=0)

    @jax.jit
    def at_the_end() -> Array:
        def one(round: Array, kept: tuple[Array, Array]) -> tuple[Array, Array]:
            released, state = noise.step(kept[1], round, root.at(AGGREGATOR, round=round))
            return released, state

        first = (jnp.zeros(least_draws()), noise.open(least_draws()))
        last: Array = jax.lax.fori_loop(0, horizon, one, first)[0]
        return last

    sample, std = np.asarray(at_the_end()), float(noise.std_at(jnp.array(horizon)))
    assert fits_deviation(sample, std)
    assert not fits_deviation(sample, std * 2 / 3)
    assert not fits_deviation(sample, std * 3 / 2)
