"""What bandits on finitely many arms share: one question per round, counts and sums of reports."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.channel import Channel
from kerchief.core.contracts import Outlook
from kerchief.core.errors import InvalidValue
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.struct import struct
from kerchief.policies.context_free.base import ContextFree

__all__ = ["Armed", "Counting", "Counts", "arms_of"]


def arms_of(problem: ContextFreeProblem) -> int:
    """The number of a problem's arms.

    Raises:
        InvalidValue: its actions are points of a domain.
    """
    if problem.domain is not None:
        raise InvalidValue(
            "the problem has a domain and no arms, and this bandit plays arms; choose a problem "
            "with arms, or a bandit for domains such as one-point"
        )
    return problem.arms


@struct
class Armed(ContextFree):
    """The part of a bandit on arms that every one of them has.

    Attributes:
        channel: what reports will be like.
    """

    channel: Channel

    def __post_init__(self) -> None:
        """Refuse a problem without arms: it is static, so no tracer ever stands for it."""
        arms_of(self.problem)


@struct
class Counts:
    """How often each arm was played, and the sum of its reports."""

    pulls: Array
    total: Array

    @property
    def means(self) -> Array:
        """The mean report of each arm; 0 without any."""
        return self.total / jnp.maximum(self.pulls, 1)


@struct
class Counting(Armed):
    """A bandit that keeps counts and sums and nothing else."""

    def init(self, outlook: Mapping[str, Outlook]) -> Counts:
        """No reports yet."""
        zero = jnp.zeros(self.problem.arms, jnp.float64)
        return Counts(pulls=zero, total=zero)

    def learn(self, state: Counts, action: Array, report: Array, round: Array) -> Counts:
        """Count the report to its arm."""
        mine = jnp.arange(self.problem.arms) == action
        return Counts(pulls=state.pulls + mine, total=state.total + mine * report)

    def recommend(self, state: Counts) -> Array:
        """The arm with the least mean report; arms that were never played come last."""
        return jnp.argmin(jnp.where(state.pulls > 0, state.means, jnp.inf)).astype(jnp.int32)
