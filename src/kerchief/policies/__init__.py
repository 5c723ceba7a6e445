"""Bandits, by family. They import nothing but the core."""

from __future__ import annotations

from kerchief.policies import glm, linear, uniform
from kerchief.policies.registry import POLICIES, Entry, Mode

__all__ = ["POLICIES", "Entry", "Mode", "glm", "linear", "uniform"]
