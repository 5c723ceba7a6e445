"""Compass and its exact twin: privacy exactly, two moments of a direction by many draws."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.contracts import Example
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.core.residual_moments import ResidualMoments
from kerchief.mechanisms import compass
from kerchief.mechanisms.compass import Compass, ExactCompass
from kerchief.mechanisms.mechanism import steady
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.privacy import NonPrivate
from kerchief_device import compass as device
from kerchief_device.randomize import candidates
from kerchief_device.samplers import UNITS

Floats = NDArray[np.float64]

COPIES = 40_000
EPSILONS = [0.01, 0.3, 1.0, 4.0, 10.0, 25.0]
# A direction, the share of the greatest response, and the weight: on an edge, on another, inside.
NIGHT = pytest.mark.nightly
TOLD = [(1.0, 1.0), (-1.0, 0.0), (0.3, 0.7)]


def asked(dim: int, **facts: float) -> ResidualMoments:
    return ResidualMoments(dim=dim, **({"norm": 1.0, "most": 1.0, "balance": 0.8} | facts))  # type: ignore[arg-type]


def made(epsilon: float = 1.0, dim: int = 2, **facts: float) -> Compass:
    return Compass.of(epsilon=epsilon, query=asked(dim, **facts))


def axis(dim: int) -> Floats:
    """A unit vector along no axis."""
    ramp = np.linspace(1, -0.6, dim) if dim > 1 else np.ones(1)
    return np.asarray(ramp / np.linalg.norm(ramp))


def statistic(query: ResidualMoments, share: float, weight: float) -> Floats:
    record = Example(
        features=jnp.asarray(axis(query.dim), jnp.float64),
        reward=jnp.float64(share * query.most),
        weight=jnp.float64(weight),
    )
    return np.array(query.encode(record), np.float64)


@jax.jit
def _reports(noise: Any, vector: Any) -> Any:
    def one(copy: Any) -> Any:
        return noise.add(vector, Stream.of(seed=9, replicate=copy).at(4, round=1))

    return jax.vmap(one)(jnp.arange(COPIES, dtype=jnp.uint32))


def simulated(noise: Compass, vector: Floats, copies: int = COPIES) -> Floats:
    return np.asarray(_reports(noise, jnp.asarray(vector)))[:copies]


@lru_cache(maxsize=8)
def drawn(noise: ExactCompass, share: float, weight: float, copies: int) -> Floats:
    source, vector = np.random.default_rng(3).bytes, statistic(noise.query, share, weight)
    return np.stack([noise.add(vector, source) for _ in range(copies)])


def expect_mean(rows: Floats, wanted: Floats) -> None:
    """Five of the means' own deviations, coordinate by coordinate."""
    room = 5 * rows.std(0) / math.sqrt(len(rows)) + 1e-9
    assert (np.abs(rows.mean(0) - wanted) < room).all()


def scores_of(query: ResidualMoments, wire: Any, rows: Floats) -> Floats:
    """The reported directions, read back: from the vector, and by the trace the last coordinate."""
    cut = query.size - query.dim
    numbers, columns = np.triu_indices(query.dim)
    trace = rows[:, :cut][:, numbers == columns].sum(1)
    last = (trace - query.square / 2) / wire.weight
    return np.column_stack([rows[:, cut:] / wire.vector, last])


# Privacy.


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("dim", [1, 5])
def test_the_list_keeps_epsilon_exactly(epsilon: float, dim: int) -> None:
    noise = made(epsilon, dim)
    p, k, n = float(noise.chance), noise.listed, noise.candidates
    assert math.log((p / k) / ((1 - p) / (n - k))) <= epsilon
    assert epsilon * (1 - 1e-4) < noise.event().epsilon <= epsilon  # type: ignore[attr-defined]
    exact = noise.exact()
    assert exact.event() == noise.event()
    assert exact.units == p * UNITS
    odds = exact.units / (UNITS - exact.units) * (n - k) / k
    assert math.log(odds) <= exact.event().epsilon <= epsilon
    assert exact.std == pytest.approx(float(noise.std), rel=1e-12)


def words(*given: int) -> Any:
    left = iter(given)
    return lambda count: next(left).to_bytes(count, "little")


