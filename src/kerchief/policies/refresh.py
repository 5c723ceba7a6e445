"""When a bandit learns and posts a new model, in public time."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.batches import ends_now
from kerchief.core.contracts import Clock, Policy, Tree


def is_refresh_due(clock: Clock, patience: float | Array) -> Array:
    """Whether to publish a model after this round, ever more rarely.

    That is every 2^k rounds, the largest such number that is at most patience * round, or every
    round while that is below 1: multiples of a power of two come evenly.

    >>> rounds = [r for r in range(40) if is_refresh_due(Clock(round=jnp.int32(r), since={}), 0.1)]
    >>> [r + 1 for r in rounds if r > 15]
    [17, 18, 19, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40]
    """
    now = clock.round + 1
    return now % gap_after(now, patience) == 0


def gap_after(users: int | Array, patience: float | Array) -> Array:
    """Return the rounds between two models after so many users; see `is_refresh_due`.

    >>> [int(gap_after(users, 0.1)) for users in (3, 39, 40, 99)]
    [1, 2, 4, 8]
    """
    gap = jnp.maximum(1, jnp.asarray(patience * users).astype(jnp.int32))
    return 1 << (31 - jax.lax.clz(gap))


class Patient(Policy):
    """A bandit that posts models ever more rarely; `patience` says how (`is_refresh_due`)."""

    patience: float | Array

    def refreshes(self, clock: Clock) -> Array | bool:
        """Publish models ever more rarely, as one more user matters ever less."""
        return is_refresh_due(clock, self.patience)


class Batchwise(Policy):
    """A bandit that asks, learns and posts when a batch ends; its queries say when that is."""

    def due(self, state: Tree, clock: Clock) -> Mapping[str, Array | bool]:
        """Ask every query when a batch ends."""
        return dict.fromkeys(self.queries, self.refreshes(clock))

    def refreshes(self, clock: Clock) -> Array | bool:
        """Publish a model when a batch ends."""
        return ends_now(next(iter(self.queries.values())).batches, clock)
