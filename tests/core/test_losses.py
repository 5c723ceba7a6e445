"""Losses: gradients are those of the loss, and clipped at any point whatever."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import BoundedLoss, Example, Start
from kerchief.core.errors import InvalidValueError, UnknownNameError
from kerchief.core.links import LINKS, get_link
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import PreconditionedSteps
from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments

STEPS = PreconditionedSteps(steps=2)
LINK_NAMES = tuple(LINKS)


def loss(
    link: str = "logistic", *, dim: int = 2, norm: float = 1.0, high: float = 1.0, clip: float = 0.5
) -> GLMLoss:
    return GLMLoss(
        link=link, dim=dim, norm=norm, low=0.0, high=high, clip=clip, fits=3, minimizer=STEPS
    )


def rows_of(asked: GLMLoss, count: int, dtype: type = np.float64) -> Array:
    rng = np.random.default_rng(3)
    records = [
        Example(features=jnp.asarray(rng.normal(size=asked.dim)), reward=jnp.float64(reward))
        for reward in rng.uniform(-1, 2, size=count)
    ]
    return jnp.stack([asked.encode(record) for record in records]).astype(dtype)


def test_glm_loss_is_a_bounded_loss_and_regression_is_not() -> None:
    assert isinstance(loss(), BoundedLoss)
    assert not isinstance(RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0), BoundedLoss)


def test_of_a_problem() -> None:
    facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=9)
    assert GLMLoss.of(facts, link="logistic", clip=0.5, fits=3, minimizer=STEPS) == loss()


@pytest.mark.parametrize("link", LINK_NAMES)
def test_unclipped_gradients_match_autodiff_of_the_loss(link: str) -> None:
    asked, point = loss(link, clip=100.0), jnp.array([0.7, -1.3])
    rows = rows_of(asked, 20)

    def value(theta: Array, row: Array) -> Array:
        score = row[:-1] @ theta
        return get_link(link).integral(score) - row[-1] * score

    expected = jax.jit(jax.vmap(jax.grad(value), in_axes=(None, 0)))(point, rows)
    found = jax.jit(asked.gradients)(rows, point)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("link", LINK_NAMES)
def test_long_gradients_keep_their_direction(link: str) -> None:
    point = jnp.array([3.0, -1.0])
    rows = rows_of(loss(link), 50)
    free = np.asarray(loss(link, clip=1e6).gradients(rows, point))
    held = np.asarray(loss(link, clip=0.2).gradients(rows, point))
    length = np.linalg.norm(free, axis=1, keepdims=True)
    assert (length > 0.2).any()
    np.testing.assert_allclose(held, free * np.minimum(1, 0.2 / length), rtol=1e-9)


WILD = [0.0, 1.0, 1e-19, 1e-30, 1e12, 1e30, 3e38, math.inf, math.nan]
WILD += [-number for number in WILD]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("link", LINK_NAMES)
def test_gradients_are_clipped_for_any_record_and_point(link: str, dtype: type) -> None:
    asked, rng = loss(link, high=3.0), np.random.default_rng(7)
    encode = jax.jit(jax.vmap(lambda x, y: asked.encode(Example(features=x, reward=y))))
    with np.errstate(over="ignore"):
        features: Any = rng.choice(WILD, size=(300, 2)).astype(dtype)
        rewards: Any = rng.choice(WILD, size=300).astype(dtype)
        points: Any = rng.choice(WILD, size=(80, 2)).astype(dtype)
    rows = encode(jnp.asarray(features), jnp.asarray(rewards))
    found = jax.jit(jax.vmap(asked.gradients, in_axes=(None, 0)))(rows, jnp.asarray(points))
    lengths = np.linalg.norm(np.asarray(found, np.float64), axis=-1)
    assert np.isfinite(lengths).all()
    assert lengths.max() <= asked.clip * (1 + 16 * float(np.finfo(dtype).eps))


def test_gradient_is_clipped_when_device_skips_clipping() -> None:
    rows = jnp.array([[1e200, -1e200, 1e300], [1e9, 1e9, -1e9], [1e-200, 0.0, 1e300]])
    found = loss().gradients(rows, jnp.array([1e100, 0.0]))
    assert np.isfinite(found).all()
    assert (np.linalg.norm(found, axis=1) <= 0.5 * (1 + 1e-12)).all()


@pytest.mark.parametrize("link", LINK_NAMES)
def test_rows_of_zeros_have_no_gradient(link: str) -> None:
    rows = jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    for point in ([0.0, 0.0], [5.0, -5.0], [math.inf, math.nan]):
        assert (loss(link).gradients(rows, jnp.array(point)) == 0).all()


@pytest.mark.parametrize("link", ["logistic", "probit"])
def test_a_pair_attains_the_sensitivity(link: str) -> None:
    asked = loss(link)
    rows = jnp.array([[0.6, 0.8, 0.0], [0.6, 0.8, 1.0]])
    first, second = asked.gradients(rows, jnp.zeros(2))
    assert float(jnp.linalg.norm(first - second)) == pytest.approx(asked.sensitivity, rel=1e-12)


@pytest.mark.nightly
@pytest.mark.parametrize("link", LINK_NAMES)
def test_the_minimum_has_no_slope(link: str) -> None:
    asked = loss(link, clip=1e6)
    rows = rows_of(asked, 40)
    start = Start(
        point=jnp.array([9.0, -9.0]), metric=jnp.eye(2), ridge=jnp.float64(0.5), radius=1e6
    )
    point = asked.minimum(rows, start, count=40)
    slope = asked.gradients(rows, point).sum(0) + 0.5 * point
    np.testing.assert_allclose(slope, 0, atol=1e-6)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 300])
def test_only_rows_that_are_filled_count_in_a_minimum(count: int) -> None:
    asked = loss()
    rows = rows_of(asked, 300, np.float32)
    start = Start(
        point=jnp.array([0.3, -0.2]), metric=jnp.eye(2), ridge=jnp.float64(0.5), radius=1e6
    )
    point = jax.jit(lambda count: asked.minimum(rows, start, count=count))(count)
    x, y = np.split(np.asarray(rows[:count], np.float64), [2], axis=1)
    slope = (1 / (1 + np.exp(-x @ np.asarray(point))) - y[:, 0]) @ x + 0.5 * np.asarray(point)
    np.testing.assert_allclose(slope, 0, atol=1e-9)
    alone = asked.minimum(rows[:count], start, count=count)
    np.testing.assert_allclose(alone, point, atol=1e-10)


@pytest.mark.parametrize("link", LINK_NAMES)
def test_a_minimum_does_not_need_a_finite_start_nor_rows_to_come(link: str) -> None:
    asked = loss(link)
    rows = rows_of(asked, 40)

    def fit(rows: Any, count: int, first: float = 0.0) -> Any:
        point = jnp.array([first, 0.0])
        start = Start(point=point, metric=jnp.eye(2), ridge=jnp.float64(0.5), radius=1e6)
        return np.asarray(asked.minimum(rows, start, count=count))

    for wrong in (math.nan, math.inf, -math.inf):
        np.testing.assert_allclose(fit(rows, 40, wrong), fit(rows, 40), atol=1e-8)
        unfilled = jnp.where(jnp.arange(40)[:, None] < 30, rows, wrong)
        np.testing.assert_allclose(fit(unfilled, 30), fit(rows[:30], 30), atol=1e-8)
    assert fit(rows, 0, 3.0).tolist() == pytest.approx([0.0, 0.0], abs=1e-8)


def test_a_minimum_is_the_same_alone_and_in_company() -> None:
    asked, counts = loss(), jnp.array([3, 200, 131])
    rows = jnp.stack([one * rows_of(asked, 200, np.float32) for one in (1, -1, 0.5)])
    start = Start(
        point=jnp.array([0.3, -0.2]), metric=jnp.eye(2), ridge=jnp.float64(0.5), radius=1e6
    )
    fit = jax.jit(
        jax.vmap(lambda rows, count: asked.minimum(rows, start, count=count), in_axes=(0, 0))
    )
    for i in range(3):
        mine = slice(i, i + 1)
        np.testing.assert_allclose(
            fit(rows, counts)[i], fit(rows[mine], counts[mine])[0], rtol=1e-12
        )


@pytest.mark.parametrize(
    "bad", [{"dim": 0}, {"norm": 0.0}, {"clip": 0.0}, {"clip": math.nan}, {"high": -1.0}]
)
def test_bad_bounds_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        loss(**bad)  # type: ignore[arg-type]


def test_an_unknown_link_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        loss("cubic")
