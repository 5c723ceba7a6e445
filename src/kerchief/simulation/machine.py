"""Machine code: compiled once for one structure, and timed apart from play."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

import jax

from kerchief.core.compiling import is_supported
from kerchief.core.precision import double_precision

_MACHINE_CODE: dict[Hashable, Callable[..., Any]] = {}
# A program that plays many kinds of bandits must not keep the code of them all: a code takes some
# 10 MiB, most of it in what the library remembers of how it was made.
_MAX_PROGRAMS = 96
# One thread per product of matrices, on a CPU: several would round otherwise than one, so that the
# same run gave other numbers where a process has fewer cores. And one step after the other: two
# factorizations of many matrices at once would each wait for the other's threads, for ever.
_ALWAYS: dict[str, dict[str, bool | str]] = {
    "cpu": {
        "xla_cpu_multi_thread_eigen": False,
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    }
}
# The older way to emit loops, on a CPU: it compiles in half the time, and rounds run as fast. And
# loops for sums of a few numbers, where a library takes twice as long for a set of 100 arms.
# On a GPU no search for the fastest way to multiply matrices, which plays each of them: those of a
# round are small, and the way that was found could be another in another process.
_FAST: dict[str, dict[str, bool | str]] = {
    "cpu": {"xla_cpu_use_fusion_emitters": False, "xla_cpu_experimental_ynn_fusion_type": ""},
    "gpu": {"xla_gpu_autotune_level": "0"},
}
# For programs that run once and draw nothing: compiled in a third of the time, and far slower.
_BRIEF: dict[str, dict[str, bool | str]] = {"cpu": {"xla_backend_optimization_level": "0"}}


def compile_on_one_core() -> None:
    """Compile for a GPU on one core only, from this call on.

    Many processes with many threads each would wait for each other.
    """
    _FAST["gpu"]["xla_gpu_force_compilation_parallelism"] = "1"


@double_precision
def compiled(
    function: Any,
    *arguments: Any,
    about: Callable[[], None] | None = None,
    once: bool = False,
    **static: Hashable,
) -> tuple[Callable[..., Any], float]:
    """The machine code of a jitted function for arguments such as these, and the seconds it took.

    Their structure, shapes and types count; `static` are its static arguments, by name. Before
    anything is compiled, `about` is called. What runs `once` is not optimized.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple(map(jax.typeof, leaves))
    key = (function, structure, shapes, once, tuple(sorted(static.items())))
    if key in _MACHINE_CODE:
        return _MACHINE_CODE[key], 0.0
    if about is not None:
        about()
    if len(_MACHINE_CODE) >= _MAX_PROGRAMS:
        forget()
    start = time.perf_counter()
    code = _compile(function.lower(*arguments, **static), once)
    _MACHINE_CODE[key] = code
    return code, time.perf_counter() - start


def _compile(lowered: Any, once: bool) -> Callable[..., Any]:
    backend = jax.default_backend()
    always, fast = _ALWAYS.get(backend, {}), _FAST.get(backend, {})
    if once:
        fast = fast | _BRIEF.get(backend, {})
    try:
        code: Callable[..., Any] = lowered.compile(compiler_options=always | fast)
    except jax.errors.JaxRuntimeError:
        known_options = {name: value for name, value in fast.items() if is_supported(name, value)}
        if known_options == fast:
            raise
        code = lowered.compile(compiler_options=always | known_options)
    return code


def forget() -> None:
    """Drop all code that was compiled, and what the library remembers of it."""
    _MACHINE_CODE.clear()
    jax.clear_caches()  # type: ignore[no-untyped-call]
