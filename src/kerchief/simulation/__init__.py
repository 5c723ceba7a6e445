"""The compiled loop, which plays thousands of bandits at once, and its recorder."""

from __future__ import annotations

from kerchief.simulation.run import Run, simulate

__all__ = ["Run", "simulate"]
