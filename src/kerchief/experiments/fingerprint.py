"""What a result depends on, as a short text: equal if and only if the same would be played."""

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
import kerchief_wire
from kerchief.core.errors import InvalidValue

_OURS = ("kerchief", "kerchief_wire", "kerchief_device")


@functools.cache
def source() -> str:
    """A digest of kerchief's own source: a result is of the code that played it."""
    rooms = (Path(str(one.__file__)).parent for one in (kerchief, kerchief_wire, kerchief_device))
    files = (file for room in rooms for file in sorted(room.rglob("*.py")))
    return _digest(b"".join(map(_of_file, files)))


def fingerprint(*things: object) -> str:
    """A digest of values: classes by their names and source, numbers by their bits.

    >>> fingerprint(1.0, "a") == fingerprint(1.0, "a"), fingerprint(1) == fingerprint(1.0)
    (True, False)
    """
    text = json.dumps([_described(one) for one in things], sort_keys=True)
    return _digest(text.encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _described(value: Any) -> Any:
    """A value as lists and texts that tell it from every other."""
    match value:
        case None | bool() | str() if not isinstance(value, enum.Enum):
            return value
        case enum.Enum():
            return [_named(type(value)), value.name]
        case int() | float() | complex():
            return [type(value).__name__, repr(value)]
        case np.ndarray() | np.generic() | jax.Array():
            return _array(np.asarray(value))
        case type():
            return _named(value)
        case functools.partial():
            return ["partial", *map(_described, (value.func, value.args, value.keywords))]
        case Mapping():
            return ["mapping", [[_described(key), _described(value[key])] for key in value]]
        case tuple() | list():
            return [_named(type(value)), *map(_described, value)]
    if dataclasses.is_dataclass(value):
        fields = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        return [_named(type(value)), [[name, _described(inner)] for name, inner in fields]]
    if inspect.isfunction(value):
        return [_named(value), _described((value.__defaults__, value.__kwdefaults__))]
    raise InvalidValue(
        f"a {type(value).__name__} has no fingerprint, so its results cannot be stored; make it a "
        "frozen dataclass of numbers, texts and arrays"
    )


def _array(value: np.ndarray[Any, Any]) -> list[str]:
    return [str(value.dtype), str(value.shape), _digest(np.ascontiguousarray(value).tobytes())]


def _named(thing: Any) -> str:
    """The full name; of what is not kerchief's own, a digest of its source too."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    if "<" in name:
        raise InvalidValue(
            f"{name} has no name of its own, so its results cannot be stored; define it at the top "
            "of a module"
        )
    foreign = [one for one in getattr(thing, "__mro__", (thing,)) if not _trusted(one)]
    files = [_of_file(Path(inspect.getfile(one))) for one in foreign]
    return " ".join([name, *(_digest(one) for one in files)])


def _trusted(thing: Any) -> bool:
    """Whether a version stands for its source: that of kerchief, of Python or of a library."""
    room = str(thing.__module__).split(".")[0]
    return room in _OURS or room in sys.stdlib_module_names or room in ("numpy", "jax", "jaxlib")


@functools.cache
def _of_file(path: Path) -> bytes:
    return path.read_bytes()
