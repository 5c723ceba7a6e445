"""GLOC: against plain NumPy, its projection, its query and its regret."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Environment, Example, Policy, Tree
from kerchief.core.online import nearest
from kerchief.core.problems import Problem
from kerchief.environments import make_environment
from kerchief.policies.glm.gloc import GLOC
from kerchief.policies.glm.increments import Increments
from kerchief.policies.registry import Mode
from kerchief.simulation import Run

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
Played = Callable[[str, Environment, int], Run]
PROBIT = make_environment(link="probit", dim=3, arms=6, radius=1.5)


def projected(v: Floats, point: Floats, radius: float) -> Floats:
    """The nearest point of the ball in the norm of V, by bisection on the multiplier."""
    if np.linalg.norm(point) <= radius:
        return point
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        moved = np.linalg.solve(v + middle * np.eye(len(point)), v @ point)
        low, high = (middle, high) if np.linalg.norm(moved) > radius else (low, middle)
    return np.asarray(moved)


class Reference:
    """GLOC for logistic rewards in NumPy, from the paper."""

    def __init__(self, dim: int, radius: float) -> None:
        self.k, self.radius = math.exp(-radius) / (1 + math.exp(-radius)) ** 2, radius
        self.v, self.z, self.iterate = dim * np.eye(dim), np.zeros(dim), np.zeros(dim)
        self.b = 2 * self.k * radius**2 * dim

    def width(self, spread: float, delta: float) -> float:
        r = spread / self.k
        inner = 1 + 2 * self.b / self.k + 4 * r**4 / delta**2
        tail = math.log(2 / delta * math.sqrt(inner))
        return math.sqrt(1 + 4 * self.b / self.k + 8 * r**2 * tail)

    def learn(self, x: Floats, y: float) -> None:
        score = x @ self.iterate
        gradient = (special.expit(score) - y) * x
        self.v += np.outer(x, x)
        newton = np.linalg.solve(self.v, gradient)
        self.b += float(gradient @ newton) / (2 * self.k)
        self.z += score * x
        self.iterate = projected(self.v, self.iterate - newton / self.k, self.radius)


@pytest.mark.parametrize("mode", ["tuned", pytest.param("theory", marks=pytest.mark.nightly)])
def test_gloc_matches_reference_of_the_paper(turns: Turns, mode: Mode) -> None:
    world = make_environment(link="logistic", dim=3, arms=6, radius=1.5)
    policy = GLOC.of(world.problem(250), mode=mode)
    plain, edge = Reference(3, 1.5), 0
    spread, scale = (1 / 16, 1.0) if mode == "theory" else (0.5, 0.03)
    for x, action, reward, model in turns(policy, world, 250):
        np.testing.assert_allclose(model.gram, plain.v, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(model.iterate, plain.iterate, atol=1e-4)
        estimate = np.linalg.solve(plain.v, plain.z)
        np.testing.assert_allclose(model.estimate, estimate, atol=1e-4)
        width = scale * plain.width(spread, 0.02)
        assert float(model.width) == pytest.approx(width, rel=1e-4)
        length = np.sqrt(np.einsum("ij,ji->i", x, np.linalg.solve(plain.v, x.T)))
        value = special.expit(x @ plain.iterate) if mode == "theory" else x @ estimate
        bounds = value + width * length
        assert bounds[action] >= bounds.max() - 1e-4
        plain.learn(x[action], reward)
        edge += bool(np.linalg.norm(plain.iterate) > 1.5 - 1e-9)
    assert 5 < edge < 245


def test_projection_is_nearest_in_the_metric() -> None:
    rng, found_by = np.random.default_rng(0), jax.jit(nearest)
    for _ in range(40):
        raw = rng.normal(size=(4, 4))
        v = raw @ raw.T * 10 ** rng.uniform(0, 4) + np.eye(4)
        point = rng.normal(size=4) * 10 ** rng.uniform(-1, 1)
        found = np.asarray(found_by(jnp.asarray(v), jnp.asarray(v @ point), 1.5))
        np.testing.assert_allclose(found, projected(v, point, 1.5), atol=1e-6)


def test_projection_in_the_metric_beats_scaling() -> None:
    v, point = np.diag([1.0, 100.0]), np.array([3.0, 1.0])
    found = np.asarray(nearest(jnp.asarray(v), jnp.asarray(v @ point), 1.5))
    scaled = point * 1.5 / np.linalg.norm(point)
    gaps = [(point - p) @ v @ (point - p) for p in (found, scaled)]
    assert np.linalg.norm(found) == pytest.approx(1.5)
    assert gaps[0] < 0.5 * gaps[1]


def test_steps_are_bounded_whatever_they_are() -> None:
    query = Increments(dim=2, norm=1.0, steps=3, stride=2.0, balance=0.5)
    row = jnp.array([7.0, jnp.nan, 30.0, 40.0])
    record = Example(features=jnp.array([3.0, 4.0]), reward=jnp.float64(0), weight=row)
    gram, steps = query.split(query.encode(record))
    np.testing.assert_allclose(np.asarray(gram), [[0.36, 0.48], [0.48, 0.64]])
    np.testing.assert_allclose(np.asarray(steps), [0.0, 1.2, 1.6])
    assert query.sensitivity == pytest.approx(math.sqrt(2 + 1))


@pytest.mark.nightly
def test_honest_steps_are_never_clipped(turns: Turns) -> None:
    policy = GLOC.of(PROBIT.problem(200), mode="theory")
    free = dataclasses.replace(policy, query=dataclasses.replace(policy.query, stride=1e6))
    pairs = zip(turns(policy, PROBIT, 200), turns(free, PROBIT, 200), strict=True)
    for (_, here, _, now), (_, there, _, then) in pairs:
        assert here == there
        np.testing.assert_allclose(now.iterate, then.iterate, atol=1e-6)


def test_the_constants_are_public_bounds() -> None:
    problem = Problem(
        dim=3, arms=5, norm=1.0, radius=2.0, low=0.0, high=1.0, horizon=50, link="probit"
    )
    policy = GLOC.of(problem, mode="theory")
    assert 1 / policy.flattest == pytest.approx(math.sqrt(2 * math.pi) * math.exp(2))
    assert policy.spread == pytest.approx(1 / (2 * math.pi))
    assert GLOC.of(problem, mode="tuned").spread == 0.5


@pytest.mark.nightly
@pytest.mark.parametrize("link", ["logistic", "probit"])
def test_gloc_has_far_less_regret_than_uniform(played: Played, link: str) -> None:
    world = make_environment(link=link, dim=3, arms=10, radius=2.0)
    lost = [played(name, world, 800).regret[-1].mean() for name in ("gloc", "uniform")]
    assert lost[0] < 0.2 * lost[1]
