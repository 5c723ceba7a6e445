"""GLM-UCB: against plain NumPy, how often it refits, its width and its regret."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Environment, FitRelease, Policy, Tree
from kerchief.core.problems import Problem
from kerchief.environments import make_environment
from kerchief.policies.glm.ucb import GLMUCB
from kerchief.policies.registry import Mode
from kerchief.simulation import Run

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
Played = Callable[[str, Environment, int], Run]
LOGISTIC = make_environment(link="logistic", dim=3, arms=6, radius=1.5)


def fitted(x: Floats, y: Floats, ridge: float) -> Floats:
    """The penalized logistic regression, by Newton's method."""
    point = np.zeros(x.shape[1])
    for _ in range(30):
        chance = special.expit(x @ point)
        slope = x.T @ (chance - y) + ridge * point
        curve = (x * (chance * (1 - chance))[:, None]).T @ x + ridge * np.eye(len(point))
        point = point - np.linalg.solve(curve, slope)
    return np.asarray(point)


@pytest.mark.parametrize("mode", ["tuned", pytest.param("theory", marks=pytest.mark.nightly)])
def test_glm_ucb_matches_reference_of_the_paper(turns: Turns, mode: Mode) -> None:
    policy = GLMUCB.of(LOGISTIC.problem(200), mode=mode)
    v = then = 3 * np.eye(3)
    estimate, xs, ys = np.zeros(3), list[Floats](), list[float]()
    for round, (x, action, reward, model) in enumerate(turns(policy, LOGISTIC, 200)):
        np.testing.assert_allclose(model.inverse, np.linalg.inv(v), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(model.estimate, estimate, atol=1e-4)
        length = np.sqrt(np.einsum("ij,ji->i", x, np.linalg.solve(v, x.T)))
        width = float(policy.width) * math.sqrt(math.log(round + 2))
        bounds = special.expit(x @ estimate) + width * length
        assert bounds[action] >= bounds.max() * (1 - 1e-5)
        v = v + np.outer(x[action], x[action])
        xs.append(x[action])
        ys.append(reward)
        if np.linalg.det(v) > 1.1 * np.linalg.det(then):
            then, estimate = v, fitted(np.array(xs), np.array(ys), 3.0)
            estimate = estimate * min(1.0, 1.5 / float(np.linalg.norm(estimate)))


def test_the_width_by_hand() -> None:
    problem = Problem(
        dim=3, arms=5, norm=1.0, radius=2.0, low=0.0, high=1.0, horizon=5000, link="probit"
    )
    # κ is √(2π) e² and the greatest slope 1/√(2π): their product is e².
    expected = 2 * math.exp(2) * math.sqrt(3 + 2 * math.log(5 / 3))
    expected *= math.sqrt(6 * math.log(6 * 5000 / 0.02))
    assert GLMUCB.of(problem, mode="theory").width == pytest.approx(expected)
    assert GLMUCB.of(problem, mode="tuned").width == pytest.approx(0.3)
    assert GLMUCB.of(problem, mode="tuned", exploration=0.0).width == 0.0


def test_a_fit_is_remembered_with_its_own_matrix() -> None:
    policy = GLMUCB.of(LOGISTIC.problem(50), mode="tuned")
    start = policy.init({})
    now = dataclasses.replace(start, total=start.total + 7.0)
    fit = FitRelease(point=jnp.array([9.0, 0, 0]), count=jnp.int32(1), noise=jnp.float64(0))
    after = policy.update(now, "fit", fit)
    assert after.estimate.tolist() == [1.5, 0.0, 0.0]
    assert (after.fitted == 7).all()
    later = dataclasses.replace(after, total=after.total + 1.0)
    assert (later.fitted == 7).all()
    assert bool((start.fitted == 0).all())


@pytest.mark.nightly
def test_glm_ucb_beats_uniform_with_few_fits_that_never_stop(played: Played) -> None:
    world = make_environment(link="logistic", dim=3, arms=10, radius=2.0)
    short, long, uniform = (
        played(name, world, horizon)
        for name, horizon in (("glm-ucb", 200), ("glm-ucb", 1600), ("uniform", 1600))
    )
    assert long.regret[-1].mean() < 0.15 * uniform.regret[-1].mean()
    fits, cap = long.releases["fit"], GLMUCB.of(world.problem(1600)).loss.fits
    # The volume grows by about 8³ between 200 and 1600 users: ln(8³)/ln(1.1) is 65.
    assert (fits - short.releases["fit"] > 30).all()
    assert (fits < cap).all()
