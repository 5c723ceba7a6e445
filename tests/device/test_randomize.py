"""Noise on the device: refusals, bounds that always hold, and laws."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import numpy as np
import pytest
from scipy import special, stats  # type: ignore[import-untyped]
from tests.device.helpers import COINS, COMPASS, GRID, ONE_BIT
from tests.vectors.bytes_of import Bytes

from kerchief_device import randomize as module
from kerchief_device.randomize import Vectors, candidates, heads, randomize, step_of
from kerchief_device.samplers import below, sample_discrete_gaussian, sample_discrete_laplace
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.noise import Bits, Floats, Noise, Rounded, Shortlist, Wholes

GAUSSIAN = Rounded(law="gaussian", grid_bits=4, scale=3, center=(8, 0, 0, 0, 0), radius=20)
LAPLACE = Rounded(law="laplace", grid_bits=4, scale=3, center=(8, 0, 0, 0, 0), radius=20)
BITS = Bits(size=5, bits=16, bound=1.0, keep=(2**19,))
SHORTLIST = Shortlist(
    units=2**31,
    candidates=64,
    listed=8,
    center=(0.25, 0.0, 0.0, 0.0, -3.0),
    radius=1.5,
    factor=2.5,
    grid_bits=21,
)
FIVE: tuple[Noise, ...] = (GRID, GAUSSIAN, LAPLACE, COINS, BITS, SHORTLIST, COMPASS)


@pytest.mark.parametrize("noise", FIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize(
    "statistic",
    [
        np.zeros(4),
        np.zeros((5, 1)),
        np.zeros(5, np.float32),
        np.zeros(5, np.int64),
        np.array([0, 0, np.nan, 0, 0]),
        np.array([0, 0, np.inf, 0, 0]),
        [0.0] * 5,
    ],
)
def test_randomize_rejects_invalid_statistic(noise: Noise, statistic: Any) -> None:
    with pytest.raises(InvalidValueError, match="5 finite numbers in float64"):
        randomize(noise, statistic, 0, os.urandom)


@pytest.mark.parametrize("noise", FIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 1e6, 1e300, 1.7e308])
def test_numbers_are_within_their_bounds_whatever_the_statistic(noise: Noise, size: float) -> None:
    for sign in (1.0, -1.0):
        for number in range(20):
            numbers = randomize(noise, np.full(5, sign * size), 0, Bytes(str(number)))
            assert noise.bounds(0).hold(numbers)


def test_one_bit_report_is_a_bit_for_any_value() -> None:
    for value in (-1.7e308, 0.0, 0.5, 1.7e308):
        number = randomize(ONE_BIT, np.array([value]), 0, os.urandom)
        assert number.tolist() in ([0], [1])


def test_candidates_are_independent_normal_numbers() -> None:
    """Their distance from the normal law, and correlations, within what so many draws allow."""
    drawn = candidates(400, 1001, Bytes("law"))
    assert drawn.shape == (400, 1001)
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-6
    assert drawn.astype(np.float64).var() == pytest.approx(1, abs=5 * math.sqrt(2 / drawn.size))
    across = np.corrcoef(drawn, rowvar=False) - np.eye(1001)
    assert np.abs(across).max() < 6 / math.sqrt(400)
    assert (candidates(400, 1001, Bytes("law")) == drawn).all()
    assert (candidates(400, 1001, Bytes("other")) != drawn).any()


def test_candidate_entry_is_mean_of_a_slice_of_the_normal_law() -> None:
    slices = np.unique(candidates(1000, 1000, Bytes("all")))
    assert slices.size == 2**16
    edges = special.ndtri(np.arange(2**16 + 1) / 2**16)
    assert ((edges[:-1] < slices) & (slices < edges[1:])).all()
    assert slices.astype(np.float64).sum() == pytest.approx(0, abs=1e-3)
    assert (slices.astype(np.float64) ** 2).mean() == pytest.approx(1, abs=2e-6)


def test_long_candidate_entries_come_in_near_independent_pairs() -> None:
    pairs = module._pairs().view(np.int16).reshape(-1, 2) * 2.0**-12
    slices = module._slices().astype(np.float64)
    for one in pairs.T:
        assert np.abs(np.sort(one) - slices).max() <= 2**-13
        assert (one**2).mean() == pytest.approx(1, abs=3e-6)
    assert abs((pairs[:, 0] * pairs[:, 1]).mean()) < 9e-6
    for turn in np.linspace(0, math.pi, 61):
        score = np.sort(pairs @ [math.cos(turn), math.sin(turn)])
        for share, error in ((16, 5e-5), (128, 4e-4), (1024, 1.4e-3)):
            best = slice(-(2**16 // share), None)
            assert score[best].mean() == pytest.approx(slices[best].mean(), rel=error)


@pytest.mark.parametrize("size", [1025, 2146])
def test_long_candidates_are_independent_normal_numbers(size: int) -> None:
    drawn = candidates(300, size, Bytes("long"))
    assert drawn.shape == (300, size)
    assert drawn.dtype == np.float32
    drawn *= step_of(size)
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-6
    across = np.corrcoef(drawn, rowvar=False) - np.eye(size)
    assert np.abs(across).max() < 6.5 / math.sqrt(300)


@pytest.mark.parametrize("size", [1022, 1023, 1024, 1025])
def test_shortlist_reports_have_candidate_length_at_any_size(size: int) -> None:
    """With one number more, which is dropped, candidates begin to come in steps."""
    noise = dataclasses.replace(SHORTLIST, center=(0,) * size)
    numbers = randomize(noise, np.zeros(size), 0, Bytes("size"))
    sizes = np.ldexp(numbers, -noise.grid_bits) / noise.factor
    assert (sizes**2).mean() == pytest.approx(1, abs=6 * math.sqrt(2 / size))


def test_candidates_far_out_are_cut() -> None:
    signs = np.arange(64 * 6).reshape(64, 6) % 2
    far = np.where(signs, 40.0, -40.0).astype(np.float32)

    def listed(count: int, size: int, source: Any) -> Vectors:
        return far.copy()

    bounds, zero = SHORTLIST.bounds(0), np.zeros(5)
    seen = {tuple(randomize(SHORTLIST, zero, 0, Bytes(str(n)), listed)) for n in range(50)}
    assert all(bounds.hold(np.array(one)) for one in seen)
    cut = 0.25 + 2.5 * SHORTLIST.farthest * np.array([-1, 1])
    assert {one[0] for one in seen} <= {round(math.ldexp(end, 21)) for end in cut}


def _hostile(rng: np.random.Generator) -> Floats:
    """Finite numbers of any sizes, some of them equal, none, or as large as floats are."""
    found: Floats = rng.choice([-1.0, 1.0], 5) * 10.0 ** rng.uniform(-320, 308, 5)
    extreme = rng.choice([0.0, -0.0, 5e-324, 1.0, -1.0, 1e154, 1.79e308, -1.79e308], 5)
    return np.where(rng.uniform(size=5) < 0.5, extreme, found)


@pytest.mark.filterwarnings("error")
def test_compass_accepts_any_statistic_without_leaking_it() -> None:
    """Neither by a number out of bounds nor by a warning or an error."""
    rng, bounds = np.random.default_rng(9), COMPASS.bounds(0)
    with np.errstate(all="raise", under="ignore"):
        for number in range(2000):
            found = randomize(COMPASS, _hostile(rng), 0, Bytes(str(number)))
            assert bounds.hold(found)


def test_a_compass_draws_its_candidates_before_it_tosses_coins() -> None:
    """And one list for each report, with one direction more, which is for no ranking."""
    asked = []

    def listed(count: int, size: int, source: Any) -> Vectors:
        asked.append((count, size))
        return np.zeros((count, size), np.float32)

    def source(count: int) -> bytes:
        assert asked
        return os.urandom(count)

    for number in range(1, 6):
        found = randomize(COMPASS, np.full(5, number / 5), 0, source, listed)
        assert asked == [(COMPASS.candidates + 1, COMPASS.dim + 1)] * number
        even = math.ldexp(COMPASS.square / 2 / COMPASS.dim, COMPASS.grid_bits)
        assert found.tolist() == [even, 0, even, 0, 0]


@pytest.mark.parametrize("direction", [(1, 0, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1), (1, 1, 0)])
def test_report_of_any_direction_stays_within_bounds(direction: Any) -> None:
    rows = np.tile(np.array(direction, np.float32), (COMPASS.candidates + 1, 1))
    found = randomize(COMPASS, np.zeros(5), 0, os.urandom, lambda *_: rows)
    assert COMPASS.bounds(0).hold(found)
    x, last = rows[0, :2] / np.linalg.norm(rows[0]), rows[0, 2]
    trace = COMPASS.square / 2 + COMPASS.weight * last
    told = np.ldexp(found.astype(np.float64), -COMPASS.grid_bits)
    assert told[0] + told[2] == pytest.approx(trace, abs=1e-5)
    assert told[0] - told[2] == pytest.approx(COMPASS.matrix * (x[0] ** 2 - x[1] ** 2), abs=1e-5)
    assert told[1] == pytest.approx(COMPASS.matrix * x[0] * x[1] * math.sqrt(2), abs=1e-5)
    assert told[3:] == pytest.approx(COMPASS.vector * x, abs=1e-5)


def test_a_direction_is_chosen_with_the_chance_that_is_paid_for() -> None:
    """The candidate nearest to the unit vector, where all of the best are that one."""
    certain = dataclasses.replace(COMPASS, listed=1, units=2**31, lean=0.2)
    near = np.zeros((257, 3), np.float32)
    near[:, 0] = -1
    near[7] = (1, 0, 0)
    matrix, vector = [1.0, 0.0, 0.0], [0.5, 0.0]
    statistic = np.array([*matrix, *vector])
    draws = 4000
    rows = [randomize(certain, statistic, 0, os.urandom, lambda *_: near) for _ in range(draws)]
    share = np.mean([row[3] > 0 for row in rows])
    assert abs(share - 0.5) < 5 * math.sqrt(0.25 / draws)


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE], ids=lambda one: one.law)
def test_noise_far_out_is_cut(noise: Rounded, monkeypatch: pytest.MonkeyPatch) -> None:
    def far(scale: int, size: int, *, randomness: Any) -> Wholes:
        return np.array([10**6, -(10**6), 65, 0, 0])

    monkeypatch.setitem(module._LAWS, noise.law, far)
    found = randomize(noise, np.zeros(5), 0, os.urandom)
    assert found.tolist() == [8 + 20 + 64 * 3, -20 - 64 * 3, 65, 0, 0]


def test_words_that_favour_some_choices_are_drawn_again() -> None:
    words = iter([bytes([255] * 4), bytes([17, 0, 0, 0])])
    assert below(10, lambda count: next(words)) == 7


@pytest.mark.parametrize("coins", [0, 1, 7, 8, 9, 1000])
def test_heads_counts_ones_among_the_coins(coins: int) -> None:
    data = Bytes("h")(3 * -(-coins // 8))
    width = -(-coins // 8)
    wanted = [
        (int.from_bytes(data[n * width : (n + 1) * width], "little") & _coins(coins, width))
        for n in range(3)
    ]
    assert heads(coins, 3, Bytes("h")).tolist() == [one.bit_count() for one in wanted]


def _coins(coins: int, width: int) -> int:
    """The bits that are coins: all but the highest of the last byte."""
    return (1 << coins) - 1 if width else 0


def test_rounding_is_right_on_average() -> None:
    statistic = np.full(5, 0.3 / 2**7)
    source = Bytes("r")
    found = np.stack([randomize(COINS, statistic, 1, source) for _ in range(400)]) / 2
    assert abs(found.mean() - 0.3) < 4.5 * math.sqrt(COINS.coins[1] / 4 / found.size)


@pytest.mark.parametrize(
    ("sample", "variance"), [(sample_discrete_gaussian, 25.0), (sample_discrete_laplace, 50.0)]
)
def test_noise_has_its_variance(sample: Any, variance: float) -> None:
    draws = sample(5, 40000, randomness=Bytes("v"))
    assert abs(draws.mean()) < 5 * math.sqrt(variance / draws.size)
    assert draws.var() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("scale", [0, -1, 2**30 + 1, True, 1.5])
def test_scales_out_of_bounds_are_refused(scale: Any) -> None:
    with pytest.raises(InvalidValueError, match="scale"):
        sample_discrete_gaussian(scale, 3)


def test_a_source_that_gives_too_little_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="randomness gave"):
        randomize(COINS, np.zeros(5), 0, lambda count: b"")
