"""Frozen, keyword-only dataclasses that JAX can carry: numbers are leaves, shapes are static."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def static(*, number: bool = False, **options: Any) -> Any:
    """Declare a field that is part of the structure (a shape, a mode), never traced.

    A `number` can be chosen by its name, as those that are traced can.
    """
    return dataclasses.field(metadata={"static": True, "number": number}, **options)


def _repr(self: Any) -> str:
    names = (field.name for field in dataclasses.fields(self) if field.repr)
    return (
        f"{type(self).__qualname__}("
        f"{', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
    )


def _comparison_key(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, field.name) for field in dataclasses.fields(self) if field.compare)


def _eq(self: Any, other: object) -> bool:
    return (
        _comparison_key(self) == _comparison_key(other)
        if type(other) is type(self)
        else NotImplemented
    )


def _hash(self: Any) -> int:
    return hash(_comparison_key(self))


_METHODS = {"__repr__": _repr, "__eq__": _eq, "__hash__": _hash}


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(static, dataclasses.field)
)
def struct(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only dataclass and register it as a JAX pytree.

    A pytree is rebuilt with tracers inside: check values in a factory, not in the constructor.

    >>> @struct
    ... class Box:
    ...     value: float
    ...     size: int = static(default=3)
    >>> jax.tree.map(lambda leaf: 2 * leaf, Box(value=1.5))
    Box(value=3.0, size=3)
    """
    # The usual methods, shared: to generate three for each of some 200 classes takes 50 ms.
    for name, method in _METHODS.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    frozen_class = dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)(cls)
    fields = dataclasses.fields(frozen_class)  # type: ignore[arg-type]
    leaves = tuple(field.name for field in fields if not field.metadata.get("static"))
    shape = tuple(field.name for field in fields if field.metadata.get("static"))

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(value, name) for name in leaves), tuple(
            getattr(value, name) for name in shape
        )

    def flatten_with_keys(value: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        inner, rest = flatten(value)
        keys = (jax.tree_util.GetAttrKey(name) for name in leaves)
        return tuple(zip(keys, inner, strict=True)), rest

    def unflatten(rest: tuple[Any, ...], inner: Iterable[Any]) -> Any:
        fields = dict(zip(leaves, inner, strict=True)) | dict(zip(shape, rest, strict=True))
        return frozen_class(**fields)

    # Not `register_dataclass`: two classes registered so, with the same fields, have structures
    # that compare equal, and a compiled function made for one is then called for the other.
    jax.tree_util.register_pytree_with_keys(frozen_class, flatten_with_keys, unflatten, flatten)
    return frozen_class
