"""The catalogue: one module per family of experiments, each entered where it is declared."""

from __future__ import annotations

from kerchief.papers.catalogue import (
    context_free,
    convex,
    glm,
    glm_adversaries,
    linear,
    local,
    main_paper,
    population,
    population_variants,
    rates,
    sblb,
)
from kerchief.papers.experiment import EXPERIMENTS

__all__ = [
    "EXPERIMENTS",
    "context_free",
    "convex",
    "glm",
    "glm_adversaries",
    "linear",
    "local",
    "main_paper",
    "population",
    "population_variants",
    "rates",
    "sblb",
]
