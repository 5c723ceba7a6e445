"""An interval that shrinks: numbers by hand, answers that come late, what it learns."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.convex import Ball, Simplex
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import POLICY, Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments.context_free_convex import Absolute
from kerchief.policies.context_free.line_search import LineSearch, State
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.simulation import simulate

PROBLEM = ContextFreeProblem(
    horizon=3, low=-1.0, high=1.0, domain=Ball(dim=1, radius=2.0), lipschitz=1.0
)
AT = Stream.of(seed=1, replicate=0).at(POLICY)


def told(policy: LineSearch, state: State, values: dict[float, float], users: int) -> State:
    """Answer so many questions by the value at the place that is asked about."""
    for round in range(users):
        action = policy.propose(state, jnp.int32(round), AT)
        memo = policy.memo(state, action, jnp.int32(round))
        report = jnp.array([values[round_to(float(action[0, 0]))]])
        state = policy.learn(state, action, memo, report, jnp.int32(round))
    return state


def round_to(place: float) -> float:
    return round(place, 6)


def test_levels_halve_and_the_worse_end_is_cut() -> None:
    """The first level is 4/8; with s = 1, ln T = 1.1 and p = 1 it asks 5 times each, then 18."""
    policy = LineSearch.of(
        PROBLEM, channel=ReportDistribution.clear(low=-1.0, high=1.0), patience=1.0
    )
    values = {-1.0: 0.3, 0.0: 0.0, 1.0: 1.0}
    first = policy.init({})
    assert float(first.level) == 0.5
    state = told(policy, first, values, 14)
    assert (float(state.level), float(state.right)) == (0.5, 2.0)
    state = told(policy, state, values, 1)
    # 1 - 0 is less than 1.5: look closer, and keep what was heard.
    assert (float(state.level), float(state.right), float(state.pulls.sum())) == (0.25, 2.0, 15)
    state = told(policy, state, values, 3 * 18 - 15)
    assert (float(state.left), float(state.right), int(state.cuts)) == (-2.0, 1.0, 1)
    assert (float(state.level), float(state.pulls.sum())) == (3 / 8, 0)
    np.testing.assert_allclose(policy.recommend(state), [-0.5])


def test_an_answer_about_an_interval_that_was_cut_is_left_out() -> None:
    policy = LineSearch.of(
        PROBLEM, channel=ReportDistribution.clear(low=-1.0, high=1.0), patience=1.0
    )
    state = policy.init({})
    action = policy.propose(state, jnp.int32(0), AT)
    memo = policy.memo(state, action, jnp.int32(0))
    later = told(policy, state, {-1.0: 0.3, 0.0: 0.0, 1.0: 1.0}, 54)
    assert int(later.cuts) == 1
    after = policy.learn(later, action, memo, jnp.array([1.0]), jnp.int32(54))
    assert float(after.pulls.sum()) == float(later.pulls.sum())


def test_theory_asks_as_often_as_its_means_need() -> None:
    policy = LineSearch.of(
        PROBLEM, channel=ReportDistribution.clear(low=-1.0, high=1.0), mode="theory"
    )
    assert policy.patience == 4
    heavy = ReportDistribution(low=None, high=None, spread=1.0, heavy=True)
    with pytest.raises(InvalidValueError, match="heavier"):
        LineSearch.of(PROBLEM, channel=heavy, mode="theory")
    with pytest.raises(InvalidValueError, match="3 dimensions"):
        LineSearch.of(
            Absolute.of(domain=Ball(dim=3)).problem(10),
            channel=ReportDistribution.clear(low=0.0, high=1.0),
        )


def test_line_search_learns_on_two_probabilities() -> None:
    world, horizon = Absolute.of(domain=Simplex(dim=2)), 8000
    promise = Guarantee(epsilon=4.0, delta=0.0, trust=Trust.LOCAL)
    made = build_protected("line-search", world.problem(horizon), Protection(guarantee=promise))
    run = simulate(
        policy=made.policy,
        privatizers=made.privatizers,
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=horizon,
        replicates=16,
        seed=11,
        ticks=1,
    )
    # The center is 0.35 away from the best point: 2800 in all.
    assert run.regret[-1].mean() < 1000
