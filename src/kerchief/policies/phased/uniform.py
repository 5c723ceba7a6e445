"""Uniform play in a population: the yardstick that asks nobody and learns nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Tree
from kerchief.core.population import PopulationProblem
from kerchief.core.struct import static, struct
from kerchief.policies.phased.contract import Phase, UnitBall

__all__ = ["UniformPopulation"]


@struct
class UniformPopulation:
    """Play all actions equally often.

    Attributes:
        problem: the public facts.
    """

    problem: PopulationProblem = static()

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

    def finish(self, features: Array, state: Tree) -> Array:
        """Equal shares."""
        return jnp.full(self.problem.arms, 1 / self.problem.arms)
