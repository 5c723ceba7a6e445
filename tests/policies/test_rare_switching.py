"""The rarely switching bandit: when it fits, what it asks, and how Criterion I plays."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import Arms, Clock, FitRelease, NoiseInfo, Release
from kerchief.core.linalg import svec
from kerchief.core.precision import double_precision
from kerchief.core.random import Stream
from kerchief.deployment.round import Carry, Round
from kerchief.environments import make_environment
from kerchief.policies.glm.rare_switching import RarelySwitching, State
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import simulate

WORLD = make_environment(link="probit", dim=2, arms=4, radius=1.5)
NOW = Clock(round=jnp.int32(9), since={})
due, publish = jax.jit(RarelySwitching.due), jax.jit(RarelySwitching.publish)
COINS = Stream.of(seed=0, replicate=0)


def bandit(*, explore: bool = False, **numbers: Any) -> RarelySwitching:
    policy = RarelySwitching.of(WORLD.problem(1000), explore=explore)
    return dataclasses.replace(policy, **numbers)


@partial(jax.jit, static_argnames="noisy")
def begun(policy: RarelySwitching, *, noisy: bool = False) -> State:
    return policy.init({name: NoiseInfo(noisy=noisy) for name in policy.queries})


@jax.jit
def shown(policy: RarelySwitching, state: State, *grams: Any, noise: float = 0.0) -> State:
    total = jnp.concatenate([svec(jnp.asarray(gram, jnp.float64)) for gram in grams])
    release = Release(total=total, count=jnp.int32(10), noise=jnp.float64(noise))
    return policy.update(state, "curvature", release)


@partial(jax.jit, static_argnames="name")
def fitted(policy: RarelySwitching, state: State, name: str, point: Any) -> State:
    release = FitRelease(point=jnp.asarray(point), count=jnp.int32(10), noise=jnp.float64(0))
    return policy.update(state, name, release)


def test_a_fit_is_due_when_one_direction_has_grown_by_the_factor() -> None:
    policy = bandit(ridge=1.0, factor=2.0, steepest=1.0)
    state = begun(policy)
    assert not due(policy, state, NOW)["fit"]
    grown = shown(policy, state, np.diag([0.9, 0.9]))
    assert not due(policy, grown, NOW)["fit"]
    grown = shown(policy, state, np.diag([0.0, 1.1]))
    assert due(policy, grown, NOW)["fit"]
    anchored = fitted(policy, grown, "fit", [0.1, 0.2])
    assert not due(policy, anchored, NOW)["fit"]
    # Twice of 1 + 1.1 is 4.2: one direction may grow to 3.2, and not beyond.
    assert not due(policy, shown(policy, anchored, np.diag([0.5, 3.1])), NOW)["fit"]
    assert due(policy, shown(policy, anchored, np.diag([0.5, 3.3])), NOW)["fit"]


def test_volume_counts_all_directions_together() -> None:
    policy = bandit(ridge=1.0, factor=2.0, steepest=1.0, growth="volume")
    state = begun(policy)
    assert not due(policy, shown(policy, state, np.diag([0.9, 0.0])), NOW)["fit"]
    assert due(policy, shown(policy, state, np.diag([0.9, 0.1])), NOW)["fit"]


def test_a_direction_grows_by_noise_alone_where_the_volume_waits() -> None:
    """The one wants a fit as soon as some direction looks long, though another looks negative."""
    shaken = np.diag([5.0, -3.0])
    for growth, wanted in (("direction", True), ("volume", False)):
        policy = bandit(ridge=1.0, factor=2.0, steepest=1.0, growth=growth)
        state = shown(policy, begun(policy, noisy=True), shaken)
        assert bool(due(policy, state, NOW)["fit"]) is wanted


def test_gram_matrix_of_last_fit_is_a_copy() -> None:
    """The matrix of the last fit does not follow the matrix of today."""
    policy = bandit(ridge=1.0, factor=2.0, steepest=1.0)
    state = fitted(policy, shown(policy, begun(policy), np.eye(2)), "fit", [0.0, 0.0])
    before = np.array(state.fit.gram)
    for size in (2.0, 4.0, 8.0):
        state = shown(policy, state, size * np.eye(2))
    assert (np.asarray(state.fit.gram) == before).all()
    assert due(policy, state, NOW)["fit"]


def test_a_fit_begins_at_the_last_estimate_in_a_positive_metric() -> None:
    policy = bandit()
    state = shown(policy, begun(policy, noisy=True), np.diag([-50.0, 9.0]), noise=3.0)
    state = fitted(policy, state, "fit", [0.3, -0.2])
    start = policy.request(state, "fit")
    assert start is not None
    assert np.asarray(start.point) == pytest.approx([0.3, -0.2])
    assert (np.linalg.eigvalsh(np.asarray(start.metric)) > 0).all()
    assert policy.request(state, "curvature") is None


def test_estimates_stay_in_the_ball() -> None:
    policy = bandit()
    state = fitted(policy, begun(policy), "fit", [30.0, 40.0])
    assert np.asarray(state.fit.estimate) == pytest.approx([0.9, 1.2])


def test_users_count_by_their_slope_or_as_one() -> None:
    arms = Arms(features=jnp.eye(4, 2, dtype=jnp.float32), allowed=jnp.ones(4, bool))
    for weighing, weight in (("slope", np.exp(-0.5)), ("flat", 1.0)):
        policy = bandit(weighing=weighing)
        state = fitted(policy, begun(policy), "fit", [1.0, 0.0])
        record = policy.record(publish(policy, state), arms, jnp.int32(0), jnp.float32(1.0))
        assert float(record["curvature"].weight) == pytest.approx(weight, rel=1e-6)


def test_criterion_1_plays_widest_arm_and_reports_to_its_block() -> None:
    policy = bandit(explore=True, threshold=0.5, ridge=1.0)
    state = begun(policy)
    x = jnp.array([[0.9, 0.0], [0.0, 0.3], [0.1, 0.1], [0.99, 0.0]], jnp.float32)
    arms = Arms(features=x, allowed=jnp.array([True, True, True, False]))
    model = publish(policy, state)
    action = policy.act(model, arms, NOW, COINS)
    assert int(action) == 0
    record = policy.record(model, arms, action, jnp.float32(1.0))
    assert np.asarray(record["curvature"].weight).tolist() == [0.0, 1.0]
    assert np.asarray(record["warm"].features) == pytest.approx([0.9, 0.0])
    known = shown(policy, state, np.zeros((2, 2)), 100 * np.eye(2))
    model = publish(policy, known)
    record = policy.record(model, arms, jnp.int32(1), jnp.float32(1.0))
    assert float(np.asarray(record["curvature"].weight)[1]) == 0.0
    assert np.asarray(record["warm"].features).tolist() == [0.0, 0.0]


def test_disjoint_fits_leave_explorers_out() -> None:
    """As Lemma J.7 has it; a row without features has no gradient and no curvature."""
    x = jnp.array([[0.9, 0.0], [0.0, 0.3]], jnp.float32)
    arms = Arms(features=x, allowed=jnp.ones(2, bool))
    others, explorers = np.diag([2.0, 3.0]), np.diag([5.0, 7.0])
    for disjoint in (False, True):
        policy = bandit(explore=True, threshold=0.5, ridge=1.0, disjoint=disjoint)
        exploring = publish(policy, begun(policy))
        kept = policy.record(exploring, arms, jnp.int32(0), jnp.float32(1.0))["fit"].features
        assert np.asarray(kept) == pytest.approx([0.0, 0.0] if disjoint else [0.9, 0.0])
        state = shown(policy, begun(policy), others, explorers)
        played = policy.record(publish(policy, state), arms, jnp.int32(1), jnp.float32(1.0))
        assert np.asarray(played["fit"].features) == pytest.approx([0.0, 0.3])
        start = policy.request(state, "fit")
        assert start is not None
        fitted_to = others if disjoint else others + explorers
        curvature = policy.steepest * fitted_to + np.eye(2)
        np.testing.assert_allclose(start.metric, curvature, rtol=1e-6)


def test_the_warm_estimate_rules_out_arms() -> None:
    policy = bandit(explore=True, threshold=0.5, warm_width=1.0, width=1e3)
    state = shown(policy, begun(policy), np.zeros((2, 2)), 1e4 * np.eye(2))
    state = fitted(policy, state, "warm", [1.0, 0.0])
    x = jnp.array([[0.9, 0.0], [-0.9, 0.4], [0.88, 0.1], [0.0, 0.0]], jnp.float32)
    arms = Arms(features=x, allowed=jnp.ones(4, bool))
    # Without being ruled out, the widest arm would win at this width.
    assert int(policy.act(publish(policy, state), arms, NOW, COINS)) in (0, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("explore", [False, True])
def test_fits_are_few_and_go_on(explore: bool) -> None:
    """O(d log T) fits: more of them on longer runs, and never one that freezes."""
    fits = {}
    policy = RarelySwitching.of(WORLD.problem(800), explore=explore)
    policy = dataclasses.replace(policy, loss=dataclasses.replace(policy.loss, fits=40))
    for horizon in (100, 800):
        free = Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE)
        run = simulate(
            policy=policy,
            privatizers=protect(policy, Protection(guarantee=free), horizon=horizon),
            environment=WORLD,
            ledger=MemoryLedger(free),
            horizon=horizon,
            replicates=4,
            seed=3,
            ticks=1,
        )
        fits[horizon] = run.releases["fit"]
    assert (fits[100] >= 2).all()
    assert (fits[800] > fits[100]).all()
    assert fits[800].max() < policy.loss.fits


def test_a_run_pays_for_all_the_fits_that_it_may_ask_for() -> None:
    policy = RarelySwitching.of(WORLD.problem(200))
    promise = Guarantee(epsilon=2.0, delta=1e-5, trust=Trust.JOINT)
    ledger = MemoryLedger(promise)
    run = simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=200),
        environment=WORLD,
        ledger=ledger,
        horizon=200,
        replicates=4,
        seed=3,
        ticks=1,
    )
    assert [receipt.used for receipt in ledger.receipts] == [1, policy.loss.fits]
    assert run.spent.epsilon == pytest.approx(2.0, rel=1e-6)


@double_precision
@pytest.mark.parametrize(("standing", "fewest", "most"), [(1.0, 60, 400), (-1.0, 0, 30)])
def test_explorers_go_on_until_they_stand_out_from_the_noise(
    standing: float, fewest: int, most: int
) -> None:
    """A ridge as large as the noise asks for must not pass for knowledge (-1: it does)."""
    horizon = 600
    policy = RarelySwitching.of(WORLD.problem(horizon), explore=True)
    policy = dataclasses.replace(policy, standing=standing)
    promise = Guarantee(epsilon=4.0, delta=1e-5, trust=Trust.JOINT)
    privatizers = protect(policy, Protection(guarantee=promise), horizon=horizon)
    round, root = Round(policy=policy, privatizers=privatizers), Stream.of(seed=4, replicate=0)
    world = WORLD.init(root.at(1))

    def play(carry: Carry, now: jax.Array) -> tuple[Carry, jax.Array]:
        clock = round.clock(carry, now)
        arms = WORLD.arms(world, clock, root.at(2, round=now))
        explores = policy.explores(carry.model, arms)
        action = round.act(carry.model, arms, clock, root)
        reward = WORLD.reward(world, arms, action, clock, root.at(3, round=now))
        return round.learn(carry, arms, action, reward, now, root), explores

    rounds = jnp.arange(horizon, dtype=jnp.int32)
    explored = jax.jit(lambda: jax.lax.scan(play, round.begin(), rounds)[1])()
    assert fewest <= int(explored.sum()) <= most
    # They come first: the matrix of explorers only grows.
    assert int(explored[horizon // 2 :].sum()) <= int(explored[: horizon // 2].sum())


def test_widths_of_the_theorem_explore_for_millions_of_rounds() -> None:
    """A threshold of 2e-7 on ‖x‖² in V⁻¹ needs five million explorers in each direction."""
    problem = make_environment(link="probit", dim=3, arms=20, radius=2.0).problem(5000)
    policy = RarelySwitching.of(problem, mode="theory", explore=True)
    assert float(policy.threshold) == pytest.approx(2.15e-7, rel=0.01)
