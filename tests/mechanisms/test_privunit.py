"""PrivUnitG and its twin Shortlist: privacy exactly, moments by many draws."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.mechanisms import shortlist
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.shortlist import ExactShortlist, Shortlist
from kerchief.privacy import NonPrivate
from kerchief.privacy.unit_vectors import unit_epsilon, unit_noise
from kerchief_device.samplers import UNITS, below, chosen_rank

COPIES = 60_000
CENTER = np.array([0.5, -1.0, 0.0])
RADIUS = 2.0
# In the center, inside, on the edge.
PLACES = [np.zeros(3), np.array([0.3, -0.5, 0.2]), np.array([0.6, 0.0, 0.8])]
HOSTILE = [
    np.full(3, math.nan),
    np.full(3, math.inf),
    np.full(3, -1e308),
    np.array([1e300, 0.0, math.nan]),
]


def made(kind: Any, epsilon: float = 1.0) -> Any:
    return kind.of(epsilon=epsilon, center=CENTER, radius=RADIUS, size=3)


@jax.jit
def _reports(noise: Any, vector: Any) -> Any:
    def one(copy: Any) -> Any:
        return noise.add(vector, Stream.of(seed=9, replicate=copy).at(4, round=1))

    return jax.vmap(one)(jnp.arange(COPIES, dtype=jnp.uint32))


def simulated(noise: Any, vector: Any, copies: int = COPIES) -> Any:
    return np.asarray(_reports(noise, jnp.asarray(vector)))[:copies]


@pytest.mark.parametrize("kind", [PrivUnitG, Shortlist])
@pytest.mark.parametrize("epsilon", [0.3, 4.0])
@pytest.mark.parametrize("place", PLACES)
def test_reports_are_right_on_average_and_as_wide_as_stated(
    kind: Any, epsilon: float, place: Any
) -> None:
    noise = made(kind, epsilon)
    vector = CENTER + RADIUS * place
    errors = simulated(noise, vector) - vector
    std = float(noise.std)
    assert (np.abs(errors.mean(0)) < 5 * std / math.sqrt(COPIES)).all()
    squares = errors**2
    spread = squares.std(0) / math.sqrt(COPIES)
    # PrivUnitG is as wide as stated in all directions; the few best of a list, a little less along.
    low = std**2 * (1.0 if kind is PrivUnitG else 0.9)
    assert (squares.mean(0) > low - 5 * spread).all()
    assert (squares.mean(0) < std**2 + 5 * spread).all()
    # A third less would be rejected by far.
    assert (squares.mean(0) > (2 / 3 * std) ** 2 + 50 * spread).all()
    products = errors[:, [0, 0, 1]] * errors[:, [1, 2, 2]]
    room = 0.1 * std**2 if kind is Shortlist else 0.0
    assert (np.abs(products.mean(0)) < room + 5 * std**2 / math.sqrt(COPIES)).all()


@pytest.mark.parametrize("epsilon", [0.01, 0.2, 1.0, 5.0, 10.0, 25.0])
def test_the_threshold_of_privunit_keeps_epsilon_exactly(epsilon: float) -> None:
    """The likelihood ratio between the two sides, from the tail and the chance themselves."""
    gamma = 1 / unit_noise(epsilon)
    tail, density = stats.norm.sf(gamma), stats.norm.pdf(gamma)
    chance = tail * (1 + gamma * (1 - tail) / density)
    ratio = chance * (1 - tail) / ((1 - chance) * tail)
    assert math.log(ratio) == pytest.approx(epsilon, rel=1e-6)
    assert unit_epsilon(gamma) <= epsilon
    # No other threshold with the same epsilon has a larger mean, and the mean is the threshold.
    means = []
    for other in gamma * np.array([0.9, 1.0, 1.1]):
        q = stats.norm.sf(other)
        p = q * math.exp(epsilon) / (1 - q + q * math.exp(epsilon))
        means.append(stats.norm.pdf(other) * (p / q - (1 - p) / (1 - q)))
    assert means[1] == pytest.approx(gamma, rel=1e-6)
    assert means[1] > max(means[0], means[2])


def test_the_simulated_side_is_as_likely_as_it_should_be() -> None:
    """On the sphere's last axis nothing is hidden: how often reports of the edge are beyond γ."""
    noise = made(PrivUnitG, 2.0)
    std, gamma = float(noise.std), RADIUS / float(noise.std)
    direction = np.array([0.6, 0.0, 0.8])
    scores = (simulated(noise, CENTER + RADIUS * direction) - CENTER) @ direction / std
    tail = stats.norm.sf(gamma)
    chance = tail * (1 + gamma * (1 - tail) / stats.norm.pdf(gamma))
    seen = (scores > gamma).mean()
    assert abs(seen - chance) < 5 * math.sqrt(chance * (1 - chance) / COPIES)
    away = (simulated(noise, CENTER - RADIUS * direction) - CENTER) @ direction / std
    ratio = math.log(seen / (away > gamma).mean())
    # Two opposite statistics: beyond γ of one is beyond −γ of the other, on the unlikely side.
    assert ratio == pytest.approx(2.0, abs=0.1)


