"""Uniform play on arms: the yardstick that asks nobody and learns nothing."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Outlook, Tree
from kerchief.core.game import Game
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.policies.plain.contract import Channel, Loss, Plain
from kerchief.policies.plain.domain import Anywhere
from kerchief.policies.plain.registry import PLAIN, Entry
from kerchief.policies.registry import Mode

__all__ = ["UniformArms"]


@struct
class UniformArms:
    """Choose among the arms with equal chances.

    Attributes:
        game: the public facts.

    >>> UniformArms(game=Game(horizon=9, low=0.0, high=1.0, arms=3)).queries
    {}
    """

    game: Game = static()

    @property
    def queries(self) -> Mapping[str, Loss]:
        """None: it needs no private data."""
        return {}

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Nothing to remember."""
        return ()

    def propose(self, state: Tree, round: Array, stream: Stream) -> Array:
        """Any arm."""
        place = (stream.uniform(1)[0] * self.game.arms).astype(jnp.int32)
        return jnp.minimum(place, self.game.arms - 1)

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


def _make(game: Game, mode: Mode, channel: Channel) -> Plain:
    return Anywhere(game=game) if game.arms == 0 else UniformArms(game=game)


PLAIN.add(
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
