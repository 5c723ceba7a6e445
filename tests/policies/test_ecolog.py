"""ECOLog: against plain NumPy, what it refuses, and its regret."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Environment, Policy, Tree
from kerchief.core.errors import InvalidValueError
from kerchief.environments import make_environment
from kerchief.policies.glm.ecolog import ECOLog
from kerchief.policies.registry import Mode
from kerchief.simulation import Run

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
Played = Callable[[str, Environment, int], Run]
LOGISTIC = make_environment(link="logistic", dim=3, arms=6, radius=1.5)


class Reference:
    """The adaptive ECOLog in NumPy: Newton's method inside a bisection on the ball's multiplier."""

    def __init__(self, dim: int, radius: float, ridge: float) -> None:
        self.w, self.theta = ridge * np.eye(dim), np.zeros(dim)
        self.radius, self.ridge, self.count, self.growth = radius, ridge, 0, 0.0

    def width(self, delta: float) -> float:
        root = math.sqrt(self.ridge)
        tail = math.log(2 * math.sqrt(1 + self.count / (4 * self.ridge)) / delta)
        gamma = root / 2 + 2 / root * tail
        square = 2 * self.ridge * self.radius**2 + (1 + self.radius) ** 2 * gamma + self.growth
        return math.sqrt(square)

    def learn(self, x: Floats, y: float) -> None:
        moved = self.minimizer(x, [y])
        blind = self.minimizer(x, [0.0, 1.0])
        gained = self.loss(float(x @ blind), y) - self.loss(float(x @ moved), y)
        apart = (moved - blind) @ self.w @ (moved - blind)
        self.growth += 2 * (1 + self.radius) * gained - float(apart) / 2
        chance = special.expit(x @ moved)
        self.w = self.w + chance * (1 - chance) * np.outer(x, x)
        self.theta, self.count = moved, self.count + 1

    @staticmethod
    def loss(z: float, y: float) -> float:
        return math.log(1 + math.exp(z)) - y * z

    def minimizer(self, x: Floats, rewards: list[float]) -> Floats:
        point = self.penalized(x, rewards, 0.0)
        if np.linalg.norm(point) <= self.radius:
            return point
        low, high = 0.0, 1e6
        for _ in range(60):
            middle = (low + high) / 2
            point = self.penalized(x, rewards, middle)
            inside = np.linalg.norm(point) <= self.radius
            low, high = (low, middle) if inside else (middle, high)
        return point

    def penalized(self, x: Floats, rewards: list[float], load: float) -> Floats:
        point = self.theta
        for _ in range(6):
            chance = special.expit(x @ point)
            slope = sum(chance - y for y in rewards) * x
            slope = slope + self.w @ (point - self.theta) + load * point
            curve = len(rewards) * chance * (1 - chance) * np.outer(x, x)
            point = point - np.linalg.solve(curve + self.w + load * np.eye(len(x)), slope)
        return np.asarray(point)


@pytest.mark.parametrize(
    ("mode", "ridge", "scale"),
    [pytest.param("theory", 10.0, 1.0, marks=pytest.mark.nightly), ("tuned", 3.0, 0.2)],
)
def test_ecolog_matches_reference_of_the_paper(
    turns: Turns, mode: Mode, ridge: float, scale: float
) -> None:
    policy = ECOLog.of(LOGISTIC.problem(60), mode=mode)
    # A ball smaller than the truth, so that its edge is reached.
    policy = dataclasses.replace(policy, radius=0.25)
    plain, edge = Reference(3, 0.25, ridge), 0
    for x, action, reward, model in turns(policy, LOGISTIC, 60):
        np.testing.assert_allclose(model.gram, plain.w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(model.estimate, plain.theta, atol=1e-5)
        width = scale * plain.width(0.02)
        assert float(model.width) == pytest.approx(width, rel=1e-5)
        length = np.sqrt(np.einsum("ij,ji->i", x, np.linalg.solve(plain.w, x.T)))
        value = x @ plain.theta
        bounds = (special.expit(value) if mode == "theory" else value) + width * length
        assert bounds[action] >= bounds.max() - 1e-5
        plain.learn(x[action], reward)
        edge += bool(np.linalg.norm(plain.theta) > 0.25 - 1e-7)
    assert 5 < edge < 59


def test_the_two_slopes_stay_within_a_factor_of_two(turns: Turns) -> None:
    """What the paper's condition asks for, at every step, with the least ridge there is."""
    plain = Reference(3, 1.5, 3.0)
    for x, action, reward, _ in turns(ECOLog.of(LOGISTIC.problem(100)), LOGISTIC, 100):
        z = [x[action] @ plain.minimizer(x[action], r) for r in ([reward], [0.0, 1.0])]
        slopes = [special.expit(score) * special.expit(-score) for score in z]
        assert 0.5 < slopes[0] / slopes[1] < 2
        plain.learn(x[action], reward)


@pytest.mark.nightly
def test_honest_steps_are_never_clipped(turns: Turns) -> None:
    policy = ECOLog.of(LOGISTIC.problem(100), mode="tuned")
    free = dataclasses.replace(policy, query=dataclasses.replace(policy.query, stride=1e6))
    pairs = zip(turns(policy, LOGISTIC, 100), turns(free, LOGISTIC, 100), strict=True)
    for (_, here, _, now), (_, there, _, then) in pairs:
        assert here == there
        np.testing.assert_allclose(now.estimate, then.estimate, atol=1e-6)
        assert float(now.width) == pytest.approx(float(then.width), rel=1e-6)


@pytest.mark.parametrize("link", ["linear", "probit", "poisson"])
def test_other_links_are_refused(link: str) -> None:
    problem = make_environment(link=link).problem(10)
    with pytest.raises(InvalidValueError, match="ecolog is for 'logistic' rewards alone"):
        ECOLog.of(problem)


@pytest.mark.nightly
def test_ecolog_has_far_less_regret_than_uniform(played: Played) -> None:
    world = make_environment(link="logistic", dim=3, arms=10, radius=2.0)
    lost = [played(name, world, 800).regret[-1].mean() for name in ("ecolog", "uniform")]
    assert lost[0] < 0.2 * lost[1]
