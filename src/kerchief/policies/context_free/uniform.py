"""Uniform play on arms: the yardstick that asks nobody and learns nothing."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Outlook, Tree
from kerchief.core.queries import Loss
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.policies.context_free.base import ContextFree

__all__ = ["UniformArms"]


@struct
class UniformArms(ContextFree):
    """Choose among the arms with equal chances.

    >>> from kerchief.core.problems import ContextFreeProblem
    >>> UniformArms(problem=ContextFreeProblem(horizon=9, low=0.0, high=1.0, arms=3)).queries
    {}
    """

    @property
    def queries(self) -> Mapping[str, Loss]:
        """None: it needs no private data."""
        return {}

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Nothing to remember."""
        return ()

    def propose(self, state: Tree, round: Array, stream: Stream) -> Array:
        """Any arm."""
        place = (stream.uniform(1)[0] * self.problem.arms).astype(jnp.int32)
        return jnp.minimum(place, self.problem.arms - 1)

    def recommend(self, state: Tree) -> Array:
        """An arm like any other."""
        return jnp.asarray(0, jnp.int32)
