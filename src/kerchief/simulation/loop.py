"""The compiled loop: all roles in one process, written for one bandit, run by the thousand.

One scan over rounds. The cheap part of a round is mapped over replicates; what a public schedule
makes rare is a real branch on the round; what each learner asks for at its own time is served one
due replicate at a time, so that replicates that are not due cost nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Clock, Environment, Policy, Tree
from kerchief.core.random import ARMS, DEVICE, MIDDLE, POLICY, REWARD, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.privatizers.schedule import At, OnDemand
from kerchief.privatizers.sums import CohortSums

__all__ = ["Carry", "Scene", "advance", "begin"]

T = TypeVar("T")


@struct
class Scene:
    """What plays: its structure is compiled, its numbers are arguments."""

    policy: Policy
    privatizers: Mapping[str, CohortSums]
    environment: Environment
    seed: Array


@struct
class Carry:
    """Everything one replicate remembers between two rounds."""

    replicate: Array
    world: Tree
    state: Tree
    model: Tree
    memory: Mapping[str, Tree]
    tally: Mapping[str, Tree]
    last: Mapping[str, Array]
    used: Mapping[str, Array]
    regret: Array


@jax.jit
def begin(scene: Scene, replicates: Array) -> Carry:
    """All replicates before their first round."""
    return jax.vmap(partial(_begin_one, scene))(replicates)


def _begin_one(scene: Scene, replicate: Array) -> Carry:
    stream = Stream.of(seed=scene.seed, replicate=replicate)
    opened = {name: privatizer.open() for name, privatizer in scene.privatizers.items()}
    outlook = {name: privatizer.outlook for name, privatizer in scene.privatizers.items()}
    state = scene.policy.init(outlook)
    return Carry(
        replicate=replicate,
        world=scene.environment.init(stream.at(WORLD)),
        state=state,
        model=scene.policy.publish(state),
        memory={name: memory for name, (memory, _) in opened.items()},
        tally={name: tally for name, (_, tally) in opened.items()},
        last=dict.fromkeys(opened, jnp.int32(-1)),
        used=dict.fromkeys(opened, jnp.int32(0)),
        regret=jnp.float64(0),
    )


@partial(jax.jit, static_argnames="length", donate_argnames="carry")
def advance(scene: Scene, carry: Carry, start: Array, *, length: int) -> Carry:
    """Play `length` rounds from round `start` on, in every replicate."""

    def play_round(carry: Carry, round: Array) -> tuple[Carry, None]:
        carry, wanted = jax.vmap(partial(_play, scene), in_axes=(0, None))(carry, round)
        for place, (name, privatizer) in enumerate(scene.privatizers.items()):
            if isinstance(privatizer.schedule, OnDemand):
                carry = _serve(scene, carry, round, name, place, wanted[name])
        return carry, None

    rounds = start + jnp.arange(length, dtype=jnp.int32)
    return jax.lax.scan(play_round, carry, rounds)[0]


def _play(scene: Scene, carry: Carry, round: Array) -> tuple[Carry, Mapping[str, Array | bool]]:
    """One round of one bandit; also which releases its learner wants on demand."""
    policy, environment = scene.policy, scene.environment
    stream, clock = _address(scene, carry), _clock(carry, round)
    arms = environment.arms(carry.world, clock, stream.at(ARMS, round=round))
    action = policy.act(carry.model, arms, clock, stream.at(POLICY, round=round))
    reward = environment.reward(carry.world, arms, action, stream.at(REWARD, round=round))
    lost = environment.regret(carry.world, arms, action)
    records = policy.record(carry.model, arms, action, reward)
    tally = dict(carry.tally)
    for place, (name, privatizer) in enumerate(scene.privatizers.items()):
        at = stream.at(DEVICE, round=round, query=place)
        tally[name] = privatizer.collect(tally[name], privatizer.randomize(records[name], at))
    carry = dataclasses.replace(carry, tally=tally, regret=carry.regret + lost)
    for place, (name, privatizer) in enumerate(scene.privatizers.items()):
        if not isinstance(privatizer.schedule, OnDemand):
            carry = _on_schedule(scene, carry, clock, name, place)
    model = _branch(
        policy.refreshes(clock), lambda: policy.publish(carry.state), lambda: carry.model
    )
    carry = dataclasses.replace(carry, model=model)
    return carry, policy.due(carry.state, clock)


def _on_schedule(scene: Scene, carry: Carry, clock: Clock, name: str, place: int) -> Carry:
    """Release at public times: after every round, or by a real branch at the end of a batch."""
    schedule = scene.privatizers[name].schedule
    ready = schedule.ready(clock) if isinstance(schedule, At) else True
    wanted = scene.policy.due(carry.state, clock)[name]
    served = partial(_release, scene, carry, clock, name, place)
    if wanted is True:
        return _branch(ready, served, lambda: carry)

    def where_wanted() -> Carry:
        chosen: Carry = jax.tree.map(partial(jnp.where, wanted), served(), carry)
        return chosen

    return _branch(ready, where_wanted, lambda: carry)


def _serve(
    scene: Scene, carry: Carry, round: Array, name: str, place: int, wanted: Array | bool
) -> Carry:
    """Serve those that are due, one at a time, while their capacity lasts."""
    schedule = scene.privatizers[name].schedule
    due = jnp.broadcast_to(wanted, carry.replicate.shape) & (
        carry.used[name] < schedule.capacity(0)
    )

    def serve_one(pending: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, due = pending
        i = jnp.argmax(due)
        one = jax.tree.map(lambda leaf: leaf[i], carry)
        one = _release(scene, one, _clock(one, round), name, place)
        one = dataclasses.replace(one, model=scene.policy.publish(one.state))
        carry = jax.tree.map(lambda leaf, mine: leaf.at[i].set(mine), carry, one)
        return carry, due.at[i].set(False)

    return jax.lax.while_loop(lambda pending: pending[1].any(), serve_one, (carry, due))[0]


def _release(scene: Scene, carry: Carry, clock: Clock, name: str, place: int) -> Carry:
    """One release of one query, and the learner's update."""
    privatizer = scene.privatizers[name]
    at = _address(scene, carry).at(MIDDLE, round=clock.round, query=place)
    release, memory = privatizer.release(carry.memory[name], carry.tally[name], clock, at)
    return dataclasses.replace(
        carry,
        state=scene.policy.update(carry.state, name, release),
        memory={**carry.memory, name: memory},
        tally={**carry.tally, name: privatizer.clear(carry.tally[name])},
        last={**carry.last, name: clock.round},
        used={**carry.used, name: carry.used[name] + 1},
    )


def _address(scene: Scene, carry: Carry) -> Stream:
    return Stream.of(seed=scene.seed, replicate=carry.replicate)


def _clock(carry: Carry, round: Array) -> Clock:
    return Clock(round=round, since={name: round - last for name, last in carry.last.items()})


def _branch(condition: Array | bool, yes: Callable[[], T], no: Callable[[], T]) -> T:
    """A real branch where the condition is traced, none at all where it is a plain bool."""
    if isinstance(condition, bool):
        return yes() if condition else no()
    chosen: T = jax.lax.cond(condition, yes, no)
    return chosen
