"""Randomized bits, simulated and exact. Statistical tests err with probability 1e-6 or less."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.contracts import Example
from kerchief.core.errors import InvalidValueError
from kerchief.core.queries import RegressionMoments
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.mechanisms.randomized_bits import MAX_BITS, ExactResponse, Response
from kerchief.privacy import events
from kerchief.privacy.randomized_bits import RandomizedBits

ERROR = 1e-6
Z = float(stats.norm.isf(ERROR / 200))
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def response(users: int, bits: int, keep: float, dimension: int, bound: float = 1.0) -> Response:
    return Response(
        keep=keep,
        tail=1e-9,
        users=users,
        bits=bits,
        bound=bound,
        sensitivity=2.0 * bound,
        dimension=dimension,
    )


def seeded(seed: int) -> Callable[[int], bytes]:
    return np.random.Generator(np.random.PCG64(seed)).bytes


@jax.jit
def simulated(noise: Response, vectors: jax.Array) -> jax.Array:
    root = Stream.of(seed=5, replicate=0)
    coded = jax.vmap(lambda f, t: noise.prepare(f, root.at(DEVICE, round=t)))(
        vectors, jnp.arange(len(vectors))
    )
    return noise.total(noise.respond(coded.sum(0), root.at(AGGREGATOR)))


respond = jax.jit(Response.respond)


def batch(noise: Response, vectors: Floats, draws: int) -> Floats:
    """The estimated sums of many batches of the same users: coordinates are repeated."""
    wide = dataclasses.replace(noise, dimension=noise.dimension * draws)
    totals = simulated(wide, jnp.asarray(np.tile(vectors, draws)))
    return np.asarray(totals).reshape(draws, noise.dimension)


def exact_sums(noise: ExactResponse, vectors: Floats, draws: int, seed: int) -> Ints:
    wide, source = dataclasses.replace(noise, dimension=noise.dimension * draws), seeded(seed)
    reports = [wide.report(np.tile(vector, draws), randomness=source) for vector in vectors]
    sums: Ints = np.sum(reports, axis=0).reshape(draws, noise.dimension)
    return sums


def law(levels: Floats, bits: int, keep: float) -> Floats:
    """The law of one coordinate's sum over users who code these numbers of ones on average."""
    total = np.ones(1)
    for level in levels:
        for bit in range(bits):
            one = (1 + keep * (2 * min(max(level - bit, 0.0), 1.0) - 1)) / 2
            total = np.convolve(total, [1 - one, one])
    return total


def fit(draws: Floats | Ints, expected: Floats) -> float:
    """The chi-square p-value of sums against their law; thin tails are pooled."""
    wanted = expected * draws.size
    seen = np.bincount(np.rint(draws).astype(np.int64), minlength=wanted.size).astype(float)
    core = wanted >= 10
    seen = np.append(seen[core], seen[~core].sum())
    wanted = np.append(wanted[core], wanted[~core].sum())
    return float(stats.chisquare(seen, wanted, sum_check=False).pvalue)


VECTORS = np.array([[0.3, -1.0], [1.0, 1.0], [-0.77, 0.1], [0.0, -0.5], [0.2, 0.9]])


