"""Tests and doctests call what lies behind the public functions, so they are in 64-bit mode."""

from __future__ import annotations

from collections.abc import Callable

import jax

_configure: Callable[[str, object], None] = jax.config.update
_configure("jax_enable_x64", True)
