"""Online LinUCB: gradients, two rounds by hand, the limit without noise, and sets that hold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock, Environment, NoiseInfo, Policy, Release, Tree
from kerchief.core.online import Descent, Doubling, Maler
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.environments import make_environment
from kerchief.policies.linear import online_paper
from kerchief.policies.linear.online import Model, OnlineLinUCB
from kerchief.policies.linear.pairs import Report
from kerchief.policies.registry import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privacy.printed import printed_epsilon, printed_std
from kerchief.privatizers import Protection, protect
from kerchief.simulation import simulate

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
PROBLEM = Problem(dim=2, arms=4, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=500)
SHARED = dataclasses.replace(PROBLEM, dim=3, low=0.0, constant=0.6)
CLOCK = Clock(round=jnp.int32(0), since={})


def reports(x: Floats, y: float, std: float, noisy: Floats, count: int) -> Report:
    rng = np.random.default_rng(2)
    return Report(
        features=jnp.asarray(x + std * noisy * rng.normal(size=(count, len(x)))),
        reward=jnp.asarray(y + std * rng.normal(size=count)),
        variance=jnp.full(count, std**2),
    )


@pytest.mark.parametrize("problem", [PROBLEM, SHARED])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_gradients_are_unbiased_but_for_the_ridge(problem: Problem, ridge: float) -> None:
    """To 5 standard errors; at the truth a ridge leaves twice itself times the truth."""
    policy = dataclasses.replace(OnlineLinUCB.of(problem), ridge=ridge)
    x = np.array([0.5, -0.3, 0.6])[: problem.dim]
    truth = np.array([0.4, 0.2, -0.5])[: problem.dim]
    drawn = reports(x, float(x @ truth), 0.8, policy.query.noisy, 40000)
    for point in (truth, -truth):
        slopes = jax.vmap(policy.gradient, in_axes=(0, None))(drawn, jnp.asarray(point))
        wanted = 2 * x * (x @ (point - truth)) + 2 * ridge * point
        values = np.asarray(slopes)
        error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
        assert (np.abs(values.mean(axis=0) - wanted) < 5 * error).all()
        assert error.max() < 0.03


def test_two_rounds_by_hand() -> None:
    policy = dataclasses.replace(
        OnlineLinUCB.of(PROBLEM), learner=Descent(radius=1.0, pace=4.0), exploration=3.0
    )
    state = policy.init({"pair": NoiseInfo(noisy=True)})
    first = Release(total=jnp.array([0.6, 0.8, 1.0]), count=jnp.int32(1), noise=jnp.float64(0.5))
    state = policy.update(state, "pair", first)
    # g = 2 x̃ (0 - 1); curvature 2 (1 + 2/4) = 3; rate 4/(1 + 12).
    point = np.array([0.6, 0.8]) * 2 * 4 / 13
    np.testing.assert_allclose(np.asarray(policy.learner.point(state.learner)), point)
    second = Release(
        total=jnp.array([1.6, 0.8, 0.5]), count=jnp.int32(2), noise=jnp.float64(math.sqrt(0.5))
    )
    state = policy.update(state, "pair", second)
    slope = 2 * (point[0] + 0.5) * np.array([1.0, 0.0]) - 2 * 0.25 * point
    np.testing.assert_allclose(
        np.asarray(policy.learner.point(state.learner)), point - 4 / 14 * slope
    )
    gram = np.array([[0.36, 0.48], [0.48, 0.64]]) + np.diag([1.0, 0.0])
    model = policy.publish(state)
    np.testing.assert_allclose(model.inverse, np.linalg.inv(np.eye(2) + gram), rtol=1e-6)
    estimate = np.linalg.solve(np.eye(2) + gram, [point[0], 0.0])
    np.testing.assert_allclose(model.estimate, estimate, rtol=1e-6)
    assert float(model.width) == pytest.approx(3 * (1 + 15 * 0.5), rel=1e-6)
    assert float(model.cap) == pytest.approx(1 + np.linalg.norm(estimate), rel=1e-6)
    assert float(state.distance) == pytest.approx(1 + (1 + np.linalg.norm(point)) ** 2)


def test_no_bonus_is_above_what_the_bounds_allow() -> None:
    policy = OnlineLinUCB.of(PROBLEM)
    arms = Arms(features=jnp.array([[1.0, 0.0], [0.0, 0.9]]), allowed=jnp.ones(2, bool))
    stream = Stream.of(seed=0, replicate=0)
    shape = jnp.diag(jnp.array([1.0, 4.0]))

    def chosen(width: float) -> int:
        model = Model(
            estimate=jnp.array([0.5, 0.0]),
            inverse=shape,
            width=jnp.float32(width),
            cap=jnp.float32(2.0),
        )
        return int(policy.act(model, arms, CLOCK, stream))

    # 0.5 + 1 against 1.8; with the cap at 2 for both, the estimate decides.
    assert (chosen(0.1), chosen(1.0), chosen(100.0)) == (0, 1, 0)


def test_without_noise_it_is_the_conversion_of_2012(turns: Turns) -> None:
    """V = I + Σ x xᵀ and the centre V⁻¹ Σ x ⟨x, θ_t⟩, θ_t of gradient descent on squares."""
    world = make_environment(dim=3, arms=6)
    policy = OnlineLinUCB.of(world.problem(60))
    assert isinstance(policy.learner, Descent)
    gram, moment, point = np.eye(3), np.zeros(3), np.zeros(3)
    for t, (x, action, reward, model) in enumerate(turns(policy, world, 60)):
        np.testing.assert_allclose(model.estimate, np.linalg.solve(gram, moment), atol=1e-5)
        played = x[action]
        gram += np.outer(played, played)
        moment += played * (played @ point)
        rate = policy.learner.pace / (t + 1 + 2 * policy.learner.pace)
        point = point - rate * 2 * played * (played @ point - reward)
        point /= max(1, np.linalg.norm(point))


TRUTH = np.array([0.6, -0.5])


def history(policy: OnlineLinUCB, std: float, seed: int, rounds: int) -> Tree:
    """The states after each of some noisy reports of random users."""
    truth = jnp.asarray(TRUTH)
    keys = jax.random.split(jax.random.key(seed), 2)
    x = jax.random.normal(keys[0], (rounds, 2), jnp.float64)
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    noise = std * jax.random.normal(keys[1], (rounds, 3), jnp.float64)
    totals = jnp.cumsum(jnp.column_stack([x, x @ truth]) + noise, axis=0)
    counts = jnp.arange(1, rounds + 1, dtype=jnp.int32)

    def take(state: Tree, given: tuple[jax.Array, jax.Array]) -> tuple[Tree, Tree]:
        noise = std * jnp.sqrt(given[1].astype(jnp.float64))
        release = Release(total=given[0], count=given[1], noise=noise)
        after = policy.update(state, "pair", release)
        return after, after

    first = policy.init({"pair": NoiseInfo(noisy=True)})
    return jax.lax.scan(take, first, (totals, counts))[1]


def played(policy: OnlineLinUCB, std: float, seed: int, rounds: int) -> Tree:
    """The state after the last of them."""
    return jax.tree.map(lambda leaf: leaf[-1], history(policy, std, seed, rounds))


@pytest.mark.parametrize("std", [0.1, 2.0])
def test_the_set_of_theory_mode_never_misses(std: float) -> None:
    policy = OnlineLinUCB.of(PROBLEM, mode="theory")
    play = jax.jit(lambda seed: policy.publish(played(policy, std, seed, 60)))
    for model in map(play, range(3)):
        gap = TRUTH - np.asarray(model.estimate, np.float64)
        square = gap @ np.linalg.solve(np.asarray(model.inverse, np.float64), gap)
        assert square <= float(model.width) ** 2


@pytest.mark.parametrize(
    "learner",
    [
        Descent(radius=1.0, pace=20.0),
        pytest.param(Maler(radius=1.0, rates=6), marks=pytest.mark.nightly),
        Doubling(learner=Descent(radius=1.0, pace=20.0)),
    ],
)
def test_every_learner_finds_the_truth_through_the_noise(learner: Tree) -> None:
    """The square of the noise alone would shrink the estimate to 1/(1 + 2 · 0.25) of the truth."""
    policy = dataclasses.replace(OnlineLinUCB.of(PROBLEM), learner=learner, length=4000.0)
    state = jax.jit(lambda seed: played(policy, 0.5, seed, 4000))(7)
    estimate = np.asarray(policy.publish(state).estimate)
    assert np.linalg.norm(estimate - TRUTH) < 0.2


def test_the_anytime_version_knows_no_horizon() -> None:
    short: Any
    long: Any
    short, long = (
        POLICIES["online-linucb-anytime"].build(
            dataclasses.replace(PROBLEM, horizon=horizon), "tuned"
        )
        for horizon in (10, 10**6)
    )
    assert dataclasses.replace(short, length=long.length) == long
    states = [policy.init({"pair": NoiseInfo(noisy=True)}) for policy in (short, long)]
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), *states))


def test_the_printed_constants() -> None:
    """Corollary C.1 at σ = 0.45 to 22.5 is what leaves Maler inert; the width is far above 2."""
    for delta, epsilon, bound in ((0.1, 0.2, 7.8e4), (0.1, 1.0, 3.3e3), (1e-5, 10.0, 189.0)):
        found = online_paper.printed_gradient_bound(
            std=printed_std(epsilon, delta), perturbation=0.0, radius=1.0, horizon=20000
        )
        assert found == pytest.approx(bound, rel=0.02)
    problem = dataclasses.replace(PROBLEM, dim=5, horizon=20000)
    policy = online_paper.PrintedLinUCB.build_with_budget(problem, 10.0, 0.1)
    model = jax.jit(lambda one: one.publish(one.init({"pair": NoiseInfo(noisy=True)})))(policy)
    # After 20000 users V is about 20000 (1/5 + σ²).
    assert float(model.width) / math.sqrt(20000 * (0.2 + 0.8**2)) > 20
    assert policy.ridge == 0
    # How far steps 2D/(G √t) lead in all, at ε = 1: the convex expert hardly leaves zero.
    inert = online_paper.PrintedLinUCB.build_with_budget(problem, 1.0, 0.1)
    assert 2 * inert.radius / inert.steepest * 2 * math.sqrt(20000) < 0.2
    assert (
        online_paper.PrintedLinUCB.build_with_budget(PROBLEM, 10.0, 0.1, least=0.1).ridge
        == 500**-0.25
    )


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds"),
    [(10.0, 0.1, 1e7), (10.0, 1e-5, 2e8), (1.0, 0.1, 1e11), (0.2, 0.1, 1.1e14)],
)
def test_printed_bound_beats_the_trivial_one_late(
    epsilon: float, delta: float, rounds: float
) -> None:
    """Theorem C.2 on the sum of squared distances, with an eigenvalue of 1/5, against 4T."""

    def bound(horizon: int) -> float:
        steepest = online_paper.printed_gradient_bound(
            std=printed_std(epsilon, delta), perturbation=0.0, radius=1.0, horizon=horizon
        )
        return online_paper.printed_square(
            steepest=steepest, convexity=0.4, radius=1.0, horizon=horizon
        )[1]

    assert bound(round(rounds)) < 4 * rounds
    assert bound(round(rounds / 2)) > 4 * rounds / 2


def test_printed_sums_have_what_the_perturbation_adds_on_average() -> None:
    """Lemma 3.3: Ṽ and ũ are of x + ζ + η; on average ζ adds Δ² I and Δ² θ_t for each user."""
    plain = online_paper.PrintedLinUCB.build_with_budget(PROBLEM, 10.0, 0.1)
    perturbed = dataclasses.replace(plain, ridge=0.5)
    release = Release(total=jnp.array([0.6, 0.8, 0.3]), count=jnp.int32(1), noise=jnp.float64(0.1))

    @jax.jit
    def sums(policy: OnlineLinUCB) -> tuple[jax.Array, jax.Array]:
        state = policy.init({"pair": NoiseInfo(noisy=True)})
        begun = policy.learner.begin(jnp.array([0.2, -0.4]), policy.length)
        after = policy.update(dataclasses.replace(state, learner=begun), "pair", release)
        return after.gram, after.moment

    (gram, moment), (wider, longer) = sums(plain), sums(perturbed)
    np.testing.assert_allclose(wider - gram, 0.5 * np.eye(2), atol=1e-12)
    np.testing.assert_allclose(longer - moment, [0.1, -0.2], atol=1e-12)


@pytest.mark.nightly
def test_printed_anytime_version_resets_sums_at_each_epoch() -> None:
    """Users 1 | 2, 3 | 4 to 7: sums are those of an epoch, constants those of 2^m users."""
    policy = online_paper.PrintedAnytime.build_with_budget(PROBLEM, 10.0, 0.1)
    states = jax.tree.map(np.asarray, jax.jit(lambda: history(policy, 0.0, 3, 7))())
    seen = [jax.tree.map(lambda leaf, user=user: leaf[user], states) for user in range(7)]
    traces = [float(jnp.trace(state.gram)) for state in seen]
    # Every report has length one, and ζ has the variance of the epoch's threshold, 2^(-m/4), twice.
    second, third = 1 + 2 * 2**-0.25, 1 + 2 * 4**-0.25
    sums = [0, second, 0, third, 2 * third, 3 * third, 0]
    np.testing.assert_allclose(traces, sums, atol=1e-12)
    assert [float(state.learner.length) for state in seen] == [2, 2, 4, 4, 4, 4, 8]
    point = policy.learner.point(seen[2].learner)
    np.testing.assert_array_equal(np.asarray(point), np.zeros(2))
    for users, state in ((2, seen[0]), (8, seen[6])):
        alone = online_paper.PrintedLinUCB.build_with_budget(
            dataclasses.replace(PROBLEM, horizon=users), 10.0, 0.1
        )
        fresh = alone.publish(alone.init({"pair": NoiseInfo(noisy=True)}))
        assert float(policy.publish(state).width) == pytest.approx(float(fresh.width), rel=1e-6)


def test_the_printed_noise_is_too_little() -> None:
    table = {
        (0.1, 2.0): (0.0, 0.479, 26.95),
        (0.1, 1.0): (0.0, 0.283, 17.86),
        (1e-5, 2.0): (0.190, 1.098, 16.10),
        (1e-5, 0.0): (0.130, 0.751, 10.39),
    }
    for (delta, reach), row in table.items():
        for epsilon, spent in zip((0.2, 1.0, 10.0), row, strict=True):
            assert printed_epsilon(epsilon, delta, reach) == pytest.approx(spent, abs=0.01)


@pytest.mark.nightly
def test_local_play_is_by_far_better_than_uniform() -> None:
    """On the paper's world at ε = 10: uniform play loses 0.47 a round, this less than 0.25."""
    world, horizon = make_environment(contexts="intercept", dim=5, arms=100), 2000
    policy = OnlineLinUCB.of(world.problem(horizon))
    promise = Guarantee(epsilon=10.0, delta=0.1, trust=Trust.LOCAL)
    guards = protect(policy, Protection(guarantee=promise, mechanism="gaussian"), horizon=horizon)
    run = simulate(
        policy=policy,
        privatizers=guards,
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=horizon,
        replicates=4,
        seed=3,
        ticks=1,
    )
    assert run.regret[-1].mean() < 0.25 * horizon
    assert run.spent.epsilon == pytest.approx(10.0, rel=1e-6)