def test_every_candidate_has_its_exact_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a fixed list: all words of a small coin and choice, after the two of the statistic."""
    noise = ExactCompass(units=3 * 2**30, candidates=4, listed=1, lean=0.3, query=asked(1))
    turns = np.array([2.0, 1.0, 0.1, 3.0, 0.5])
    fixed = np.column_stack([np.cos(turns), np.sin(turns)]).astype(np.float32)
    monkeypatch.setattr(compass, "candidates", lambda count, size, source: fixed)
    vector = statistic(noise.query, 1.0, 1.0)
    unit = np.array([math.sqrt(1 - 0.3**2), 0.3])
    ranked = np.argsort(fixed[:-1] @ unit)
    coins = [0, 3 * 2**30 - 1, 3 * 2**30, 2**32 - 1]
    rows = np.stack(
        [noise.add(vector, words(7, 7, first, second)) for first in coins for second in range(3)]
    )
    tops = scores_of(noise.query, noise.wire, rows)
    places = [int(np.abs(fixed[:-1] - top).sum(1).argmin()) for top in tops]
    # The ranking below the best has an order of its own, the same each time.
    assert places[:6] == [ranked[-1]] * 6
    assert sorted(places[6:9]) == sorted(ranked[:-1])
    assert places[6:9] == places[9:]
    assert noise.event().epsilon == pytest.approx(math.log(0.75 / (0.25 / 3)))


def test_the_two_coins_have_their_chances() -> None:
    """To 32 bits, from the response and the weight: either side of each, at the word in between."""
    noise = made(dim=2).exact()
    vector = statistic(noise.query, 0.5, 0.25)
    anywhere = np.array([0.6, 0.8])
    for first, second, sign, side in (
        (0.749, 0.249, 1, 1),
        (0.751, 0.249, -1, 1),
        (0.749, 0.251, 1, -1),
        (0.751, 0.251, -1, -1),
    ):
        source = words(int(first * UNITS), int(second * UNITS))
        unit = device._unit(noise.wire, vector, anywhere, source)
        x = unit[:2] / math.sqrt(1 - noise.lean**2)
        # The square does not tell a direction from its opposite; with the response it does.
        np.testing.assert_allclose(np.abs(x), np.abs(axis(2)), rtol=1e-9)
        assert np.sign(x @ axis(2)) == sign * (1 if vector[3] * x[0] * sign > 0 else -1)
        assert unit[2] == pytest.approx(side * noise.lean)
        assert np.linalg.norm(unit) == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [math.nan, 0.0, math.inf])
def test_the_ranking_always_lists_exactly_as_many(
    bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even scores that are not numbers: privacy rests on the count, not on the ranking."""
    noise = ExactCompass(units=3 * 2**30, candidates=64, listed=8, lean=0.3, query=asked(2))
    fixed = candidates(65, 3, np.random.default_rng(1).bytes)
    monkeypatch.setattr(compass, "candidates", lambda count, size, source: fixed)
    monkeypatch.setattr(device, "_unit", lambda *given: np.full(3, bad))
    vector = np.zeros(noise.query.size)
    with np.errstate(invalid="ignore"):
        best = [noise.add(vector, words(0, place)) for place in range(8)]
        others = [noise.add(vector, words(UNITS - 1, place)) for place in range(56)]
    assert len(np.unique(best, axis=0)) == 8
    assert len(np.unique(best + others, axis=0)) == 64


def test_candidates_are_drawn_before_the_statistic_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise, seen = made().exact(), []

    def listed(count: int, size: int, source: Any) -> Any:
        seen.append("drawn")
        return candidates(count, size, source)

    told = device.told

    def looked(*given: Any) -> Any:
        seen.append("looked at")
        return told(*given)

    monkeypatch.setattr(compass, "candidates", listed)
    monkeypatch.setattr(device, "told", looked)
    noise.add(statistic(noise.query, 1.0, 1.0))
    assert seen == ["drawn", "looked at"]


# Mean and deviation.


