"""ResidualMoments: bounds that hold for every record and are reached, and what a sum gives back."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize  # type: ignore[import-untyped]

from kerchief.core.contracts import Example
from kerchief.core.errors import InvalidValueError
from kerchief.core.residual_moments import ResidualMoments

Floats = NDArray[np.float64]

# The vector counts little beside the matrix, as much, and so much that only it counts.
QUERIES = [
    ResidualMoments(dim=3, norm=1.0, most=0.5),
    ResidualMoments(dim=2, norm=2.0, most=1.0, balance=0.4, offset=0.5),
    ResidualMoments(dim=4, norm=0.5, most=3.0, balance=0.1),
    ResidualMoments(dim=1, norm=1.5, most=1.0, balance=0.7),
]
HOSTILE = [0.0, 1.0, -0.3, 1e-30, 1e30, -1e300, math.nan, math.inf, -math.inf]


def encoded(query: ResidualMoments, x: Any, y: float, w: float) -> Floats:
    record = Example(features=jnp.asarray(x, jnp.float64), reward=y, weight=w)  # type: ignore[arg-type]
    return np.asarray(query.encode(record), np.float64)


def worth(query: ResidualMoments, x: Floats, y: float, w: float) -> Floats:
    """The statistic written a second time: as a whole matrix, and the vector, in one row."""
    unit = x / np.linalg.norm(x) if np.linalg.norm(x) else x
    even = (w - 1) / query.dim * np.eye(query.dim) if unit.any() else 0.0
    matrix = query.balance * query.norm**2 * (np.outer(unit, unit) + even)
    return np.concatenate([matrix.ravel(), query.norm * y * unit])


def test_numbers_by_hand() -> None:
    query = ResidualMoments(dim=2, norm=5.0, most=2.0, offset=1.0, balance=0.1)
    # (3, 4) is as long as L: 0.1 of x xᵀ + (0.5 - 1) 25 I/2, then (2.5 - 1) x.
    found = encoded(query, [3.0, 4.0], 2.5, 0.5)
    matrix = [0.9 - 0.625, 1.2 * math.sqrt(2), 1.6 - 0.625]
    np.testing.assert_allclose(found, [*matrix, 4.5, 6.0], rtol=1e-12)
    # As long as L whatever it was; y and w are clipped.
    found = encoded(query, [0.3, 0.4], -7.0, 9.0)
    np.testing.assert_allclose(found, [0.9, 1.2 * math.sqrt(2), 1.6, -6.0, -8.0], rtol=1e-12)
    assert (query.size, query.square, query.pull, query.low, query.high) == (5, 2.5, 10, -1, 3)
    assert query.center.tolist() == [0.625, 0.0, 0.625, 0.0, 0.0]
    # A² (1 - 1/2 + 1/8) + R², and c = 1 as R² is more than 2 A²: 4 R² + A²/2.
    assert query.radius**2 == pytest.approx(6.25 * 0.625 + 100)
    assert query.sensitivity**2 == pytest.approx(400 + 3.125)


def test_record_without_direction_adds_zero() -> None:
    for x in ([0.0, 0.0], [math.nan, 0.0], [1e-200, -1e-200]):
        assert not encoded(QUERIES[1], x, 1.5, 1.0).any()


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_no_record_leaves_the_ball(query: ResidualMoments, data: Any) -> None:
    numbers = st.one_of(st.sampled_from(HOSTILE), st.floats(-3, 3))
    x = data.draw(st.lists(numbers, min_size=query.dim, max_size=query.dim))
    found = encoded(query, x, data.draw(numbers), data.draw(numbers))
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - query.center) <= query.radius * (1 + 1e-12)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_radius_is_reached_on_every_side_of_the_center(
    query: ResidualMoments, weight: float
) -> None:
    for sign in (-1, 1):
        y = query.offset + sign * query.most
        gap = encoded(query, np.eye(query.dim)[0], y, weight) - query.center
        assert np.linalg.norm(gap) == pytest.approx(query.radius, rel=1e-12)


def test_no_other_center_is_nearer_to_all() -> None:
    for query in QUERIES:
        rows = [
            encoded(query, sign * axis, query.offset + query.most, weight)
            for axis in np.eye(query.dim)
            for sign in (-1, 1)
            for weight in (0.0, 1.0)
        ]
        # The center is the mean of points that are all as far from it as can be.
        np.testing.assert_allclose(np.mean(rows, axis=0), query.center, atol=1e-12)


@pytest.mark.parametrize("query", QUERIES)
def test_no_two_records_are_farther_apart_than_stated(query: ResidualMoments) -> None:
    rng = np.random.default_rng(1)
    rows = np.stack(
        [
            encoded(
                query,
                rng.normal(size=query.dim) * rng.choice([0.0, 1.0], p=[0.1, 0.9]),
                query.offset + query.most * rng.choice([-1, 1, rng.uniform(-1, 1)]),
                rng.choice([0.0, 1.0, rng.uniform()]),
            )
            for _ in range(200)
        ]
    )
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=-1).max()
    assert 0.7 * query.sensitivity < apart <= query.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("query", QUERIES)
def test_the_diameter_is_what_a_search_finds(query: ResidualMoments) -> None:
    """From many starts, over both directions, responses and weights."""
    dim, rng = query.dim, np.random.default_rng(2)
    bounds = [(-1, 1)] * (2 * dim) + [(-query.most, query.most)] * 2 + [(0, 1)] * 2

    def near(point: Floats) -> float:
        (y, z), (v, w) = point[2 * dim : 2 * dim + 2], point[2 * dim + 2 :]
        one, other = worth(query, point[:dim], y, v), worth(query, point[dim : 2 * dim], z, w)
        return -float(np.square(one - other).sum())

    low, high = np.array(bounds).T
    found = [
        optimize.minimize(near, rng.uniform(low, high), bounds=bounds, options={"ftol": 1e-14}).fun
        for _ in range(25)
    ]
    assert math.sqrt(-min(found)) == pytest.approx(query.sensitivity, rel=1e-6)
    assert math.sqrt(-min(found)) <= query.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("query", QUERIES)
def test_flat_form_of_residual_statistic_is_isometric(query: ResidualMoments) -> None:
    """The flat form is isometric: so what a search finds of matrices holds for statistics."""
    rng = np.random.default_rng(3)
    for x, z in rng.normal(size=(20, 2, query.dim)):
        flat = encoded(query, x, query.high, 0.3) - encoded(query, z, query.low, 0.9)
        whole = worth(query, x, query.most, 0.3) - worth(query, z, -query.most, 0.9)
        assert np.linalg.norm(flat) == pytest.approx(float(np.linalg.norm(whole)), rel=1e-12)


@pytest.mark.parametrize("query", QUERIES)
def test_split_takes_back_what_encode_wrote(query: ResidualMoments) -> None:
    rng = np.random.default_rng(4)
    dim, total = query.dim, np.zeros(query.size)
    matrix, vector = np.zeros((dim, dim)), np.zeros(dim)
    for weight in (0.0, 0.4, 1.0):
        x = rng.normal(size=query.dim)
        y = rng.uniform(-1, 1) * query.most
        total = total + encoded(query, x, y + query.offset, weight)
        x = x / np.linalg.norm(x) * query.norm
        matrix += np.outer(x, x) + (weight - 1) * query.norm**2 / dim * np.eye(dim)
        vector += y * x
    directions, pulled = query.split(jnp.asarray(total))
    np.testing.assert_allclose(np.asarray(directions), matrix, atol=1e-12)
    np.testing.assert_allclose(np.asarray(pulled), vector, atol=1e-12)
    # What is left of the trace is the weight of all.
    assert np.trace(np.asarray(directions)) == pytest.approx(1.4 * query.norm**2)


@pytest.mark.parametrize(
    "wrong", [{"most": 0.0}, {"most": math.nan}, {"norm": math.inf}, {"balance": 0.0}, {"dim": 0}]
)
def test_bad_bounds_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidValueError, match=name):
        dataclasses.replace(QUERIES[0], **wrong)  # type: ignore[arg-type]
