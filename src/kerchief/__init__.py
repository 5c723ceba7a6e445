"""Differentially private bandits: learn which action is best, and not about any one person."""

from __future__ import annotations

from kerchief.core.problems import Problem
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import protect
from kerchief.roles import Bandit
from kerchief.simulation import simulate

__all__ = [
    "POLICIES",
    "Bandit",
    "Guarantee",
    "MemoryLedger",
    "Problem",
    "Trust",
    "make_environment",
    "protect",
    "simulate",
]

__version__ = "0.1.0"
