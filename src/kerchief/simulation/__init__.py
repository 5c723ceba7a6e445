"""The compiled loop, which plays thousands of bandits at once, and its recorder."""

from __future__ import annotations

from kerchief.simulation.phases import PhasedRun, simulate_phases
from kerchief.simulation.plain import PlainRun, simulate_plain
from kerchief.simulation.run import Run, simulate

__all__ = ["PhasedRun", "PlainRun", "Run", "simulate", "simulate_phases", "simulate_plain"]
