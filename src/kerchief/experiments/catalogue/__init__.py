"""The catalogue: one small file an experiment, entered where it is declared."""

from __future__ import annotations

from kerchief.experiments.catalogue import (
    dpe_fixed_u,
    dpe_privacy,
    epsilon_sweep,
    figure_one,
    fixed_arms,
    fresh_worlds,
    joint_linucb,
    kappa_sweep,
    sblb,
    shuffle_glm,
    shuffle_linucb,
    shuffle_noise,
    table_two,
    trust_ladder,
)
from kerchief.experiments.experiment import EXPERIMENTS

__all__ = [
    "EXPERIMENTS",
    "dpe_fixed_u",
    "dpe_privacy",
    "epsilon_sweep",
    "figure_one",
    "fixed_arms",
    "fresh_worlds",
    "joint_linucb",
    "kappa_sweep",
    "sblb",
    "shuffle_glm",
    "shuffle_linucb",
    "shuffle_noise",
    "table_two",
    "trust_ladder",
]
