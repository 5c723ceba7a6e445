"""The compiled loop, which plays thousands of bandits at once, and its recorder."""

from __future__ import annotations

from kerchief.simulation.context_free import ContextFreeRun, simulate_context_free
from kerchief.simulation.phases import PhasedRun, simulate_phases
from kerchief.simulation.run import Run, simulate

__all__ = [
    "ContextFreeRun",
    "PhasedRun",
    "Run",
    "simulate",
    "simulate_context_free",
    "simulate_phases",
]