def expect_deviation(noise: Compass, errors: Floats, *, telling: bool = True) -> None:
    """Mean squares of the vector's numbers or of the matrix's, whichever are greater."""
    cut, square = noise.query.size - noise.query.dim, float(noise.std) ** 2
    halves = [np.square(errors[:, :cut]).mean(1), np.square(errors[:, cut:]).mean(1)]
    largest = max(halves, key=lambda half: float(half.mean()))
    room = 5 * largest.std() / math.sqrt(len(errors)) + 1e-4 * square
    assert abs(largest.mean() - square) < room
    # Two thirds of it would be rejected by far.
    assert not telling or largest.mean() - 4 / 9 * square > 5 * room


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_reports_are_right_on_average_and_as_wide_as_stated(epsilon: float, dim: int) -> None:
    """The vector, the matrix, and its trace, which is the weight."""
    noise = made(epsilon, dim)
    cut = noise.query.size - dim
    for share, weight in TOLD:
        vector = statistic(noise.query, share, weight)
        rows = simulated(noise, vector)
        expect_mean(rows, vector)
        # Along the statistic's own matrix, where all that is told of it adds up, and the vector.
        expect_mean(rows[:, :cut] @ vector[:cut, None], vector[:cut] @ vector[:cut, None])
        expect_mean(rows[:, cut:] @ axis(dim)[:, None], np.array([share]))
        # Where there is nothing to round.
        if (share, weight) in TOLD[:2]:
            expect_deviation(noise, rows - vector)


@pytest.mark.parametrize("balance", [0.2, 3.0])
def test_the_stated_deviation_is_that_of_the_noisier_half(balance: float) -> None:
    noise = made(4.0, 3, balance=balance)
    vector = statistic(noise.query, -1.0, 1.0)
    expect_deviation(noise, simulated(noise, vector) - vector)


@pytest.mark.parametrize(
    ("epsilon", "dim"),
    [
        (12.0, 2),
        *(pytest.param(epsilon, dim, marks=NIGHT) for epsilon in (12.0, 25.0) for dim in (1, 5)),
    ],
)
def test_reports_are_right_where_one_of_very_many_is_best(epsilon: float, dim: int) -> None:
    """The table of heights is fine where tail probabilities are small."""
    noise = made(epsilon, dim)
    vector = statistic(noise.query, 1.0, 1.0)
    rows = simulated(noise, vector)
    expect_mean(rows, vector)
    # Nearly all of the squares come from the few reports that are not of the best.
    if epsilon < 25:
        expect_deviation(noise, rows - vector, telling=False)


def test_rounding_adds_what_is_stated() -> None:
    """R² - (yL)² along the direction, and A² w(1 - w)/d on the matrix."""
    noise = made(8.0, 3, most=2.0)
    query, (share, weight) = noise.query, (0.6, 0.25)
    edge, inside = statistic(query, 1.0, 1.0), statistic(query, share, weight)
    sums = []
    for vector in (edge, inside):
        squares = np.square(simulated(noise, vector) - vector)
        sums.append((squares[:, -3:].sum(1), squares[:, :-3].sum(1)))
    added = [query.pull**2 * (1 - share**2), query.square**2 * weight * (1 - weight) / 3]
    for full, more, extra in zip(*sums, added, strict=True):
        room = 5 * math.hypot(full.std(), more.std()) / math.sqrt(COPIES)
        assert abs(more.mean() - full.mean() - extra) < room
        assert room < 0.5 * extra


