"""Declared comparisons, the catalogue and benchmarks, their tables, figures and reports."""

from __future__ import annotations

from kerchief.experiments.declare import Comparison
from kerchief.experiments.frames import Results, read_results
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.plan import Plan
from kerchief.experiments.players import Cell, Player, player
from kerchief.experiments.results import Result
from kerchief.experiments.runner import compare

__all__ = [
    "Cell",
    "Comparison",
    "Outputs",
    "Plan",
    "Player",
    "Result",
    "Results",
    "compare",
    "player",
    "read_results",
]
