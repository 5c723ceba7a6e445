"""Checks of lists, pairs and names among the options of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kerchief.core.errors import InvalidValueError
from kerchief.core.registry import Registry


def check_lists(fields: Mapping[str, object]) -> None:
    """Refuse values that are empty or no tuple."""
    for name, values in fields.items():
        if not isinstance(values, tuple) or not values:
            raise InvalidValueError(f"{name} is empty, or no tuple; give at least one")


def check_pairs(fields: Mapping[str, object]) -> None:
    """Refuse values that are no tuple of pairs with a name."""
    for name, values in fields.items():
        if not isinstance(values, tuple) or not all(map(_is_pair, values)):
            raise InvalidValueError(f"{name} is no tuple of pairs; give a name and a value each")


def check_name(kind: str, name: str, names: Iterable[str]) -> None:
    """Refuse an unknown name, and suggest the nearest one."""
    registry: Registry[str] = Registry(kind)
    for candidate in names:
        registry.add(str(candidate), str(candidate))
    registry[name]


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
