"""LinUCB: small examples by hand, its widths, and its non-private parent.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock, NoiseInfo, Release
from kerchief.core.linalg import svec
from kerchief.core.problems import Problem
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.environments import make_environment
from kerchief.policies.ellipsoid import Model, State
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.registry import Mode

Floats = NDArray[np.float64]
ROOT = Stream.of(seed=2, replicate=0)
CLOCK = Clock(round=jnp.int32(0), since={})
PROBLEM = Problem(dim=2, arms=3, norm=1.0, radius=2.0, low=-1.0, high=1.0, horizon=100)


def policy(mode: Mode = "theory", problem: Problem = PROBLEM, **numbers: Any) -> LinUCB:
    return dataclasses.replace(LinUCB.of(problem, mode=mode), **numbers)


def state(
    gram: list[list[float]], moment: list[float], *, count: int = 0, noise: float = 0
) -> State:
    total = jnp.concatenate([svec(jnp.array(gram)), jnp.array(moment)])
    return State(total=total, count=jnp.int32(count), noise=jnp.float64(noise), noisy=noise > 0)


def test_before_any_user_it_knows_nothing() -> None:
    learner = policy(regularizer=4.0)
    model = learner.publish(learner.init({"moments": NoiseInfo(noisy=False)}))
    assert model.estimate.tolist() == [0.0, 0.0]
    assert model.inverse.tolist() == [[0.25, 0.0], [0.0, 0.25]]
    assert float(model.width) == pytest.approx(math.sqrt(2 * math.log(3 / 0.05)) + 2 * 2, rel=1e-6)


def test_the_estimate_by_hand() -> None:
    model = policy(regularizer=1.0).publish(state([[2.0, 1.0], [1.0, 2.0]], [1.0, 0.0], count=3))
    # The inverse of ((3, 1), (1, 3)) is ((3, -1), (-1, 3)) / 8.
    np.testing.assert_allclose(np.asarray(model.inverse), [[3 / 8, -1 / 8], [-1 / 8, 3 / 8]])
    np.testing.assert_allclose(np.asarray(model.estimate), [3 / 8, -1 / 8], rtol=1e-6)


def test_the_action_by_hand() -> None:
    model = Model(
        estimate=jnp.array([1.0, 0.0]),
        inverse=jnp.diag(jnp.array([0.01, 1.0])),
        width=jnp.array(2.0),
    )
    features = jnp.array([[1.0, 0.0], [0.0, 0.5], [0.0, 1.0]])
    # Bounds: 1 + 2 · 0.1 = 1.2, then 2 · 0.5 = 1, then 2.
    learner = policy()
    for allowed, best in (([1, 1, 1], 2), ([1, 1, 0], 0), ([0, 1, 0], 1)):
        arms = Arms(features=features, allowed=jnp.array(allowed, bool))
        assert int(learner.act(model, arms, CLOCK, ROOT)) == best
    greedy = dataclasses.replace(model, width=jnp.array(0.0))
    arms = Arms(features=features, allowed=jnp.ones(3, bool))
    assert int(learner.act(greedy, arms, CLOCK, ROOT)) == 0


@pytest.mark.parametrize("count", [0, 1, 250])
def test_without_noise_the_width_is_ofuls(count: int) -> None:
    learner = policy(regularizer=0.5, radius=2.0, spread=0.7, confidence=0.1)
    model = learner.publish(state([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], count=count))
    log_det = 2 * math.log(1 + count / (2 * 0.5))
    expected = 0.7 * math.sqrt(2 * math.log(3 / 0.1) + log_det) + 2.0 * math.sqrt(0.5)
    assert float(model.width) == pytest.approx(expected, rel=1e-6)


def test_with_noise_the_width_pays_for_matrix_and_vector() -> None:
    count, noise, alpha = 40, 3.0, 0.05
    learner = policy(regularizer=1.5, radius=2.0, spread=0.7, confidence=alpha)
    model = learner.publish(state([[1.0, 0.0], [0.0, 9.0]], [2.0, 1.0], count=count, noise=noise))
    tail = math.sqrt(2 * math.log(6 * 41**2 / alpha))
    matrix, vector = noise * (math.sqrt(4) + tail), noise * (math.sqrt(2) + tail)
    ridge = 1.5 + 2 * matrix
    expected = (
        0.7 * math.sqrt(2 * math.log(3 / alpha) + 2 * math.log(1 + count / 3))
        + 2.0 * math.sqrt(ridge + matrix)
        + vector / math.sqrt(1.5 + matrix)
    )
    assert float(model.width) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(
        np.asarray(model.inverse), np.diag([1 / (1 + ridge), 1 / (9 + ridge)]), rtol=1e-6, atol=1e-9
    )


def test_union_bound_constants_sum_to_less_than_alpha() -> None:
    """One part in three for sampling; two tails of the matrix and one of the vector a release."""
    alpha = 0.05
    counts = np.arange(1, 1_000_000)
    tail = np.sqrt(2 * np.log(6 * (counts + 1.0) ** 2 / alpha))
    beyond = 3 * alpha / 6 / 1_000_000
    assert alpha / 3 + 3 * np.exp(-(tail**2) / 2).sum() + beyond < 0.66 * alpha


def test_the_matrix_noise_obeys_its_bounds() -> None:
    rng = np.random.default_rng(3)
    for dim in (1, 2, 5, 10):
        raw = rng.normal(size=(20_000, dim, dim))
        noise = (raw + raw.transpose(0, 2, 1)) / 2
        top = np.linalg.eigvalsh(noise)[:, -1]
        # The top eigenvalue is 1-Lipschitz, so its mean over n draws has deviation at most 1/√n.
        assert top.mean() <= math.sqrt(2 * dim) + 5 / math.sqrt(20_000)
        for tail in (0.5, 1.0, 2.0):
            share = (top > math.sqrt(2 * dim) + tail).mean()
            assert share <= math.exp(-(tail**2) / 2) + math.sqrt(math.log(1e7) / 40_000)


def test_confidence_sets_cover() -> None:
    """Theory mode, local noise: at all counts looked at, θ* is in the set in 1 - α of the runs."""
    dim, horizon, runs, std = 3, 256, 400, 2.0
    problem = dataclasses.replace(PROBLEM, dim=dim, radius=1.0)
    learner = policy("theory", problem)
    rng = np.random.default_rng(12)
    theta = rng.normal(size=(runs, dim))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    x = rng.normal(size=(runs, horizon, dim))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    y = np.where(
        rng.uniform(size=(runs, horizon)) < (1 + np.einsum("rtd,rd->rt", x, theta)) / 2, 1, -1
    )
    statistics = jax.vmap(jax.vmap(svec))(jnp.asarray(x[..., :, None] * x[..., None, :]))
    flat = np.concatenate([np.asarray(statistics), y[..., None] * x], axis=-1)
    totals = np.cumsum(flat + std * rng.normal(size=flat.shape), axis=1)
    counts = 2 ** np.arange(9)

    @jax.jit
    @jax.vmap
    @jax.vmap
    def publish(total: Array, count: Array) -> Model:
        noise = std * jnp.sqrt(1.0 * count)
        return learner.publish(State(total=total, count=count, noise=noise, noisy=True))

    model = publish(jnp.asarray(totals[:, counts - 1]), jnp.tile(jnp.asarray(counts), (runs, 1)))
    gap = np.asarray(model.estimate, np.float64) - theta[:, None]
    v = np.linalg.inv(np.asarray(model.inverse, np.float64))
    distance = np.sqrt(np.einsum("rcd,rcde,rce->rc", gap, v, gap))
    missed = (distance > np.asarray(model.width)).any(1)
    # With chance 0.05 each, 400 runs miss 49 or more times with probability below 1e-6.
    assert missed.sum() < 49
    assert distance.max() > 0.2 * float(np.asarray(model.width).min())


@pytest.mark.parametrize("mode", ["theory", "tuned"])
def test_an_indefinite_gram_matrix_still_gives_an_ellipsoid(mode: Mode) -> None:
    model = policy(mode).publish(
        state([[-90.0, 3.0], [3.0, -80.0]], [1.0, 1.0], count=9, noise=1.0)
    )
    values = np.linalg.eigvalsh(np.asarray(model.inverse, np.float64))
    assert values.min() > 0
    assert np.isfinite(np.asarray(model.estimate)).all()


def test_centred_rewards_widen_the_radius_in_theory_only() -> None:
    problem = dataclasses.replace(PROBLEM, low=0.0, constant=0.5)
    assert LinUCB.of(problem, mode="theory").query.offset == 0.5
    assert LinUCB.of(problem, mode="theory").radius == 2.0 + 0.5 / 0.5
    assert LinUCB.of(problem, mode="tuned").radius == 2.0


def test_a_release_replaces_the_last_one() -> None:
    learner = policy()
    before = learner.init({"moments": NoiseInfo(noisy=True)})
    release = Release(total=jnp.ones(5), count=jnp.int32(8), noise=jnp.float64(2.0))
    after = learner.update(before, "moments", release)
    assert (after.total == 1).all()
    assert (int(after.count), float(after.noise), after.noisy) == (8, 2.0, True)
    assert int(before.count) == 0


def test_models_are_posted_within_the_patience() -> None:
    rounds = jnp.arange(30_000)
    clocks = Clock(round=rounds, since={})
    assert bool(jnp.all(policy(patience=0.0).refreshes(clocks)))
    posted = np.flatnonzero(np.asarray(policy(patience=0.01).refreshes(clocks))) + 1
    assert (posted[:199] == np.arange(1, 200)).all()
    assert (np.diff(posted) <= np.maximum(1, 0.01 * posted[1:])).all()


class Ridge:
    """ContextFreePolicy ridge LinUCB in NumPy, written from the textbook."""

    def __init__(self, dim: int, exploration: float) -> None:
        self.v, self.u = np.eye(dim), np.zeros(dim)
        self.exploration = exploration

    @property
    def estimate(self) -> Floats:
        return np.linalg.solve(self.v, self.u).astype(np.float64)

    def bounds(self, x: Floats) -> list[float]:
        inverse, estimate = np.linalg.inv(self.v), self.estimate
        width = self.exploration * (0.5 + math.sqrt(len(self.u)))
        return [float(row @ estimate + width * math.sqrt(row @ inverse @ row)) for row in x]

    def learn(self, x: Floats, y: float) -> None:
        self.v += np.outer(x, x)
        self.u += y * x


def test_without_noise_it_is_ridge_linucb() -> None:
    world = make_environment(dim=4, arms=8)
    truth = jax.jit(world.init)(ROOT.at(WORLD))
    learner = dataclasses.replace(LinUCB.of(world.problem(200), mode="tuned"), patience=0.0)
    query = learner.query

    @jax.jit
    def play(now: State, round: Array) -> tuple[State, tuple[Array, Array, Array, Array]]:
        model = learner.publish(now)
        clock = Clock(round=round, since={})
        arms = world.arms(truth, clock, ROOT.at(ARMS, round=round))
        action = learner.act(model, arms, clock, ROOT)
        reward = world.reward(truth, arms, action, clock, ROOT.at(REWARD, round=round))
        record = learner.record(model, arms, action, reward)["moments"]
        release = Release(
            total=now.total + query.encode(record), count=now.count + 1, noise=jnp.float64(0)
        )
        seen = (arms.features, action, reward, model.estimate)
        return learner.update(now, "moments", release), seen

    start = learner.init({"moments": NoiseInfo(noisy=False)})
    _, played = jax.lax.scan(play, start, jnp.arange(200, dtype=jnp.int32))
    ridge = Ridge(4, float(learner.exploration))
    for x, action, reward, estimate in zip(*map(np.asarray, played), strict=True):
        np.testing.assert_allclose(estimate, ridge.estimate, atol=2e-6)
        assert int(np.argmax(ridge.bounds(x.astype(np.float64)))) == int(action)
        ridge.learn(x[action].astype(np.float64), float(reward))
    assert len({int(action) for action in np.asarray(played[1])}) == 8
