"""Fits in deployment: roles apart play as compiled code does, and exact noise goes end to end."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import Clock, Start
from kerchief.core.errors import CapacityExceeded, InvalidValue
from kerchief.core.random import Stream
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.privatizers.fits import Fits
from kerchief.roles import drive
from kerchief.roles.bandit import Bandit
from kerchief.roles.curator import Curator
from kerchief.simulation.loop import Scene, advance, begin

HORIZON, SEED = 30, 3
HOME = make_environment(link="probit", dim=2, arms=5, fewest=3)
FACTS = HOME.problem(HORIZON)
POLICY: Any = POLICIES["glm-rare-explore"].build(FACTS, "tuned")
JOINT = Guarantee(epsilon=20.0, delta=1e-5, trust=Trust.JOINT)
FREE = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)


@pytest.mark.nightly
@pytest.mark.parametrize("promise", [FREE, JOINT], ids=["none", "joint"])
def test_roles_apart_fit_as_compiled_code_does(promise: Guarantee) -> None:
    privatizers = protect(POLICY, Protection(guarantee=promise), horizon=HORIZON)
    played = drive(
        policy=POLICY,
        privatizers=privatizers,
        environment=HOME,
        ledger=MemoryLedger(promise),
        horizon=HORIZON,
        seed=SEED,
    )
    scene = Scene(
        policy=POLICY, privatizers=dict(privatizers), environment=HOME, seed=jnp.uint32(SEED)
    )
    carry = advance(scene, begin(scene, jnp.zeros(1, jnp.uint32)), jnp.int32(0), length=HORIZON)
    assert played.regret.sum() == pytest.approx(float(carry.regret[0]), abs=1e-5)
    assert played.releases == {name: int(used[0]) for name, used in carry.used.items()}
    assert played.releases["fit"] + played.releases["warm"] > 0
    for mine, theirs in zip(
        jax.tree.leaves(played.model), jax.tree.leaves(carry.model), strict=True
    ):
        np.testing.assert_allclose(mine, theirs[0], rtol=1e-3, atol=1e-4)


def test_exact_noise_goes_end_to_end_over_the_wire() -> None:
    privatizers = {
        name: one.exact()
        for name, one in protect(POLICY, Protection(guarantee=JOINT), horizon=HORIZON).items()
    }
    ledger = MemoryLedger(JOINT)
    played = drive(
        policy=POLICY,
        privatizers=privatizers,
        environment=HOME,
        ledger=ledger,
        horizon=HORIZON,
        seed=SEED,
    )
    assert played.releases["curvature"] == HORIZON
    for name in ("fit", "warm"):
        query: Any = POLICY.queries[name]
        most = query.fits * query.minimizer.steps
        assert played.releases[name] <= query.fits
        assert most in [receipt.used for receipt in ledger.receipts if receipt.capacity == most]
    assert 0 < played.spent.epsilon <= JOINT.epsilon
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(played.model))


@pytest.mark.parametrize("noise", ["exact", pytest.param("simulated", marks=pytest.mark.nightly)])
def test_a_bandit_fits(noise: str) -> None:
    seed = 1 if noise == "simulated" else None
    bandit = Bandit(policy=POLICY, problem=FACTS, guarantee=JOINT, noise=noise, seed=seed)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    before = jax.tree.leaves(bandit.model)
    for _ in range(HORIZON):
        arms = rng.normal(size=(4, 2))
        bandit.decide(arms / (1.01 * np.linalg.norm(arms, axis=1, keepdims=True)))
        bandit.learn(float(rng.integers(2)))
    after = jax.tree.leaves(bandit.model)
    assert any((now != then).any() for now, then in zip(after, before, strict=True))
    assert all(np.isfinite(leaf).all() for leaf in after)
    assert bandit.spent().epsilon == pytest.approx(JOINT.epsilon, rel=1e-4)
    with pytest.raises(InvalidValue, match="keep the process alive"):
        bandit.save()


def test_the_curator_fits_as_often_as_was_paid_for() -> None:
    whole = protect(POLICY, Protection(guarantee=JOINT), horizon=HORIZON)["fit"]
    assert isinstance(whole, Fits)
    curator = Curator(
        privatizers={"fit": whole},
        ledger=MemoryLedger(JOINT),
        horizon=HORIZON,
        stream=Stream.of(seed=1, replicate=0),
    )
    start = Start(point=jnp.zeros(2), metric=jnp.eye(2), ridge=jnp.float64(1))
    clock = Clock(round=jnp.int32(0), since={})
    with pytest.raises(CapacityExceeded, match="nothing was paid for"):
        curator.release("fit", clock, start)
    curator.open()
    curator.collect({"fit": np.array([0.6, 0.8, 1.0])})
    for _ in range(whole.query.fits):
        curator.release("fit", clock, start)
    with pytest.raises(CapacityExceeded, match="paid for"):
        curator.release("fit", clock, start)
