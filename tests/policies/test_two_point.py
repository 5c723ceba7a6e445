"""Two questions a user: steps by hand, the parent without noise, clipping, and what noise costs."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Arms, Clock
from kerchief.core.convex import Ball, Box
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import DEVICE, POLICY, REWARD, WORLD, Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments.context_free_convex import Absolute, ConvexWorld, Quadratic
from kerchief.policies import POLICIES, PrivacyBudget
from kerchief.policies.context_free.base import LOSS
from kerchief.policies.context_free.two_point import State, TwoPoint
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.simulation import Run, simulate

FREE = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)


def made(name: str, problem: Any, mode: Any, channel: ReportDistribution) -> Any:
    """A bandit for what reports will be like."""
    return POLICIES[name].build(
        problem, mode, PrivacyBudget(epsilon=1.0, delta=0.0, trust="local", channel=channel)
    )


def _local(epsilon: float) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=0.0, trust=Trust.LOCAL)


def _play(name: str, world: ConvexWorld, *, horizon: int, epsilon: float) -> Run:
    """With the same noise, whatever the bandit's own would be."""
    protection = Protection(guarantee=_local(epsilon), mechanism="best")
    protected = build_protected(name, world.problem(horizon), protection)
    return simulate(
        policy=protected.policy,
        privatizers=protected.privatizers,
        environment=world,
        ledger=MemoryLedger(_local(epsilon)),
        horizon=horizon,
        replicates=16,
        seed=11,
        ticks=1,
    )


def _game(dim: int = 4, horizon: int = 100) -> ContextFreeProblem:
    return Quadratic.of(domain=Ball(dim=dim)).problem(horizon)


CLEAR = ReportDistribution.clear(low=-2.0, high=2.0)
COIN = ReportDistribution(low=-3.0, high=3.0, spread=3.0)
NORMAL = ReportDistribution(low=None, high=None, spread=math.sqrt(2.0**2 + 5.0**2))


@pytest.mark.parametrize(
    ("channel", "square"),
    [
        (CLEAR, 4 * 2.0**2),  # d G²
        (COIN, 4**2 * 3.0**2),  # d² B²
        (NORMAL, 4 * 2.0**2 + 4**2 * 5.0**2),  # d G² + d² σ²
    ],
)
def test_steps_know_the_length_of_estimates(channel: ReportDistribution, square: float) -> None:
    assert TwoPoint.of(_game(), channel=channel).firmness == pytest.approx(math.sqrt(100 * square))
    strong = TwoPoint.strong(_game(), channel=channel)
    first = float(strong.firmness)
    assert strong.growth == 1.0
    assert first * (100 + first) == pytest.approx(100 * square)


def test_the_papers_steps_know_no_noise() -> None:
    assert TwoPoint.paper(_game()).firmness == 10.0
    assert (TwoPoint.strong_paper(_game()).firmness, TwoPoint.strong_paper(_game()).growth) == (
        0,
        1,
    )


@pytest.mark.parametrize(("dim", "half"), [(2, 0.7), (2, 5.0)])
def test_the_papers_questions_lie_at_the_printed_distance(dim: int, half: float) -> None:
    problem = Quadratic.of(domain=Box(dim=dim, half=half)).problem(100)
    for printed in (TwoPoint.paper(problem), TwoPoint.strong_paper(problem)):
        assert printed.radius == math.log(100) / 100
    assert TwoPoint.of(problem, channel=CLEAR).radius == pytest.approx(half * math.log(100) / 100)
    small = Quadratic.of(domain=Box(dim=dim, half=0.001)).problem(100)
    assert TwoPoint.paper(small).radius == 0.001


def test_games_without_a_domain_or_without_curvature_are_refused() -> None:
    arms = ContextFreeProblem(horizon=10, low=0.0, high=1.0, arms=3)
    with pytest.raises(InvalidValueError, match="3 arms and no domain"):
        TwoPoint.of(arms, channel=CLEAR)
    flat = Absolute.of(domain=Ball(dim=2)).problem(10)
    with pytest.raises(InvalidValueError, match="convexity is 0"):
        TwoPoint.strong(flat, channel=CLEAR)


