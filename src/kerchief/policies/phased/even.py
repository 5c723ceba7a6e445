"""Uniform play in a population: the yardstick that asks nobody and learns nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Tree
from kerchief.core.crowd import Crowd
from kerchief.core.struct import static, struct
from kerchief.policies.phased.contract import Asked, Phase, UnitBall

__all__ = ["Even"]


@struct
class Even:
    """Play all actions equally often.

    Attributes:
        crowd: the public facts.
    """

    crowd: Crowd = static()

    @property
    def queries(self) -> Mapping[str, UnitBall]:
        """None: it needs no private data."""
        return {}

    def phases(self, noise: Callable[[int], float]) -> tuple[Phase, ...]:
        """None: all rounds are alike."""
        return ()

    def init(self) -> Tree:
        """Nothing to remember."""
        return ()

    def ask(self, features: Array, state: Tree, phase: Phase, *, noisy: bool) -> Asked:
        """Never called, as there are no phases."""
        raise NotImplementedError

    def answer(self, asked: Asked, averages: Array) -> Array:
        """Never called, as there are no phases."""
        raise NotImplementedError

    def update(
        self, features: Array, state: Tree, asked: Asked, phase: Phase, mean: Array, noise: Array
    ) -> Tree:
        """Never called, as there are no phases."""
        return state

    def settled(self, state: Tree) -> Array:
        """From the beginning."""
        return jnp.asarray(True)

    def finish(self, features: Array, state: Tree) -> Array:
        """Equal shares."""
        return jnp.full(self.crowd.arms, 1 / self.crowd.arms)
