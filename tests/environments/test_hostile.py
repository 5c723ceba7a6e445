"""An adversary that reads the posted model, seen whole and through a projection."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Arms, Clock, Environment, OmniscientAdversary
from kerchief.core.random import ARMS, WORLD, Stream
from kerchief.environments import CONTEXTS, make_environment
from kerchief.environments.projected import Projected

ROOT = Stream.of(seed=5, replicate=2)
CLOCK = Clock(round=jnp.int32(3), since={})
HOSTILE = make_environment(link="probit", contexts="hostile", dim=6, arms=4, fewest=2)
SEEN = {"whole": HOSTILE, "projected": Projected.of(world=HOSTILE, onto=3)}


def wrong(arms: Arms) -> Array:
    """The choice of a model that is mistaken about every direction but one."""
    return jnp.argmax(jnp.where(arms.allowed, arms.features[:, 0], -jnp.inf))


@pytest.mark.nightly
@pytest.mark.parametrize("world", list(SEEN.values()), ids=list(SEEN))
def test_adversary_offers_worst_arm_set_for_the_current_model(world: Environment) -> None:
    assert isinstance(world, OmniscientAdversary)
    truth, stream = world.init(ROOT.at(WORLD)), ROOT.at(ARMS, round=3)
    drawn = [world.arms(truth, CLOCK, stream.split(4 + part)) for part in range(16)]
    lost = [float(world.regret(truth, arms, wrong(arms), CLOCK)) for arms in drawn]
    assert np.ptp(lost) > 0
    offered = world.opposed(truth, CLOCK, stream, wrong)
    jax.tree.map(np.testing.assert_array_equal, offered, drawn[int(np.argmax(lost))])
    right = world.opposed(truth, CLOCK, stream, lambda arms: jnp.argmax(arms.features[:, 1]))
    assert (np.asarray(right.features) != np.asarray(offered.features)).any()


def test_no_other_source_of_contexts_has_an_adversary() -> None:
    opposing = {
        name
        for name in CONTEXTS
        if isinstance(make_environment(contexts=name), OmniscientAdversary)
    }
    assert opposing == {"hostile"}
