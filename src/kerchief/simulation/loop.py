"""The compiled loop: `roles.round` mapped over replicates and scanned over time.

Branches on public time stay branches, since the round is not mapped. Releases that each learner
wants at a time of its own are served afterwards, a few replicates at a time, so that only those
that are due cost anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import (
    Arms,
    Environment,
    Judges,
    Knows,
    Opposes,
    Policy,
    Reacts,
    Recommends,
    Singles,
    Tree,
)
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.privatizers.privatizer import Privatizer
from kerchief.roles import round as roles
from kerchief.simulation.devices import on_all_devices

# How many replicates an accelerator serves at once.
_LANES = 16


@struct
class Scene:
    """What plays: its structure is compiled, its numbers are arguments."""

    policy: Policy
    privatizers: Mapping[str, Privatizer]
    environment: Environment
    seed: Array

    @property
    def bandit(self) -> roles.Round:
        """The round of one bandit."""
        return roles.Round(policy=self.policy, privatizers=self.privatizers)

    def root(self, carry: Replicate) -> Stream:
        """Where a replicate's randomness begins."""
        return Stream.of(seed=self.seed, replicate=carry.replicate)


@struct
class Replicate(roles.Carry):
    """A bandit, its world, what it has lost and what it has earned.

    Where users answer with losses, nothing is earned.
    """

    replicate: Array
    world: Tree
    regret: Array
    earned: Array | None


@jax.jit
def begin(scene: Scene, replicates: Array) -> Replicate:
    """All replicates before their first round."""
    return on_all_devices(_begin, scene, replicates)


def _begin(scene: Scene, replicates: Array) -> Replicate:
    def begin_one(replicate: Array) -> Replicate:
        at = Stream.of(seed=scene.seed, replicate=replicate).at(WORLD)
        world, begun = scene.environment.init(at), dict(vars(scene.bandit.begin()))
        if isinstance(scene.policy, Knows) and isinstance(scene.environment, Singles):
            begun["model"] = scene.policy.told(scene.environment.single(world))
        earned = jnp.float64(0) if scene.policy.feedback == "totals" else None
        return Replicate(
            replicate=replicate, world=world, regret=jnp.float64(0), earned=earned, **begun
        )

    return jax.vmap(begin_one)(replicates)


@partial(jax.jit, static_argnames="length", donate_argnames="carry")
def advance(scene: Scene, carry: Replicate, start: Array, *, length: int) -> Replicate:
    """Play `length` rounds from round `start` on, in every replicate."""
    rounds = start + jnp.arange(length, dtype=jnp.int32)
    return on_all_devices(_advance, scene, carry, rounds)


def _advance(scene: Scene, carry: Replicate, rounds: Array) -> Replicate:
    def play_round(carry: Replicate, round: Array) -> tuple[Replicate, None]:
        carry, wishes = jax.vmap(partial(_play, scene), in_axes=(0, None))(carry, round)
        for name, due in wishes.items():
            carry = _serve(scene, carry, round, name, due)
        return carry, None

    return jax.lax.scan(play_round, carry, rounds)[0]


def _play(scene: Scene, carry: Replicate, round: Array) -> tuple[Replicate, Mapping[str, Array]]:
    """One round of one replicate; also which releases its learner wants on demand."""
    world, root, bandit = scene.environment, scene.root(carry), scene.bandit
    clock, going = bandit.clock(carry, round), bandit.going(carry)
    arms = _arms(scene, carry, round)
    action = bandit.act(carry, arms, round, root)
    reward = world.reward(carry.world, arms, action, clock, root.at(REWARD, round=round))
    lost = world.regret(carry.world, arms, action, clock)
    carry = bandit.learn(carry, arms, action, reward, round, root)
    if isinstance(world, Reacts):
        reacted = world.reacted(carry.world, action, clock)
        carry = dataclasses.replace(carry, world=reacted)
    if going is not True:
        lost, reward = jnp.where(going, lost, 0), jnp.where(going, reward, 0)
    regret, earned = carry.regret + lost, carry.earned
    carry = dataclasses.replace(
        carry, regret=regret, earned=None if earned is None else earned + reward
    )
    return carry, bandit.wishes(carry, round)


def _arms(scene: Scene, carry: Replicate, round: Array) -> Arms:
    """What this round's user may choose from; an adversary foresees the choice, coins and all."""
    world, root, bandit = scene.environment, scene.root(carry), scene.bandit
    clock, at = bandit.clock(carry, round), root.at(ARMS, round=round)
    if not isinstance(world, Opposes):
        return world.arms(carry.world, clock, at)
    return world.opposed(carry.world, clock, at, lambda arms: bandit.act(carry, arms, round, root))


@jax.jit
def judge(scene: Scene, carry: Replicate) -> Array | None:
    """Whether each replicate names the best action; None where nobody names one."""
    policy, world = scene.policy, scene.environment
    if not (isinstance(policy, Recommends) and isinstance(world, Judges)):
        return None
    return jax.vmap(lambda one: world.right(one.world, policy.recommend(one.state)))(carry)


def _serve(scene: Scene, carry: Replicate, round: Array, name: str, due: Array) -> Replicate:
    """Serve those that are due, a few at a time: one on a CPU, where a second one is not free."""
    lanes = 1 if jax.default_backend() == "cpu" else _LANES

    def serve_one(before: Replicate) -> list[Array | None]:
        """What serving changed: a leaf that passed through, such as a long history, is None."""
        after = scene.bandit.serve(before, name, round, scene.root(before))
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        return [None if new is old else new for old, new in pairs]

    def serve_next(queue: tuple[Replicate, Array]) -> tuple[Replicate, Array]:
        carry, due = queue
        # Lanes without work get a number that no replicate has: read anywhere, written nowhere.
        (chosen,) = jnp.nonzero(due, size=lanes, fill_value=due.shape[0])
        mine = jax.tree.map(lambda leaf: leaf.at[chosen].get(mode="clip"), carry)
        leaves, structure = jax.tree.flatten(carry)
        changed = zip(leaves, jax.vmap(serve_one)(mine), strict=True)
        carry = jax.tree.unflatten(
            structure,
            [old if new is None else old.at[chosen].set(new, mode="drop") for old, new in changed],
        )
        return carry, due.at[chosen].set(False, mode="drop")

    return jax.lax.while_loop(lambda queue: queue[1].any(), serve_next, (carry, due))[0]
