"""The exact discrete Gaussian. Every statistical test errs with probability 1e-6 or less."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import CapacityExceededError, InvalidValueError
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief_device import samplers as exact_sampler
from kerchief_device.samplers import MAX_SCALE, sample_discrete_gaussian

ERROR = 1e-6
Ints = NDArray[np.int64]


def seeded(seed: int) -> Callable[[int], bytes]:
    return np.random.Generator(np.random.PCG64(seed)).bytes


def scripted(words: Iterable[int]) -> Callable[[int], bytes]:
    """Give these 64-bit words, in order, then fail."""
    data = b"".join(word.to_bytes(8, "little") for word in words)
    position = 0

    def source(count: int) -> bytes:
        nonlocal position
        position += count
        assert position <= len(data), "more words were asked for than expected"
        return data[position - count : position]

    return source


def draw(scale: int, size: int, seed: int) -> Ints:
    return sample_discrete_gaussian(scale, size, randomness=seeded(seed))


def fit(draws: Ints, weight: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """The chi-square p-value of whole numbers against unnormalized weights; thin tails pooled."""
    support = np.arange(-60, 61)
    mass = weight(support.astype(np.float64))
    expected = mass / mass.sum() * draws.size
    counts = np.bincount(draws + 60, minlength=121)
    core = expected >= 10
    seen = np.append(counts[core], draws.size - counts[core].sum())
    wanted = np.append(expected[core], draws.size - expected[core].sum())
    return float(stats.chisquare(seen, wanted, sum_check=False).pvalue)


def gauss(scale: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    return lambda y: np.exp(-(y**2) / (2 * scale**2))


def variance(draws: Ints, scale: float) -> float:
    """The two-sided p-value of the draws' second moment, were the standard deviation `scale`."""
    statistic = float(np.sum((draws / scale) ** 2))
    law = stats.chi2(draws.size)
    return 2 * float(min(law.cdf(statistic), law.sf(statistic)))


class TestLaw:
    @pytest.mark.parametrize("scale", [1, 2, 3, 4, 7])
    def test_fits_the_exact_pmf(self, scale: int) -> None:
        assert fit(draw(scale, 200_000, seed=scale), gauss(scale)) > ERROR

    def test_fit_has_power_against_a_nearby_scale(self) -> None:
        draws = draw(3, 200_000, seed=3)
        assert fit(draws, gauss(3 * 1.02)) < ERROR
        assert fit(draws, gauss(3 * 0.98)) < ERROR

    def test_fit_has_power_against_a_rounded_gaussian(self) -> None:
        rounded = np.rint(np.random.default_rng(5).normal(size=200_000)).astype(np.int64)
        assert fit(rounded, gauss(1)) < ERROR

    def test_the_first_draw_of_a_call_has_the_same_law(self) -> None:
        source = seeded(11)
        firsts = [sample_discrete_gaussian(3, 1, randomness=source)[0] for _ in range(3000)]
        assert fit(np.array(firsts), gauss(3)) > ERROR

    @pytest.mark.parametrize("scale", [2**20, MAX_SCALE])
    def test_is_gaussian_at_large_scale(self, scale: int) -> None:
        draws = draw(scale, 200_000, seed=20) / scale
        assert stats.kstest(draws, "norm").pvalue > ERROR
        assert stats.kstest(draws + 0.02, "norm").pvalue < ERROR

    @pytest.mark.parametrize("scale", [4, 2**20, MAX_SCALE])
    def test_variance_is_accepted_at_scale_and_rejected_beside_it(self, scale: int) -> None:
        draws = draw(scale, 20_000, seed=2)
        assert variance(draws, scale) > ERROR
        assert variance(draws, scale * 2 / 3) < ERROR
        assert variance(draws, scale * 3 / 2) < ERROR

    def test_neighbours_are_uncorrelated(self) -> None:
        draws = draw(2**20, 200_000, seed=8) / 2**20
        for lag in (1, 2, 16):
            z = float(np.sum(draws[lag:] * draws[:-lag])) / math.sqrt(draws.size - lag)
            assert abs(z) < stats.norm.isf(ERROR / 6)

    def test_low_bits_are_uniform(self) -> None:
        counts = np.bincount(draw(2**20, 200_000, seed=9) % 16, minlength=16)
        assert stats.chisquare(counts).pvalue > ERROR

    def test_agrees_with_opendp(self) -> None:
        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
        theirs = np.array(dp.m.make_gaussian(*space, scale=4.0)([0] * 20_000))
        ours = draw(4, 100_000, seed=4)

        def agree(other: Ints) -> float:
            rows = [np.bincount(np.clip(row, -12, 12) + 12, minlength=25) for row in (other, ours)]
            return float(stats.chi2_contingency(rows).pvalue)

        assert agree(theirs) > ERROR
        assert agree(draw(5, 20_000, seed=4)) < ERROR

    def test_urandom_gives_int64_of_either_sign(self) -> None:
        draws = sample_discrete_gaussian(1000, 2000)
        assert draws.dtype == np.int64
        assert draws.shape == (2000,)
        # 40 standard deviations: exp(-800).
        assert np.abs(draws).max() < 40_000
        assert draws.min() < 0 < draws.max()

    def test_sizes_around_a_round_and_none(self) -> None:
        for size in (0, 1, 20, 70_001):
            assert draw(5, size, seed=1).shape == (size,)

    def test_same_bytes_same_draws(self) -> None:
        assert np.array_equal(draw(9, 500, seed=1), draw(9, 500, seed=1))


