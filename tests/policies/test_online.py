"""The one-pass GLM bandit: its equations, its width, and what it reduces to."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Arms, NoiseInfo, Release
from kerchief.core.links import LINKS, get_link
from kerchief.core.problems import Problem
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.policies.glm.online import OnlineGLM
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import simulate

QUIET = {"moments": NoiseInfo(noisy=False)}


def facts(link: str, **changes: Any) -> Problem:
    world = make_environment(link=link, dim=2, arms=4, radius=1.5)
    return dataclasses.replace(world.problem(1000), **changes)


def told(policy: OnlineGLM, total: Any, count: int, noise: float = 0.0) -> Any:
    state = policy.init({"moments": NoiseInfo(noisy=noise > 0)})
    release = Release(total=jnp.asarray(total), count=jnp.int32(count), noise=jnp.float64(noise))
    return _updated(policy, state, release)


_updated = jax.jit(lambda policy, state, release: policy.update(state, "moments", release))


@pytest.mark.parametrize("link", list(LINKS))
def test_with_every_user_at_the_truth_the_estimate_is_the_truth(link: str) -> None:
    """At θ* the linearization is exact: noiseless responses give θ* back, but for the ridge."""
    policy = dataclasses.replace(OnlineGLM.of(facts(link), mode="theory"), regularizer=1e-9)
    truth = jnp.array([0.8, -0.6], jnp.float32)
    posted = policy.publish(policy.init(QUIET))
    posted = dataclasses.replace(posted, estimate=truth)

    @jax.jit
    def sent(x: Array) -> Array:
        arms = Arms(features=x, allowed=jnp.ones(4, bool))
        mean = get_link(link).mean(x[1] @ truth)
        return policy.query.encode(policy.record(posted, arms, jnp.int32(1), mean)["moments"])

    rng, total = np.random.default_rng(0), np.zeros(policy.query.size)
    for _ in range(40):
        x = rng.normal(size=(4, 2)).astype(np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        total += np.asarray(sent(jnp.asarray(x)), np.float64)
    estimate = policy.publish(told(policy, total, 40)).estimate
    assert np.asarray(estimate) == pytest.approx(np.asarray(truth), abs=1e-4)


def test_a_linear_link_makes_it_ridge_regression() -> None:
    policy = OnlineGLM.of(facts("linear"))
    x = jnp.array([[0.6, 0.0], [0.0, 0.8], [0.5, 0.5], [0.1, 0.2]], jnp.float32)
    arms = Arms(features=x, allowed=jnp.ones(4, bool))
    model = dataclasses.replace(policy.publish(policy.init(QUIET)), estimate=jnp.ones(2))
    record = policy.record(model, arms, jnp.int32(2), jnp.float32(0.7))["moments"]
    assert float(record.reward) == pytest.approx(0.7, abs=1e-6)
    assert float(record.weight) == 1.0


@pytest.mark.parametrize("link", list(LINKS))
def test_the_statistic_is_within_its_bounds_whatever_is_posted(link: str) -> None:
    """An estimate that noise blew up is clipped to the greatest score before it is used."""
    policy = OnlineGLM.of(facts(link), mode="theory")
    wild = dataclasses.replace(
        policy.publish(policy.init(QUIET)), estimate=jnp.array([1e6, -1e6], jnp.float32)
    )
    x = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], jnp.float32)
    arms = Arms(features=x, allowed=jnp.ones(4, bool))
    problem = facts(link)
    for action in range(4):
        for reward in (problem.low, problem.high):
            given = policy.record(wild, arms, jnp.int32(action), jnp.float32(reward))["moments"]
            assert policy.query.low <= float(given.reward) <= policy.query.high
            assert 0 <= float(given.weight) <= 1 + 1e-6
            assert float(given.weight) * float(policy.steepest) >= float(policy.flattest) * 0.999


def test_noise_widens_everything() -> None:
    for mode in ("tuned", "theory"):
        policy = OnlineGLM.of(facts("probit"), mode=mode)
        total = np.asarray(policy.init(QUIET).total)
        calm = policy.publish(told(policy, total, 100, 0.01))
        loud = policy.publish(told(policy, total, 100, 10.0))
        assert float(loud.width) > float(calm.width)
        assert float(loud.inverse[0, 0]) < float(calm.inverse[0, 0])


def test_an_indefinite_matrix_is_floored() -> None:
    policy = OnlineGLM.of(facts("probit"))
    total = np.zeros(policy.query.size)
    total[0] = -1e4
    model = policy.publish(told(policy, total, 100, 1.0))
    assert (np.linalg.eigvalsh(np.asarray(model.inverse, np.float64)) > 0).all()


@pytest.mark.nightly
@pytest.mark.parametrize("link", ["probit", "logistic", "poisson", "linear"])
def test_it_learns_under_joint_trust(link: str) -> None:
    world = make_environment(link=link, dim=2, arms=10, radius=1.5)
    promise = Guarantee(epsilon=4.0, delta=1e-5, trust=Trust.JOINT)
    regrets = {}
    for name in ("uniform", "glm"):
        policy = POLICIES[name].build(world.problem(1500), "tuned")
        run = simulate(
            policy=policy,
            privatizers=protect(policy, Protection(guarantee=promise), horizon=1500),
            environment=world,
            ledger=MemoryLedger(promise),
            horizon=1500,
            replicates=16,
            seed=5,
            ticks=1,
        )
        regrets[name] = float(run.regret[-1].mean())
    assert regrets["glm"] < 0.25 * regrets["uniform"]
