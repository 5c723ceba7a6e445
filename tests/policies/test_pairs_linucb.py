"""Errors in the variables: unbiased sums, the parents without noise, and sets that hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Environment, NoiseInfo, Policy, Release, Tree
from kerchief.core.pairs import Pair
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.environments import make_environment
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.linear.pairs import PairLinUCB, ReleasedTotal
from kerchief.policies.registry import Mode
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import simulate

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
PROBLEM = Problem(dim=3, arms=4, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=500)
SHARED = Problem(dim=3, arms=4, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=500, constant=0.6)


def noisy(policy: PairLinUCB, statistics: Array, std: float | Array, seed: int | Array) -> Tree:
    """The state after these users, each with noise on the report."""
    noise = std * jax.random.normal(jax.random.key(seed), statistics.shape, jnp.float64)
    totals = jnp.cumsum(statistics + noise, axis=0)

    def take(state: Tree, given: tuple[Array, Array]) -> tuple[Tree, None]:
        total, count = given
        noise = std * jnp.sqrt(count.astype(jnp.float64))
        return policy.update(state, "pair", Release(total=total, count=count, noise=noise)), None

    counts = jnp.arange(1, len(totals) + 1, dtype=jnp.int32)
    return jax.lax.scan(take, policy.init({"pair": NoiseInfo(noisy=True)}), (totals, counts))[0]


def users(query: Pair, count: int, parameter: Floats, seed: int) -> tuple[Floats, Floats, Array]:
    """Features, rewards and statistics; rewards are linear in the features, and noisy."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, query.dim))
    x *= 0.9 / np.linalg.norm(x, axis=1, keepdims=True)
    if query.constant:
        x[:, :-1] *= 0.7
        x[:, -1] = query.constant
    y = x @ parameter + 0.1 * rng.choice([-1, 1], size=count)
    free = x[:, :-1] if query.constant else x
    return x, y, jnp.asarray(np.column_stack([free, query.balance * (y - query.offset)]))


@pytest.mark.parametrize("problem", [PROBLEM, SHARED])
def test_the_sums_are_unbiased(problem: Problem) -> None:
    """Mean over 400 draws of the noise, to 5 standard errors a number."""
    policy = PairLinUCB.of(problem)
    x, y, statistics = users(policy.query, 20, np.array([0.3, -0.2, 0.4]), 0)
    states = jax.vmap(lambda seed: noisy(policy, statistics, 0.5, seed))(jnp.arange(400))
    for seen, wanted in (
        (states.gram, x.T @ x),
        (states.moment, x.T @ (y - policy.query.offset)),
    ):
        values = np.asarray(seen, np.float64)
        error = values.std(axis=0, ddof=1) / math.sqrt(400)
        assert (np.abs(values.mean(axis=0) - wanted) <= 5 * error + 1e-9).all()
        assert error.max() > 0.01
    if problem.constant:
        assert np.asarray(states.gram)[:, -1, -1] == pytest.approx(20 * problem.constant**2)


@pytest.mark.parametrize("word", ["gaussian", "privunit"])
def test_report_products_are_unbiased_for_any_randomizer(word: str) -> None:
    """The products of 40000 reports of one user, less the stated variance, to 5 standard errors."""
    policy = PairLinUCB.of(SHARED)
    promise = Guarantee(epsilon=8.0, delta=1e-3, trust=Trust.LOCAL)
    device: Any = protect(policy, Protection(guarantee=promise, mechanism=word), horizon=9)[
        "pair"
    ].noises[0]
    truth = jnp.array([0.5, -0.4, 0.3])

    def products(replicate: Array) -> tuple[Array, Array]:
        report = device.add(truth, Stream.of(seed=3, replicate=replicate))
        x, y = policy.query.split(report)
        return jnp.outer(x, x) - jnp.diag(device.std**2 * policy.query.noisy), y * x

    seen = jax.jit(jax.vmap(products))(jnp.arange(40000, dtype=jnp.uint32))
    x = np.array([0.5, -0.4, 0.6])
    for values, wanted in zip(map(np.asarray, seen), (np.outer(x, x), 0.3 * x), strict=True):
        error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
        assert (np.abs(values.mean(axis=0) - wanted) <= 5 * error + 1e-6).all()
        assert 1e-4 < error.max() < 0.01


