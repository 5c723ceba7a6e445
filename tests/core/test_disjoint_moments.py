"""Moments of arms with models of their own: exact sensitivity, and clipping without condition."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.core.contracts import Example
from kerchief.core.disjoint_moments import DisjointMoments
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import Problem

FACTS = Problem(
    dim=3, arms=3, norm=1.3, radius=1.0, low=0.0, high=1.0, horizon=100, constant=0.5, own=3
)
PLAIN = DisjointMoments.of(FACTS)
QUERIES = [
    PLAIN,
    dataclasses.replace(PLAIN, weight=0.02, balance=0.05),
    dataclasses.replace(PLAIN, weight=0.02, balance=4.0),
    DisjointMoments.of(dataclasses.replace(FACTS, constant=0.0, dim=4, own=4)),
    DisjointMoments.of(dataclasses.replace(FACTS, low=-1.0, high=2.0)),
    dataclasses.replace(PLAIN, weight=1.0, lever=1.5),
    dataclasses.replace(PLAIN, offset=0.1, weight=0.05),
    DisjointMoments.of(FACTS, pooled=False),
    dataclasses.replace(PLAIN, low=0.4, weight=0.05, pooled=False),
]


def grid(query: DisjointMoments, steps: int = 33) -> float:
    """The greatest squared distance over lengths, inner products, rewards and arms, in numbers."""
    lengths = np.linspace(0, query.norm, 9)
    a, b = lengths[:, None, None], lengths[None, :, None]
    t = a * b * np.linspace(-1, 1, steps)[None, None, :]
    pooled = query.pool**2 * (a**4 + b**4 - 2 * t**2)
    best, w = 0.0, query.weight**2
    for y, x in itertools.product((query.low - query.offset, query.high - query.offset), repeat=2):
        two = (y**2 + w) * (query.lever**2 + a**2) + (x**2 + w) * (query.lever**2 + b**2)
        one = (y**2 + w) * a**2 + (x**2 + w) * b**2 - 2 * (x * y + w) * t
        one = one + query.lever**2 * (y - x) ** 2
        best = max(best, float((two + pooled).max()), float((one + pooled).max()))
    return best


def farthest(query: DisjointMoments, rng: np.random.Generator, arm: int) -> float:
    """The greatest distance that climbing from random pairs finds, the second of this arm."""
    encode = jax.jit(
        jax.vmap(lambda x, y, a: query.encode(Example(features=x, reward=y, weight=a)))
    )
    count, eye = 512, np.eye(query.arms)
    x = 2 * rng.normal(size=(2, count, query.dim))
    y = rng.choice([query.low, query.high], size=(2, count))
    arms = [np.tile(eye[number], (count, 1)) for number in (0, arm)]

    def apart(x: NDArray[np.float64]) -> NDArray[np.float64]:
        one, other = (np.asarray(encode(*row)) for row in zip(x, y, arms, strict=True))
        return np.asarray(np.linalg.norm(one - other, axis=1))

    best = apart(x)
    for step in np.geomspace(1.0, 0.01, 40):
        moved = x + step * rng.normal(size=x.shape)
        found = apart(moved)
        x = np.where((found > best)[None, :, None], moved, x)
        best = np.maximum(found, best)
    return float(best.max())


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_disjoint_sensitivity_is_tight_by_grid_and_search(
    query: DisjointMoments,
) -> None:
    rng = np.random.default_rng(1)
    found = max(farthest(query, rng, arm) for arm in (0, 1))
    assert 0.98 * query.sensitivity < found <= query.sensitivity * (1 + 1e-12)
    assert 0.98 * query.sensitivity < math.sqrt(grid(query)) <= query.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_disjoint_statistics_reach_but_never_leave_their_ball(query: DisjointMoments) -> None:
    rng = np.random.default_rng(2)
    encode: Any = jax.jit(lambda x, y, a: query.encode(Example(features=x, reward=y, weight=a)))
    far = [
        np.linalg.norm(
            np.asarray(encode(length * rng.normal(size=query.dim), reward, np.eye(query.arms)[1]))
            - query.center
        )
        for length in (0.0, 0.3, 1.0, 10.0)
        for reward in (query.low, query.high, -7.0, np.nan)
        for _ in range(8)
    ]
    assert max(far) == pytest.approx(query.radius, rel=1e-9)


def test_single_arm_has_lower_sensitivity_than_several() -> None:
    several = dataclasses.replace(PLAIN, weight=1.0, lever=1.5)
    assert dataclasses.replace(several, arms=1).sensitivity < several.sensitivity


@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e300, -1e300])
def test_wild_records_are_clipped(wild: float) -> None:
    for weight in ([wild, 0.0, 0.0], [wild, wild, 1.0], [1.0, 1.0, 1.0]):
        record = Example(
            features=jnp.array([wild, 1.0, wild]),
            reward=jnp.array(wild),
            weight=jnp.array(weight),
        )
        apart = np.linalg.norm(np.asarray(PLAIN.encode(record)) - PLAIN.center)
        assert apart <= PLAIN.radius * (1 + 1e-12)


def test_a_statistic_by_hand_and_back() -> None:
    query = dataclasses.replace(PLAIN, norm=1.0, lever=0.5, weight=0.25, balance=2.0)
    record = Example(
        features=jnp.array([0.6, 0.8, 0.5]),
        reward=jnp.array(1.0),
        weight=jnp.array([0.0, 1.0, 0.0]),
    )
    flat = np.asarray(query.encode(record))
    assert flat.size == query.size == 2 * 3 * 3 + 3
    moments, features = np.zeros((3, 3)), np.zeros((3, 3))
    moments[1], features[1] = [0.3, 0.4, 0.25], [0.15, 0.2, 0.125]
    squares = [0.72, 2 * 0.48 * math.sqrt(2), 1.28]
    np.testing.assert_allclose(flat, [*moments.ravel(), *features.ravel(), *squares])
    sums = query.split(jnp.asarray(flat))
    np.testing.assert_allclose(sums.moments, moments)
    np.testing.assert_allclose(sums.features, features / 0.25)
    np.testing.assert_allclose(sums.squares, [[0.36, 0.48], [0.48, 0.64]])


def test_statistic_size_grows_with_arms_times_features() -> None:
    wide = DisjointMoments.of(dataclasses.replace(FACTS, dim=20, own=20, arms=50))
    assert wide.size == 2 * 50 * 20 + 19 * 20 // 2


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"constant": 1.3}, "leaves no room for features that vary"),
        ({"dim": 1, "own": 1}, "use a ContextFreeProblem"),
    ],
)
def test_a_problem_without_contexts_is_refused(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        DisjointMoments.of(dataclasses.replace(FACTS, **facts))
