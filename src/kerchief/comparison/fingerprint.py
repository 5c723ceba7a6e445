"""Digest of everything that a result depends on.

Two digests are equal if and only if the same would be played.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import kerchief
import kerchief_device
import kerchief_protocol
from kerchief.core.errors import InvalidValueError

_OWN_PACKAGES = ("kerchief", "kerchief_protocol", "kerchief_device")


@functools.cache
def source() -> str:
    """Return a digest of kerchief's own source."""
    folders = (
        Path(str(package.__file__)).parent
        for package in (kerchief, kerchief_protocol, kerchief_device)
    )
    files = (file for folder in folders for file in sorted(folder.rglob("*.py")))
    return _compute_digest(b"".join(map(_read_bytes, files)))


def fingerprint(*values: object) -> str:
    """Return a digest of values, with the source of foreign classes.

    Classes count by their names and source, numbers by their bits.

    >>> fingerprint(1.0, "a") == fingerprint(1.0, "a"), fingerprint(1) == fingerprint(1.0)
    (True, False)
    """
    text = json.dumps([_describe_value(value) for value in values], sort_keys=True)
    return _compute_digest(text.encode())


def _compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _describe_value(value: Any) -> Any:
    """Describe a value by lists and texts that no other value has."""
    match value:
        case None | bool() | str() if not isinstance(value, enum.Enum):
            return value
        case enum.Enum():
            return [_name_definition(type(value)), value.name]
        case int() | float() | complex():
            return [type(value).__name__, repr(value)]
        case np.ndarray() | np.generic() | jax.Array():
            return _describe_array(np.asarray(value))
        case type():
            return _name_definition(value)
        case functools.partial():
            return ["partial", *map(_describe_value, (value.func, value.args, value.keywords))]
        case Mapping():
            return [
                "mapping",
                [[_describe_value(key), _describe_value(value[key])] for key in value],
            ]
        case tuple() | list():
            return [_name_definition(type(value)), *map(_describe_value, value)]
    if dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return [
            _name_definition(type(value)),
            [[name, _describe_value(inner)] for name, inner in fields],
        ]
    if inspect.isfunction(value):
        return [
            _name_definition(value),
            _describe_value((value.__defaults__, value.__kwdefaults__)),
        ]
    raise InvalidValueError(
        f"a {type(value).__name__} has no fingerprint, so its results cannot be stored; make it a "
        "frozen dataclass of numbers, texts and arrays"
    )


def _describe_array(value: np.ndarray[Any, Any]) -> list[str]:
    return [
        str(value.dtype),
        str(value.shape),
        _compute_digest(np.ascontiguousarray(value).tobytes()),
    ]


def _name_definition(definition: Any) -> str:
    """Name a class or function, with a digest of its source if it is foreign."""
    name = f"{definition.__module__}.{definition.__qualname__}"
    if "<" in name:
        raise InvalidValueError(
            f"{name} has no name of its own, so its results cannot be stored; define it at the top "
            "of a module"
        )
    foreign_bases = [
        base for base in getattr(definition, "__mro__", (definition,)) if not _is_versioned(base)
    ]
    files = [_read_bytes(Path(inspect.getfile(base))) for base in foreign_bases]
    return " ".join([name, *(_compute_digest(content) for content in files)])


def _is_versioned(definition: Any) -> bool:
    """Whether the recorded versions cover the source of a definition."""
    package = str(definition.__module__).split(".")[0]
    return (
        package in _OWN_PACKAGES
        or package in sys.stdlib_module_names
        or package in ("numpy", "jax", "jaxlib")
    )


@functools.cache
def _read_bytes(path: Path) -> bytes:
    return path.read_bytes()