class TestParts:
    @pytest.mark.parametrize(
        ("a", "b"), [(0, 7), (1, 7), (6, 7), (7, 7), (1, 2**61), (2**60, 2**61), (5, 8), (1, 1)]
    )
    def test_bernoulli_exp(self, a: int, b: int) -> None:
        heads = exact_sampler._bernoulli_exp(np.full(100_000, a), b, seeded(a % 97)).sum()
        p = math.exp(-a / b)
        assert stats.binomtest(int(heads), 100_000, p).pvalue > ERROR
        assert stats.binomtest(int(heads), 100_000, p * 0.97).pvalue < ERROR

    @pytest.mark.parametrize(("a", "b"), [(1, 3), (2, 3), (1, 2), (3 * 2**59, 2**61), (1, 10)])
    def test_bernoulli(self, a: int, b: int) -> None:
        heads = exact_sampler._bernoulli(np.full(100_000, a), b, seeded(b % 97)).sum()
        assert stats.binomtest(int(heads), 100_000, a / b).pvalue > ERROR

    @pytest.mark.parametrize(("a", "b"), [(1, 3), (5, 7), (4, 4), (2**61, 2**61), (0, 9)])
    def test_bernoulli_turns_at_the_exact_word(self, a: int, b: int) -> None:
        step = (2**64 - 1) // b
        turn = a * step
        words = [w for w in (0, turn - 1, turn, step * b - 1) if 0 <= w < step * b]
        coins = exact_sampler._bernoulli(np.full(len(words), a), b, scripted(words))
        assert coins.tolist() == [w < turn for w in words]

    def test_words_at_or_over_the_limit_are_drawn_again(self) -> None:
        source = scripted([14, 15, 2**64 - 1, 3, 15, 4])
        assert exact_sampler._draw_below(15, 3, source).tolist() == [14, 3, 4]

    @pytest.mark.parametrize("bound", [1, 2, 3, 10, 16])
    def test_uniform_below(self, bound: int) -> None:
        draws = exact_sampler._uniform_below(bound, 100_000, seeded(bound))
        counts = np.bincount(draws)
        assert counts.size == bound
        assert bound == 1 or stats.chisquare(counts).pvalue > ERROR

    def test_uniform_cells_are_equal(self) -> None:
        step = (2**64 - 1) // 3
        words = [0, step - 1, step, 2 * step - 1, 2 * step, 3 * step - 1]
        assert exact_sampler._uniform_below(3, 6, scripted(words)).tolist() == [
            0,
            0,
            1,
            1,
            2,
            2,
        ]

    @pytest.mark.parametrize("size", [1, 2, 100_000])
    def test_geometric(self, size: int) -> None:
        source = seeded(size)
        calls = max(1, 2000 // size)
        draws = np.concatenate([exact_sampler._geometric(size, source) for _ in range(calls)])
        assert fit(draws, lambda v: np.where(v < 0, 0.0, np.exp(-np.abs(v)))) > ERROR

    def test_an_unfinished_run_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        batches = iter([[False, True, True], [True, False], [False]])
        monkeypatch.setattr(exact_sampler, "_bernoulli_exp", lambda *_: np.array(next(batches)))
        assert exact_sampler._geometric(3, seeded(0)).tolist() == [0, 3, 0]

    def test_a_run_that_never_ends_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exact_sampler, "_MAX_RUN", 10)
        with pytest.raises(CapacityExceededError, match="the most is 10"):
            exact_sampler._geometric(5, seeded(0))

    def test_noise_beyond_what_the_proof_covers_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(exact_sampler, "_FAR", 1)
        with pytest.raises(CapacityExceededError, match="beyond 1 scales"):
            draw(2**20, 1000, seed=1)

    def test_the_sampler_holds_no_float(self) -> None:
        names = [n for n in vars(exact_sampler) if n.startswith("_") and not n.startswith("__")]
        parts = [vars(exact_sampler)[n] for n in names] + [sample_discrete_gaussian]
        functions = [part for part in parts if inspect.isfunction(part)]
        assert len(functions) >= 10
        for node in (n for f in functions for n in ast.walk(ast.parse(inspect.getsource(f)))):
            assert not isinstance(node, ast.Div)
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))


