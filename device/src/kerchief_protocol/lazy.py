"""Names of a package that are imported from their modules on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def fetching(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Build the `__getattr__` of a package from the module of each of its names.

    >>> fetching("kerchief_protocol", {"exp": "math"})("exp")
    <built-in function exp>
    """

    def fetch(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return fetch
