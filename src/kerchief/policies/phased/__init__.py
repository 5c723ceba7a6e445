"""Bandits for a population that one public action reaches at once: they go by phases."""

from __future__ import annotations

from kerchief.policies.phased.contract import ANSWERS, Asked, Asking, Phase, Phased, UnitBall
from kerchief.policies.phased.elimination import Elimination
from kerchief.policies.phased.registry import PHASED, Entry

__all__ = [
    "ANSWERS",
    "PHASED",
    "Asked",
    "Asking",
    "Elimination",
    "Entry",
    "Phase",
    "Phased",
    "UnitBall",
]
