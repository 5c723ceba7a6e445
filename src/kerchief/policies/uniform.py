"""Uniform play: the yardstick that asks nothing and learns nothing."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, BoundedSum, Clock, Outlook, Problem, Release, Tree
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.policies.registry import POLICIES, Entry, Mode

__all__ = ["Uniform"]


@struct
class Uniform:
    """Choose among the allowed arms with equal chances.

    >>> Uniform().queries
    {}
    """

    @property
    def queries(self) -> Mapping[str, BoundedSum]:
        """None: it needs no private data."""
        return {}

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Nothing to remember."""
        return ()

    def due(self, state: Tree, clock: Clock) -> Mapping[str, Array | bool]:
        """Nothing is wanted."""
        return {}

    def request(self, state: Tree, name: str) -> None:
        """Never called, as there are no queries."""

    def update(self, state: Tree, name: str, release: Release) -> Tree:
        """Never called, as there are no queries."""
        return state

    def refreshes(self, clock: Clock) -> Array | bool:
        """Nothing changes."""
        return False

    def publish(self, state: Tree) -> Tree:
        """Nothing to publish."""
        return ()

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm with the highest ticket."""
        tickets = stream.uniform(arms.allowed.shape[0])
        return jnp.argmax(jnp.where(arms.allowed, tickets, 0))

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Nothing is asked."""
        return {}


def _make(problem: Problem, mode: Mode) -> Uniform:
    return Uniform()


POLICIES.add(
    "uniform",
    Entry(
        make=_make,
        kind=Uniform,
        summary="choose among the allowed arms with equal chances",
        source="the yardstick of every comparison",
        trusts=("none",),
        parent="uniform",
        home=None,
    ),
)
