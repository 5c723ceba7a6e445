"""The catalogue: one small file an experiment, entered where it is declared."""

from __future__ import annotations

from kerchief.experiments.catalogue import (
    epsilon_sweep,
    figure_one,
    fixed_arms,
    fresh_worlds,
    joint_linucb,
    kappa_sweep,
    table_two,
    trust_ladder,
)
from kerchief.experiments.experiment import EXPERIMENTS

__all__ = [
    "EXPERIMENTS",
    "epsilon_sweep",
    "figure_one",
    "fixed_arms",
    "fresh_worlds",
    "joint_linucb",
    "kappa_sweep",
    "table_two",
    "trust_ladder",
]
