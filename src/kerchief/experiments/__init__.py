"""Declared comparisons, the catalogue and benchmarks, their tables, figures and reports."""

from __future__ import annotations

from kerchief.experiments.compare import Finished, compare
from kerchief.experiments.declare import Comparison
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.plan import Cell, Plan, Player, player
from kerchief.experiments.rows import Row, make_rows

__all__ = [
    "Cell",
    "Comparison",
    "Finished",
    "Outputs",
    "Plan",
    "Player",
    "Row",
    "compare",
    "make_rows",
    "player",
]