class TestLaw:
    """Five users, three bits: bits one by one, counts, and two draws per batch have one law."""

    keep = 0.375

    def expected(self, coordinate: int) -> Floats:
        return law(3 * (1 + VECTORS[:, coordinate]) / 2, 3, self.keep)

    @pytest.mark.parametrize("coordinate", [0, 1])
    def test_exact_reports(self, coordinate: int) -> None:
        noise = response(5, 3, self.keep, 2).exact()
        sums = exact_sums(noise, VECTORS, 20_000, seed=1)[:, coordinate]
        assert fit(sums, self.expected(coordinate)) > ERROR

    @pytest.mark.parametrize("coordinate", [0, 1])
    def test_simulated_sums(self, coordinate: int) -> None:
        noise = response(5, 3, self.keep, 2)
        totals = batch(noise, VECTORS, 20_000)[:, coordinate]
        sums = (totals * 3 * self.keep + 15) / 2
        assert np.abs(sums - np.rint(sums)).max() < 1e-9
        assert fit(sums, self.expected(coordinate)) > ERROR

    def test_the_fit_has_power_against_noise_a_third_too_small(self) -> None:
        odds = self.keep**2 / (1 - self.keep**2) * 2.25
        louder = math.sqrt(odds / (1 + odds))
        noise = response(5, 3, math.floor(louder * 2**20) / 2**20, 2).exact()
        sums = exact_sums(noise, VECTORS, 20_000, seed=1)[:, 0]
        assert fit(sums, self.expected(0)) < ERROR

    def test_coordinates_are_independent(self) -> None:
        for draws in (
            exact_sums(response(5, 3, self.keep, 2).exact(), VECTORS, 20_000, seed=9),
            batch(response(5, 3, self.keep, 2), VECTORS, 20_000),
        ):
            z = float(np.corrcoef(draws.T)[0, 1]) * math.sqrt(len(draws))
            assert abs(z) < Z

    @pytest.mark.parametrize("ones", [0, 20_000, 64_000])
    def test_large_batches(self, ones: int) -> None:
        noise = response(1000, 64, 0.447, 20_000)
        coded = jnp.full(noise.dimension, float(ones))
        sums = np.asarray(respond(noise, coded, Stream.of(seed=2, replicate=0).at(AGGREGATOR)))
        mean = ones * 0.7235 + (64_000 - ones) * 0.2765
        std = math.sqrt(64_000 * 0.7235 * 0.2765)
        assert stats.kstest((sums - mean) / std, "norm").statistic < 0.025
        assert abs(sums.mean() - mean) < Z * std / math.sqrt(sums.size)
        assert sums.std() == pytest.approx(std, rel=0.03)


class TestEstimate:
    @pytest.mark.nightly
    @pytest.mark.parametrize(
        ("bits", "keep"),
        [
            (1, 0.1),
            (64, 0.8),
            *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((1, 0.8), (4, 0.1))),
        ],
    )
    def test_simulated_is_unbiased_with_the_stated_variance(self, bits: int, keep: float) -> None:
        users = 20
        vectors = np.random.default_rng(bits).uniform(-1, 1, (users, 3))
        vectors[:, 2] = np.where(np.arange(users) % 2, 1.0, -1.0)
        draws = 40_000
        totals = batch(response(users, bits, keep, 3), vectors, draws)
        rest = bits * (1 + vectors) / 2 % 1
        variance = users * (1 - keep**2) / (bits * keep**2)
        variance = variance + (4 * rest * (1 - rest)).sum(0) / bits**2
        z = (totals.mean(0) - vectors.sum(0)) / np.sqrt(variance / draws)
        assert np.abs(z).max() < Z
        assert totals.var(0) == pytest.approx(variance, rel=0.04)
        if bits == 1:
            assert variance == pytest.approx((1 / keep**2 - vectors**2).sum(0))

    @pytest.mark.parametrize(("bits", "keep"), [(1, 0.5), (6, 0.25)])
    def test_exact_is_unbiased_with_the_stated_variance(self, bits: int, keep: float) -> None:
        vectors = VECTORS * 3.0
        noise = response(5, bits, keep, 2, bound=3.0).exact()
        totals = noise.total(exact_sums(noise, vectors, 40_000, seed=3))
        rest = bits * (1 + VECTORS) / 2 % 1
        variance = 5 * (1 - keep**2) / (bits * keep**2)
        variance = 9 * (variance + (4 * rest * (1 - rest)).sum(0) / bits**2)
        z = (totals.mean(0) - vectors.sum(0)) / np.sqrt(variance / 40_000)
        assert np.abs(z).max() < Z
        assert totals.var(0) == pytest.approx(variance, rel=0.04)

    @pytest.mark.nightly
    def test_std_is_reached_where_rounding_is_worst(self) -> None:
        noise = response(20, 1, 0.5, 3)
        totals = batch(noise, np.zeros((20, 3)), 40_000)
        assert totals.std() == pytest.approx(float(noise.std), rel=0.02)
        assert noise.std == pytest.approx(noise.exact().std)

    def test_without_noise_and_on_the_grid_the_total_is_exact(self) -> None:
        vectors = np.random.default_rng(0).integers(-32, 33, (20, 3)) / 32
        totals = batch(response(20, 64, 1.0, 3), vectors, 4_000)
        assert (totals == vectors.sum(0)).all()

    def test_without_noise_only_rounding_remains(self) -> None:
        vectors = np.random.default_rng(1).uniform(-1, 1, (20, 3))
        totals = batch(response(20, 64, 1.0, 3), vectors, 4_000)
        assert 0 < np.abs(totals - vectors.sum(0)).max() < 7 * math.sqrt(20) / 64


