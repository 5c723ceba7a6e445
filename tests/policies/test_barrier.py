"""One question a user on ellipsoids: numbers by hand, minima, points in the set, what it learns."""

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
from kerchief.core.random import POLICY, WORLD, Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments.context_free_convex import Absolute, Quadratic
from kerchief.policies import POLICIES, PrivacyBudget
from kerchief.policies.context_free.barrier import Barrier, State
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.simulation import simulate

LOCAL = Guarantee(epsilon=4.0, delta=0.0, trust=Trust.LOCAL)
CLEAR = ReportDistribution.clear(low=0.0, high=2.0)


def made(name: str, problem: Any, mode: Any, channel: ReportDistribution) -> Any:
    """A bandit for what reports will be like."""
    return POLICIES[name].build(
        problem, mode, PrivacyBudget(epsilon=1.0, delta=0.0, trust="local", channel=channel)
    )


def _game(*, smoothness: float, convexity: float = 0.0) -> ContextFreeProblem:
    return ContextFreeProblem(
        horizon=10_000,
        low=0.0,
        high=4.0,
        domain=Ball(dim=3, radius=2.0),
        lipschitz=1.5,
        smoothness=smoothness,
        convexity=convexity,
    )


def test_numbers_are_those_of_the_least_bounds() -> None:
    channel, logs = ReportDistribution(low=None, high=None, spread=3.0), math.log(10_000)
    smooth = Barrier.smooth(_game(smoothness=2.0), channel=channel)

    def bound(radius: float, step: float) -> float:
        return logs / step + 2 * step * 81 * 10_000 / radius**2 + 1.5 * 2 * 4 * radius**2 * 10_000

    radius, step = float(smooth.radius), float(smooth.step)
    best = bound(radius, step)
    for wide, fast in [(0.95, 1), (1.05, 1), (1, 0.95), (1, 1.05), (1.01, 1.01), (0.99, 0.99)]:
        assert bound(radius * wide, step * fast) > best

    strong = Barrier.strong(_game(smoothness=2.0, convexity=0.5), channel=channel)
    assert strong.radius == 1.0
    assert strong.step == pytest.approx(math.sqrt((1 + 1.5 * 4) * logs / 20_000) / 9)
    assert strong.growth == pytest.approx(0.5 * float(strong.step))


def test_losses_that_promise_too_little_are_refused() -> None:
    flat = Absolute.of(domain=Ball(dim=2)).problem(10)
    with pytest.raises(InvalidValueError, match="smoothness is 0"):
        Barrier.smooth(flat, channel=CLEAR)
    with pytest.raises(InvalidValueError, match="convexity is 0"):
        Barrier.strong(_game(smoothness=1.0), channel=CLEAR)
    heavy = ReportDistribution(low=None, high=None, spread=2.0, heavy=True)
    for name in ("one-point-smooth", "one-point-strong"):
        with pytest.raises(InvalidValueError, match="heavier"):
            made(name, _game(smoothness=1.0, convexity=1.0), "theory", heavy)


