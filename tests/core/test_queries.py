"""Bounded sums: their sensitivities are exact, and clipping has no condition."""

from __future__ import annotations

import dataclasses
import math
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array

from kerchief.core.contracts import Example
from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import svec_size
from kerchief.core.problems import Problem
from kerchief.core.queries import GramMatrix, RegressionMoments, clip_features

PROBLEM = Problem(dim=3, arms=2, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=10)


def query(
    *,
    dim: int = 3,
    norm: float = 1.0,
    low: float = -1.0,
    high: float = 1.0,
    offset: float = 0.0,
    balance: float = 1.0,
    weighted: bool = False,
) -> RegressionMoments:
    return RegressionMoments(
        dim=dim,
        norm=norm,
        low=low,
        high=high,
        offset=offset,
        balance=balance,
        weighted=weighted,
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (query(), 3 / math.sqrt(2)),
        (query(low=0.0), 3 / math.sqrt(2)),
        (query(low=0.0, offset=0.5), 1.5909902576697319),
        (query(low=-2.0, high=2.0), 4.0),
        (query(low=-math.sqrt(2), high=math.sqrt(2)), 2 * math.sqrt(2)),
        (query(low=0.0, high=0.0), math.sqrt(2)),
        (query(norm=2.0), 4 * (2 + 0.25) / math.sqrt(2)),
        (query(norm=0.5, low=0.0), 2 * 0.5 * 1.0),
        (query(low=-3.0, high=1.0), 6.0),
        (query(balance=0.5), 2.0),
        (query(balance=2.0), 2 * 2.25 / math.sqrt(2)),
        (query(weighted=True), math.sqrt(5)),
        (query(low=-0.5, high=0.5, weighted=True), 2.25 / math.sqrt(2)),
        (query(norm=2.0, low=-3.0, high=3.0, balance=0.5, weighted=True), math.sqrt(4 + 144)),
    ],
)
def test_sensitivities_of_the_table(asked: RegressionMoments, expected: float) -> None:
    assert asked.sensitivity == pytest.approx(expected, rel=1e-12)


def distance(asked: RegressionMoments, raw: Array) -> Array:
    """Between the statistics of two records, each a row of features, a weight and a reward."""
    first, second = (
        asked.encode(Example(features=row[:-2], weight=row[-2], reward=row[-1]))
        for row in (raw[0], raw[1])
    )
    return jnp.sqrt(((first - second) ** 2).sum() + 1e-30)


@partial(jax.jit, static_argnames="asked")
def climbed(asked: RegressionMoments, starts: Array) -> Array:
    """Projected gradient ascent on the distance of two records; the greatest ever seen."""
    low = jnp.full(asked.dim + 2, -asked.norm).at[-2:].set(jnp.array([0.0, asked.low]))
    high = jnp.full(asked.dim + 2, asked.norm).at[-2:].set(jnp.array([1.0, asked.high]))

    def step(raw: Array, size: Array) -> tuple[Array, Array]:
        value, slope = jax.vmap(jax.value_and_grad(partial(distance, asked)))(raw)
        slope = slope / (jnp.linalg.norm(slope, axis=(1, 2), keepdims=True) + 1e-30)
        moved = jnp.clip(raw + size * (high - low) * slope, low, high)
        x = jax.vmap(jax.vmap(lambda row: clip_features(row, asked.norm)))(moved[..., :-2])
        return jnp.concatenate([x, moved[..., -2:]], -1), value.max()

    sizes = 0.2 * 0.95 ** jnp.arange(150)
    return jax.lax.scan(step, starts, sizes)[1].max()


@pytest.mark.parametrize(
    "asked",
    [
        query(dim=2),
        query(dim=4, low=0.0, offset=0.5),
        query(norm=2.0, balance=0.5, weighted=True),
        *(
            pytest.param(one, marks=pytest.mark.nightly)
            for one in (
                query(low=-2.0, high=2.0),
                query(norm=3.0, low=-1.0, high=4.0),
                query(dim=2, balance=0.3),
                query(dim=2, balance=2.0, weighted=True),
                query(low=-0.7, high=0.7, weighted=True),
            )
        ),
    ],
)
def test_sensitivity_is_reached_and_never_exceeded_by_search(asked: RegressionMoments) -> None:
    rng = np.random.default_rng(8)
    raw = rng.normal(size=(2000, 2, asked.dim + 2)) * asked.norm
    raw[..., -2] = rng.uniform(-0.5, 1.5, raw.shape[:-1])
    raw[..., -1] = rng.uniform(asked.low - 1, asked.high + 1, raw.shape[:-1])
    best = float(climbed(asked, jnp.asarray(raw)))
    assert 0.999 * asked.sensitivity <= best <= asked.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("reward", [0.5, 1.0, 1.3, 2.0])
