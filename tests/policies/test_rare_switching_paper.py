"""The paper's own rule: its constants, and that it is for study alone."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import Start
from kerchief.core.errors import InvalidValue
from kerchief.environments import make_environment
from kerchief.policies import POLICIES, Terms
from kerchief.policies.glm.rare_switching import RarelySwitching
from kerchief.policies.glm.rare_switching_paper import LongSteps, ridge_of_the_paper
from kerchief.privacy import Guarantee, Trust
from kerchief.roles import Bandit

PROBLEM = make_environment(link="probit", dim=3, arms=20, radius=2.0).problem(5000)
STEEPEST = 1 / np.sqrt(2 * np.pi)


def rule(epsilon: float, delta: float = 0.02) -> RarelySwitching:
    make = POLICIES["glm@paper"].promised
    assert make is not None
    policy = make(PROBLEM, "tuned", Terms(epsilon=epsilon, delta=delta, trust="local"))
    assert isinstance(policy, RarelySwitching)
    return policy


@pytest.mark.parametrize(("epsilon", "ridge"), [(4.0, 232.8), (6.0, 165.6), (8.0, 131.9)])
def test_the_ridge_is_the_table_s(epsilon: float, ridge: float) -> None:
    assert float(rule(epsilon).ridge) == pytest.approx(ridge, rel=1e-3)
    assert float(rule(epsilon).factor) == pytest.approx(1.4108, rel=1e-4)


def test_less_promise_less_ridge() -> None:
    free = ridge_of_the_paper(
        epsilon=float("inf"), delta=0.02, horizon=5000, dim=3, steepest=STEEPEST
    )
    assert free == pytest.approx(0.75 * 3 * np.log(4 * 5000 / 0.02))
    assert float(rule(4.0, 1e-5).ridge) > float(rule(4.0).ridge)
    assert 1 <= rule(4.0).loss.fits <= 12


def test_long_steps_average_what_comes_after_the_first_ones() -> None:
    """On a quadratic, without noise: the mean of the last 40 iterates, written out."""
    start = Start(point=jnp.zeros(1), metric=jnp.eye(1), ridge=jnp.float64(0), radius=1e6)
    users = jnp.int32(100)
    found = LongSteps().descend(
        lambda point, i: 5 * (point - 1), start, users=users, noise=jnp.float64(0)
    )
    point, kept = 0.0, []
    for i in range(50):
        point -= 10 / np.sqrt(i + 1) * (0.05 * (point - 1) + 1e-5 * point)
        kept.append(point)
    assert float(found[0]) == pytest.approx(np.mean(kept[10:]), rel=1e-6)


def test_it_is_not_offered_for_deployment() -> None:
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.JOINT)
    with pytest.raises(InvalidValue, match="for study alone; choose 'glm'"):
        Bandit(policy="glm@paper", problem=PROBLEM, guarantee=promise)
