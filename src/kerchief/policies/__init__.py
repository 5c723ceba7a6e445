"""Bandits, by family. They import nothing but the core."""

from __future__ import annotations

from kerchief.policies import (
    context_free,
    glm,
    linear,
    own_models,
    phased,
    sampling,
    weighted,
    yardsticks,
)
from kerchief.policies.registry import (
    POLICIES,
    AnyPolicy,
    Mode,
    PolicyEntry,
    Terms,
    named,
    register,
)

__all__ = [
    "POLICIES",
    "AnyPolicy",
    "Mode",
    "PolicyEntry",
    "Terms",
    "context_free",
    "glm",
    "linear",
    "named",
    "own_models",
    "phased",
    "register",
    "sampling",
    "weighted",
    "yardsticks",
]
