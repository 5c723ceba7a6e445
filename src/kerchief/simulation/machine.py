"""Machine code: compiled once for one structure, and timed apart from play."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

import jax

from kerchief.core.precision import double_precision

_MACHINE_CODE: dict[Hashable, Callable[..., Any]] = {}
# A program that plays many kinds of bandits must not keep the code of them all: a code takes some
# 10 MiB, most of it in what the library remembers of how it was made.
_MOST = 96
# One thread per product of matrices, on a CPU: several would round otherwise than one, so that the
# same run gave other numbers where a process has fewer cores. And one step after the other: two
# factorizations of many matrices at once would each wait for the other's threads, for ever.
_ALWAYS: dict[str, dict[str, bool | str]] = {
    "cpu": {
        "xla_cpu_multi_thread_eigen": False,
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    }
}
# The older way to emit loops, on a CPU: it compiles in half the time, and rounds run as fast.
_FAST: dict[str, dict[str, bool | str]] = {"cpu": {"xla_cpu_use_fusion_emitters": False}}


@double_precision
def compiled(
    function: Any,
    *arguments: Any,
    about: Callable[[], None] | None = None,
    slowly: bool = False,
    **static: Hashable,
) -> tuple[Callable[..., Any], float]:
    """The machine code of a jitted function for arguments such as these, and the seconds it took.

    Their structure, shapes and types count; `static` are its static arguments, by name. Before
    anything is compiled, `about` is called. Some programs are faster if they are compiled `slowly`.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple(map(jax.typeof, leaves))
    key = (function, structure, shapes, tuple(sorted(static.items())))
    if key in _MACHINE_CODE:
        return _MACHINE_CODE[key], 0.0
    if about is not None:
        about()
    if len(_MACHINE_CODE) >= _MOST:
        forget()
    start = time.perf_counter()
    made = _compile(function.lower(*arguments, **static), slowly)
    _MACHINE_CODE[key] = made
    return made, time.perf_counter() - start


def _compile(lowered: Any, slowly: bool) -> Callable[..., Any]:
    backend = jax.default_backend()
    always = _ALWAYS.get(backend, {})
    fast = {} if slowly else _FAST.get(backend, {})
    try:
        made: Callable[..., Any] = lowered.compile(compiler_options=always | fast)
    except jax.errors.JaxRuntimeError:
        # Another version of the compiler may have no faster way.
        made = lowered.compile(compiler_options=always)
    return made


def forget() -> None:
    """Drop all code that was compiled, and what the library remembers of it."""
    _MACHINE_CODE.clear()
    jax.clear_caches()  # type: ignore[no-untyped-call]
