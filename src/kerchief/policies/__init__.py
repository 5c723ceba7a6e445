"""Bandits, by family. They import nothing but the core."""

from __future__ import annotations

from kerchief.policies import uniform
from kerchief.policies.glm import (
    batched,
    batched_paper,
    ecolog,
    gloc,
    online,
    paper,
    rarely,
    rs,
    ucb,
)
from kerchief.policies.linear import elimination, linucb, sblb
from kerchief.policies.registry import POLICIES, Entry, Mode

__all__ = [
    "POLICIES",
    "Entry",
    "Mode",
    "batched",
    "batched_paper",
    "ecolog",
    "elimination",
    "gloc",
    "linucb",
    "online",
    "paper",
    "rarely",
    "rs",
    "sblb",
    "ucb",
    "uniform",
]