def test_a_report_is_what_the_last_total_adds() -> None:
    query = Pair.of(PROBLEM)
    seen = ReleasedTotal.nothing(query)
    first = Release(total=jnp.array([1.0, 2.0, 3.0, 4.0]), count=jnp.int32(1), noise=jnp.float64(3))
    _, seen = seen.next(query, first)
    second = Release(
        total=jnp.array([1.5, 2.0, 2.0, 3.0]), count=jnp.int32(2), noise=jnp.float64(5)
    )
    report, seen = seen.next(query, second)
    np.testing.assert_allclose(np.asarray(report.features), [0.5, 0, -1])
    assert float(report.reward) == -1
    assert float(report.variance) == 16
    assert (int(seen.count), float(seen.variance)) == (2, 25)


@pytest.mark.parametrize("mode", [pytest.param("theory", marks=pytest.mark.nightly), "tuned"])
def test_without_noise_it_is_ridge_regression(turns: Turns, mode: Mode) -> None:
    world = make_environment(dim=3, arms=6)
    policy, products = (
        kind.of(world.problem(60), mode=mode, exploration=0.4) for kind in (PairLinUCB, LinUCB)
    )
    gram, moment = np.eye(3), np.zeros(3)
    for x, action, reward, model in turns(policy, world, 60):
        np.testing.assert_allclose(model.estimate, np.linalg.solve(gram, moment), atol=1e-5)
        np.testing.assert_allclose(model.inverse, np.linalg.inv(gram), atol=1e-5)
        gram += np.outer(x[action], x[action])
        moment += reward * x[action]
    if mode == "tuned":
        both = zip(turns(policy, world, 60), turns(products, world, 60), strict=True)
        assert all(here[1] == there[1] for here, there in both)


def test_the_theorems_set_holds_and_is_not_idle() -> None:
    """200 runs: at α = 0.05 and level 1e-6 up to 30 may miss; none does, as it is far too wide."""
    policy = PairLinUCB.of(PROBLEM, mode="theory")
    parameter = np.array([0.5, -0.4, 0.3])
    _, _, statistics = users(policy.query, 300, parameter, 1)

    @jax.jit
    def models(std: Array) -> Tree:
        return jax.vmap(lambda seed: policy.publish(noisy(policy, statistics, std, seed)))(
            jnp.arange(200)
        )

    for std in (0.05, 0.6):
        posted = models(jnp.float64(std))
        gap = parameter - np.asarray(posted.estimate, np.float64)
        square = np.einsum("ni,nij,nj->n", gap, np.linalg.inv(posted.inverse), gap)
        assert (square <= np.asarray(posted.width, np.float64) ** 2).all()
    assert np.abs(gap).max() > 0.2


def test_the_widths_formula_by_hand() -> None:
    """No noise: LinUCB's at α/4. With noise: each part on numbers."""
    policy = PairLinUCB.of(PROBLEM, mode="theory")
    _, _, statistics = users(policy.query, 10, np.array([0.5, -0.4, 0.3]), 1)
    quiet = policy.publish(noisy(policy, statistics, 0.0, 0))
    sampling = math.sqrt(2 * math.log(4 / 0.05) + 3 * math.log1p(10 / 3))
    assert float(quiet.width) == pytest.approx(sampling + 1, rel=1e-6)
    state = noisy(policy, statistics, 0.5, 0)
    edge = math.sqrt(3) + math.sqrt(2 * math.log(8 * 121 / 0.05))
    squares = 0.25 * (2 * math.sqrt(10) * edge + edge**2)
    logs = math.log(4 / 0.05)
    crossed = 4 * 0.5 * math.sqrt(11 * (2 * (6 * math.log(9) + logs) + math.log(11)))
    matrix = squares + crossed
    power = 1 + float(state.square)
    vector = 2 * 0.5 * math.sqrt(power * (2 * (3 * math.log(5) + logs) + math.log(power)))
    width = math.sqrt(1.25) * math.sqrt(2 * logs + 3 * math.log1p(10 / 3))
    width += math.sqrt(1 + 3 * matrix) + vector / math.sqrt(1 + matrix)
    assert float(policy.publish(state).width) == pytest.approx(width, rel=1e-6)


@pytest.mark.nightly
def test_local_play_is_by_far_better_than_uniform() -> None:
    """On the paper's world at ε = 10: uniform play loses 0.47 a round, this less than 0.15."""
    world, horizon = make_environment(contexts="intercept", dim=5, arms=100), 2000
    policy = PairLinUCB.of(world.problem(horizon))
    promise = Guarantee(epsilon=10.0, delta=0.1, trust=Trust.LOCAL)
    run = simulate(
        policy=policy,
        privatizers=protect(
            policy, Protection(guarantee=promise, mechanism="gaussian"), horizon=horizon
        ),
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=horizon,
        replicates=4,
        seed=3,
        ticks=1,
    )
    assert run.regret[-1].mean() < 0.15 * horizon
    assert run.spent.epsilon == pytest.approx(10.0, rel=1e-6)