def test_worst_pair_attains_the_sensitivity(reward: float) -> None:
    asked = query(dim=2, low=-reward, high=reward)
    cosine = -min(1.0, reward**2 / 2)
    sine = math.sqrt(1 - cosine**2)
    pair = jnp.array([[1.0, 0.0, 1.0, reward], [cosine, sine, 1.0, reward]], jnp.float64)
    assert float(distance(asked, pair)) == pytest.approx(asked.sensitivity, rel=1e-12)


@pytest.mark.parametrize(("reward", "weights"), [(0.5, (1, 1)), (1.0, (1, 0)), (3.0, (0, 1))])
def test_corner_of_weights_attains_the_weighted_sensitivity(
    reward: float, weights: tuple[int, int]
) -> None:
    asked = query(dim=2, low=-reward, high=reward, weighted=True)
    cosine = -(reward**2) / 2 if weights == (1, 1) else -1.0
    sine = math.sqrt(1 - cosine**2)
    pair = [[1.0, 0.0, weights[0], reward], [cosine, sine, weights[1], reward]]
    worst = float(distance(asked, jnp.array(pair, jnp.float64)))
    assert worst == pytest.approx(asked.sensitivity, rel=1e-12)


def test_weight_counts_only_in_weighted_queries() -> None:
    heavy = Example(features=jnp.array([0.6, 0.8]), reward=jnp.float64(0.5), weight=0.25)
    plain = dataclasses.replace(heavy, weight=1.0)
    asked = query(dim=2, balance=0.5)
    assert (asked.encode(heavy) == asked.encode(plain)).all()
    gram, moment = query(dim=2, balance=0.5, weighted=True).split(
        query(dim=2, balance=0.5, weighted=True).encode(heavy)
    )
    np.testing.assert_allclose(gram, 0.25 * np.outer([0.6, 0.8], [0.6, 0.8]), rtol=1e-12)
    np.testing.assert_allclose(moment, [0.3, 0.4], rtol=1e-12)


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, -3.0, 7.0])
def test_weights_are_clipped(weight: float) -> None:
    record = Example(features=jnp.array([1.0, 0.0]), reward=jnp.float64(0.0), weight=weight)
    flat = query(dim=2, weighted=True).encode(record)
    assert float(flat[0]) == (1.0 if weight == 7.0 else 0.0)
    both = jnp.array([weight, 1.0])
    grams = GramMatrix(dim=2, norm=1.0, groups=2).encode(dataclasses.replace(record, weight=both))
    assert float((grams**2).sum()) <= 1 + 1e-12
    assert (grams >= 0).all()


@pytest.mark.parametrize(("dim", "groups"), [(2, 1), (3, 1), (2, 3), (1, 2)])
def test_no_search_exceeds_the_sensitivity_of_gram(dim: int, groups: int) -> None:
    asked, rng = GramMatrix(dim=dim, norm=2.0, groups=groups), np.random.default_rng(3)
    features = rng.normal(size=(600, dim)) * rng.choice([0.5, 3.0], size=(600, 1))
    weights = np.maximum(0, rng.normal(size=(600, groups)))
    weights[:200] = np.eye(groups)[rng.integers(groups, size=200)]
    encoded: Any = jax.vmap(lambda x, w: asked.encode(Example(features=x, reward=x[0], weight=w)))
    points = np.asarray(jax.jit(encoded)(jnp.asarray(features), jnp.asarray(weights)))
    assert points.shape[1] == asked.size == groups * svec_size(dim)
    gaps = np.linalg.norm(points[:, None] - points[None], axis=-1)
    assert 0.99 * asked.sensitivity <= gaps.max() <= asked.sensitivity * (1 + 1e-12)


def test_gram_splits_into_its_groups() -> None:
    asked, x = GramMatrix(dim=2, norm=1.0, groups=2), np.array([0.6, 0.8])
    flat = asked.encode(
        Example(features=jnp.asarray(x), reward=jnp.float64(0), weight=jnp.array([0.0, 0.5]))
    )
    none, half = asked.split(flat)
    assert (none == 0).all()
    np.testing.assert_allclose(half, 0.5 * np.outer(x, x), rtol=1e-12)


