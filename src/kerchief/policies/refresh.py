"""How often a bandit posts a new model, in public time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Clock

__all__ = ["ever_rarer"]


def ever_rarer(clock: Clock, patience: float | Array) -> Array:
    """Whether a model is posted after this round, as one more user matters ever less.

    That is every 2^k rounds, the largest such number that is at most patience * round, or every
    round while that is below 1: multiples of a power of two come evenly.

    >>> rounds = [r for r in range(40) if ever_rarer(Clock(round=jnp.int32(r), since={}), 0.1)]
    >>> [r + 1 for r in rounds if r > 15]
    [17, 18, 19, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40]
    """
    now = clock.round + 1
    gap = jnp.maximum(1, (patience * now).astype(jnp.int32))
    return now % (1 << (31 - jax.lax.clz(gap))) == 0
