"""Bandits for a population that one public action reaches at once: they go by phases."""

from __future__ import annotations

from kerchief.policies.phased import elimination

__all__ = ["elimination"]