def mechanism(**changes: float) -> ExactGaussian:
    fields: dict[str, float] = {"grid_bits": 8, "scale": 2048, "sensitivity": 1.0, "dimension": 3}
    return ExactGaussian(**{**fields, **changes})  # type: ignore[arg-type]


class TestMechanism:
    def test_is_not_idealized(self) -> None:
        assert ExactGaussian.idealized is False

    def test_std_is_scale_times_grid(self) -> None:
        assert mechanism().std == 8.0
        assert mechanism(grid_bits=-2).std == 8192.0

    def test_adds_noise_of_the_stated_law_around_the_rounded_vector(self) -> None:
        vector = np.linspace(-3, 3, 1001)
        noisy = mechanism(dimension=1001).add(vector, seeded(6))
        noise = sample_discrete_gaussian(2048, 1001, randomness=seeded(6))
        assert noisy.dtype == np.float64
        assert np.array_equal(noisy * 2**8, np.rint(vector * 2**8) + noise)

    def test_default_source_gives_multiples_of_the_grid(self) -> None:
        noisy = mechanism().add([0.1, 0.2, 0.3])
        assert np.array_equal(noisy % 2.0**-8, np.zeros(3))

    def test_low_bits_do_not_betray_the_input(self) -> None:
        fine, coarse = mechanism().add([1e-9] * 3, seeded(1)), mechanism().add([0.0] * 3, seeded(1))
        assert np.array_equal(fine, coarse)

    @pytest.mark.parametrize("dimension", [1, 2, 9, 210])
    @pytest.mark.parametrize("steps", [0, 1, 100])
    def test_rounding_is_paid_for_and_no_more(self, dimension: int, steps: int) -> None:
        """Both vectors sit beside a tie, so that each coordinate is pushed apart by a step."""
        tiny = 2.0**-30
        near = np.full(dimension, (0.5 - tiny) * 2.0**-8)
        far = np.full(dimension, (0.5 + tiny + steps) * 2.0**-8)
        apart = float(np.linalg.norm(far - near))
        noise = mechanism(sensitivity=apart, dimension=dimension)
        moved = noise.add(far, seeded(3)) - noise.add(near, seeded(3))
        distance = float(np.linalg.norm(moved)) * 2**8
        assert distance == pytest.approx((steps + 1) * math.sqrt(dimension))
        assert apart * 2**8 < distance <= noise.event().sensitivity < distance * (1 + 1e-7)

    @given(st.integers(0, 2**32), st.integers(1, 20), st.floats(1e-3, 1e3))
    def test_no_pair_moves_further_than_the_event_says(
        self, seed: int, dimension: int, length: float
    ) -> None:
        generator = np.random.default_rng(seed)
        one, way = generator.normal(size=(2, dimension))
        two = one + way * (length / np.linalg.norm(way))
        noise = mechanism(sensitivity=length, dimension=dimension)
        moved = noise.add(two, seeded(seed)) - noise.add(one, seeded(seed))
        assert float(np.linalg.norm(moved)) * 2**8 <= noise.event().sensitivity

    def test_event_is_in_grid_steps(self) -> None:
        event = mechanism().event()
        assert (event.scale, event.dimension) == (2048, 3)
        assert event.sensitivity >= 256 * (1 + 2.0**-40) + math.sqrt(3)
        assert event.sensitivity == pytest.approx(256 + math.sqrt(3), rel=1e-11)

    @pytest.mark.parametrize("multiplier", [0.1, 0.5, 4.2247, 38.0, 100.0])
    @pytest.mark.parametrize("sensitivity", [1e-6, math.sqrt(4.5), 1e9])
    @pytest.mark.parametrize("dimension", [1, 20, 210, 5000])
    def test_matching_pays_a_little(
        self, multiplier: float, sensitivity: float, dimension: int
    ) -> None:
        noise = ExactGaussian.matching(multiplier, sensitivity, dimension)
        steps = noise.event().sensitivity
        assert 1 < noise.std / (multiplier * sensitivity) < 1 + 1e-4
        assert noise.scale / steps >= multiplier
        assert (noise.scale - 1) / steps < multiplier * (1 + 1.1e-6)
        assert 2**19 <= noise.scale <= MAX_SCALE

    def test_matching_keeps_about_2_to_the_20_where_that_is_enough(self) -> None:
        for multiplier in (0.2, 1.0, 3.0):
            assert 2**19 <= ExactGaussian.matching(multiplier, 1.0, 6).scale <= 2**20 + 100


