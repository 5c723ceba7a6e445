"""Differentially private bandits: learn which action is best without learning about any one person."""

from __future__ import annotations

import jax

# Sums and factorizations are kept in float64; worlds and models say float32 explicitly.
jax.config.update("jax_enable_x64", True)

__version__ = "0.1.0"
