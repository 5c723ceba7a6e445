"""Adversaries with convex losses: who is the best in hindsight, and what a question changes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import AdaptiveAdversary, Arms, Clock, Environment
from kerchief.core.convex import Ball
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import REWARD, WORLD, Stream
from kerchief.environments.context_free_adversarial import Drifting, Reacting

ROOT, NOBODY = Stream.of(seed=5, replicate=0), Arms.none()


def clock(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def test_over_a_period_the_best_point_is_the_best_fixed_one() -> None:
    world = Drifting.of(domain=Ball(dim=3), swing=0.4, period=40)
    truth = world.init(ROOT.at(WORLD))

    @jax.jit
    def total(point: jax.Array) -> jax.Array:
        def lost(round: jax.Array) -> jax.Array:
            return world.regret(truth, NOBODY, point[None], Clock(round=round, since={}))

        return jax.vmap(lost)(jnp.arange(40, dtype=jnp.int32)).sum()

    assert float(total(truth.best)) == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(truth.best), np.zeros(3), atol=1e-9)
    aside = truth.best + 0.3 * truth.slope
    # 40 times half the square of 0.3, as if nothing moved; in a single round it may be negative.
    assert float(total(aside)) == pytest.approx(40 * 0.045)
    assert float(world.regret(truth, NOBODY, aside[None], clock(10))) < 0


def test_a_question_further_out_than_the_last_raises_all_losses() -> None:
    world = Reacting.of(domain=Ball(dim=2), swing=0.7, noise=0.2)
    assert isinstance(world, AdaptiveAdversary)
    truth = world.init(ROOT.at(WORLD))
    far, near = (truth.best + side * 0.1 * truth.slope for side in (1, -1))
    raised = world.reacted(truth, far[None], clock(0))
    assert float(raised.level) == pytest.approx(0.7)
    lowered = world.reacted(raised, near[None], clock(1))
    assert float(lowered.level) == 0
    assert float(world.reacted(lowered, far[None], clock(2)).level) == pytest.approx(0.7)
    points, at = jnp.stack([far, near]), ROOT.at(REWARD, round=1)
    losses = [world.reward(one, NOBODY, points, clock(1), at) for one in (truth, raised)]
    np.testing.assert_allclose(losses[1] - losses[0], [0.7, 0.7])
    lost = [float(world.regret(one, NOBODY, points, clock(1))) for one in (truth, raised)]
    assert lost == pytest.approx([0.005, 0.005])


@pytest.mark.parametrize("kind", [Drifting, Reacting])
def test_losses_keep_the_public_bounds(kind: type[Drifting | Reacting]) -> None:
    world = kind.of(domain=Ball(dim=2), swing=1.0)
    problem, made = world.problem(100), world.init(ROOT.at(WORLD))
    after = getattr(world, "reacted", lambda truth, action, clock: truth)
    truth = after(made, made.best[None] + made.slope, clock(0))
    ends = jnp.stack([made.slope, -made.slope])

    def lose(round: jax.Array) -> jax.Array:
        at = ROOT.at(REWARD, round=round)
        return world.reward(truth, NOBODY, ends, Clock(round=round, since={}), at)

    losses = np.asarray(jax.vmap(lose)(jnp.arange(2000, dtype=jnp.int32)))
    assert losses.min() >= problem.low
    assert 0.7 * problem.high < losses.max() <= problem.high


def test_they_are_environments_that_check_their_values() -> None:
    made: tuple[Environment, ...] = (
        Drifting.of(domain=Ball(dim=2)),
        Reacting.of(domain=Ball(dim=2)),
    )
    assert len(made) == 2
    with pytest.raises(InvalidValueError, match="swing is 2"):
        Drifting.of(domain=Ball(dim=2), swing=2.0)
    with pytest.raises(InvalidValueError, match="period is 1"):
        Drifting.of(domain=Ball(dim=2), period=1)