@pytest.mark.parametrize(("size", "many", "best"), [(2, 3, 1), (2, 64, 2), (4, 9, 4), (6, 200, 40)])
def test_moments_are_those_of_order_statistics_on_the_sphere(
    size: int, many: int, best: int
) -> None:
    rng, chance = np.random.default_rng(5), 0.9
    draws = rng.standard_normal((4_000_000 // many // size, many, size))
    heights = np.sort(draws[..., 0] / np.linalg.norm(draws, axis=-1), axis=1)
    law = np.where(np.arange(many) < many - best, 0.1 / (many - best), chance / best)
    for power, moment in zip((1, 2, 4), compass._moments(size, many, best, chance), strict=True):
        seen = heights**power @ law
        assert moment == pytest.approx(seen.mean(), abs=5 * seen.std() / math.sqrt(len(seen)))


def test_moments_by_hand() -> None:
    """Heights on the sphere in three dimensions are even on [-1, 1]: beta order statistics."""
    mean, second, fourth = compass._moments(3, 3, 1, 0.75)
    # The highest of three has density 3 ((1 + t)/2)² / 2: means 1/2, 2/5, and of t⁴ 9/35.
    assert mean == pytest.approx(0.75 / 2 - 0.25 / 2 / 2)
    assert second == pytest.approx(0.75 * 2 / 5 + 0.25 / 2 * (1 - 2 / 5))
    assert fourth == pytest.approx(0.75 * 9 / 35 + 0.25 / 2 * (3 / 5 - 9 / 35))
    # On the circle, of very many, the best is at the top: the mean of cos(π E/N), E exponential.
    mean, _, _ = compass._moments(2, 2**16, 1, 1.0)
    assert 1 - mean == pytest.approx(math.pi**2 / 2 * 2 / 2**32, rel=1e-3)


# The twin.


@pytest.mark.parametrize(
    ("epsilon", "dim"),
    [(0.5, 2), (4.0, 1), (4.0, 5), pytest.param(10.0, 2, marks=NIGHT)],
)
def test_simulated_and_exact_have_the_same_law(epsilon: float, dim: int) -> None:
    noise, copies = made(epsilon, dim), 2000
    exact, (share, weight) = noise.exact(), (0.8, 0.9)
    vector = statistic(noise.query, share, weight)
    real, ideal = drawn(exact, share, weight, copies), simulated(noise, vector)
    rng = np.random.default_rng(6)
    cut = noise.query.size - dim
    toward = np.concatenate([np.zeros(cut), axis(dim)])
    axes = [toward, np.append(vector[:cut], np.zeros(dim)), *rng.normal(size=(3, len(vector)))]
    for one in axes:
        assert stats.ks_2samp(real @ one, ideal @ one).pvalue > 1e-6
    expect_mean(real, vector)
    assert (real / exact.grid == np.rint(real / exact.grid)).all()
    # Reports of noise that is a third smaller are told apart.
    weak = (vector + 2 / 3 * (real - vector)) @ toward
    assert stats.ks_2samp(weak, ideal @ toward).pvalue < 1e-6


def test_a_report_is_read_off_one_direction_and_stays_in_the_box() -> None:
    noise = made(4.0, 3).exact()
    wire, rows = noise.wire, drawn(made(4.0, 3).exact(), 1.0, 0.5, 300)
    directions = scores_of(noise.query, wire, rows)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0, atol=1e-5)
    ends = [sign * one for one in np.eye(4) for sign in (-1, 1)]
    halves = [np.array([sign, 1.0, 0, 0]) / math.sqrt(2) for sign in (-1, 1)]
    for direction in [*ends, *halves, *directions]:
        steps = np.rint(device.read(wire, direction) / noise.grid)
        assert (steps >= wire.box.low).all()
        assert (steps <= wire.box.high).all()
    assert len(wire.box.low) == wire.size == noise.query.size


@pytest.mark.parametrize("dim", [1, 2, 5, 64])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e9])
def test_any_length_and_epsilon(dim: int, epsilon: float) -> None:
    noise = made(epsilon, dim)
    assert 0 < float(noise.std) < math.inf
    assert min(float(noise.vector), float(noise.matrix), float(noise.weight)) > 0
    exact = noise.exact()
    high = exact.wire.box.high
    assert (high > 0).all()
    assert (np.abs(exact.wire.box.low) == high).all()
    report = exact.add(statistic(noise.query, 0.5, 0.5)) if noise.candidates < 2**12 else high
    assert np.isfinite(report).all()


# Strange statistics.


@pytest.mark.parametrize("dim", [2, 3])
def test_zero_statistic_gives_zero_mean_report(dim: int) -> None:
    noise = made(4.0, dim)
    vector = np.zeros(noise.query.size)
    expect_mean(simulated(noise, vector), vector)
    source = np.random.default_rng(7).bytes
    exact = noise.exact()
    expect_mean(np.stack([exact.add(vector, source) for _ in range(2000)]), vector)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-320])
@pytest.mark.parametrize("where", [slice(None), slice(0, 1), slice(3, 4), slice(-1, None)])
def test_hostile_statistics_are_harmless(bad: float, where: slice) -> None:
    noise = made(norm=1e-9, most=2.0)
    vector = statistic(noise.query, 0.5, 0.5)
    vector[where] = bad
    exact = noise.exact()
    far = exact.wire.box.high * exact.grid
    for rows in (simulated(noise, vector, 16), [exact.add(vector) for _ in range(8)]):
        assert np.isfinite(rows).all()
        assert (np.abs(rows) <= far * (1 + 1e-6)).all()


def test_far_statistics_count_as_the_edge() -> None:
    """A response beyond the greatest, and a weight beyond 1."""
    noise = made(1.0, 2)
    edge = statistic(noise.query, 1.0, 1.0)
    far = np.append(edge[:3], 50 * edge[3:])
    far[[0, 2]] += 3.0
    one, other = simulated(noise, far, 64), simulated(noise, edge, 64)
    np.testing.assert_allclose(one[:, 3:].std(), other[:, 3:].std(), rtol=0.3)
    x, response, weight = device.told(noise.exact().wire, far, np.ones(2))
    assert np.linalg.norm(x) == pytest.approx(1)
    assert (response <= 1.0, weight) == (True, 1.0)


