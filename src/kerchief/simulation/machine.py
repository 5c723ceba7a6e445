"""Machine code: compiled once for one structure, and timed apart from play."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["compiled"]

_MACHINE_CODE: dict[Hashable, Callable[..., Any]] = {}
# The oldest goes when there are more: whoever plays all bandits in turn needs each for a while.
_MOST = 128


def compiled(
    function: Any, *arguments: Any, about: Callable[[], None] | None = None, **static: Hashable
) -> tuple[Callable[..., Any], float]:
    """The machine code of a jitted function for such arguments, and the seconds it took.

    Args:
        function: made by `jax.jit`.
        arguments: examples of what it will be called with; their structure, shapes and types count.
        about: called before anything is compiled.
        static: its static arguments, by name.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    key = (function, structure, shapes, tuple(sorted(static.items())))
    if key in _MACHINE_CODE:
        return _MACHINE_CODE[key], 0.0
    if about is not None:
        about()
    if len(_MACHINE_CODE) >= _MOST:
        del _MACHINE_CODE[next(iter(_MACHINE_CODE))]
    start = time.perf_counter()
    _MACHINE_CODE[key] = function.lower(*arguments, **static).compile()
    return _MACHINE_CODE[key], time.perf_counter() - start
