"""Uniform play in a population: the yardstick that asks nobody and learns nothing."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Tree
from kerchief.core.phases import PhasePolicy
from kerchief.core.problems import PopulationProblem
from kerchief.core.struct import static, struct

__all__ = ["UniformPopulation"]


@struct
class UniformPopulation(PhasePolicy):
    """Play all actions equally often.

    Attributes:
        problem: the public facts.
    """

    problem: PopulationProblem = static()

    def finish(self, features: Array, state: Tree) -> Array:
        """Equal shares."""
        return jnp.full(self.problem.arms, 1 / self.problem.arms)
