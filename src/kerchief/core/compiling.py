"""Machine code of what a learner does now and then: made in half the time, and as fast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax

_QUICK: Mapping[str, bool | str] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": "1",
}
"""Options for a CPU: an older way to emit loops, and less search for what is faster still."""


def compile_quickly(
    *, static: int | tuple[int, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function when it is called first, in less time than `jax.jit` takes.

    It is called from Python alone: compiled code that calls it cannot have options of its own.

    Args:
        static: which arguments are part of the structure.

    >>> @compile_quickly(static=1)
    ... def power(base: jax.Array, exponent: int) -> jax.Array:
    ...     return base**exponent
    >>> float(power(jax.numpy.float32(3), 2))
    9.0
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        # Only now, since to ask which backend there is starts it.
        @functools.cache
        def compile_once() -> Callable[..., Any]:
            options = {
                name: value for name, value in _options().items() if is_supported(name, value)
            }
            return jax.jit(function, static_argnums=static, compiler_options=options or None)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return compile_once()(*arguments)

        return call

    return decorate


@functools.cache
def is_supported(option: str, value: bool | str) -> bool:
    """Whether this version of the compiler has the option."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options={option: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _options() -> Mapping[str, bool | str]:
    return _QUICK if jax.default_backend() == "cpu" else {}