class TestRefusals:
    @pytest.mark.parametrize("scale", [0, -3, MAX_SCALE + 1])
    def test_scale(self, scale: int) -> None:
        with pytest.raises(InvalidValueError, match=rf"scale is {scale}; .* at most {MAX_SCALE}"):
            sample_discrete_gaussian(scale, 1)
        with pytest.raises(InvalidValueError, match=rf"scale is {scale}; .* at most {MAX_SCALE}"):
            mechanism(scale=scale)

    def test_size_and_types(self) -> None:
        with pytest.raises(InvalidValueError, match=r"size is -1; it must be at least 0"):
            sample_discrete_gaussian(1, -1)
        with pytest.raises(InvalidValueError, match=r"scale is 1\.5; it must be a whole number"):
            sample_discrete_gaussian(1.5, 1)  # type: ignore[arg-type]

    def test_a_source_that_runs_short(self) -> None:
        with pytest.raises(InvalidValueError, match="gave 3 bytes; it must give the"):
            sample_discrete_gaussian(1, 1, randomness=lambda n: b"abc")

    @pytest.mark.parametrize(
        ("field", "value", "bound"),
        [
            ("grid_bits", 513, "at most 512"),
            ("grid_bits", -513, "at least -512"),
            ("sensitivity", 0.0, "above 0"),
            ("sensitivity", math.inf, "finite"),
            ("sensitivity", 2.0**45, "2..53 grid steps, 35184372088832.0"),
            ("sensitivity", math.nan, "a number"),
            ("dimension", 0, "at least 1"),
        ],
    )
    def test_fields(self, field: str, value: float, bound: str) -> None:
        with pytest.raises(InvalidValueError, match=rf"{field} is {value}; .*{bound}"):
            mechanism(**{field: value})

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_not_finite(self, bad: float) -> None:
        with pytest.raises(InvalidValueError, match="not finite; every entry must be"):
            mechanism().add([0.0, bad, 0.0])

    def test_shape_and_type(self) -> None:
        with pytest.raises(InvalidValueError, match=r"shape \(2,\); it must be \(3,\)"):
            mechanism().add([0.0, 0.0])
        with pytest.raises(InvalidValueError, match="float32; encode it in float64"):
            mechanism().add(np.zeros(3, dtype=np.float32))
        with pytest.raises(InvalidValueError, match=r"stream is 7; it must be a source of bytes"):
            mechanism().add([0.0] * 3, 7)  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [2.0**45, -(2.0**45), 1e300])
    def test_too_large_for_the_grid(self, value: float) -> None:
        with pytest.raises(InvalidValueError, match=r"2\*\*53 or more grid steps of 0.00390625"):
            mechanism().add([value, 0.0, 0.0])

    def test_too_large_after_the_noise(self) -> None:
        edge = math.ldexp(2**53 - 1, -8)
        with pytest.raises(InvalidValueError, match="the sum has 2"):
            mechanism(dimension=50).add([edge] * 50, seeded(0))

    def test_matching(self) -> None:
        with pytest.raises(
            InvalidValueError, match=r"noise_multiplier is 0\.0; it must be above 0"
        ):
            ExactGaussian.matching(0.0, 1.0, 1)
        with pytest.raises(InvalidValueError, match=rf"scale is \d+; .* at most {MAX_SCALE}"):
            ExactGaussian.matching(1e10, 1.0, 1)
        with pytest.raises(InvalidValueError, match=r"grid_bits is \d+; .* at most 512"):
            ExactGaussian.matching(1.0, 1e-200, 1)
        with pytest.raises(
            InvalidValueError, match=r"sensitivity is 1e\+300; .* below 2..53 grid steps"
        ):
            ExactGaussian.matching(1e-290, 1e300, 1)


def test_a_scale_of_numpys_does_not_overflow() -> None:
    scale: Any = np.int64(MAX_SCALE - 1)
    found = sample_discrete_gaussian(scale, 100, randomness=seeded(1))
    same = sample_discrete_gaussian(MAX_SCALE - 1, 100, randomness=seeded(1))
    assert found.tolist() == same.tolist()
