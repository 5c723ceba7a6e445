"""The rule of the author's code: its constants, its noise, and that it is for study alone."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import Start
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import get_link
from kerchief.deployment import Bandit
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.policies import POLICIES, PrivacyBudget
from kerchief.policies.glm.rare_switching import RarelySwitching
from kerchief.policies.glm.rare_switching_author_code import (
    LongSteps,
    code_rho,
    code_ridge,
    code_steps,
)
from kerchief.privacy import Guarantee, Trust
from kerchief.privatizers import Protection

PROBLEM = make_environment(link="probit", dim=3, arms=20, radius=2.0).problem(5000)
STEEPEST = 1 / np.sqrt(2 * np.pi)


def rule(epsilon: float, delta: float = 0.02) -> RarelySwitching:
    make = POLICIES["glm@author-code"].build_with_budget
    assert make is not None
    policy = make(PROBLEM, "tuned", PrivacyBudget(epsilon=epsilon, delta=delta, trust="local"))
    assert isinstance(policy, RarelySwitching)
    return policy


@pytest.mark.parametrize(("epsilon", "ridge"), [(4.0, 232.8), (6.0, 165.6), (8.0, 131.9)])
def test_ridge_is_that_of_the_code(epsilon: float, ridge: float) -> None:
    assert float(rule(epsilon).ridge) == pytest.approx(ridge, rel=1e-3)
    assert float(rule(epsilon).factor) == pytest.approx(1.4108, rel=1e-4)


def test_matrix_has_the_printed_weight() -> None:
    """No constant is fitted to Table 2: 1/e is that of Algorithm 2 and of the code."""
    assert rule(4.0).shrink == np.exp(-1.0)
    assert rule(4.0).weighing == "flat"


@pytest.mark.parametrize(
    ("link", "radius", "dim", "horizon", "explores"),
    [
        ("probit", 2.0, 3, 5000, False),
        ("probit", 3.0, 3, 5000, False),
        ("logistic", 3.5, 5, 15_000, False),
        ("probit", 3.0, 5, 5000, False),
        ("probit", 3.25, 3, 5000, True),
    ],
)
def test_ridge_alone_meets_criterion_one_where_the_paper_plays(
    link: str, radius: float, dim: int, horizon: int, explores: bool
) -> None:
    """A unit arm has ‖x‖² = 1/λ at first; the code explores above 1/(0.01 κ S² d)."""
    slopes = get_link(link)
    ridge = code_ridge(
        epsilon=8.0, delta=0.02, horizon=horizon, dim=dim, steepest=slopes.steepest(radius)
    )
    assert (ridge < 0.01 * slopes.kappa(radius) * radius**2 * dim) == explores


def test_ridge_falls_with_a_weaker_guarantee() -> None:
    free = code_ridge(epsilon=float("inf"), delta=0.02, horizon=5000, dim=3, steepest=STEEPEST)
    assert free == pytest.approx(0.75 * 3 * np.log(4 * 5000 / 0.02))
    assert float(rule(4.0, 1e-5).ridge) > float(rule(4.0).ridge)
    assert 1 <= rule(4.0).loss.fits <= 12


@pytest.mark.parametrize(
    ("epsilon", "fits", "steps"),
    [(1.0, 5, 15), (4.0, 8, 25), (8.0, 5, 50), (8.0, 2, 75), (50.0, 5, 100), (12.0, 11, 25)],
)
def test_steps_follow_the_epsilon_of_one_fit(epsilon: float, fits: int, steps: int) -> None:
    """Up to ten fits divide a third of ε; eleven leave 0.255 of 4, by advanced composition."""
    assert code_steps(epsilon=epsilon, delta=0.02, fits=fits) == steps


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_tree_has_the_noise_of_the_code(epsilon: float) -> None:
    """A node has μ'(0)/√(2ρ/m) there; here sums of weights within 1 are taken times μ'(0)/e."""
    promise = Guarantee(epsilon=epsilon, delta=0.02, trust=Trust.JOINT)
    made = build_protected("glm@author-code", PROBLEM, Protection(guarantee=promise))
    (tree,) = made.privatizers["curvature"].noises
    assert isinstance(tree, ContinualNoise)
    levels = 13  # of 5000 users; with one level more for the same ρ the code has 14
    node = STEEPEST * np.sqrt(levels / (2 * code_rho(epsilon / 3, 0.02 / 3)))
    assert float(tree.std) * STEEPEST / np.e == pytest.approx(node, rel=1e-6)


def test_long_steps_average_what_comes_after_the_first_ones() -> None:
    """On a quadratic, from half of the last estimate: the mean of the last 40, written out."""
    start = Start(point=jnp.full(1, 0.4), metric=jnp.eye(1), ridge=jnp.float64(0), radius=1e6)
    users = jnp.int32(100)
    found = LongSteps(steps=50).descend(
        lambda point, i: 5 * (point - 1), start, users=users, noise=jnp.float64(0)
    )
    point, kept = 0.2, []
    for i in range(50):
        point -= 10 / np.sqrt(i + 1) * (0.05 * (point - 1) + 2e-5 * point)
        kept.append(point)
    assert float(found[0]) == pytest.approx(np.mean(kept[10:]), rel=1e-6)


def test_it_is_not_offered_for_deployment() -> None:
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.JOINT)
    with pytest.raises(InvalidValueError, match="for study alone; choose 'glm'"):
        Bandit(policy="glm@author-code", problem=PROBLEM, guarantee=promise)
