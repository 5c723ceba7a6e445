"""Minimizers: from sums of gradients, exact or noisy, to an estimate."""

from __future__ import annotations

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Example, Minimizer, Start
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import LINKS, get_link
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import (
    GradientDescent,
    Look,
    PreconditionedSteps,
    newton,
    project_to_ball,
    repeat,
)

USERS, DIM, RIDGE = 60, 3, 0.5


def loss(link: str, minimizer: Minimizer | None = None) -> GLMLoss:
    chosen = minimizer or PreconditionedSteps(steps=1)
    return GLMLoss(
        link=link, dim=DIM, norm=1.0, low=0.0, high=1.0, clip=10.0, fits=1, minimizer=chosen
    )


@cache
def rows_of(link: str) -> Array:
    rng = np.random.default_rng(1)
    features, rewards = rng.normal(size=(USERS, DIM)), rng.uniform(size=USERS)
    pairs = zip(jnp.asarray(features), jnp.asarray(rewards), strict=True)
    return jnp.stack([loss(link).encode(Example(features=x, reward=y)) for x, y in pairs])


def curvature(link: str, point: Array) -> Array:
    x = rows_of(link)[:, :DIM]
    return (x * get_link(link).slope(x @ point)[:, None]).T @ x + RIDGE * jnp.eye(DIM)


def value(link: str, points: Array) -> Array:
    """The loss over all rows, at one point or at each of several."""
    rows = rows_of(link)
    score = points @ rows[:, :DIM].T
    return (get_link(link).integral(score) - rows[:, DIM] * score).sum(-1)


def start(
    *, point: Array, metric: Array | None = None, ridge: float = RIDGE, radius: float = 10.0
) -> Start:
    return Start(
        point=point,
        metric=jnp.eye(DIM) if metric is None else metric,
        ridge=jnp.float64(ridge),
        radius=jnp.float64(radius),
    )


def descended(link: str, minimizer: Minimizer, begin: Start) -> Array:
    rows = rows_of(link)

    def gradient(point: Array, step: Array | int) -> Array:
        return loss(link).gradients(rows, point).sum(0)

    return minimizer.descend(gradient, begin, users=jnp.int32(USERS), noise=jnp.float64(0))


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    "far", [*(pytest.param(one, marks=pytest.mark.nightly) for one in (0.0, 3.0, -40.0)), 2000.0]
)
def test_newton_ends_without_slope_from_any_start(link: str, far: float) -> None:
    rows, asked = rows_of(link), loss(link)
    point = asked.minimum(rows, start(point=far * jnp.array([1.0, -1.0, 0.5])), count=USERS)
    slope = (get_link(link).mean(rows[:, :DIM] @ point) - rows[:, DIM]) @ rows[:, :DIM]
    np.testing.assert_allclose(slope + RIDGE * point, 0, atol=1e-7)


def test_newton_solves_square_in_one_step_and_two_evaluations() -> None:
    target, looked = jnp.array([3.0, -2.0]), []

    def look(point: Array) -> Look:
        looked.append(point.tolist())
        rest = point - target
        return Look(value=1 + rest @ rest / 2, slope=rest, curvature=jnp.eye(2))

    with jax.disable_jit():
        found = newton(look, 0 * target, at_origin=jnp.inf)
    np.testing.assert_allclose(found, target, atol=1e-12)
    assert looked == [[0.0, 0.0], [3.0, -2.0]]


def bowl(point: Array) -> Look:
    """Σ log cosh(xᵢ - 1) + 2: from farther than 1.09 a full step ends farther away still."""
    rest = point - 1
    return Look(
        value=(jax.nn.softplus(2 * rest) - rest - jnp.log(2)).sum() + 2,
        slope=jnp.tanh(rest),
        curvature=jnp.diag(1 / jnp.cosh(rest) ** 2),
    )


@pytest.mark.parametrize("far", [3.5, -3.0, 15.0])
def test_newton_shortens_steps_that_overshoot(far: float) -> None:
    begin = jnp.array([far, 0.5])
    first = bowl(begin)
    assert bowl(begin - first.slope / jnp.diagonal(first.curvature)).value > first.value
    np.testing.assert_allclose(newton(bowl, begin, at_origin=jnp.inf), 1, atol=1e-9)


def test_newton_leaves_a_start_that_is_worse_than_the_origin() -> None:
    begin = jnp.array([500.0, 500.0])
    assert not jnp.isfinite(bowl(begin).slope / jnp.diagonal(bowl(begin).curvature)).all()
    found = newton(bowl, begin, at_origin=bowl(0 * begin).value)
    np.testing.assert_allclose(found, 1, atol=1e-9)


@pytest.mark.parametrize("link", LINKS)
def test_preconditioned_steps_reach_the_minimizer_without_noise(link: str) -> None:
    best = loss(link).minimum(rows_of(link), start(point=jnp.zeros(DIM)), count=USERS)
    # An upper bound on the curvature anywhere between the start and the end.
    metric = curvature(link, jnp.zeros(DIM)) + curvature(link, best)
    minimizer = PreconditionedSteps(steps=80)
    found = jax.jit(lambda begin: descended(link, minimizer, begin))(
        start(point=jnp.zeros(DIM), metric=metric)
    )
    np.testing.assert_allclose(found, best, atol=1e-7)


