"""The compiled loop, which plays thousands of bandits at once, and its recorder."""

from __future__ import annotations

from kerchief.simulation.recorder import Progress
from kerchief.simulation.run import AnyEnvironment, Run, simulate

__all__ = ["AnyEnvironment", "Progress", "Run", "simulate"]
