"""RS-GLinCB: its constants by hand, against plain NumPy, and how often it switches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Environment, Policy, Tree
from kerchief.core.problems import Problem
from kerchief.environments import make_environment
from kerchief.policies.glm.rare_switching_paper import rs_glincb
from kerchief.simulation import Run

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
Played = Callable[[str, Environment, int], Run]


def slope(z: Floats) -> Floats:
    return np.asarray(special.expit(z) * special.expit(-z))


class Reference:
    """RS-GLinCB for logistic rewards in NumPy, without one array under two names."""

    def __init__(self, dim: int, radius: float) -> None:
        self.radius, self.ridge = radius, 0.5 * np.eye(dim)
        self.v = self.h = self.v_then = self.h_then = self.ridge
        self.warm, self.estimate = np.zeros(dim), np.zeros(dim)
        self.data: list[tuple[Floats, float, bool]] = []
        self.switches = 0

    def learn(self, x: Floats, y: float, explores: bool) -> None:
        self.data.append((x, y, explores))
        if explores:
            self.v = self.v + np.outer(x, x)
        else:
            self.h = self.h + slope(x @ self.warm) / math.e * np.outer(x, x)
        if np.linalg.det(self.h) > 1.5 * np.linalg.det(self.h_then):
            self.h_then, self.estimate = self.h, self.fitted(explorers=False)
            self.switches += 1
        if np.linalg.det(self.v) > 1.1 * np.linalg.det(self.v_then):
            self.v_then, self.warm = self.v, self.fitted(explorers=True)

    def fitted(self, *, explorers: bool) -> Floats:
        chosen = [(x, y) for x, y, explores in self.data if explores or not explorers]
        x, y = np.array([x for x, _ in chosen]), np.array([y for _, y in chosen])
        point = np.zeros(len(self.warm))
        for _ in range(30):
            slopes = x.T @ (special.expit(x @ point) - y) + self.ridge @ point
            curve = (x * slope(x @ point)[:, None]).T @ x + self.ridge
            point = point - np.linalg.solve(curve, slopes)
        return np.asarray(point * min(1.0, self.radius / float(np.linalg.norm(point))))


def lengths(x: Floats, v: Floats) -> Floats:
    return np.asarray(np.sqrt(np.einsum("ij,ji->i", x, np.linalg.solve(v, x.T))))


@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.nightly), 0.03])
def test_rs_glincb_matches_reference_of_the_paper(turns: Turns, scale: float) -> None:
    world = make_environment(link="logistic", dim=3, arms=6, radius=2.0)
    policy = rs_glincb(world.problem(250), mode="theory", exploration=scale)
    policy = dataclasses.replace(policy, threshold=0.1)
    plain, explorers, ruled_out = Reference(3, 2.0), 0, 0
    for x, action, reward, model in turns(policy, world, 250):
        np.testing.assert_allclose(model.fit.estimate, plain.estimate, atol=1e-4)
        np.testing.assert_allclose(model.warm.estimate, plain.warm, atol=1e-4)
        np.testing.assert_allclose(model.fit.inverse, np.linalg.inv(plain.h_then), rtol=1e-3)
        np.testing.assert_allclose(model.warm.inverse, np.linalg.inv(plain.v), rtol=1e-3)
        spread = lengths(x, plain.v)
        explores = bool((spread**2 >= 0.1).any())
        reach = float(policy.warm_width) * spread
        kept = x @ plain.warm + reach >= (x @ plain.warm - reach).max()
        bounds = x @ plain.estimate + float(policy.width) * lengths(x, plain.h_then)
        bounds = spread if explores else np.where(kept, bounds, -np.inf)
        assert bounds[action] >= bounds.max() - 1e-4
        explorers, ruled_out = explorers + explores, ruled_out + int((~kept).sum())
        plain.learn(x[action], reward, explores)
    assert 10 < explorers < 100
    assert plain.switches > 6
    assert (ruled_out > 0) == (scale < 1)


def test_the_constants_by_hand() -> None:
    problem = Problem(
        dim=3, arms=20, norm=1.0, radius=2.5, low=0.0, high=1.0, horizon=5000, link="probit"
    )
    policy = rs_glincb(problem, mode="theory")
    kappa, tail = math.sqrt(2 * math.pi) * math.exp(2.5**2 / 2), math.sqrt(3 * math.log(250_000))
    assert policy.width == pytest.approx(4 * tail)
    assert policy.warm_width == pytest.approx(2.5 * tail * math.sqrt(kappa))
    assert policy.threshold == pytest.approx(1 / (0.01 * kappa * 2.5**2 * 3))
    assert (policy.ridge, policy.factor, policy.shrink) == (0.5, 1.5, math.exp(-1))
    tuned = rs_glincb(problem, mode="tuned")
    assert tuned.width == pytest.approx(0.4 * tail)
    assert tuned.threshold == pytest.approx(10 * float(policy.threshold))


@pytest.mark.nightly
def test_it_switches_about_as_often_as_the_logarithm_of_time(played: Played) -> None:
    """Eightfold time grows the volume by at most 8³: 15.4 times the factor of 1.5."""
    world = make_environment(link="logistic", dim=3, arms=10, radius=2.0)
    runs = [played("rs-glincb", world, horizon) for horizon in (100, 800)]
    counts = [run.releases["fit"] for run in runs]
    assert ((counts[1] - counts[0] >= 8) & (counts[1] - counts[0] <= 17)).all()
    assert (counts[-1] < rs_glincb(world.problem(800)).loss.fits).all()
    assert (runs[-1].releases["warm"] < 200).all()


@pytest.mark.nightly
def test_rs_glincb_has_far_less_regret_than_uniform(played: Played) -> None:
    world = make_environment(link="probit", dim=3, arms=10, radius=2.0)
    lost = [played(name, world, 800).regret[-1].mean() for name in ("rs-glincb", "uniform")]
    assert lost[0] < 0.15 * lost[1]
