"""Play a policy without noise: round by round beside a reference, or in full for its regret."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Clock, Environment, Policy, Tree
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.deployment.round import Round
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import Run, simulate

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
Played = Callable[[str, Environment, int], Run]
FREE = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)


@pytest.fixture
def turns() -> Turns:
    return _turns


@pytest.fixture
def played() -> Played:
    return _played


def _turns(
    policy: Policy, world: Environment, rounds: int
) -> Iterator[tuple[Floats, int, float, Tree]]:
    """Arms, action, reward and the model that they met, round by round."""
    bandit = Round(
        policy=policy, privatizers=protect(policy, Protection(guarantee=FREE), horizon=rounds)
    )
    root = Stream.of(seed=4, replicate=0)
    truth, carry = _begin(bandit, world, root)
    for round in range(rounds):
        model = carry.model
        carry, arms, action, reward, wishes = _turn(
            bandit, world, truth, carry, jnp.int32(round), root
        )
        for name, wish in wishes.items():
            if wish:
                carry = _serve(bandit, carry, name, jnp.int32(round), root)
        yield np.asarray(arms.features, np.float64), int(action), float(reward), model


# Compiled once for each kind of policy and world.
@jax.jit
def _begin(bandit: Round, world: Environment, root: Stream) -> Tree:
    return world.init(root.at(WORLD)), bandit.begin()


@jax.jit
def _turn(
    bandit: Round, world: Environment, truth: Tree, carry: Tree, round: Array, root: Stream
) -> Tree:
    clock = Clock(round=round, since={})
    arms = world.arms(truth, clock, root.at(ARMS, round=round))
    action = bandit.act(carry.model, arms, bandit.clock(carry, round), root)
    reward = world.reward(truth, arms, action, clock, root.at(REWARD, round=round))
    carry = bandit.learn(carry, arms, action, reward, round, root)
    return carry, arms, action, reward, bandit.wishes(carry, round)


@partial(jax.jit, static_argnames="name")
def _serve(bandit: Round, carry: Tree, name: str, round: Array, root: Stream) -> Tree:
    return bandit.serve(carry, name, round, root)


def _played(name: str, world: Environment, horizon: int) -> Run:
    policy = POLICIES[name].build(world.problem(horizon), "tuned")
    return simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=FREE), horizon=horizon),
        environment=world,
        ledger=MemoryLedger(FREE),
        horizon=horizon,
        replicates=8,
        seed=1,
        ticks=1,
    )
