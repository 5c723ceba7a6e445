"""Worlds on arms: losses have their means, the best arm is best, special arms differ by run.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import REWARD, WORLD, Stream
from kerchief.environments.context_free import Alternating, BestArms, ChanceArms, Switching

WORLDS = [ChanceArms.of(), Alternating.of(), Switching.of(turn=40)]
DRAWS = 40_000


def truth(world: Any, replicates: int = 400) -> BestArms:
    def draw(replicate: Array) -> BestArms:
        one: BestArms = world.init(Stream.of(seed=3, replicate=replicate).at(WORLD))
        return one

    return jax.vmap(draw)(jnp.arange(replicates))


def means(world: Any, one: BestArms, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Expected losses, one row per round and one column per arm."""
    arms = jnp.arange(world.count)
    over_arms = jax.vmap(world.means, in_axes=(None, 0, None))
    return np.asarray(jax.vmap(lambda r: over_arms(one, arms, r))(jnp.asarray(rounds)))


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: type(world).__name__)
def test_losses_are_coins_with_the_stated_means(world: ChanceArms) -> None:
    one = BestArms(best=jnp.int32(2), other=jnp.int32(5))

    def lose(arm: Array, round: Array, stream: Stream) -> Array:
        clock = Clock(round=round, since={})
        return world.reward(one, Arms.none(), arm, clock, stream)

    draw = jax.jit(jax.vmap(lose, in_axes=(None, None, 0)))
    numbers = Stream.of(seed=1, replicate=0)
    streams = jax.vmap(lambda n: numbers.at(REWARD, round=n))(jnp.arange(DRAWS))
    for arm, round in ((2, 3), (5, 3), (0, 60), (2, 60)):
        losses = np.asarray(draw(jnp.int32(arm), jnp.int32(round), streams))
        mean = float(world.means(one, jnp.int32(arm), jnp.int32(round)))
        assert set(np.unique(losses)) <= {0.0, 1.0}
        assert abs(losses.mean() - mean) <= 5 * np.sqrt(mean * (1 - mean) / DRAWS) + 1e-7


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: type(world).__name__)
def test_best_arm_is_best_in_total_and_regret_is_measured_to_it(
    world: ChanceArms,
) -> None:
    one = BestArms(best=jnp.int32(2), other=jnp.int32(5))
    table = means(world, one, np.arange(100))
    assert table.sum(0).argmin() == 2
    assert table.min() >= 0
    assert table.max() <= 1
    late = Clock(round=jnp.int32(70), since={})
    lost = float(world.regret(one, Arms.none(), jnp.int32(0), late))
    np.testing.assert_allclose(lost, table[70, 0] - table[70, 2], atol=1e-12)
    assert bool(world.right(one, jnp.int32(2)))
    assert not bool(world.right(one, jnp.int32(5)))


def test_special_arms_are_uniform_and_never_the_same() -> None:
    drawn = truth(WORLDS[0])
    best, other = np.asarray(drawn.best), np.asarray(drawn.other)
    assert (best != other).all()
    # 400 draws over 10 arms: 40 each, with deviation 6.
    for arms in (best, other):
        counts = np.bincount(arms, minlength=10)
        assert np.abs(counts - 40).max() < 33


def test_means_swing_in_phases_that_grow_and_the_gap_stays() -> None:
    world = Alternating.of(arms=3, gap=0.2)
    table = means(world, BestArms(best=jnp.int32(0), other=jnp.int32(1)), np.arange(2000))
    np.testing.assert_allclose(table[:, 1] - table[:, 0], 0.2, atol=1e-12)
    np.testing.assert_allclose(np.unique(table[:, 0].round(9)), [0.0, 0.8])
    turns = np.flatnonzero(np.diff(table[:, 0])) + 1
    lengths = np.diff(turns)[4:]
    np.testing.assert_allclose(lengths[1:] / lengths[:-1], 1.6, rtol=0.1)


def test_switching_environment_favours_another_arm_at_first() -> None:
    table = means(WORLDS[2], BestArms(best=jnp.int32(2), other=jnp.int32(5)), np.arange(100))
    assert (table[:40].argmin(1) == 5).all()
    assert (table[40:].argmin(1) == 2).all()


def test_invalid_context_free_environment_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="before half"):
        Switching.of(turn=50).problem(100)
    with pytest.raises(InvalidValueError):
        ChanceArms.of(arms=1)
    with pytest.raises(InvalidValueError):
        ChanceArms.of(gap=0.4, mean=0.3)
    with pytest.raises(InvalidValueError):
        Alternating.of(growth=1.0)
