"""Bandits, by family. They import nothing but the core."""

from __future__ import annotations

from kerchief.policies import context_free, glm, linear, phased, sampling, yardsticks
from kerchief.policies.registry import POLICIES, AnyPolicy, Mode, PolicyEntry, Terms, register

__all__ = [
    "POLICIES",
    "AnyPolicy",
    "Mode",
    "PolicyEntry",
    "Terms",
    "context_free",
    "glm",
    "linear",
    "phased",
    "register",
    "sampling",
    "yardsticks",
]
