"""Differentially private bandits: learn which action is best, and not about any one person."""

from __future__ import annotations

from collections.abc import Callable

import jax

# Sums and factorizations are kept in float64; worlds and models say float32 explicitly.
_configure: Callable[[str, object], None] = jax.config.update
_configure("jax_enable_x64", True)

from kerchief.core.contracts import Problem  # noqa: E402
from kerchief.environments import make_environment  # noqa: E402
from kerchief.policies import POLICIES  # noqa: E402
from kerchief.privacy import Guarantee, MemoryLedger, Trust  # noqa: E402
from kerchief.privatizers import protect  # noqa: E402
from kerchief.roles import Bandit  # noqa: E402
from kerchief.simulation import simulate  # noqa: E402

__all__ = [
    "POLICIES",
    "Bandit",
    "Guarantee",
    "MemoryLedger",
    "Problem",
    "Trust",
    "make_environment",
    "protect",
    "simulate",
]

__version__ = "0.1.0"
