"""One question a user on a sphere: numbers by hand, the parent without noise, what it learns."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Arms, Clock
from kerchief.core.convex import Ball, Box, Domain, Simplex
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import POLICY, REWARD, WORLD, Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments.context_free_convex import Absolute, Linear, Quadratic
from kerchief.policies import POLICIES, PrivacyBudget
from kerchief.policies.baselines import Anywhere, BestReport
from kerchief.policies.context_free.base import LOSS
from kerchief.policies.context_free.one_point import OnePoint, State
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.simulation import simulate

LOCAL = Guarantee(epsilon=4.0, delta=0.0, trust=Trust.LOCAL)


def made(name: str, problem: Any, mode: Any, channel: ReportDistribution) -> Any:
    """A bandit for what reports will be like."""
    return POLICIES[name].build(
        problem, mode, PrivacyBudget(epsilon=1.0, delta=0.0, trust="local", channel=channel)
    )


def test_radius_and_step_are_those_of_the_least_bound() -> None:
    problem = ContextFreeProblem(
        horizon=10_000, low=0.0, high=4.0, domain=Ball(dim=3, radius=2.0), lipschitz=1.5
    )
    made = OnePoint.of(problem, channel=ReportDistribution(low=None, high=None, spread=3.0))
    # R = r = 2, d v = 9, (2 + R/r) G = 4.5: ρ = √(18 / 4.5) / 10, η = 2 ρ / (9 · 100).
    assert made.radius == pytest.approx(0.2)
    assert made.step == pytest.approx(0.4 / 900)

    def bound(radius: float, step: float) -> float:
        return 2 / step + step * 10_000 * 81 / (2 * radius**2) + 4.5 * radius * 10_000

    best = bound(0.2, 0.4 / 900)
    for wide, fast in [(0.9, 1), (1.1, 1), (1, 0.9), (1, 1.1)]:
        assert bound(0.2 * wide, 0.4 / 900 * fast) > best


def test_falling_steps_minimize_the_bound_for_curved_losses() -> None:
    problem = ContextFreeProblem(
        horizon=10_000, low=0.0, high=4.0, domain=Ball(dim=3), lipschitz=2.0, convexity=0.5
    )
    made = OnePoint.curved(problem, channel=ReportDistribution(low=None, high=None, spread=0.1))
    # d v = 0.3, (2 + R/r) G = 6, α = 0.5: ρ³ = 0.09 ln T / 30000.
    radius = (0.09 * math.log(10_000) / 30_000) ** (1 / 3)
    assert made.radius == pytest.approx(radius)
    assert made.growth == 0.5

    def bound(first: float) -> float:
        square: float = 0.09 / radius**2
        return 0.25 * first + square * math.log1p(10_000 / first)

    first = 1 / float(made.step) / 0.5
    assert bound(first) < min(bound(0.9 * first), bound(1.1 * first))
    state = made.init({})
    after = made.learn(state, jnp.zeros((1, 3)), jnp.eye(3)[0], jnp.array([2.1]), jnp.int32(9))
    step = 1 / (0.5 * first + 0.5 * 10)
    np.testing.assert_allclose(after.point, [-step * 3 / radius * 0.1, 0, 0], rtol=1e-9)
    with pytest.raises(InvalidValueError, match="convexity"):
        OnePoint.curved(
            Absolute.of(domain=Ball(dim=2)).problem(9),
            channel=ReportDistribution.clear(low=0.0, high=1.0),
        )


def test_a_short_game_keeps_the_sphere_in_the_set() -> None:
    problem = ContextFreeProblem(horizon=2, low=0.0, high=1.0, domain=Simplex(dim=4), lipschitz=0.1)
    made = OnePoint.of(problem, channel=ReportDistribution(low=None, high=None, spread=50.0))
    assert made.radius == pytest.approx(Simplex(dim=4).inner / 2)


def test_arms_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="5 arms and no domain"):
        OnePoint.of(
            ContextFreeProblem(horizon=10, low=0.0, high=1.0, arms=5),
            channel=ReportDistribution.clear(low=0.0, high=1.0),
        )


def test_estimates_are_unbiased_for_any_subtracted_mean() -> None:
    world = Linear.of(domain=Simplex(dim=4), noise=0.0)
    policy = OnePoint.of(
        world.problem(10_000), channel=ReportDistribution.clear(low=-1.0, high=1.0)
    )
    truth = world.init(Stream.of(seed=1, replicate=0).at(WORLD))
    state = State(point=world.domain.center(), mean=jnp.float64(0.4))
    count = 16_000

    @jax.jit
    @jax.vmap
    def estimate(replicate: Array) -> Array:
        at = Stream.of(seed=7, replicate=replicate).at(POLICY)
        action = policy.propose(state, jnp.int32(5), at)
        losses = world.reward(truth, Arms.none(), action, Clock(round=jnp.int32(5), since={}), at)
        memo = policy.memo(state, action, jnp.int32(5))
        answer = policy.answer(action, losses)[None]
        after = policy.learn(state, action, memo, answer, jnp.int32(5))
        return (state.point - after.point) / policy.step

    found = np.asarray(estimate(jnp.arange(count, dtype=jnp.uint32)))
    error = (found.mean(0) - np.asarray(truth.slope)) / (found.std(0) / math.sqrt(count))
    assert np.abs(error).max() < 5


def test_without_noise_it_is_descent_on_the_sphere() -> None:
    rounds, dim, seed = 80, 3, Stream.of(seed=3, replicate=0)
    world = Absolute.of(domain=Ball(dim=dim))
    problem = world.problem(rounds)
    policy = OnePoint.of(problem, channel=ReportDistribution.clear(low=0.0, high=problem.high))
    truth = world.init(seed.at(WORLD))

    def turn(state: State, round: Array) -> tuple[State, tuple[Array, ...]]:
        action = policy.propose(state, round, seed.at(POLICY, round=round))
        losses = world.reward(
            truth, Arms.none(), action, Clock(round=round, since={}), seed.at(REWARD, round=round)
        )
        report = policy.queries[LOSS].encode(policy.answer(action, losses))
        direction = world.domain.direction(seed.at(POLICY, round=round))
        memo = policy.memo(state, action, round)
        after = policy.learn(state, action, memo, report, round)
        return after, (action[0], direction, losses[0])

    _, played = jax.lax.scan(turn, policy.init({}), jnp.arange(rounds))
    radius, step = float(policy.radius), float(policy.step)
    y, reports = np.zeros(dim), [problem.high / 2]
    for action, u, loss in zip(*(np.asarray(part) for part in played), strict=True):
        np.testing.assert_allclose(action, y + radius * u, atol=1e-10)
        assert np.linalg.norm(action) <= 1 + 1e-12
        y = y - step * dim / radius * (loss - np.mean(reports)) * u
        y = y * min(1.0, (1 - radius) / max(float(np.linalg.norm(y)), 1e-12))
        reports.append(loss)


@pytest.mark.parametrize("name", ["one-point", "one-point-curved", "two-point", "two-point-strong"])
@pytest.mark.parametrize("domain", [Simplex(dim=3), Ball(dim=2, radius=0.5)], ids=str)
def test_queries_stay_in_the_set_for_any_reports(name: str, domain: Domain) -> None:
    world = Quadratic.of(domain=domain)
    policy = made(name, world.problem(200), "tuned", ReportDistribution.clear(low=0.0, high=1.0))
    root = Stream.of(seed=8, replicate=0)

    def turn(state: State, round: Array) -> tuple[State, Array]:
        action = policy.propose(state, round, root.at(POLICY, round=round))
        report = 100 * root.at(REWARD, round=round).normal(1)
        memo = policy.memo(state, action, round)
        return policy.learn(state, action, memo, report, round), action

    _, actions = jax.jit(partial(jax.lax.scan, turn))(policy.init({}), jnp.arange(200))
    points = actions.reshape(-1, domain.dim)
    np.testing.assert_allclose(jax.jit(jax.vmap(domain.project))(points), points, atol=1e-12)
    edge = np.linalg.norm(points - domain.center(), axis=1).max()
    assert edge > 0.5 * domain.outer


def test_it_learns_from_protected_losses() -> None:
    world, horizon = Absolute.of(domain=Ball(dim=2)), 20_000
    protected = build_protected(
        "one-point", world.problem(horizon), Protection(guarantee=LOCAL), mode="tuned"
    )
    policy, privatizers = protected.policy, protected.privatizers
    run = simulate(
        policy=policy,
        privatizers=privatizers,
        environment=world,
        ledger=MemoryLedger(LOCAL),
        horizon=horizon,
        replicates=16,
        seed=11,
        ticks=1,
    )
    # The center is 0.5 away from the best point: 10,000 in all.
    assert run.regret[-1].mean() < 4_000
    assert run.spent.epsilon <= 4.0


@pytest.mark.parametrize(
    "domain",
    [
        Simplex(dim=3),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in (Ball(dim=2), Box(dim=2))),
    ],
)
def test_yardsticks_stay_in_the_set(domain: Domain) -> None:
    """Random points are spread over the set; greedy play ends at one of them."""
    problem = Absolute.of(domain=domain).problem(50)
    free, channel = Stream.of(seed=1, replicate=0), ReportDistribution.clear(low=0.0, high=1.0)
    uniform, greedy = (made(name, problem, "tuned", channel) for name in ("uniform", "greedy"))
    assert isinstance(uniform, Anywhere)
    assert isinstance(greedy, BestReport)
    assert uniform.queries == {}
    propose = jax.vmap(lambda i: uniform.propose((), jnp.int32(0), free.at(POLICY, round=i))[0])
    points = np.asarray(jax.jit(propose)(jnp.arange(200)))
    nearest = jax.jit(jax.vmap(domain.project))(points)
    np.testing.assert_allclose(points, nearest, atol=1e-9)
    assert points.std(0).min() > 0.1 * domain.outer
    state = greedy.init({})
    for round, report in enumerate((0.7, 0.2, 0.4)):
        action = jnp.asarray(points[round])[None]
        memo = greedy.memo(state, action, jnp.int32(round))
        state = greedy.learn(state, action, memo, jnp.asarray([report]), jnp.int32(round))
    late = greedy.propose(state, jnp.int32(30), free.at(POLICY, round=30))
    np.testing.assert_allclose(late[0], points[1])
    memo = greedy.memo(state, late, jnp.int32(30))
    later = greedy.learn(state, late, memo, jnp.asarray([0.0]), jnp.int32(30))
    np.testing.assert_allclose(greedy.recommend(later), points[1])
