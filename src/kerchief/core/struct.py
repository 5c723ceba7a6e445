"""Frozen, keyword-only dataclasses that JAX can carry: numbers are leaves, shapes are static."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

__all__ = ["static", "struct"]

T = TypeVar("T")


def static(**options: Any) -> Any:
    """Declare a field that is part of the structure (a shape, a mode), never traced."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(static, dataclasses.field)
)
def struct(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only dataclass and register it as a JAX pytree.

    A pytree is rebuilt with tracers inside, so its constructor must not look at values: check them
    in a factory.

    >>> @struct
    ... class Box:
    ...     value: float
    ...     size: int = static(default=3)
    >>> jax.tree.map(lambda leaf: 2 * leaf, Box(value=1.5))
    Box(value=3.0, size=3)
    """
    made = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    return jax.tree_util.register_dataclass(made)
