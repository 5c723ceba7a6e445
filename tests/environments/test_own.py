"""Worlds of arms with models of their own, and features that have ranges alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.environments.disjoint import DisjointModels
from kerchief.environments.ranges import ranged

WORLD = DisjointModels.of(dim=4, arms=3, radius=2.0, strength=0.5)


def at(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def test_disjoint_arms_share_the_context_and_differ_in_parameter() -> None:
    truth = jax.jit(WORLD.init)(Stream.of(seed=1, replicate=0))
    arms = jax.jit(WORLD.arms)(truth, at(0), Stream.of(seed=2, replicate=0))
    assert (np.asarray(arms.features) == np.asarray(arms.features)[0]).all()
    np.testing.assert_allclose(np.linalg.norm(truth, axis=1), 1.0, rtol=1e-6)
    means = np.asarray(arms.features) @ np.asarray(truth).T
    regret = jax.jit(WORLD.regret)
    lost = [float(regret(truth, arms, jnp.int32(k), at(0))) for k in range(3)]
    np.testing.assert_allclose(lost, means[0].max() - means[0], atol=1e-6)
    facts = WORLD.problem(10)
    assert (facts.own, facts.low, facts.high) == (4, -2.0, 2.0)
    assert float(arms.features[0, -1]) == pytest.approx(facts.constant)


def test_rewards_have_the_mean_of_the_arm_played() -> None:
    truth = WORLD.init(Stream.of(seed=1, replicate=0))
    arms = WORLD.arms(truth, at(0), Stream.of(seed=2, replicate=0))
    draw: Any = jax.vmap(
        lambda k: WORLD.reward(truth, arms, jnp.int32(1), at(0), Stream.of(seed=k, replicate=0))
    )
    drawn = np.asarray(draw(jnp.arange(20_000)))
    mean = float((arms.features[1] * truth[1]).sum())
    assert set(np.unique(drawn)) == {-2.0, 2.0}
    assert abs(drawn.mean() - mean) < 5 * 2 / np.sqrt(20_000)


def test_a_family_draws_how_much_arms_differ_anew_in_every_run() -> None:
    family = DisjointModels.of(dim=4, arms=3, radius=0.5, strength=0.8, weakest=0.2, base=0.5)
    drawn: Any = jax.vmap(lambda k: family.init(Stream.of(seed=1, replicate=k)))
    lengths = np.linalg.norm(np.asarray(drawn(jnp.arange(2000, dtype=jnp.uint32))), axis=2)
    np.testing.assert_allclose(lengths, lengths[:, :1].repeat(3, 1), rtol=1e-5)
    np.testing.assert_allclose(np.quantile(lengths, [0.0, 0.5, 1.0]), [0.1, 0.25, 0.4], atol=0.01)


def test_rewards_around_a_base_are_chances() -> None:
    chances = DisjointModels.of(dim=4, arms=3, radius=0.5, base=0.5)
    truth = chances.init(Stream.of(seed=1, replicate=0))
    arms = chances.arms(truth, at(0), Stream.of(seed=2, replicate=0))
    draw: Any = jax.vmap(
        lambda k: chances.reward(truth, arms, jnp.int32(1), at(0), Stream.of(seed=k, replicate=0))
    )
    drawn = np.asarray(draw(jnp.arange(20_000)))
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert abs(drawn.mean() - 0.5 - float((arms.features[1] * truth[1]).sum())) < 0.02
    facts = chances.problem(10)
    assert (facts.low, facts.high) == (0.0, 1.0)
    own = np.asarray(truth[1]) + np.array([0.0, 0.0, 0.0, 0.5 / facts.constant])
    assert float(np.asarray(arms.features[1]) @ own) == pytest.approx(
        0.5 + float((arms.features[1] * truth[1]).sum()), abs=1e-6
    )
    assert np.linalg.norm(own) <= facts.radius


def test_the_weakest_run_is_no_stronger_than_the_strongest() -> None:
    with pytest.raises(InvalidValueError, match="weakest"):
        DisjointModels.of(strength=0.5, weakest=0.6)


def test_the_best_single_arm_loses_the_least_on_average() -> None:
    truth = WORLD.init(Stream.of(seed=1, replicate=0))

    def lost(k: Any) -> Any:
        arms = WORLD.arms(truth, at(0), Stream.of(seed=k, replicate=0))
        return jnp.stack([WORLD.regret(truth, arms, jnp.int32(a), at(0)) for a in range(3)])

    means = np.asarray(jax.jit(jax.vmap(lost))(jnp.arange(4000))).mean(0)
    assert int(jax.jit(WORLD.single)(truth)) == means.argmin()


def test_ranged_scales_features_by_declared_ranges_alone() -> None:
    """A short row is twice its share of the cube; a long one is shortened, with its direction."""
    low, high = np.array([0.0, -5.0, 10.0, 1.0]), np.array([100.0, 5.0, 20.0, 3.0])
    given = np.array([[50.0, 0.0, 16.0, 2.0], [100.0, 5.0, 10.0, 3.0], [60.0, 0.0, 15.0, 2.0]])
    made = ranged(given, low=low, high=high)
    np.testing.assert_allclose(made[0], [0, 0, 0.2, 0, 0.5], atol=1e-12)
    np.testing.assert_allclose(made[1], [0.5, 0.5, -0.5, 0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(ranged(given[2], low=low, high=high), made[2])
    wild = ranged([1e300, -np.inf, 15.0, 2.0], low=low, high=high)
    np.testing.assert_allclose(wild, [*np.array([1, -1, 0, 0]) / np.sqrt(2), 0.5], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"low": [0.0]}, "one least and one greatest value per feature"),
        ({"high": [1.0, 0.0]}, "low must be less than high"),
        ({"high": [1.0, np.inf]}, "both finite"),
        ({"features": [[0.5, np.nan]]}, "fill in what is missing"),
    ],
)
def test_invalid_feature_ranges_are_rejected(change: dict[str, Any], said: str) -> None:
    given: Any = {"features": [[0.5, 0.5]], "low": [0.0, 0.0], "high": [1.0, 1.0]}
    with pytest.raises(InvalidValueError, match=said):
        ranged(**{**given, **change})
