"""Declared comparisons and benchmarks, their tables, figures and reports."""

from __future__ import annotations

from kerchief.experiments.compare import Finished, compare
from kerchief.experiments.declare import Cell, Comparison
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.rows import Row, make_rows

__all__ = ["Cell", "Comparison", "Finished", "Outputs", "Row", "compare", "make_rows"]
