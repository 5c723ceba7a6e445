"""Simulated worlds; the true parameter, the best arm and the regret are known here alone."""

from __future__ import annotations

from kerchief.environments.context_free import Alternating, ChanceArms, CountedArms, Switching
from kerchief.environments.context_free_convex import CONVEX
from kerchief.environments.contexts import CONTEXTS
from kerchief.environments.disjoint import DisjointModels
from kerchief.environments.fixed_intercept import FixedIntercept
from kerchief.environments.population import Population
from kerchief.environments.ranges import RANGED_CONSTANT, RANGED_NORM, ranged
from kerchief.environments.recorded import Recorded, table_two
from kerchief.environments.supervised import Supervised
from kerchief.environments.worlds import NOISES, GLMEnvironment, make_environment

__all__ = [
    "CONTEXTS",
    "CONVEX",
    "NOISES",
    "RANGED_CONSTANT",
    "RANGED_NORM",
    "Alternating",
    "ChanceArms",
    "CountedArms",
    "DisjointModels",
    "FixedIntercept",
    "GLMEnvironment",
    "Population",
    "Recorded",
    "Supervised",
    "Switching",
    "make_environment",
    "ranged",
    "table_two",
]