@pytest.mark.parametrize("name", ["two-point@paper", "two-point-strong@paper"])
def test_without_noise_it_is_expected_gradient_descent(name: str) -> None:
    rounds, dim, half = 60, 3, 0.7
    world = Quadratic.of(domain=Box(dim=dim, half=half))
    policy = made(name, world.problem(rounds), "tuned", CLEAR)
    assert isinstance(policy, TwoPoint)
    root = Stream.of(seed=2, replicate=0)
    truth = world.init(root.at(WORLD))

    def turn(state: State, round: Array) -> tuple[State, tuple[Array, ...]]:
        action = policy.propose(state, round, root.at(POLICY, round=round))
        losses = world.reward(
            truth, Arms.none(), action, Clock(round=round, since={}), root.at(REWARD, round=round)
        )
        report = policy.queries[LOSS].encode(policy.answer(action, losses))
        direction = world.domain.direction(root.at(POLICY, round=round))
        user = truth.best + world.noise * world.domain.direction(root.at(REWARD, round=round))
        memo = policy.memo(state, action, round)
        return policy.learn(state, action, memo, report, round), (action, direction, user)

    _, played = jax.lax.scan(turn, policy.init({}), jnp.arange(rounds))
    actions, directions, users = (np.asarray(part) for part in played)

    # Printed is log T / T, whatever the set is.
    radius = math.log(rounds) / rounds
    y = np.zeros(dim)
    for t, (u, user) in enumerate(zip(directions, users, strict=True), start=1):
        x1, x2 = y + radius * u, y - radius * u
        np.testing.assert_allclose(actions[t - 1], [x1, x2], atol=1e-10)
        f1, f2 = ((x1 - user) ** 2).sum() / 2, ((x2 - user) ** 2).sum() / 2
        step = 1 / t if "strong" in name else 1 / math.sqrt(rounds)
        edge = (1 - radius / half) * half
        y = np.clip(y - step * dim / (2 * radius) * (f1 - f2) * u, -edge, edge)


@pytest.mark.parametrize("lies", [[1e12, -1e12], [-1e300, 1e300], [np.nan, 0.0], [np.inf, -np.inf]])
def test_lying_loss_function_cannot_push_report_beyond_its_bound(lies: list[float]) -> None:
    world = Quadratic.of(domain=Ball(dim=2))
    for guarantee in (FREE, _local(1.0)):
        protected = build_protected(
            "two-point", world.problem(100), Protection(guarantee=guarantee)
        )
        policy, privatizers = protected.policy, protected.privatizers
        assert isinstance(policy, TwoPoint)
        number = policy.answer(jnp.zeros((2, 2)), jnp.array(lies))
        privatizer = privatizers[LOSS]
        assert float(jnp.abs(privatizer.query.encode(number)).max()) <= 2.0
        at = Stream.of(seed=0, replicate=0).at(DEVICE)
        report = privatizer.randomize(number, Clock(round=jnp.int32(0), since={}), at)
        limit = 2.0 if guarantee is FREE else 2.0 / math.tanh(0.5)
        assert float(jnp.abs(report[0])) <= limit * (1 + 1e-6)


def test_slopes_of_close_points_keep_their_digits() -> None:
    """At a million rounds the two losses differ by some 1e-5: less than a float32 can tell."""
    world = Quadratic.of(domain=Ball(dim=3))
    policy = TwoPoint.of(world.problem(1_000_000), channel=CLEAR)
    root = Stream.of(seed=5, replicate=0)
    truth = world.init(root.at(WORLD))
    point = jnp.array([0.1, -0.3, 0.2])
    action = policy.propose(State(point=point), jnp.int32(0), root.at(POLICY))
    slope = policy.answer(
        action,
        world.reward(
            truth, Arms.none(), action, Clock(round=jnp.int32(0), since={}), root.at(REWARD)
        ),
    )
    user = truth.best + world.noise * world.domain.direction(root.at(REWARD))
    expected = (point - user) @ world.domain.direction(root.at(POLICY))
    assert float(slope) == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.nightly
def test_steps_that_know_the_noise_lose_a_third_at_most() -> None:
    world = Quadratic.of(domain=Ball(dim=5))
    known = _play("two-point", world, horizon=20_000, epsilon=1.0).regret[-1]
    printed = _play("two-point@paper", world, horizon=20_000, epsilon=1.0).regret[-1]
    assert printed.mean() > 3 * known.mean()


@pytest.mark.nightly
def test_with_strong_convexity_regret_hardly_grows() -> None:
    world = Quadratic.of(domain=Ball(dim=2))
    short = _play("two-point-strong", world, horizon=2_000, epsilon=4.0).regret[-1]
    long = _play("two-point-strong", world, horizon=20_000, epsilon=4.0).regret[-1]
    assert long.mean() < 2.5 * short.mean()