def test_with_the_curvature_two_steps_are_nearly_enough() -> None:
    best = loss("logistic").minimum(rows_of("logistic"), start(point=jnp.zeros(DIM)), count=USERS)
    begin = start(point=jnp.zeros(DIM), metric=curvature("logistic", jnp.zeros(DIM)))
    found = descended("logistic", PreconditionedSteps(steps=2), begin)
    assert float(jnp.linalg.norm(found - best)) < 0.02 * float(jnp.linalg.norm(best))


@pytest.mark.parametrize("link", LINKS)
def test_gradient_descent_nears_the_minimizer_without_noise(link: str) -> None:
    best = loss(link).minimum(rows_of(link), start(point=jnp.zeros(DIM), ridge=1e-9), count=USERS)
    radius = 1.5 * float(jnp.linalg.norm(best))
    minimizer = GradientDescent(steps=50_000, radius=radius, clip=1.0)
    found = jax.jit(lambda begin: descended(link, minimizer, begin))(
        start(point=jnp.zeros(DIM), ridge=0.0)
    )
    assert float(jnp.linalg.norm(found - best)) < 0.05 * radius


@pytest.mark.parametrize(
    ("steps", "std"),
    [
        *((1, 0.0), (3, 5.0), (30, 50.0)),
        *(
            pytest.param(*one, marks=pytest.mark.nightly)
            for one in ((1, 5.0), (1, 50.0), (3, 0.0), (3, 50.0), (30, 0.0), (30, 5.0))
        ),
    ],
)
def test_the_bound_on_the_excess_loss_holds(steps: int, std: float) -> None:
    """The mean of 200 runs is below the bound, which is for the mean; the room is a factor."""
    rows, asked, radius = rows_of("logistic"), loss("logistic"), 2.0
    minimizer = GradientDescent(steps=steps, radius=radius, clip=1.0)
    best = asked.minimum(rows, start(point=jnp.zeros(DIM), ridge=1e-9), count=USERS)
    assert float(jnp.linalg.norm(best)) < radius
    noises = jnp.asarray(np.random.default_rng(2).normal(size=(200, steps, DIM)) * std)
    begin = start(point=jnp.array([radius, 0.0, 0.0]), ridge=0.0)

    def run(noise: Array) -> Array:
        def gradient(point: Array, step: Array | int) -> Array:
            return asked.gradients(rows, point).sum(0) + noise[step]

        return minimizer.descend(gradient, begin, users=jnp.int32(USERS), noise=jnp.float64(std))

    ends = jax.jit(jax.vmap(run))(noises)
    excess = float(value("logistic", ends).mean() - value("logistic", best))
    most = math.sqrt(2) * 2 * radius * math.sqrt((USERS**2 + DIM * std**2) / steps)
    assert 0 <= excess <= most


@pytest.mark.parametrize(
    "minimizer",
    [PreconditionedSteps(steps=4), GradientDescent(steps=4, radius=0.3, clip=1.0)],
)
def test_every_step_stays_in_the_ball_and_compiled_is_plain(minimizer: Minimizer) -> None:
    begin = start(point=jnp.full(DIM, 0.1), radius=0.3)

    def run(begin: Start) -> Array:
        return descended("logistic", minimizer, begin)

    found = run(begin)
    assert float(jnp.linalg.norm(found)) <= 0.3 * (1 + 1e-12)
    np.testing.assert_allclose(jax.jit(run)(begin), found, rtol=1e-12)


def test_a_gradient_is_asked_once_a_step() -> None:
    asked: list[int] = []

    def gradient(point: Array, step: Array | int) -> Array:
        asked.append(int(step))
        return point

    for minimizer in (
        PreconditionedSteps(steps=3),
        GradientDescent(steps=3, radius=1.0, clip=1.0),
    ):
        asked.clear()
        begin = start(point=jnp.ones(DIM))
        minimizer.descend(gradient, begin, users=jnp.int32(1), noise=jnp.float64(0))
        assert asked == [0, 1, 2] == list(range(minimizer.steps))


def test_repeat_is_the_same_compiled_and_plain() -> None:
    def step(i: Array | int, pair: tuple[Array, Array]) -> tuple[Array, Array]:
        return pair[0] * 2 + i, pair[1] + pair[0]

    begin = (jnp.float64(1), jnp.float64(0))
    plain = repeat(5, step, begin)
    compiled = jax.jit(lambda pair: repeat(5, step, pair))(begin)
    assert plain == compiled
    assert repeat(0, step, begin) == begin


@pytest.mark.parametrize(
    ("point", "expected"),
    [([3.0, 4.0], [1.2, 1.6]), ([0.3, 0.4], [0.3, 0.4]), ([0.0, 0.0], [0.0, 0.0])],
)
def test_into_ball(point: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(project_to_ball(jnp.array(point), 2.0), expected, rtol=1e-12)


@pytest.mark.parametrize("bad", [{"steps": 0}, {"radius": 0.0}, {"radius": math.inf}])
def test_bad_values_are_refused(bad: dict[str, float]) -> None:
    good: dict[str, float] = {"steps": 2, "radius": 1.0, **bad}
    with pytest.raises(InvalidValueError):
        GradientDescent(**good, clip=1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError):
        GradientDescent(steps=2, radius=1.0, clip=0.0)
    with pytest.raises(InvalidValueError):
        PreconditionedSteps(steps=0)
