"""Batches: public times at which reports are summed up, for policies that learn rarely."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Clock
from kerchief.core.validate import MOST_ROUNDS, between, whole


def grow_batches(horizon: int, *, first: int, growth: float) -> tuple[int, ...]:
    """How many users have come when each batch ends, each end `growth` times the one before.

    Those who come after the last full batch are in none: nobody could learn from them.

    >>> grow_batches(100, first=10, growth=2.0)
    (10, 20, 40, 80)
    """
    horizon = whole("horizon", horizon, high=MOST_ROUNDS)
    growth = between("growth", growth, 1.01, 1e9, closed=True)
    ends = [min(whole("first", first), horizon)]
    while (end := max(ends[-1] + 1, math.floor(ends[-1] * growth))) <= horizon:
        ends.append(end)
    return tuple(ends)


def span_horizon(horizon: int, *, first: int, growth: float) -> tuple[int, ...]:
    """Grow batches at a pace for which the last one ends with the horizon."""
    start, *_ = grow_batches(horizon, first=first, growth=growth)
    steps = max(1, round(math.log(horizon / start) / math.log(growth)))
    pace = (horizon / start) ** (1 / steps)
    ends = {math.floor(start * pace**step) for step in range(steps)}
    return (*sorted(end for end in ends if end < horizon), horizon)


def ends_now(batches: tuple[int, ...], clock: Clock) -> Array:
    """Whether a batch ends with this round.

    >>> bool(ends_now((3, 5), Clock(round=jnp.int32(2), since={})))
    True
    """
    return (jnp.asarray(batches, jnp.int32) == clock.round + 1).any()
