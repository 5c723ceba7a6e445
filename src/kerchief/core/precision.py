"""JAX's 64-bit mode, for our own code only."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import jax

T = TypeVar("T", bound=Callable[..., Any])


def double_precision(thing: T) -> T:
    """Run a function, or all that a class offers, in JAX's 64-bit mode.

    The mode holds for the calling thread and until the call returns, so a program that uses
    kerchief keeps its own. Of a class the constructor, its calls and its public methods and
    properties are wrapped. A function that yields would leave the mode on: it is refused.

    >>> import jax.numpy as jnp
    >>> @double_precision
    ... def third() -> jax.Array:
    ...     return jnp.float64(1) / 3
    >>> third().dtype
    dtype('float64')
    """
    if isinstance(thing, type):
        for name, member in list(vars(thing).items()):
            if name in ("__init__", "__call__") or not name.startswith("_"):
                setattr(thing, name, _wrapped(member))
        return thing
    if inspect.isgeneratorfunction(thing):
        raise TypeError(f"{thing.__qualname__} yields; decorate what it calls")

    @functools.wraps(thing)
    def scoped(*args: Any, **options: Any) -> Any:
        if jax.config.jax_enable_x64:  # type: ignore[attr-defined]
            return thing(*args, **options)
        with jax.enable_x64(True):
            return thing(*args, **options)

    return cast(T, scoped)


def _wrapped(member: Any) -> Any:
    """A method, class method or property in 64-bit mode; anything else as it is."""
    match member:
        case property(fget=FunctionType() as get):
            return member.getter(double_precision(get))
        case classmethod():
            return classmethod(double_precision(member.__func__))
        case FunctionType():
            return double_precision(member)
    return member
