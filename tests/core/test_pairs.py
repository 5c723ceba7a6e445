"""Pairs: bounds that hold for every record and are reached, and what is public stays out."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.core.contracts import Example
from kerchief.core.errors import InvalidValueError
from kerchief.core.pairs import Pair
from kerchief.core.problems import Problem
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.privacy import events, gaussian_delta, gaussian_noise_multiplier

Floats = NDArray[np.float64]
CONTEXT_FREE = Pair(dim=3, norm=1.5, low=-1.0, high=2.0, balance=0.7)
SHARED = Pair(dim=3, norm=1.0, low=0.0, high=1.0, offset=0.5, constant=0.6)


def encoded(query: Pair, x: list[float] | Floats, y: float) -> Floats:
    record = Example(features=jnp.asarray(x, jnp.float64), reward=jnp.float64(y))
    return np.asarray(query.encode(record), np.float64)


def test_the_diameter_is_reached() -> None:
    apart = encoded(CONTEXT_FREE, [1.5, 0, 0], 2.0) - encoded(CONTEXT_FREE, [-1.5, 0, 0], -1.0)
    assert np.linalg.norm(apart) == pytest.approx(CONTEXT_FREE.sensitivity, rel=1e-12)
    assert CONTEXT_FREE.sensitivity == pytest.approx(math.sqrt(4 * 1.5**2 + 0.7**2 * 9))
    apart = encoded(SHARED, [0.8, 0, 0.6], 1.0) - encoded(SHARED, [-0.8, 0, 0.6], 0.0)
    assert np.linalg.norm(apart) == pytest.approx(SHARED.sensitivity, rel=1e-12)
    assert SHARED.sensitivity == pytest.approx(math.sqrt(4 * 0.64 + 1))


@pytest.mark.parametrize("query", [CONTEXT_FREE, SHARED])
def test_no_record_leaves_the_ball(query: Pair) -> None:
    rng = np.random.default_rng(0)
    wild = [1.0, 10.0, 1e30, math.nan, math.inf, -math.inf]
    farthest = 0.0
    for _ in range(400):
        x = rng.normal(size=3) * rng.choice(wild, size=3)
        y = float(rng.choice([*wild, -1e9, 0.3]))
        gap = encoded(query, x, y) - query.center
        assert np.isfinite(gap).all()
        farthest = max(farthest, float(np.linalg.norm(gap)))
    assert 0.9 * query.radius < farthest <= query.radius * (1 + 1e-12)
    assert query.sensitivity == pytest.approx(2 * query.radius)
    assert query.center.shape == (query.size,)


@pytest.mark.parametrize("query", [CONTEXT_FREE, SHARED])
def test_split_takes_back_what_encode_wrote(query: Pair) -> None:
    x = [0.3, -0.2, query.constant or 0.4]
    features, reward = query.split(jnp.asarray(encoded(query, x, 0.8)))
    np.testing.assert_allclose(np.asarray(features), x, rtol=1e-12)
    assert float(reward) == pytest.approx(0.8 - query.offset)


def test_a_public_coordinate_is_not_reported() -> None:
    reports = [encoded(SHARED, [0.3, -0.2, last], 0.8) for last in (0.6, -9.0, math.nan)]
    assert all((report == reports[0]).all() for report in reports)
    assert len(reports[0]) == SHARED.size == 3
    np.testing.assert_array_equal(SHARED.noisy, [1, 1, 0])
    np.testing.assert_array_equal(CONTEXT_FREE.noisy, [1, 1, 1])


@pytest.mark.parametrize("query", [CONTEXT_FREE, SHARED])
def test_the_pair_costs_what_was_promised_and_not_less(query: Pair) -> None:
    """The worst two records, told apart with exactly the stated δ; a third less noise is more."""
    noise = Gaussian.of(
        noise_multiplier=gaussian_noise_multiplier(10.0, 1e-5), sensitivity=query.sensitivity
    )
    event = noise.event()
    assert isinstance(event, events.Gaussian)
    length = math.sqrt(query.norm**2 - query.constant**2)
    ends = [
        encoded(query, [sign * length, 0, query.constant], reward)
        for sign, reward in ((1, query.high), (-1, query.low))
    ]
    apart = float(np.linalg.norm(ends[0] - ends[1]))
    assert gaussian_delta(10.0, float(noise.std) / apart) == pytest.approx(1e-5, abs=1e-9)
    assert gaussian_delta(10.0, float(noise.std) / apart * 2 / 3) > 1e-3


def test_the_query_fits_the_problem() -> None:
    facts = {"dim": 4, "arms": 2, "norm": 1.0, "radius": 1.0, "low": 0.0, "high": 1.0}
    plain = Pair.of(Problem(**facts, horizon=9))  # type: ignore[arg-type]
    assert (plain.offset, plain.constant, plain.size) == (0.0, 0.0, 5)
    shared = Pair.of(Problem(**facts, horizon=9, constant=0.5))  # type: ignore[arg-type]
    assert (shared.offset, shared.constant, shared.size) == (0.5, 0.5, 4)
    whole = Pair.of(Problem(**facts, horizon=9, constant=1.0))  # type: ignore[arg-type]
    assert (whole.offset, whole.constant, whole.size) == (0.5, 0.0, 5)


@pytest.mark.parametrize(
    "wrong",
    [{"constant": 1.5}, {"dim": 1, "constant": 0.5}, {"balance": 0.0}, {"norm": math.inf}],
)
def test_bad_bounds_are_refused(wrong: dict[str, float]) -> None:
    facts = {"dim": 3, "norm": 1.0, "low": 0.0, "high": 1.0}
    with pytest.raises(InvalidValueError):
        Pair(**(facts | wrong))  # type: ignore[arg-type]
