"""One bandit's round as pure functions: what the loop of `simulation` does, for one user at a time.

All roles are in one compiled call here, so this is for simulated noise and for no noise. With exact
noise the roles stay apart, as that noise is drawn outside compiled code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, Policy, Tree
from kerchief.core.random import DEVICE, MIDDLE, POLICY, Stream
from kerchief.core.struct import struct
from kerchief.privatizers.schedule import At, OnDemand
from kerchief.privatizers.sums import CohortSums

__all__ = ["Carry", "Round"]


@struct
class Carry:
    """Everything a bandit remembers between two rounds; the tally may be private.

    The seed's bits are kept as a signed number, so that it lies with the other counters.
    """

    seed: Array
    round: Array
    state: Tree
    model: Tree
    memory: Mapping[str, Tree]
    tally: Mapping[str, Tree]
    last: Mapping[str, Array]
    used: Mapping[str, Array]

    @property
    def clock(self) -> Clock:
        """Public time."""
        since = {name: self.round - last for name, last in self.last.items()}
        return Clock(round=self.round, since=since)

    @property
    def stream(self) -> Stream:
        """The root of its randomness."""
        return Stream.of(seed=self.seed.astype(jnp.uint32), replicate=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """The functions of a round, for one policy under one protection."""

    policy: Policy
    queries: tuple[tuple[str, CohortSums], ...]

    @property
    def privatizers(self) -> dict[str, CohortSums]:
        """The privatizer of each query."""
        return dict(self.queries)

    def begin(self, seed: Array) -> Carry:
        """Before the first user."""
        opened = {name: privatizer.open() for name, privatizer in self.privatizers.items()}
        state = self.policy.init({name: p.outlook for name, p in self.privatizers.items()})
        return Carry(
            seed=seed.astype(jnp.int32),
            round=jnp.int32(0),
            state=state,
            model=self.policy.publish(state),
            memory={name: memory for name, (memory, _) in opened.items()},
            tally={name: tally for name, (_, tally) in opened.items()},
            last=dict.fromkeys(opened, jnp.int32(-1)),
            used=dict.fromkeys(opened, jnp.int32(0)),
        )

    def act(self, carry: Carry, arms: Arms) -> Array:
        """Choose an arm."""
        at = carry.stream.at(POLICY, round=carry.round)
        return self.policy.act(carry.model, arms, carry.clock, at).astype(jnp.int32)

    def learn(self, carry: Carry, arms: Arms, action: Array, reward: Array) -> Carry:
        """Record, randomize, collect, release, update and publish."""
        clock = carry.clock
        carry = self._collect(carry, self.policy.record(carry.model, arms, action, reward))
        for name, privatizer in self.privatizers.items():
            if not isinstance(privatizer.schedule, OnDemand):
                carry = self._scheduled(carry, clock, name)
        publish = partial(self.policy.publish, carry.state)
        model = _branch(self.policy.refreshes(clock), publish, partial(_same, carry.model))
        carry = dataclasses.replace(carry, model=model)
        wanted = self.policy.due(carry.state, clock)
        for name, privatizer in self.privatizers.items():
            if isinstance(privatizer.schedule, OnDemand):
                room = carry.used[name] < privatizer.schedule.limit
                serve = partial(self._served, carry, name)
                carry = _branch(wanted[name] & room, serve, partial(_same, carry))
        return dataclasses.replace(carry, round=carry.round + 1)

    def _collect(self, carry: Carry, records: Mapping[str, Tree]) -> Carry:
        tally = dict(carry.tally)
        for place, (name, privatizer) in enumerate(self.privatizers.items()):
            at = carry.stream.at(DEVICE, round=carry.round, query=place)
            report = privatizer.randomize(records[name], at)
            tally[name] = privatizer.collect(tally[name], report)
        return dataclasses.replace(carry, tally=tally)

    def _scheduled(self, carry: Carry, clock: Clock, name: str) -> Carry:
        """Release at public times, if the learner wants it."""
        schedule = self.privatizers[name].schedule
        ready = schedule.ready(clock) if isinstance(schedule, At) else True
        wanted = ready & self.policy.due(carry.state, clock)[name]
        release = partial(self._release, carry, clock, name)
        released: Carry = _branch(wanted, release, partial(_same, carry))
        return released

    def _served(self, carry: Carry, name: str) -> Carry:
        """Release on demand, and post what came of it at once."""
        carry = self._release(carry, carry.clock, name)
        return dataclasses.replace(carry, model=self.policy.publish(carry.state))

    def _release(self, carry: Carry, clock: Clock, name: str) -> Carry:
        privatizer, place = self.privatizers[name], list(self.privatizers).index(name)
        at = carry.stream.at(MIDDLE, round=clock.round, query=place)
        release, memory = privatizer.release(carry.memory[name], carry.tally[name], clock, at)
        return dataclasses.replace(
            carry,
            state=self.policy.update(carry.state, name, release),
            memory={**carry.memory, name: memory},
            tally={**carry.tally, name: privatizer.clear(carry.tally[name])},
            last={**carry.last, name: clock.round},
            used={**carry.used, name: carry.used[name] + 1},
        )


def _same(value: Any) -> Any:
    return value


def _branch(condition: Array | bool, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """A real branch where the condition is traced, none at all where it is a plain bool."""
    if isinstance(condition, bool):
        return yes() if condition else no()
    return jax.lax.cond(condition, yes, no)
