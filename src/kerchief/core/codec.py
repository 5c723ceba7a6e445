"""The codec: every message, state and configuration as one line of JSON, and back, exactly.

Arrays keep their type and every bit (base64 of their bytes); dataclasses carry the name of their
class and are only rebuilt from classes of this package, so that a message can name nothing else.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from kerchief.core.errors import CodecError

__all__ = ["decode", "encode"]

_PACKAGE = __name__.split(".")[0]
_DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
_DTYPES += ("float16", "float32", "float64")
# What reading can meet in a text that someone else wrote.
_FAULTS = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    ImportError,
    OverflowError,
    RecursionError,
)


def encode(value: Any) -> str:
    """Write a value.

    >>> encode({"a": (1, 2.5), "b": np.float32([1])})
    '{"a":{"tuple":[1,2.5]},"b":{"array":"AACAPw==","dtype":"float32","shape":[1]}}'
    """
    try:
        return json.dumps(_pack(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise CodecError(
            "the value is nested too deeply, or holds itself; write less of it"
        ) from None


def decode(text: str) -> Any:
    """Read a value that `encode` wrote.

    Raises:
        CodecError: the text is not such a value.

    >>> decode(encode({"a": (1, float("inf"))}))
    {'a': (1, inf)}
    """
    if not isinstance(text, str):
        raise CodecError(f"a message is a {type(text).__name__}; it must be a text")
    try:
        return _unpack(json.loads(text))
    except _FAULTS as fault:
        raise CodecError(f"a message of {len(text)} characters does not decode: {fault}") from fault


def _pack(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    # Before Python's floats: a NumPy float64 is one of them, and would lose its type.
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.name not in _DTYPES:
            raise CodecError(f"an array of {array.dtype.name} cannot be written; give numbers")
        # Numbers may lie in memory the other way round; in a message they never do.
        data = base64.b64encode(array.astype(array.dtype.name).tobytes()).decode("ascii")
        return {"array": data, "dtype": array.dtype.name, "shape": list(array.shape)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_pack(item) for item in value]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"class": _name(type(value)), "fields": _pack(_fields(value))}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        packed = {key: _pack(item) for key, item in value.items()}
        return {"map": packed} if packed.keys() & _TAGS else packed
    raise CodecError(f"a {type(value).__name__} cannot be written")


_TAGS = {"float", "array", "tuple", "list", "class", "map"}


def _unpack(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        if value["dtype"] not in _DTYPES:
            raise CodecError(f"no array of {value['dtype']!r} can be read")
        data = np.frombuffer(base64.b64decode(value["array"]), value["dtype"])
        return data.reshape(value["shape"]).copy()
    if "tuple" in value:
        return tuple(_unpack(item) for item in value["tuple"])
    if "list" in value:
        return [_unpack(item) for item in value["list"]]
    if "float" in value:
        return float(value["float"])
    if "class" in value:
        return _class(value["class"])(**_unpack(value["fields"]))
    return {key: _unpack(item) for key, item in value.get("map", value).items()}


def _fields(value: Any) -> dict[str, Any]:
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    # A field that takes a float takes this one too, and would refuse the array that it becomes.
    return {
        name: float(item) if isinstance(item, np.float64) else item for name, item in fields.items()
    }


def _name(kind: type) -> str:
    if kind.__module__.split(".")[0] != _PACKAGE:
        raise CodecError(f"{kind.__qualname__} is not a class of {_PACKAGE}")
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> type:
    module, _, qualname = name.partition(":")
    if module.split(".")[0] != _PACKAGE:
        raise CodecError(f"{name!r} is not a class of {_PACKAGE}")
    found = getattr(importlib.import_module(module), qualname)
    # A module also holds what it imports: only a class under its own name is one of ours.
    if not isinstance(found, type) or not dataclasses.is_dataclass(found) or _name(found) != name:
        raise CodecError(f"{name!r} is not a message")
    return found
