"""All roles in one process, thousands at once: the compiled loop, its recorder and its metrics."""

from __future__ import annotations

from kerchief.simulation.run import Run, simulate

__all__ = ["Run", "simulate"]
