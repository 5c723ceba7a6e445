"""Bandits, by family. They import nothing but the core."""

from __future__ import annotations

from kerchief.policies import (
    baselines,
    context_free,
    disjoint_models,
    glm,
    linear,
    phased,
    sampling,
    thompson_sampling,
    weighted,
)
from kerchief.policies.registry import (
    POLICIES,
    AnyPolicy,
    Mode,
    PolicyEntry,
    PrivacyBudget,
    register,
    resolve_name,
)

__all__ = [
    "POLICIES",
    "AnyPolicy",
    "Mode",
    "PolicyEntry",
    "PrivacyBudget",
    "baselines",
    "context_free",
    "disjoint_models",
    "glm",
    "linear",
    "phased",
    "register",
    "resolve_name",
    "sampling",
    "thompson_sampling",
    "weighted",
]
