"""The learner: sees releases, posts models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax
import numpy as np
from jax import Array

from kerchief.core.contracts import Clock, Outlook, Policy, Released, Start, Tree
from kerchief.core.errors import InvalidValue
from kerchief.core.precision import double_precision
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import OnDemand
from kerchief.roles.messages import Answer, Ask, Done, Message, Post, Read, Tick
from kerchief.roles.transport import Transport

__all__ = ["Learner"]

Aggregator = Callable[[str, Clock, Start | None], Released | None]


@double_precision
class Learner:
    """Keeps the policy's state and posts its model at public times.

    It is blind: no parameter of any method, and no message that it accepts, could hold a context,
    an action or a reward. Releases come in by asking the aggregator, and all it knows may be
    published.

    >>> from kerchief.core.problems import Problem
    >>> from kerchief.policies import POLICIES
    >>> facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=9)
    >>> learner = Learner(policy=POLICIES["uniform"].build(facts, "tuned"), outlook={}, limits={},
    ...                   aggregator=lambda query, clock, request: None)
    >>> learner.handle(Tick()), int(learner.post().clock.round)
    (Done(), 1)
    """

    def __init__(
        self,
        *,
        policy: Policy,
        outlook: Mapping[str, Outlook],
        limits: Mapping[str, int],
        aggregator: Aggregator,
    ) -> None:
        """Begin with an empty state and post its model.

        Args:
            policy: whose learner functions run here.
            outlook: what may be known about each query's answers beforehand.
            limits: for each query that is released on demand, how often at most.
            aggregator: gives the release of a query at a time, or None where it is not ready.
        """
        self._policy = policy
        self._limits = dict(limits)
        self._aggregator = aggregator
        self._round = 0
        self._last = dict.fromkeys(outlook, -1)
        self._used = dict.fromkeys(outlook, 0)
        self._state = _init(policy, tuple(outlook.items()))
        self._model = _publish(policy, self._state)
        self.released: dict[str, Released] = {}

    @classmethod
    def over(
        cls,
        transport: Transport,
        *,
        policy: Policy,
        privatizers: Mapping[str, Privatizer],
        curator: str,
    ) -> Learner:
        """A learner that asks the curator at an address."""
        return cls.beside(partial(_ask, transport, curator), policy=policy, privatizers=privatizers)

    @classmethod
    def beside(
        cls, aggregator: Aggregator, *, policy: Policy, privatizers: Mapping[str, Privatizer]
    ) -> Learner:
        """A learner that asks an aggregator; of the privatizers it keeps public facts alone."""
        return cls(
            policy=policy,
            outlook={name: privatizer.outlook for name, privatizer in privatizers.items()},
            limits={
                name: privatizer.schedule.limit
                for name, privatizer in privatizers.items()
                if isinstance(privatizer.schedule, OnDemand)
            },
            aggregator=aggregator,
        )

    @property
    def clock(self) -> Clock:
        """Public time, as of the round to come."""
        now = np.int32(self._round)
        since: dict[str, Array] = jax.tree.map(lambda last: now - np.int32(last), self._last)
        return Clock(round=jax.tree.map(np.asarray, now), since=since)

    @property
    def model(self) -> Tree:
        """What is posted."""
        return self._model

    def post(self) -> Post:
        """The billboard."""
        return Post(model=self._model, clock=self.clock)

    def handle(self, message: Message) -> Message:
        """Show the billboard, or end a round."""
        match message:
            case Read():
                return self.post()
            case Tick():
                self.tick()
                return Done()
        raise InvalidValue(f"a learner was sent a {type(message).__name__}; it takes Read and Tick")

    def tick(self) -> None:
        """End a round: take the releases that are due, and post a new model if it is time."""
        clock = self.clock
        for name in self._last:
            if name not in self._limits and self._wants(name, clock):
                self._take(name, clock)
        if bool(np.asarray(_refreshes(self._policy, clock))):
            self._model = _publish(self._policy, self._state)
        wanted = [name for name in self._limits if self._wants(name, clock)]
        for name in wanted:
            # Wishes beyond the limit are not made: the aggregator would refuse them.
            if self._used[name] < self._limits[name]:
                self._take(name, self.clock)
                self._model = _publish(self._policy, self._state)
        self._round += 1

    def snapshot(self) -> Mapping[str, Tree]:
        """Everything it remembers, for the codec."""
        return {
            "round": self._round,
            "last": dict(self._last),
            "used": dict(self._used),
            "state": self._state,
            "model": self._model,
        }

    def resume(self, snapshot: Mapping[str, Tree]) -> None:
        """Go on from a snapshot."""
        self._round = snapshot["round"]
        self._last, self._used = dict(snapshot["last"]), dict(snapshot["used"])
        self._state, self._model = snapshot["state"], snapshot["model"]

    def _wants(self, name: str, clock: Clock) -> bool:
        return bool(np.asarray(_due(self._policy, self._state, clock)[name]))

    def _take(self, name: str, clock: Clock) -> None:
        release = self._aggregator(name, clock, _request(self._policy, self._state, name))
        if release is None:
            return
        self._state = _update(self._policy, self._state, name, release)
        self._last[name] = self._round
        self._used[name] += 1
        self.released[name] = release


def _ask(
    transport: Transport, curator: str, query: str, clock: Clock, request: Start | None
) -> Released | None:
    answer = transport.send(curator, Ask(query=query, clock=clock, request=request))
    if not isinstance(answer, Answer):
        raise InvalidValue(f"the curator replied with a {type(answer).__name__}, not an Answer")
    return answer.release


@partial(jax.jit, static_argnums=1)
def _init(policy: Policy, outlook: tuple[tuple[str, Outlook], ...]) -> Tree:
    return policy.init(dict(outlook))


@jax.jit
def _publish(policy: Policy, state: Tree) -> Tree:
    return policy.publish(state)


@jax.jit
def _due(policy: Policy, state: Tree, clock: Clock) -> Mapping[str, Array | bool]:
    return policy.due(state, clock)


@partial(jax.jit, static_argnums=2)
def _request(policy: Policy, state: Tree, name: str) -> Start | None:
    return policy.request(state, name)


@jax.jit
def _refreshes(policy: Policy, clock: Clock) -> Array | bool:
    return policy.refreshes(clock)


@partial(jax.jit, static_argnums=2)
def _update(policy: Policy, state: Tree, name: str, release: Released) -> Tree:
    return policy.update(state, name, release)
