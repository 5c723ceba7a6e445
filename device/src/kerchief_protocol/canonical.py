"""Canonical JSON: one text for one value, so that a hash identifies a value.

Keys are sorted, there are no spaces and no floats. A real number is its 64 bits as 16 hexadecimal
digits, bytes are hexadecimal, whole numbers stay below 2**53, and a tree has at most 100 levels.
What does not come out of `write`
again as it went into `read` is refused, so there is no second spelling of anything.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from kerchief_protocol.errors import CodecError

T = TypeVar("T")
_INTEGER_LIMIT = 2**53
# Far more than any message has, and far less than any reader can follow.
_DEEPEST = 100
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def write(value: Any) -> bytes:
    """Write a tree of dicts, lists, texts, whole numbers, booleans and None.

    Raises:
        CodecError: it is something else, or has more than 100 levels.

    >>> write({"b": [1, "x"], "a": None})
    b'{"a":null,"b":[1,"x"]}'
    """
    _check_tree(value, _DEEPEST)
    try:
        return _JSON.encode(value).encode()
    except UnicodeEncodeError:
        raise CodecError("a text has half a letter in it; give whole ones") from None


def read(data: bytes) -> Any:
    """Read what `write` wrote, and nothing else.

    Raises:
        CodecError: it is not canonical.

    >>> read(b'{"a": 1}')
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.CodecError: the text is not canonical JSON
    """
    try:
        value = json.loads(data)
        same = write(value) == data
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise CodecError("the text is not canonical JSON")
    return value


def _check_tree(value: Any, levels: int) -> None:
    kind = type(value)
    if not levels:
        raise CodecError(f"the value is nested more than {_DEEPEST} deep, or holds itself")
    if kind is dict and not {*map(type, value)} - {str}:
        for child in value.values():
            _check_tree(child, levels - 1)
    elif kind is list:
        for child in value:
            _check_tree(child, levels - 1)
    elif not (
        value is None
        or kind in (bool, str)
        or (kind is int and -_INTEGER_LIMIT < value < _INTEGER_LIMIT)
    ):
        raise CodecError(f"a {kind.__name__} has no canonical form here; write it as a text")


def pack(value: Any) -> Any:
    """Turn a dataclass into a tree for `write`; 1 becomes 1.0 in a field of floats.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: float
    ...     tags: tuple[int, ...]
    >>> pack(Point(1.0, (2, 3)))
    {'x': '3ff0000000000000', 'tags': [2, 3]}
    >>> pack(Point(1, (2, 3))) == pack(Point(1.0, (2, 3)))
    True
    >>> unpack(Point, pack(Point(1.0, (2, 3))))
    Point(x=1.0, tags=(2, 3))
    """
    if type(value) in (int, str, bool, types.NoneType):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = _field_types(type(value))
        return {
            name: pack(_convert_reals(hint, getattr(value, name))) for name, hint in hints.items()
        }
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list):
        return [pack(element) for element in value]
    if isinstance(value, Mapping):
        return {str(key): pack(child) for key, child in value.items()}
    return value


def _convert_reals(kind: Any, value: Any) -> Any:
    """Convert integers to floats wherever a type demands floats."""
    if type(value) in (str, bytes, bool, float, types.NoneType):
        return value
    args = typing.get_args(kind)
    if kind is float and type(value) is int:
        return float(value)
    if isinstance(value, tuple) and len(args) == 2 and args[1] is Ellipsis:
        return tuple(_convert_reals(args[0], element) for element in value)
    if isinstance(value, Mapping) and len(args) == 2:
        return {key: _convert_reals(args[1], child) for key, child in value.items()}
    if len(args) == 2 and types.NoneType in args:
        return _convert_reals(args[args[0] is types.NoneType], value)
    return value


def unpack(kind: type[T], tree: Any) -> T:
    """Rebuild a value of a known kind: exactly its fields, each of exactly its type.

    A field whose type is a union of dataclasses is told apart by the field `kind`, which each of
    them must have with a default of its own.

    Raises:
        CodecError: the tree is something else.
    """
    return typing.cast(T, _unpack(kind, tree))


def read_as(kind: type[T], data: bytes) -> T:
    """Read a value of a known kind from canonical bytes."""
    return unpack(kind, read(data))


def _unpack(kind: Any, tree: Any) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _unpack_fields(kind, tree)
    if origin is types.UnionType or origin is typing.Union:
        return _unpack_union(args, tree)
    if origin is tuple and isinstance(tree, list):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_unpack(args[0], child) for child in tree)
        if len(args) == len(tree):
            return tuple(_unpack(arg, child) for arg, child in zip(args, tree, strict=True))
    if origin is not None and issubclass(origin, Mapping) and isinstance(tree, dict):
        return {key: _unpack(args[1], child) for key, child in tree.items()}
    return _unpack_plain(kind, tree)


def _unpack_plain(kind: Any, tree: Any) -> Any:
    if kind is Any:
        return tree
    if kind is float and isinstance(tree, str) and len(tree) == 16:
        number = struct.unpack(">d", _decode_hex(tree))[0]
        if number == number:
            return number
    elif kind is bytes and isinstance(tree, str):
        return _decode_hex(tree)
    elif kind in (int, str, bool, types.NoneType) and type(tree) is kind:
        return tree
    raise CodecError(f"a field is no {getattr(kind, '__name__', kind)}")


def _decode_hex(text: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if data.hex() != text:
        raise CodecError("a field is no hexadecimal text")
    return data


def _unpack_fields(kind: Any, tree: Any) -> Any:
    hints = _field_types(kind)
    if not isinstance(tree, dict) or tree.keys() != hints.keys():
        raise CodecError(
            f"{kind.__name__} has exactly the fields {', '.join(hints)}; what another version "
            "wrote is not read: make it anew"
        )
    try:
        return kind(**{name: _unpack(hint, tree[name]) for name, hint in hints.items()})
    except (TypeError, OverflowError) as fault:
        raise CodecError(f"a {kind.__name__} does not decode: {fault}") from fault


@functools.cache
def _field_types(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _unpack_union(kinds: tuple[Any, ...], tree: Any) -> Any:
    if tree is None and types.NoneType in kinds:
        return None
    kinds_by_name: dict[str, Any] = {kind.kind: kind for kind in kinds if hasattr(kind, "kind")}
    if kinds_by_name:
        name = tree.get("kind") if isinstance(tree, dict) else None
        if name not in kinds_by_name:
            raise CodecError(
                f"kind is {str(name)[:40]!r}; known are {', '.join(sorted(kinds_by_name))}"
            )
        return _unpack_fields(kinds_by_name[name], tree)
    (only_kind,) = [kind for kind in kinds if kind is not types.NoneType]
    return _unpack(only_kind, tree)
