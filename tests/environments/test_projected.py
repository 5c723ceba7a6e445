"""Worlds that a bandit sees through a projection: short features, and the regret of the truth."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.checks import check
from kerchief.core.contracts import Clock, HasBestArm
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.environments import DisjointModels, GLMEnvironment, Population, make_environment
from kerchief.environments.projected import Projected, loss_of

WORLD = make_environment(dim=40, arms=6)
SHORT = Projected.of(world=WORLD, onto=8)
NOW = Clock(round=jnp.int32(3), since={})


def test_projection_shortens_arms_and_keeps_reward_and_regret() -> None:
    at = Stream.of(seed=1, replicate=0)
    truth = jax.jit(SHORT.init)(at)
    seen, whole = (jax.jit(world.arms)(truth, NOW, at) for world in (SHORT, WORLD))
    np.testing.assert_allclose(
        seen.features, SHORT.projection.apply(np.asarray(whole.features, np.float64)), atol=1e-6
    )
    assert SHORT.problem(10).dim == 8
    lost, earned = (
        [jax.jit(world.regret) for world in (SHORT, WORLD)],
        [jax.jit(world.reward) for world in (SHORT, WORLD)],
    )
    for action in range(6):
        arm = jnp.int32(action)
        assert lost[0](truth, seen, arm, NOW) == lost[1](truth, whole, arm, NOW)
        assert earned[0](truth, seen, arm, NOW, at) == earned[1](truth, whole, arm, NOW, at)


@pytest.mark.nightly
def test_a_projected_world_keeps_the_laws_of_worlds() -> None:
    assert check(SHORT).kept


def test_a_world_that_follows_the_bandit_is_not_projected() -> None:
    class Following(GLMEnvironment):
        def reacted(self, world: Any, action: Array, clock: Clock) -> Any:
            return world

    with pytest.raises(InvalidValueError, match="follows the bandit"):
        Projected.of(world=Following(**vars(WORLD)), onto=8)


def test_arms_with_models_of_their_own_keep_their_constant() -> None:
    world = DisjointModels.of(dim=20, arms=3)
    short = Projected.of(world=world, onto=6)
    facts = short.problem(10)
    assert (facts.dim, facts.own, facts.constant) == (6, 6, world.problem(10).constant)
    at = Stream.of(seed=1, replicate=0)
    truth = jax.jit(short.init)(at)
    arms = jax.jit(short.arms)(truth, NOW, at)
    assert float(np.asarray(arms.features)[0, -1]) == pytest.approx(facts.constant)
    assert isinstance(short, HasBestArm)
    assert int(jax.jit(short.single)(truth)) == int(jax.jit(world.single)(truth))
    assert not isinstance(SHORT, HasBestArm)


@pytest.mark.parametrize(
    "world", [WORLD, pytest.param(DisjointModels.of(dim=20, arms=3), marks=pytest.mark.nightly)]
)
def test_projection_loss_falls_with_kept_dimensions(world: Any) -> None:
    dim = world.problem(10).dim
    few, many = (
        loss_of(Projected.of(world=world, onto=onto), horizon=600, seed=0) for onto in (4, dim - 1)
    )
    assert 0 <= many.lost < few.lost / 4
    assert 0 < many.clipped < 1
    assert (few.dim, few.onto) == (dim, 4)


def test_nothing_is_lost_where_few_arms_stay_the_same() -> None:
    fixed = make_environment(contexts="fixed", dim=40, arms=6)
    assert loss_of(Projected.of(world=fixed, onto=8), horizon=100, seed=0).lost == 0.0


def test_projected_rejects_unsuitable_environment() -> None:
    with pytest.raises(
        InvalidValueError, match="project is 40; it must be at least 1 and at most 39"
    ):
        Projected.of(world=WORLD, onto=40)
    with pytest.raises(InvalidValueError, match="has none"):
        Projected.of(world=Population.of(dim=5, arms=20), onto=2)  # type: ignore[arg-type]
