"""Schedules: when a privatizer may release, at public times or when the learner asks."""

from __future__ import annotations

import dataclasses
import itertools

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Clock
from kerchief.core.validate import MOST_ROUNDS, increasing, plain, whole
from kerchief.privacy.receipts import Cohort


@dataclasses.dataclass(frozen=True, kw_only=True)
class Every:
    """After every round."""

    def capacity(self, horizon: int) -> int:
        """One release per round."""
        return horizon

    def covered(self, releases: int) -> int:
        """How many users the first so many releases speak about."""
        return releases


@dataclasses.dataclass(frozen=True, kw_only=True)
class At:
    """After fixed rounds, each the end of a batch.

    Attributes:
        ends: how many users have arrived when each release is made, increasing.
    """

    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that every batch has a user."""
        plain(self)
        increasing("ends of batches", self.ends)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many users each batch has."""
        return tuple(end - start for start, end in itertools.pairwise((0, *self.ends)))

    def cohorts(self, horizon: int) -> tuple[Cohort, ...]:
        """The users of each batch that begins within the horizon."""
        return tuple(
            Cohort(first=start, last=min(end, horizon))
            for start, end in itertools.pairwise((0, *self.ends))
            if start < horizon
        )

    def ready(self, clock: Clock) -> Array:
        """Whether this round ends a batch."""
        return (jnp.asarray(self.ends, jnp.int32) == clock.round + 1).any()

    def capacity(self, horizon: int) -> int:
        """One release for each batch that ends within the horizon."""
        return sum(end <= horizon for end in self.ends)

    def covered(self, releases: int) -> int:
        """How many users the first so many releases speak about.

        >>> At(ends=(3, 7)).covered(1)
        3
        """
        return self.ends[releases - 1] if releases else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnDemand:
    """Whenever the learner asks, from what it has already seen, up to a fixed number of times.

    Attributes:
        limit: the most releases; further requests are not served.
    """

    limit: int

    def __post_init__(self) -> None:
        """Check the limit."""
        plain(self)
        whole("limit", self.limit, high=MOST_ROUNDS)

    def room(self, used: Array) -> Array:
        """Whether one more release was paid for."""
        return used < self.limit

    def capacity(self, horizon: int) -> int:
        """The limit."""
        return self.limit

    def covered(self, releases: int) -> int:
        """How many users so many releases speak about at the least: one each."""
        return releases


Schedule = Every | At | OnDemand
