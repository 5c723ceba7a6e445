"""The device: the user's side, the one place where contexts, actions and rewards exist in the clear."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from functools import partial

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from kerchief.core.contracts import Arms, BoundedSum, Clock, Policy, Tree
from kerchief.core.errors import InvalidValue
from kerchief.core.random import DEVICE, POLICY, Stream
from kerchief.privatizers.sums import CohortSums
from kerchief.roles.messages import Answers, Post, Reports

__all__ = ["Device"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Visit:
    """What the device remembers of its user between the action and the reward."""

    post: Post
    arms: Arms
    action: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Encoded:
    """A query whose statistic was already clipped and encoded in float64, by compiled code."""

    size: int
    sensitivity: float

    def encode(self, record: Array) -> Array:
        return record


class Device:
    """Acts for one user at a time, and answers queries with what the privatizers let out.

    What is raw stays in this object until the next visit; `act` returns the action to the user and
    `reports` returns what leaves. Under local trust reports already carry all their noise. Under
    central trust they are clipped, un-noised statistics for a curator that the user trusts.

    A report is made once a visit. Calling `reports` again, as a device does that did not hear
    back, returns the same one: fresh noise on the same record would be a second release that
    nobody paid for.

    >>> from kerchief.core.contracts import Problem
    >>> from kerchief.policies import POLICIES
    >>> facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=9)
    >>> device = Device(policy=POLICIES["uniform"].make(facts, "tuned"), privatizers={})
    >>> post = Post(model=(), clock=Clock(round=np.int32(0), since={}))
    >>> arms = Arms(features=np.zeros((3, 2)), allowed=np.array([False, True, False]))
    >>> device.act(post, arms, Stream.of(seed=0, replicate=0))
    1
    >>> device.reports(1.0, None) is device.reports(1.0, None)
    True
    """

    def __init__(self, *, policy: Policy, privatizers: Mapping[str, CohortSums]) -> None:
        """Give the device its code; it holds no user yet.

        Args:
            policy: whose device functions run here.
            privatizers: whose randomizers run here, one a query.
        """
        self._policy = policy
        self._privatizers = dict(privatizers)
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
        at = stream.at(POLICY, round=post.clock.round)
        action = int(np.asarray(_act(self._policy, post.model, arms, post.clock, at)))
        self._visit = _Visit(post=post, arms=arms, action=action)
        self._reports = None
        return action

    def reports(self, reward: ArrayLike, stream: Stream | None) -> Reports:
        """End the visit: one report a query, made once and then repeated as it is.

        Args:
            reward: what the action brought; stays here.
            stream: the root of the run's randomness for simulated noise; None for exact noise, which
                comes from the operating system.

        Returns:
            The message to the middle.

        Raises:
            InvalidValue: there was no action, or simulated noise has no stream to come from.
        """
        if self._reports is None:
            if self._visit is None:
                raise InvalidValue("there is no action to report on; call act first")
            answers = {name: self._answer(name, reward, stream) for name in self._privatizers}
            self._reports = Reports(ticket=secrets.token_hex(16), answers=answers)
            self._visit = None
        return self._reports

    def _answer(self, name: str, reward: ArrayLike, stream: Stream | None) -> Array:
        privatizer, visit = self._privatizers[name], self._pending()
        if not privatizer.idealized:
            return self._exact(name, privatizer, reward, visit)
        if stream is None:
            raise InvalidValue(f"the noise of {name!r} is simulated; it needs a stream")
        place = list(self._privatizers).index(name)
        at = stream.at(DEVICE, round=visit.post.clock.round, query=place)
        return _randomize(self._policy, privatizer, name, visit.post.model, visit.arms, visit.action, reward, at)

    def _exact(self, name: str, privatizer: CohortSums, reward: ArrayLike, visit: _Visit) -> Array:
        """Encode in float64, as the proof of the discrete noise asks; add the noise on the host."""
        wide = Arms(features=np.asarray(visit.arms.features, np.float64), allowed=visit.arms.allowed)
        query, value = privatizer.query, np.float64(reward)
        statistic = _statistic(self._policy, query, name, visit.post.model, wide, visit.action, value)
        known = _Encoded(size=query.size, sensitivity=query.sensitivity)
        return dataclasses.replace(privatizer, query=known).randomize(np.asarray(statistic), None)
