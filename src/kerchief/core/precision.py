"""JAX's 64-bit mode, for our own code and for nobody else's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import jax

__all__ = ["double_precision"]

T = TypeVar("T", bound=Callable[..., Any])

_scoped: Callable[[T], T] = jax.enable_x64(True)


def double_precision(thing: T) -> T:
    """Run a function, or all that a class offers, in JAX's 64-bit mode.

    Sums and factorizations are kept in float64, and random words are multiplied in 64 bits; worlds
    and models say float32. The mode holds for the calling thread and until the call returns, so a
    program that uses kerchief keeps its own. A class has its constructor, its calls and its public
    methods and properties wrapped.

    Raises:
        TypeError: the function yields, and would leave the mode on between its steps; decorate
            what it calls.

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
    return _scoped(thing)


def _wrapped(member: Any) -> Any:
    """A method, class method or property in 64-bit mode; anything else as it is."""
    match member:
        case property(fget=FunctionType() as get):
            return property(double_precision(get), doc=member.__doc__)
        case classmethod():
            return classmethod(double_precision(member.__func__))
        case FunctionType():
            return double_precision(member)
    return member
