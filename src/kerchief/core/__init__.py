"""The ground: words, errors, randomness, small linear algebra, links, validation, the codec."""

from __future__ import annotations

from collections.abc import Callable

import jax

_configure: Callable[[str, object], None] = jax.config.update
# Sums and factorizations are kept in float64; worlds and models say float32 explicitly.
_configure("jax_enable_x64", True)
# One user's arithmetic takes microseconds: handing it to another thread costs several times more.
# JAX hears this only before its first array; said later, it changes nothing.
_configure("jax_cpu_enable_async_dispatch", False)