@pytest.mark.parametrize(("share", "weight"), [*TOLD, (0.0, 0.5), (0.0, 0.0)])
@pytest.mark.parametrize("dim", [2, 5])
def test_simulated_and_exact_decode_the_same_statistic(
    share: float, weight: float, dim: int
) -> None:
    noise = made(1.0, dim, norm=2.0, most=3.0)
    vector = statistic(noise.query, share, weight)
    stream = Stream.of(seed=1, replicate=0).at(4, round=1)
    ours = noise._decode_statistic(jnp.asarray(vector), stream)
    for x, response, side in (ours, device.told(noise.exact().wire, vector, np.ones(dim))):
        np.testing.assert_allclose(np.outer(x, x), np.outer(axis(dim), axis(dim)), atol=1e-9)
        np.testing.assert_allclose(response * np.asarray(x), share * axis(dim), atol=1e-9)
        assert float(side) == pytest.approx(weight, abs=1e-9)


def test_without_noise_it_is_the_statistic() -> None:
    noise = made()
    quiet = dataclasses.replace(noise, std=0.0)
    vector = statistic(noise.query, 0.5, 0.5)
    np.testing.assert_array_equal(simulated(quiet, vector, 2), [vector] * 2)
    assert quiet.event() == NonPrivate()


# What is chosen, and what is refused.


def test_compass_noise_falls_with_epsilon_and_more_candidates() -> None:
    stds = [float(made(epsilon, 5).std) for epsilon in EPSILONS]
    assert stds == sorted(stds, reverse=True)
    noise = made(10.0, 5)
    fewer = compass._best(10.0, noise.query, noise.candidates // 2, 2.0 ** -np.arange(1, 12.0))
    assert float(noise.std) < 0.99 * fewer.std
    assert made(1.0, 5).sensitivity == asked(5).sensitivity


def test_it_beats_noise_on_every_number() -> None:
    """A ball of the same diameter and as many numbers."""
    query = asked(5)
    ball = PrivUnitG.of(epsilon=1.0, center=query.center, radius=query.radius, size=query.size)
    assert float(made(1.0, 5).std) < float(ball.std)


def test_invalid_compass_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match=r"epsilon is 0\.0"):
        made(0.0)
    with pytest.raises(InvalidValueError, match="the query is a str; it must be ResidualMoments"):
        Compass.of(epsilon=1.0, query="all")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="float64 of shape"):
        made().exact().add(np.zeros(2))
    right: Any = {"units": 2**31, "candidates": 8, "listed": 2, "lean": 0.3, "query": asked(2)}
    assert ExactCompass(**right).event().epsilon == pytest.approx(math.log(3))
    for name, value in (
        ("units", UNITS),
        ("units", UNITS // 4),
        ("candidates", 2),
        ("candidates", 2**17),
        ("listed", 0),
        ("listed", 4),
        ("lean", 0.0),
        ("lean", 1.0),
        ("query", 7),
    ):
        with pytest.raises(InvalidValueError, match=rf"{name} is "):
            ExactCompass(**(right | {name: value}))
    # So nearly even that no square is told of.
    near = {"units": 2**31 - 2**16 + 1, "candidates": 2**16, "listed": 2**15 - 1}
    with pytest.raises(InvalidValueError, match="tell nothing of a square: list fewer"):
        ExactCompass(**(right | near))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_processors_that_round_otherwise_make_the_same_task(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums in another order differ in their last bits, and a task must not."""
    query = ResidualMoments(dim=5, norm=1.0, most=1.0, balance=0.8)
    wanted = Compass.of(epsilon=epsilon, query=query).exact().wire
    true = compass._moments

    def otherwise(*asked: Any) -> tuple[float, ...]:
        return tuple(one * (1 + 4e-16) for one in true(*asked))

    monkeypatch.setattr(compass, "_moments", otherwise)
    for cached in (compass._read, compass._design):
        cached.cache_clear()
    assert Compass.of(epsilon=epsilon, query=query).exact().wire == wanted
    for cached in (compass._read, compass._design):
        cached.cache_clear()


def test_steady_numbers_have_32_bits() -> None:
    for number in (math.pi, -1e-30, 7e200, 1.0):
        assert steady(number * (1 + 2e-16)) == steady(number)
        assert steady(number) == pytest.approx(number, rel=2.0**-32)