def test_the_price_is_read_off_the_noise() -> None:
    noise = made(PrivUnitG, 1.0)
    assert noise.event().epsilon == pytest.approx(1.0, rel=1e-9)
    weak = PrivUnitG(std=float(noise.std) * 2 / 3, center=noise.center, radius=RADIUS)
    assert weak.event().epsilon > 1.4  # type: ignore[attr-defined]
    assert PrivUnitG(std=0.0, center=noise.center, radius=RADIUS).event() == NonPrivate()
    listed = made(Shortlist, 1.0)
    assert listed.event().epsilon == pytest.approx(1.0, rel=1e-8)
    bold = ExactShortlist(
        units=round(UNITS * 0.6), center=(0.0,), radius=1.0, candidates=256, listed=88
    )
    assert bold.event().epsilon > 1.04


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 10.0, 25.0])
def test_shortlist_keeps_epsilon_and_is_within_1_percent_of_best(epsilon: float) -> None:
    noise = made(Shortlist, epsilon)
    p, k, n = float(noise.chance), noise.listed, noise.candidates
    assert math.log((p / k) / ((1 - p) / (n - k))) <= epsilon
    assert noise.event().epsilon <= epsilon
    assert noise.event().epsilon == noise.exact().event().epsilon
    if epsilon <= 12:
        assert 1 <= float(noise.std) / float(made(PrivUnitG, epsilon).std) < 1.01
    assert noise.exact().std == pytest.approx(float(noise.std), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_long_vectors_have_fewer_candidates_and_the_same_epsilon(epsilon: float) -> None:
    usual, long = (
        Shortlist.of(epsilon=epsilon, center=0.0, radius=1.0, size=size) for size in (1024, 1025)
    )
    assert long.candidates <= usual.candidates / 2
    assert long.exact().event().epsilon <= epsilon
    assert 1 <= float(long.std) / float(usual.std) < 1.02


def test_every_candidate_has_its_exact_chance() -> None:
    """For a fixed list of candidates: all words of a small coin and choice, counted."""
    noise = ExactShortlist(units=3 * 2**30, center=(0.0, 0.0), radius=1.0, candidates=4, listed=1)
    words = [0, 3 * 2**30 - 1, 3 * 2**30, 2**32 - 1]

    def position(*given: int) -> int:
        source = iter(given)
        return chosen_rank(noise.units, 4, 1, lambda n: next(source).to_bytes(n, "little"))

    positions = [position(first, second) for first in words for second in range(3)]
    assert positions == [3] * 6 + [0, 1, 2] * 2
    assert noise.event().epsilon == pytest.approx(math.log(0.75 / (0.25 / 3)))


def test_below_draws_uniformly() -> None:
    top = UNITS - UNITS % 3
    given = iter([UNITS - 1, top, top - 1])
    assert below(3, lambda n: next(given).to_bytes(n, "little")) == (top - 1) % 3
    draws = [below(5, np.random.default_rng(s).bytes) for s in range(2000)]
    assert stats.chisquare(np.bincount(draws, minlength=5)).pvalue > 1e-6


def test_the_ranking_always_lists_exactly_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even scores that are not numbers: privacy rests on the count, not on the ranking."""
    noise = made(Shortlist).exact()
    monkeypatch.setattr(ExactShortlist, "_unit", lambda self, vector: np.full(4, math.nan))
    # In place of one position, all of them: every candidate stands in the ranking once.
    monkeypatch.setattr(shortlist, "chosen_rank", lambda *given: slice(None))
    assert len(np.unique(noise.add(np.zeros(3)), axis=0)) == noise.candidates


@pytest.mark.parametrize("epsilon", [0.5, pytest.param(6.0, marks=pytest.mark.nightly)])
def test_simulated_and_exact_have_the_same_law(epsilon: float) -> None:
    noise, copies = made(Shortlist, epsilon), 2000
    exact, source = noise.exact(), np.random.default_rng(3).bytes
    direction = np.array([0.6, 0.0, 0.8])
    vector = CENTER + RADIUS * direction
    drawn = np.stack([exact.add(vector, source) for _ in range(copies)])
    ideal = simulated(noise, vector)
    for axis in (direction, np.array([0.8, 0.0, -0.6]), np.array([0.0, 1.0, 0.0])):
        assert stats.ks_2samp(drawn @ axis, ideal @ axis).pvalue > 1e-6
    error = (drawn - vector).mean(0)
    assert (np.abs(error) < 5 * exact.std / math.sqrt(copies)).all()
    assert ((drawn / exact.grid) == np.rint(drawn / exact.grid)).all()
    # Reports of noise that is a third smaller are told apart.
    assert (
        stats.ks_2samp(
            vector @ direction + 2 / 3 * (drawn - vector) @ direction, ideal @ direction
        ).pvalue
        < 1e-6
    )


@pytest.mark.parametrize(("many", "best"), [(2, 1), (3, 1), (5, 2)])
def test_constants_are_those_of_normal_order_statistics(many: int, best: int) -> None:
    top = {(2, 1): 1 / math.sqrt(math.pi), (3, 1): 1.5 / math.sqrt(math.pi)}
    rows = np.sort(np.random.default_rng(1).standard_normal((400_000, many)))[:, many - best :]
    units = round(0.9 * UNITS)
    mean, _ = shortlist._moments(many, best, units)
    weight = 0.9 / best - 0.1 / (many - best)
    sample = rows.sum(1)
    assert mean / weight == pytest.approx(
        sample.mean(), abs=5 * sample.std() / math.sqrt(len(sample))
    )
    if (many, best) in top:
        assert mean / weight == pytest.approx(top[many, best], rel=1e-8)


@pytest.mark.parametrize("vector", HOSTILE)
def test_hostile_statistics_are_harmless(vector: Any) -> None:
    for kind in (PrivUnitG, Shortlist):
        noise = made(kind)
        assert np.isfinite(simulated(noise, vector, 8)).all()
        exact = noise.exact()
        report = exact.add(np.asarray(vector, np.float64))
        assert np.isfinite(report).all()
        assert np.abs(report).max() < 10 * exact.std + 2


def test_far_statistics_count_as_the_edge() -> None:
    far, edge = CENTER + np.array([0.0, 100.0, 0.0]), CENTER + np.array([0.0, RADIUS, 0.0])
    for kind in (PrivUnitG, Shortlist):
        noise = made(kind)
        np.testing.assert_allclose(
            simulated(noise, far, 64), simulated(noise, edge, 64), rtol=1e-6, atol=1e-6
        )


def test_without_noise_it_is_the_statistic() -> None:
    for kind in (PrivUnitG, Shortlist):
        noise = made(kind)
        quiet: Any = type(noise)(**(vars(noise) | {"std": 0.0}))
        np.testing.assert_array_equal(simulated(quiet, CENTER + 1, 2), [CENTER + 1] * 2)
        assert quiet.event() == NonPrivate()


def test_invalid_privunit_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="radius"):
        PrivUnitG.of(epsilon=1.0, center=0.0, radius=0.0, size=3)
    with pytest.raises(InvalidValueError, match="epsilon"):
        Shortlist.of(epsilon=0.0, center=0.0, radius=1.0, size=3)
    with pytest.raises(InvalidValueError, match="center"):
        PrivUnitG.of(epsilon=1.0, center=np.zeros(2), radius=1.0, size=3)
    with pytest.raises(InvalidValueError, match="float64 of shape"):
        made(Shortlist).exact().add(np.zeros(2))
    for wrong in ({"units": UNITS // 2}, {"listed": 4}, {"units": UNITS}):
        fields: Any = {"units": 2**31 + 1, "candidates": 4, "listed": 2} | wrong
        with pytest.raises(InvalidValueError):
            ExactShortlist(center=(0.0,), radius=1.0, **fields)