class TestCoding:
    @pytest.mark.parametrize(
        ("value", "ones"), [(-1.0, 0), (1.0, 8), (0.25, 5), (-7.0, 0), (9.0, 8), (math.nan, 4)]
    )
    def test_ends_and_grid_are_certain(self, value: float, ones: int) -> None:
        noise = response(2, 8, 0.5, 1)
        for seed in range(20):
            stream = Stream.of(seed=seed, replicate=0)
            assert float(noise.prepare(jnp.array([value]), stream)[0]) == ones
            coded = noise.exact().code(np.array([value]), randomness=seeded(seed))
            assert coded.tolist() == [ones]

    @pytest.mark.parametrize(("word", "ones"), [(0, 3), (2**31 - 1, 3), (2**31, 2), (2**32 - 1, 2)])
    def test_a_half_is_a_fair_coin(self, word: int, ones: int) -> None:
        noise = response(2, 5, 0.5, 1).exact()
        coded = noise.code(np.zeros(1), randomness=lambda _: word.to_bytes(4, "little"))
        assert coded.tolist() == [ones]

    @pytest.mark.parametrize(
        ("value", "word", "count"),
        [(1.0, 3 * 2**30 - 1, 1), (1.0, 3 * 2**30, 0), (-1.0, 2**30 - 1, 1), (-1.0, 2**30, 0)],
    )
    def test_a_bit_has_exactly_its_chance(self, value: float, word: int, count: int) -> None:
        """Keep 1/2: a one arrives as one with chance 3/4, a zero with chance 1/4."""
        noise = response(2, 1, 0.5, 1).exact()
        report = noise.report(np.array([value]), randomness=lambda _: word.to_bytes(4, "little"))
        assert report.tolist() == [count]

    def test_uses_as_many_words_whatever_the_vector(self) -> None:
        noise = response(2, 7, 0.5, 3).exact()
        asked: list[list[int]] = []
        for vector in (np.zeros(3), np.ones(3), np.array([0.1, -0.9, math.inf])):
            asked.append([])

            def source(count: int) -> bytes:
                asked[-1].append(count)
                return bytes(count)

            noise.report(vector, randomness=source)
        assert asked[0] == asked[1] == asked[2] == [4 * 3, 4 * 3 * 7]

    def test_default_source_is_fresh(self) -> None:
        noise = response(2, 64, 0.5, 20).exact()
        assert not np.array_equal(noise.report(np.zeros(20)), noise.report(np.zeros(20)))

    def test_grid_moves_two_vectors_by_less_than_is_charged(self) -> None:
        rng = np.random.default_rng(4)
        values = rng.uniform(-1, 1, 4000)
        noise = response(2, MAX_BITS, 0.5, values.size).exact()
        low = noise.code(values, randomness=lambda count: b"\xff" * count)
        high = noise.code(values, randomness=bytes)
        exact = [MAX_BITS * (1 + v) / 2 for v in values]
        assert ((low <= np.array(exact) + 2.0**-31) & (high >= np.array(exact) - 2.0**-31)).all()
        assert ((high - low) <= 1).all()