def test_in_one_dimension_it_is_only_a_bound() -> None:
    asked = query(dim=1, low=0.0, high=0.1)
    x = np.linspace(-1, 1, 201)
    statistics = np.concatenate([np.stack([x**2, y * x], -1) for y in (0.0, 0.1)])
    gaps = np.linalg.norm(statistics[:, None] - statistics[None], axis=-1)
    assert gaps.max() < 0.75 * asked.sensitivity


EDGES = [0.0, -0.0, 1e-45, 1e-320, 1e-12, 1.0, 1e19, 1.5e38, 3.4e38, 1e308, 1.797e308]
EDGES += [-edge for edge in EDGES] + [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("norm", [1e-9, 1.0])
def test_every_vector_is_clipped(norm: float, dtype: type) -> None:
    rows = np.random.default_rng(2).choice(np.array(EDGES), size=(24, 3))
    with np.errstate(over="ignore", under="ignore"):
        vectors = jnp.asarray(rows.astype(dtype))
    together = np.asarray(jax.jit(jax.vmap(lambda v: clip_features(v, norm)))(vectors), np.float64)
    alone = np.stack([np.asarray(clip_features(v, norm), np.float64) for v in vectors])
    bound = norm * (1 + 8 * float(np.finfo(dtype).eps))
    for clipped in (together, alone):
        assert np.isfinite(clipped).all()
        assert (np.linalg.norm(clipped, axis=1) <= bound).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_huge_vectors_are_not_let_through(dtype: type) -> None:
    """XLA may divide by multiplying with a reciprocal, which flushes to zero for huge numbers."""
    for share in (1.0, 0.5, 0.25, 1e-3):
        huge = jnp.full(2, share * np.finfo(dtype).max, dtype)
        for clip in (clip_features, jax.jit(clip_features)):
            np.testing.assert_allclose(np.asarray(clip(huge, 1.0)), math.sqrt(0.5), rtol=1e-6)


def test_vectors_inside_the_ball_are_not_touched() -> None:
    for vector in ([0.6, 0.8], [1e-30, 0.0], [0.0, 0.0], [0.1, -0.2]):
        features = jnp.array(vector, jnp.float32)
        assert (clip_features(features, 1.0 + 1e-6) == features).all()


def test_clipping_replaces_non_finite_features_by_zero() -> None:
    clipped = clip_features(jnp.array([math.nan, 3.0, -math.inf]), 1.0)
    assert clipped.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("reward", "kept"),
    [
        (math.nan, 0.25),
        (math.inf, 0.25),
        (-math.inf, 0.25),
        (1e308, 1.0),
        (-1e308, 0.25),
        (0.5, 0.5),
    ],
)
def test_rewards_are_clipped_before_they_are_centred(reward: float, kept: float) -> None:
    asked = query(dim=1, low=0.25, high=1.0, offset=0.5)
    flat = asked.encode(Example(features=jnp.array([1.0]), reward=jnp.float64(reward)))
    assert flat.tolist() == [1.0, kept - 0.5]


numbers = st.floats(allow_nan=True, allow_infinity=True)
encode = jax.jit(query(low=0.0).encode)


@given(st.lists(numbers, min_size=3, max_size=3), numbers)
@settings(max_examples=200, deadline=None)
def test_no_record_leaves_the_statistics_set(features: list[float], reward: float) -> None:
    flat = encode(Example(features=jnp.array(features), reward=jnp.float64(reward)))
    # ‖x xᵀ‖² + y²‖x‖² is at most 2.
    assert float((flat**2).sum()) <= 2 + 1e-12


def test_the_flat_form_holds_both_parts() -> None:
    flat = query(dim=2).encode(Example(features=jnp.array([0.6, 0.8]), reward=jnp.float64(0.5)))
    expected = [0.36, math.sqrt(2) * 0.48, 0.64, 0.3, 0.4]
    np.testing.assert_allclose(np.asarray(flat), expected, rtol=1e-12)
    assert query(dim=2).size == 5


def test_of_a_problem() -> None:
    assert RegressionMoments.of(PROBLEM) == query(low=0.0)


@pytest.mark.parametrize(
    "bad",
    [
        {"dim": 0},
        {"norm": 0.0},
        {"norm": math.nan},
        {"norm": math.inf},
        {"norm": 1e-10},
        {"low": math.nan},
        {"low": 2.0},
        {"high": math.inf},
        {"low": -math.inf},
        {"offset": math.nan},
    ],
)
def test_bad_bounds_are_refused(bad: dict[str, float]) -> None:
    good = {"dim": 3, "norm": 1.0, "low": -1.0, "high": 1.0, "offset": 0.0}
    with pytest.raises(InvalidValueError):
        RegressionMoments(**(good | bad))  # type: ignore[arg-type]


