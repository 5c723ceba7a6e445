"""Differentially private bandits: learn which action is best, and not about any one person."""

from __future__ import annotations

from collections.abc import Callable

import jax

_configure: Callable[[str, object], None] = jax.config.update
# Sums and factorizations are kept in float64; worlds and models say float32 explicitly.
_configure("jax_enable_x64", True)
# One user's arithmetic takes microseconds: handing it to another thread costs several times more.
# JAX hears this only before its first array; said later, it changes nothing.
_configure("jax_cpu_enable_async_dispatch", False)

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
