"""Declared comparisons: what is played, by whom and where, and what came out."""

from __future__ import annotations

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.plan import Plan
from kerchief.comparison.players import Cell, Player, player
from kerchief.comparison.results import Result
from kerchief.comparison.runner import compare

__all__ = ["Cell", "Comparison", "Plan", "Player", "Result", "compare", "player"]
