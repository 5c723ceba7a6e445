"""Worlds that react: to the posted model before a round, and to the action after it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock, Environment
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.environments import ChanceArms, GLMEnvironment, make_environment
from kerchief.environments.context_free import BestArms
from kerchief.environments.worlds import GLMTruth
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation.run import simulate

FREE = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
ARMS, GAP = 10, 0.25


@struct
class Foreseen(Arms):
    choice: Array


@struct
class Foreseeing(GLMEnvironment):
    """Loses one for every action that was not foreseen."""

    def opposed(
        self, world: GLMTruth, clock: Clock, stream: Stream, choose: Callable[[Arms], Array]
    ) -> Arms:
        arms = self.arms(world, clock, stream)
        return Foreseen(features=arms.features, allowed=arms.allowed, choice=choose(arms))

    def regret(self, world: GLMTruth, arms: Arms, action: Array, clock: Clock) -> Array:
        assert isinstance(arms, Foreseen)
        return (action != arms.choice).astype(np.float64)


@struct
class Following(ChanceArms):
    """The best arm is the one that was played last."""

    def reacted(self, world: BestArms, action: Array, clock: Clock) -> BestArms:
        return dataclasses.replace(world, best=action)


def lost(environment: Environment, policy: str, *, horizon: int) -> NDArray[np.float64]:
    built = POLICIES[policy].build(environment.problem(horizon), "tuned")
    run = simulate(
        policy=built,
        privatizers=protect(built, Protection(guarantee=FREE), horizon=horizon),
        environment=environment,
        ledger=MemoryLedger(FREE),
        horizon=horizon,
        replicates=4,
        seed=3,
        ticks=horizon,
    )
    return np.diff(run.regret, axis=0)


def test_an_adversary_foresees_the_action_also_where_it_is_drawn() -> None:
    plain = make_environment(dim=3, arms=5)
    foreseeing = Foreseeing(
        **{one.name: getattr(plain, one.name) for one in dataclasses.fields(plain)}
    )
    for policy in ("linucb", "uniform"):
        assert (lost(foreseeing, policy, horizon=60) == 0).all()


def test_environment_reacts_to_an_action_after_its_round() -> None:
    # UCB tries every arm once: never the one it played last, and once the one that never moves.
    moving, still = Following.of(arms=ARMS, gap=GAP), ChanceArms.of(arms=ARMS, gap=GAP)
    np.testing.assert_allclose(lost(moving, "ucb", horizon=ARMS), GAP)
    assert (lost(still, "ucb", horizon=ARMS).sum(0) < (ARMS - 1) * GAP + 1e-9).all()
    assert (lost(still, "ucb", horizon=ARMS) == 0).any()
