"""The device: the user's side, where contexts, actions and rewards exist in the clear."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock, Policy, Query, Tree
from kerchief.core.errors import InvalidValue
from kerchief.core.precision import double_precision
from kerchief.core.random import DEVICE, POLICY, Stream
from kerchief.core.validate import real_array
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy.ledger import Ledger
from kerchief.privacy.receipts import Charge, Cohort
from kerchief.privatizers.privatizer import Privatizer
from kerchief.roles.messages import Post, Reports
from kerchief.roles.round import place
from kerchief.roles.uncopyable import Guarded
from kerchief.roles.values import as_arms

__all__ = ["Device", "on_host"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Visit:
    """What the device remembers of its user between the action and the reward."""

    post: Post
    arms: Arms = dataclasses.field(repr=False)
    action: int = dataclasses.field(repr=False)


@double_precision
class Device(Guarded):
    """Acts for one user at a time, and answers queries with what the privatizers let out.

    What is raw stays in this object until the next visit; `act` returns the action to the user and
    `reports` returns what leaves. Under local trust reports already carry all their noise. Under
    joint and central trust they are clipped statistics without noise, for a curator that the user
    trusts.

    A report is made once per visit. Calling `reports` again, as a device does that did not hear
    back, returns the same one: fresh noise on the same record would be a second release that
    nobody paid for.

    Under local trust a device that belongs to one user may keep a ledger of that user's own. Every
    visit is a report about the same person, with noise of its own, so each is charged there, before
    any noise is drawn, and the visit that the budget cannot pay for makes no report: the user still
    gets an action, and nobody learns from it. That a report is missing shows that the user came
    often, and nothing else. Under other trusts two visits may fall into one sum, which moves twice
    as far: there a device cannot know what a visit costs, and keeps no ledger.

    >>> from kerchief.core.problems import Problem
    >>> from kerchief.policies import POLICIES
    >>> facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=9)
    >>> device = Device(policy=POLICIES["uniform"].build(facts, "tuned"), privatizers={})
    >>> post = Post(model=(), clock=Clock(round=np.int32(0), since={}))
    >>> arms = Arms(features=np.zeros((3, 2)), allowed=np.array([False, True, False]))
    >>> device.act(post, arms, Stream.of(seed=0, replicate=0))
    1
    >>> device.reports(1.0, None) is device.reports(1.0, None)
    True
    """

    def __init__(
        self,
        *,
        policy: Policy,
        privatizers: Mapping[str, Privatizer],
        ledger: Ledger | None = None,
    ) -> None:
        """Give the device its code; it holds no user yet.

        Args:
            policy: whose device functions run here.
            privatizers: whose randomizers run here, one per query.
            ledger: of the one user whose device this is, over all visits; None for a device that
                serves another user every time, where the run's own ledger pays for each once.

        Raises:
            InvalidValue: a ledger is given, and a report does not carry all its noise.
        """
        bare = [name for name, one in privatizers.items() if not one.noisy_device]
        if ledger is not None and bare:
            raise InvalidValue(
                f"the device adds no noise of its own to {', '.join(bare)}, so it cannot know what "
                "a visit costs; leave the ledger out, or choose local trust"
            )
        self._policy = policy
        self._privatizers = dict(privatizers)
        self._ledger = ledger
        self._visit: _Visit | None = None
        self._reports: Reports | None = None

    def act(self, post: Post, arms: Arms, stream: Stream) -> int:
        """Begin a visit: choose one of the user's arms from the public model.

        Args:
            post: the billboard.
            arms: what this user may choose from; stays here.
            stream: the root of the run's randomness, for policies that toss coins.

        Returns:
            The arm's number.
        """
        arms = as_arms(arms)
        try:
            action = int(np.asarray(_act(self._policy, post.model, arms, post.clock, stream)))
        except (TypeError, ValueError) as fault:
            raise InvalidValue(
                f"arms of shape {np.shape(arms.features)} do not fit the posted model; give as "
                "many features as the problem has dimensions"
            ) from fault
        self._visit = _Visit(post=post, arms=arms, action=action)
        self._reports = None
        return action

    def reports(self, reward: ArrayLike, stream: Stream | None) -> Reports:
        """End the visit: one report per query, made once and then repeated as it is.

        Args:
            reward: what the action brought; stays here.
            stream: the root of the run's randomness for simulated noise; None for exact noise,
                which comes from the operating system.

        Returns:
            The message to the aggregator.

        Raises:
            InvalidValue: there was no action, or simulated noise has no stream to come from.
            BudgetExceeded: the user's own ledger refuses this visit; nothing was drawn.
        """
        if self._reports is None:
            if self._visit is None:
                raise InvalidValue("there is no action to report on; call act first")
            # Before anything is charged: what makes no report must cost nothing.
            reward = _number(reward)
            self._check_stream(stream)
            told = {name: self._told(name, self._visit, reward) for name in self._privatizers}
            if self._ledger is not None:
                self._ledger.charge_all(self._bill(int(self._visit.post.clock.round)))
            answers = {
                name: self._answer(name, self._visit, reward, statistic, stream)
                for name, statistic in told.items()
            }
            self._reports = Reports(ticket=secrets.token_hex(16), answers=answers)
            self._visit = None
        return self._reports

    def _check_stream(self, stream: Stream | None) -> None:
        for name, privatizer in self._privatizers.items():
            if stream is None and privatizer.outlook.noisy and not on_host(privatizer):
                raise InvalidValue(f"the noise of {name!r} is simulated; give reports a stream")

    def _bill(self, round: int) -> tuple[Charge, ...]:
        """What a report in this round costs the user whose device this is."""
        return tuple(
            dataclasses.replace(line, cohort=Cohort(first=0, last=1))
            for privatizer in self._privatizers.values()
            for line in privatizer.charges(round + 1)
            if line.cohort.first <= round < line.cohort.last
        )

    def _told(self, name: str, visit: _Visit, reward: ArrayLike) -> NDArray[np.float64] | None:
        """The statistic that exact noise is added to; also where a ledger is about to pay."""
        privatizer = self._privatizers[name]
        if not on_host(privatizer) and self._ledger is None:
            return None
        given = (name, visit.post.model, visit.arms, visit.action, reward)
        try:
            return np.asarray(_statistic(self._policy, privatizer.query, *given))
        except (TypeError, ValueError) as fault:
            raise InvalidValue(
                f"the posted model does not fit a record for {name!r}; read the billboard again"
            ) from fault

    def _answer(
        self,
        name: str,
        visit: _Visit,
        reward: ArrayLike,
        statistic: NDArray[np.float64] | None,
        stream: Stream | None,
    ) -> Vector:
        privatizer, clock = self._privatizers[name], visit.post.clock
        if on_host(privatizer):
            return privatizer.report(statistic, clock, None)
        given = (name, visit.post.model, visit.arms, visit.action, reward)
        number = place(name, self._privatizers)
        at = None if stream is None else stream.at(DEVICE, round=clock.round, query=number)
        return _randomize(self._policy, privatizer, *given, clock, at)


def _number(reward: ArrayLike) -> ArrayLike:
    """A reward that is one number; the query clips it, and takes what is not finite for 0."""
    number = real_array("rewards", reward)
    if number.ndim:
        raise InvalidValue(f"the reward has shape {number.shape}; give one real number")
    return reward if isinstance(reward, Array | float) else number


def on_host(privatizer: Privatizer) -> bool:
    """Whether its noise is exact: drawn by NumPy code, and so never inside a compiled function."""
    return privatizer.outlook.noisy and not privatizer.idealized


@jax.jit
def _act(policy: Policy, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
    return policy.act(model, arms, clock, stream.at(POLICY, round=clock.round))


@partial(jax.jit, static_argnums=2)
def _randomize(
    policy: Policy,
    privatizer: Privatizer,
    name: str,
    model: Tree,
    arms: Arms,
    action: Array,
    reward: Array,
    clock: Clock,
    stream: Stream | None,
) -> Vector:
    record = policy.record(model, arms, action, reward)[name]
    return privatizer.randomize(record, clock, stream)


@partial(jax.jit, static_argnums=(1, 2))
def _statistic(
    policy: Policy,
    query: Query,
    name: str,
    model: Tree,
    arms: Arms,
    action: Array,
    reward: Array,
) -> Array:
    """Clip and encode in float64: what the proof of the discrete noise pays for."""
    wide = Arms(features=arms.features.astype(jnp.float64), allowed=arms.allowed)
    record = policy.record(model, wide, action, jnp.asarray(reward, jnp.float64))[name]
    return query.encode(record)