class TestSensitivity:
    def test_sensitivity_of_statistic_is_root_of_four_and_a_half(self) -> None:
        query = RegressionMoments(dim=3, norm=1.0, low=0.0, high=1.0)
        rng = np.random.default_rng(0)
        encode = jax.jit(
            jax.vmap(lambda x, y: query.encode(Example(features=x, reward=y, weight=jnp.ones(()))))
        )
        base = rng.normal(size=(4000, 3))
        turn = rng.normal(size=(4000, 3))
        base /= np.linalg.norm(base, axis=1, keepdims=True)
        turn -= (turn * base).sum(1, keepdims=True) * base
        turn /= np.linalg.norm(turn, axis=1, keepdims=True)
        angle = rng.uniform(0, math.pi, (4000, 1))
        other = np.cos(angle) * base + np.sin(angle) * turn
        first, second = encode(base, np.ones(4000)), encode(other, np.ones(4000))
        squares = np.asarray(((first - second) ** 2).sum(1))
        assert 4.49 <= squares.max() <= 4.5 + 1e-12
        assert np.abs(np.asarray(first)).max() <= 1 + 1e-12

    def test_clipping_to_a_box_brings_no_two_vectors_apart(self) -> None:
        noise = response(2, 64, 0.5, 5, bound=0.5).exact()
        rng = np.random.default_rng(8)
        for _ in range(50):
            f, g = rng.normal(size=(2, 5))
            low = [noise.code(v, randomness=lambda c: b"\x80" * c) for v in (f, g)]
            moved = np.linalg.norm((low[0] - low[1]) / 64)
            assert moved <= np.linalg.norm(f - g) + math.sqrt(5) / 64


class TestBill:
    def test_event_states_the_noise_of_both_twins(self) -> None:
        noise = response(9, 3, 0.25, 2, bound=4.0)
        expected = RandomizedBits(
            users=9, bits=3, keep=0.25, sensitivity=2.0, dimension=2, tail=1e-9
        )
        assert noise.event() == noise.exact().event() == expected
        assert Response.of(expected, bound=4.0) == noise

    def test_without_noise_there_is_no_privacy(self) -> None:
        assert response(9, 3, 1.0, 2).event() == events.NonPrivate()
        with pytest.raises(InvalidValueError, match="keep"):
            response(9, 3, 1.0, 2).exact()

    def test_only_the_twin_for_deployment_is_not_idealized(self) -> None:
        assert Response.idealized
        assert not ExactResponse.idealized

    @pytest.mark.parametrize(
        "vector", [np.zeros(3), np.zeros((2, 1)), np.zeros(2, dtype=np.float32)]
    )
    def test_refuses_other_vectors(self, vector: Floats) -> None:
        with pytest.raises(InvalidValueError, match="float64 of shape"):
            response(2, 3, 0.5, 2).exact().report(vector)

    def test_refuses_too_few_bytes_and_too_many_bits(self) -> None:
        with pytest.raises(InvalidValueError, match="randomness gave"):
            response(2, 3, 0.5, 2).exact().report(np.zeros(2), randomness=lambda _: b"")
        with pytest.raises(InvalidValueError, match="bits"):
            response(2, MAX_BITS + 1, 0.5, 2).exact()
        for keep, bound in itertools.product((0.3, 0.5), (0.0, math.inf)):
            with pytest.raises(InvalidValueError):
                response(2, 3, keep, 2).exact().__class__(
                    keep=keep, tail=1e-9, users=2, bits=3, bound=bound, sensitivity=1.0, dimension=2
                )