@pytest.mark.parametrize("name", ["one-point-smooth", "one-point-strong"])
def test_estimates_are_right_on_average(name: str) -> None:
    """A quadratic's mean slope over an ellipsoid is its slope in the middle."""
    world = Quadratic.of(domain=Simplex(dim=4), noise=0.0)
    policy = made(name, world.problem(10_000), "tuned", CLEAR)
    assert isinstance(policy, Barrier)
    truth = world.init(Stream.of(seed=1, replicate=0).at(WORLD))
    place = jnp.array([0.1, -0.05, 0.02])
    state = State(place=place, pull=jnp.zeros(3), mean=jnp.float64(0.05))
    # JAX 0.10.2 computes rows beyond 2**14 of this batch wrongly on aarch64.
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
        return (after.pull + policy.growth * place) / policy.step

    found = np.asarray(estimate(jnp.arange(count, dtype=jnp.uint32)))
    slope = np.asarray(world.domain.basis().T @ (policy.recommend(state) - truth.best))
    error = (found.mean(0) - slope) / (found.std(0) / math.sqrt(count))
    assert np.abs(error).max() < 5


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("one-point-smooth", Box(dim=2, half=0.5)),
        pytest.param("one-point-strong", Ball(dim=2), marks=pytest.mark.nightly),
        ("one-point-strong", Simplex(dim=3)),
    ],
)
def test_points_stay_in_the_set_and_the_leader_is_followed(name: str, domain: Domain) -> None:
    """Under reports that pull to the boundary for ever, far beyond any loss."""
    rounds = 400
    world = Quadratic.of(domain=domain)
    policy = made(name, world.problem(rounds), "tuned", CLEAR)
    assert isinstance(policy, Barrier)
    root = Stream.of(seed=4, replicate=0)
    drift = domain.direction(root.at(WORLD))

    def turn(state: State, round: Array) -> tuple[State, Array]:
        action = policy.propose(state, round, root.at(POLICY, round=round))
        report = 5 * (drift @ (action[0] - domain.center()))[None]
        memo = policy.memo(state, action, round)
        return policy.learn(state, action, memo, report, round), action[0]

    last, actions = jax.jit(partial(jax.lax.scan, turn))(policy.init({}), jnp.arange(rounds))
    np.testing.assert_allclose(jax.jit(jax.vmap(domain.project))(actions), actions, atol=1e-9)

    growth, basis = float(policy.growth) * rounds, domain.basis()

    def objective(place: Array) -> Array:
        linear: Array = (last.pull * place + growth / 2 * place**2).sum()
        return linear + domain.barrier(domain.center() + basis @ place)

    slope = np.asarray(jax.jit(jax.grad(objective))(last.place))
    bend = np.asarray(jax.jit(jax.hessian(objective))(last.place))
    # The Newton decrement: what is left to the minimum is about half its square.
    assert math.sqrt(slope @ np.linalg.solve(bend, slope)) < 1e-2


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("one-point-smooth", Box(dim=3)),
        ("one-point-strong", Ball(dim=3)),
        ("one-point-strong", Simplex(dim=3)),
        ("one-point-strong", Simplex(dim=6)),
    ],
)
def test_proposals_stay_in_the_set_from_its_boundary(name: str, domain: Domain) -> None:
    """From places as near to it as the policy goes, where rounding has most to hide."""
    policy = made(name, Quadratic.of(domain=domain).problem(400), "tuned", CLEAR)
    assert isinstance(policy, Barrier)
    root = Stream.of(seed=8, replicate=0)

    @jax.jit
    @jax.vmap
    def propose(round: Array, share: Array) -> Array:
        far = domain.center() + 3 * domain.direction(root.at(WORLD, round=round))
        place = domain.basis().T @ (domain.project(far, share) - domain.center())
        state = State(place=place, pull=jnp.zeros(domain.rank), mean=jnp.float64(1.0))
        return policy.propose(state, jnp.int32(0), root.at(POLICY, round=round))[0]

    rooms = jnp.geomspace(1e-6, 1e-2, 2000)
    actions = propose(jnp.arange(len(rooms), dtype=jnp.int32), 1 - rooms)
    assert np.isfinite(actions).all()
    np.testing.assert_allclose(jax.jit(jax.vmap(domain.project))(actions), actions, atol=1e-12)


@pytest.mark.nightly
def test_curvature_pays() -> None:
    """At 10,000 rounds the learner of strongly convex losses loses less than the smooth one."""
    world, horizon = Quadratic.of(domain=Ball(dim=2)), 10_000
    lost = {}
    for name in ("one-point-smooth", "one-point-strong"):
        protected = build_protected(
            name, world.problem(horizon), Protection(guarantee=LOCAL), mode="theory"
        )
        policy, privatizers = protected.policy, protected.privatizers
        lost[name] = simulate(
            policy=policy,
            privatizers=privatizers,
            environment=world,
            ledger=MemoryLedger(LOCAL),
            horizon=horizon,
            replicates=8,
            seed=11,
            ticks=1,
        ).regret[-1]
    # The center is 0.5 away from the best point: 1,250 in all.
    assert lost["one-point-smooth"].mean() < 600
    assert lost["one-point-strong"].mean() < 0.75 * lost["one-point-smooth"].mean()
