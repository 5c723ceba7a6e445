"""One bandit's round as pure functions: what `simulation` maps over replicates and `Bandit` calls.

All roles are in one compiled call here, so this is for simulated noise and for no noise. With exact
noise the roles stay apart, as that noise is drawn outside compiled code.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, Policy, Release, Stops, Tree
from kerchief.core.random import AGGREGATOR, DEVICE, POLICY, Stream
from kerchief.core.struct import struct
from kerchief.mechanisms.mechanism import Vector
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import At, Every, OnDemand

T = TypeVar("T")
C = TypeVar("C", bound="Carry")


@struct
class Carry:
    """What a bandit remembers between two rounds; `memory` and `tally` may hold private data."""

    state: Tree
    model: Tree
    memory: Mapping[str, Tree]
    tally: Mapping[str, Tree]
    last: Mapping[str, Array]
    used: Mapping[str, Array]


@struct
class Round:
    """The functions of a round, for one policy under one protection.

    The round is an argument of its own, never part of the carry: where thousands of carries are
    mapped over, a branch on public time then stays a branch.
    """

    policy: Policy
    privatizers: Mapping[str, Privatizer]

    def begin(self) -> Carry:
        """Before the first user."""
        initial_states = {name: privatizer.open() for name, privatizer in self.privatizers.items()}
        state = self.policy.init({name: p.outlook for name, p in self.privatizers.items()})
        return Carry(
            state=state,
            model=self.policy.publish(state),
            memory={name: memory for name, (memory, _) in initial_states.items()},
            tally={name: tally for name, (_, tally) in initial_states.items()},
            last=dict.fromkeys(initial_states, jnp.int32(-1)),
            used=dict.fromkeys(initial_states, jnp.int32(0)),
        )

    def clock(self, carry: Carry, round: Array) -> Clock:
        """Public time."""
        return Clock(round=round, since={name: round - last for name, last in carry.last.items()})

    def act(self, model: Tree, arms: Arms, clock: Clock, root: Stream) -> Array:
        """Device: choose an arm; learner: propose, where the action is its own."""
        action = self.policy.act(model, arms, clock, root.at(POLICY, round=clock.round))
        return action.astype(jnp.int32) if self.policy.feedback == "totals" else action

    def learn(
        self, carry: C, arms: Arms, action: Array, reward: Array, round: Array, root: Stream
    ) -> C:
        """Record, randomize and collect; then what public time makes due: release and publish."""
        clock, public_action = self.clock(carry, round), self._get_public_action(action)
        reports = self.report(carry.model, arms, action, reward, clock, root)
        return self.post(
            self.take(carry, reports, clock, root, public_action), clock, root, public_action
        )

    def report(
        self, model: Tree, arms: Arms, action: Array, reward: Array, clock: Clock, root: Stream
    ) -> Mapping[str, Vector]:
        """Device: what is sent for each query."""
        records, names = self.policy.record(model, arms, action, reward), self.privatizers
        at = {name: root.at(DEVICE, round=clock.round, query=place(name, names)) for name in names}
        return {
            name: privatizer.randomize(records[name], clock, at[name])
            for name, privatizer in self.privatizers.items()
        }

    def take(
        self,
        carry: C,
        reports: Mapping[str, Vector],
        clock: Clock,
        root: Stream,
        public_action: Array | None = None,
    ) -> C:
        """Aggregator: collect one user's reports; release what is released after every round."""
        return self._release_scheduled(
            Every, self._collect_reports(carry, reports), clock, public_action, root
        )

    def collect_releases(
        self, carry: C, reports: Mapping[str, Vector], clock: Clock, root: Stream
    ) -> tuple[C, Mapping[str, Release]]:
        """Collect one user's reports and return the releases, without updating the learner."""
        carry, released = self._collect_reports(carry, reports), {}
        for name, privatizer in self.privatizers.items():
            if isinstance(privatizer.schedule, Every):
                released[name], carry = self._draw_release(carry, clock, name, None, root)
        return carry, released

    def update(self, carry: C, releases: Mapping[str, Release]) -> C:
        """Learner: take releases in."""
        state = carry.state
        for name, release in releases.items():
            state = self.policy.update(state, name, release)
        return dataclasses.replace(carry, state=state)

    def _collect_reports(self, carry: C, reports: Mapping[str, Vector]) -> C:
        tally = {
            name: privatizer.collect(carry.tally[name], reports[name])
            for name, privatizer in self.privatizers.items()
        }
        return dataclasses.replace(carry, tally=tally)

    def post(self, carry: C, clock: Clock, root: Stream, public_action: Array | None = None) -> C:
        """Release batches and publish a new model, if public time makes them due."""

        def post() -> C:
            after = self._release_scheduled(At, carry, clock, public_action, root)
            return dataclasses.replace(after, model=self.policy.publish(after.state))

        # One branch for both: on an accelerator a branch costs as much as a round.
        result: C = _branch(self.posts(clock), post, lambda: carry)
        return result

    def posts(self, clock: Clock) -> Array | bool:
        """Whether a model is posted: what a batch brings always, else as the bandit says.

        Between two batches it would be the same one again.
        """
        schedules = [schedule.schedule for schedule in self.privatizers.values()]
        posts: list[Array | bool] = [
            schedule.ready(clock) for schedule in schedules if isinstance(schedule, At)
        ]
        if any(isinstance(schedule, Every) for schedule in schedules):
            posts.append(self.policy.refreshes(clock))
        return reduce(operator.or_, posts, False)

    def going(self, carry: Carry) -> Array | bool:
        """Whether anyone is asked in this round."""
        return ~self.policy.is_stopped(carry.state) if isinstance(self.policy, Stops) else True

    def wishes(self, carry: Carry, round: Array) -> Mapping[str, Array]:
        """Which releases on demand the learner wants now, within what was paid for."""
        is_wanted = self.policy.due(carry.state, self.clock(carry, round))
        return {
            name: is_wanted[name] & privatizer.schedule.room(carry.used[name])
            for name, privatizer in self.privatizers.items()
            if isinstance(privatizer.schedule, OnDemand)
        }

    def serve(self, carry: C, name: str, round: Array, root: Stream) -> C:
        """Release on demand, and post what came of it at once."""
        clock = self.clock(carry, round)
        carry = self._release_and_update(carry, clock, name, None, root)
        return dataclasses.replace(carry, model=self.policy.publish(carry.state))

    def _get_public_action(self, action: Array) -> Array | None:
        """Return the action if it is the learner's own, and thus public to it."""
        return action if self.policy.feedback == "reports" else None

    def _release_scheduled(
        self,
        kind: type[At | Every],
        carry: C,
        clock: Clock,
        public_action: Array | None,
        root: Stream,
    ) -> C:
        """Release what schedules of this kind make due now and the learner wants."""
        for name, privatizer in self.privatizers.items():
            if isinstance(privatizer.schedule, kind):
                carry = self._release_if_due(carry, clock, name, public_action, root)
        return carry

    def _release_if_due(
        self, carry: C, clock: Clock, name: str, public_action: Array | None, root: Stream
    ) -> C:
        schedule = self.privatizers[name].schedule
        # The end of a batch is why this is asked at all, unless there are several queries.
        alone = len(self.privatizers) == 1
        ready = schedule.ready(clock) if isinstance(schedule, At) and not alone else True
        is_wanted = self.policy.due(carry.state, clock)[name]

        def serve() -> C:
            after = self._release_and_update(carry, clock, name, public_action, root)
            if is_wanted is True:
                return after
            merged: C = jax.tree.map(
                lambda new, old: old if new is old else jnp.where(is_wanted, new, old), after, carry
            )
            return merged

        return _branch(ready, serve, lambda: carry)

    def _release_and_update(
        self, carry: C, clock: Clock, name: str, public_action: Array | None, root: Stream
    ) -> C:
        """Release one query, and update the learner."""
        release, carry = self._draw_release(carry, clock, name, public_action, root)
        return self.update(carry, {name: release})

    def _draw_release(
        self, carry: C, clock: Clock, name: str, public_action: Array | None, root: Stream
    ) -> tuple[Release, C]:
        """Release one query without updating the learner."""
        privatizer = self.privatizers[name]
        at = root.at(AGGREGATOR, round=clock.round, query=place(name, self.privatizers))
        request = self.policy.request(carry.state, name)
        release, memory = privatizer.release(
            carry.memory[name], carry.tally[name], request, clock, at
        )
        if public_action is not None:
            release = dataclasses.replace(release, action=public_action)
        return release, dataclasses.replace(
            carry,
            memory={**carry.memory, name: memory},
            tally={**carry.tally, name: privatizer.clear(carry.tally[name])},
            last={**carry.last, name: clock.round},
            used={**carry.used, name: carry.used[name] + 1},
        )


def place(name: str, names: Iterable[str]) -> int:
    """The number of a query among a policy's queries, for its address in the randomness.

    >>> place("b", {"c": 1, "b": 2})
    0
    """
    return sorted(names).index(name)


def _branch(condition: Array | bool, yes: Callable[[], T], no: Callable[[], T]) -> T:
    """Branch in compiled code where the condition is traced, in Python where it is a bool."""
    if isinstance(condition, bool):
        return yes() if condition else no()
    result: T = jax.lax.cond(condition, yes, no)
    return result
