"""Uniform play on arms: the yardstick that asks nobody and learns nothing."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.context_free import ContextFreeProblem
from kerchief.core.contracts import Outlook, Tree
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.policies.context_free.contract import Channel, ContextFreePolicy, Loss
from kerchief.policies.context_free.domain import Anywhere
from kerchief.policies.context_free.registry import CONTEXT_FREE, Entry
from kerchief.policies.registry import Mode

__all__ = ["UniformArms"]


@struct
class UniformArms:
    """Choose among the arms with equal chances.

    Attributes:
        problem: the public facts.

    >>> UniformArms(problem=ContextFreeProblem(horizon=9, low=0.0, high=1.0, arms=3)).queries
    {}
    """

    problem: ContextFreeProblem = static()

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

    def answer(self, action: Array, losses: Array) -> Array:
        """Device: the loss, which nobody asks for."""
        return losses[0]

    def update(self, state: Tree, action: Array, report: Array, round: Array) -> Tree:
        """Nothing is learned, as nothing is asked."""
        return state

    def stopped(self, state: Tree) -> Array:
        """Never."""
        return jnp.asarray(False)

    def recommend(self, state: Tree) -> Array:
        """An arm like any other."""
        return jnp.asarray(0, jnp.int32)


def _make(problem: ContextFreeProblem, mode: Mode, channel: Channel) -> ContextFreePolicy:
    return Anywhere(problem=problem) if problem.arms == 0 else UniformArms(problem=problem)


CONTEXT_FREE.add(
    "uniform",
    Entry(
        make=_make,
        kind=UniformArms,
        summary="choose among all actions with equal chances, and ask nobody",
        source="the yardstick of every comparison",
        trusts=("none",),
        parent="uniform",
    ),
)