BALLS = [
    *(
        RegressionMoments(dim=dim, norm=1.3, low=low, high=0.7, balance=balance, weighted=weighted)
        for dim in (1, 3)
        for low, balance in ((-0.1, 0.4), (-0.1, 2.0), (-2.0, 2.0))
        for weighted in (False, True)
    ),
    *(GramMatrix(dim=dim, norm=0.8, groups=groups) for dim in (1, 3) for groups in (1, 2)),
]


@cache
def _spread(query: Any) -> Any:
    """Statistics of many records: of all lengths, with the edges among them."""
    rng = np.random.default_rng(6)
    count, groups = 3000, getattr(query, "groups", None)
    directions = rng.standard_normal((count, query.dim))
    lengths = rng.choice([0.0, 0.3, 1.0, 5.0], size=(count, 1))
    lean = directions / np.linalg.norm(directions, axis=1, keepdims=True) * lengths * query.norm
    weights = rng.choice([0.0, 0.5, 1.0], size=(count, groups) if groups else count)
    rewards = rng.choice([-9.0, -0.1, 0.0, 0.7, 9.0], size=count)
    encode = jax.jit(
        jax.vmap(lambda x, y, w: query.encode(Example(features=x, reward=y, weight=w)))
    )
    return np.asarray(encode(jnp.asarray(lean), jnp.asarray(rewards), jnp.asarray(weights)))


@pytest.mark.parametrize("query", BALLS)
def test_statistics_reach_but_never_leave_the_ball(query: Any) -> None:
    far = np.linalg.norm(_spread(query) - query.center, axis=1)
    assert query.center.shape == (query.size,)
    assert far.max() <= query.radius * (1 + 1e-9)
    assert far.max() > query.radius * (1 - 1e-6)
    # No ball is smaller than half the diameter, which is a bound alone in one dimension.
    assert query.sensitivity / 2 <= query.radius * (1 + 1e-9) or query.dim == 1
    # No other multiple of the identity has a smaller ball.
    for shrink in (0.9, 1.1):
        moved = np.linalg.norm(_spread(query) - shrink * query.center, axis=1)
        assert moved.max() > query.radius * (1 - 1e-9)


@pytest.mark.parametrize("query", BALLS)
def test_statistic_entries_reach_but_never_leave_the_box(query: Any) -> None:
    edge = np.eye(query.dim)[0] * query.norm
    even = np.full(query.dim, query.norm / math.sqrt(query.dim))
    given: Any = [(x, y) for x in (edge, even) for y in (-9.0, 9.0)]
    weight = jnp.eye(getattr(query, "groups", 1))[0]
    corners = np.abs(
        [query.encode(Example(features=jnp.asarray(x), reward=y, weight=weight)) for x, y in given]
    ).reshape(len(given), query.size)
    assert np.abs(_spread(query)).max() <= query.largest * (1 + 1e-9)
    assert corners.max() == pytest.approx(query.largest)
    if isinstance(query, RegressionMoments):
        assert np.abs(_spread(query)).sum(1).max() <= query.absolute * (1 + 1e-9)
        assert corners.sum(1).max() == pytest.approx(query.absolute)


def test_center_of_statistics_lowers_the_radius() -> None:
    query = RegressionMoments(dim=5, norm=1.0, low=-0.5, high=0.5)
    assert query.radius == pytest.approx(math.sqrt(0.8 + 0.25))
    assert np.linalg.norm(_spread(query), axis=1).max() == pytest.approx(math.sqrt(1.25))


@pytest.mark.parametrize("query", BALLS[:12])
def test_no_pair_exceeds_the_taxicab(query: Any) -> None:
    shown = _spread(query)
    gaps = np.abs(shown[:1500] - shown[1500:]).sum(1)
    assert gaps.max() <= query.taxicab * (1 + 1e-9)
    assert query.taxicab <= math.sqrt(query.size) * query.sensitivity * (1 + 1e-12)


def test_a_pair_comes_near_the_taxicab() -> None:
    query: Any = RegressionMoments(dim=2, norm=1.0, low=-1.0, high=1.0)
    angles = np.linspace(0, math.pi, 61)
    rows = np.stack([np.cos(angles), np.sin(angles)], 1)
    encode: Any = jax.vmap(lambda x, y: query.encode(Example(features=x, reward=y)))
    shown = np.concatenate([encode(jnp.asarray(rows), jnp.full(61, sign)) for sign in (-1.0, 1.0)])
    gaps = np.abs(shown[:, None] - shown[None]).sum(-1)
    assert 0.9 * query.taxicab < gaps.max() <= query.taxicab
