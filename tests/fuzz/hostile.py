"""Hostile values: what a careless or a wicked caller may hand over, drawn from a seed."""

from __future__ import annotations

import decimal
import fractions
import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SECRETS", "array", "corrupted", "data", "inside", "number", "text", "thing"]

SECRETS = (1.2345678, -7654.3210)
"""Numbers that no error may quote: the bounds that they are outside of are public, they are not."""

_NUMBERS: tuple[Any, ...] = (
    *SECRETS,
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    1e-310,
    1e-300,
    1e-9,
    1e9,
    1e16,
    1e154,
    1e155,
    1e300,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    -1.0,
    0.5,
    1.0,
    1 - 2**-53,
    1 + 2**-52,
    0,
    1,
    -1,
    2,
    7,
    64,
    65,
    4097,
    2**20,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63,
    2**64,
    10**400,
    -(10**400),
)

_THINGS: tuple[Any, ...] = (
    True,
    False,
    None,
    "",
    "1",
    "nan",
    "ε\u0000\ud800",
    "x" * 10_000,
    b"1",
    1j,
    complex(math.nan, 0.0),
    decimal.Decimal("NaN"),
    decimal.Decimal("0.5"),
    fractions.Fraction(1, 3),
    (),
    [],
    {},
    (1, 2),
    [math.nan],
    {"a": 1},
    {1, 2},
    range(3),
    object,
    len,
    np.float64(math.nan),
    np.float64(0.5),
    np.float32(0.5),
    np.float16(math.inf),
    np.int64(3),
    np.int8(-1),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.str_("local"),
    np.datetime64("NaT", "s"),
    np.array(0.5),
    np.array(3),
    np.array([]),
    np.array([1.0, math.nan]),
    np.array(["a"]),
    np.array([None, 1], dtype=object),
)


def number(dice: random.Random) -> Any:
    """A number at an end of something."""
    return dice.choice(_NUMBERS)


def thing(dice: random.Random) -> Any:
    """A number, or what is no number at all."""
    return dice.choice(_NUMBERS) if dice.random() < 0.6 else dice.choice(_THINGS)


def corrupted(dice: random.Random, sample: Any) -> Any:
    """Something in the place of a sample: of its kind but hostile, or of another kind."""
    if dice.random() < 0.15:
        return thing(dice)
    if isinstance(sample, np.ndarray):
        return array(dice, sample)
    if isinstance(sample, str):
        return text(dice, sample)
    if isinstance(sample, bytes):
        return data(dice, sample)
    if isinstance(sample, tuple | list) and dice.random() < 0.8:
        return _sequence(dice, sample)
    if isinstance(sample, dict) and dice.random() < 0.9:
        return _altered(dice, sample)
    return thing(dice)


def inside(dice: random.Random, sample: Any) -> Any:
    """A container of the same kind, with hostile contents."""
    if isinstance(sample, dict):
        altered = _altered(dice, sample)
        return altered if isinstance(altered, dict) else {}
    if isinstance(sample, bytes):
        return data(dice, sample)
    items = list(sample)
    if items and dice.random() < 0.7:
        place = dice.randrange(len(items))
        items[place] = corrupted(dice, items[place])
    elif items and dice.random() < 0.5:
        items.pop()
    return type(sample)(items)


def _sequence(dice: random.Random, sample: Sequence[Any]) -> Any:
    """A sequence with an entry replaced, dropped, repeated or swapped, or as another kind."""
    items = list(sample)
    match dice.randrange(5):
        case 0 if items:
            place = dice.randrange(len(items))
            items[place] = corrupted(dice, items[place])
        case 1 if items:
            items.pop(dice.randrange(len(items)))
        case 2 if items:
            items.append(dice.choice(items))
        case 3:
            items.reverse()
        case _:
            return items if isinstance(sample, tuple) else tuple(items)
    return tuple(items) if isinstance(sample, tuple) else items


def text(dice: random.Random, sample: str) -> str:
    """A text cut, with a letter changed, with a part repeated, or with its values changed."""
    if sample[:1] in ("{", "[") and dice.random() < 0.7:
        return _document(dice, sample)
    here, there = sorted((dice.randint(0, len(sample)), dice.randint(0, len(sample))))
    match dice.randrange(6):
        case 0:
            return sample[:here]
        case 1:
            return sample[:here] + sample[there:]
        case 2:
            return sample[:here] + sample[here:there] * 2 + sample[there:]
        case 3 if sample:
            place = dice.randrange(len(sample))
            letter = chr(ord(sample[place]) ^ (1 << dice.randrange(7)))
            return sample[:place] + letter + sample[place + 1 :]
        case 4:
            return dice.choice(_BOMBS)
    return sample[:here] + dice.choice(_SPLINTERS) + sample[here:]


_BOMBS = (
    "[" * 100_000,
    '{"a":' * 50_000 + "1" + "}" * 50_000,
    '{"list":[' * 3_000 + "]}" * 3_000,
    '{"kind":"repeated","count":1,"event":' * 2_000 + '{"kind":"nothing"}' + "}" * 2_000,
    "9" * 5_000,
    '"' + "\\ud800" * 10 + '"',
    "NaN",
    "-Infinity",
    "null",
    "{}",
    "[]",
)
_SPLINTERS = ("\u0000", "\ud800", "NaN", "{", '"', "\\", "1e999", "é", "\U0001f9e3", " ", "-")


def data(dice: random.Random, sample: bytes) -> bytes:
    """Bytes cut, longer, with a bit or a number changed; JSON with its values changed."""
    if sample[:1] == b"{" and dice.random() < 0.8:
        return _canonical(dice, sample)
    here, there = sorted((dice.randint(0, len(sample)), dice.randint(0, len(sample))))
    match dice.randrange(7):
        case 0:
            return sample[:here]
        case 1:
            return sample[:here] + sample[there:]
        case 2:
            return sample[:here] + sample[here:there] * 2 + sample[there:]
        case 3 if sample:
            place = dice.randrange(len(sample))
            changed = sample[place] ^ (1 << dice.randrange(8))
            return sample[:place] + bytes([changed]) + sample[place + 1 :]
        case 4 if len(sample) >= 8:
            place = 8 * dice.randrange(len(sample) // 8)
            end = len(sample) - place
            far = dice.choice(_WHOLES).to_bytes(8, "little", signed=True)
            return sample[: end - 8] + far + sample[end:]
        case 5:
            return dice.choice(_BOMBS).encode("utf-8", "surrogatepass")
    return sample + dice.randbytes(dice.choice((1, 8, 100)))


_WHOLES = (0, 1, -1, 2**31, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63))


def _canonical(dice: random.Random, sample: bytes) -> bytes:
    """Canonical JSON, or lines of it, with a few nodes changed."""
    lines = sample.split(b"\n")
    place = dice.choice([i for i, line in enumerate(lines) if line])
    tree = json.loads(lines[place])
    for _ in range(dice.choice((1, 1, 2))):
        tree = _altered(dice, tree)
    told = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    lines[place] = told.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _document(dice: random.Random, sample: str) -> str:
    """JSON with one or two of its nodes changed."""
    tree = json.loads(sample)
    for _ in range(dice.choice((1, 1, 2))):
        tree = _altered(dice, tree)
    return json.dumps(tree)


def _altered(dice: random.Random, tree: Any) -> Any:
    """A tree with one node changed, chosen on a random way down."""
    if isinstance(tree, dict) and tree and dice.random() < 0.93:
        key = dice.choice(list(tree))
        rest = {name: item for name, item in tree.items() if name != key}
        match dice.randrange(12):
            case 0:
                return rest
            case 1:
                return rest | {dice.choice(_KEYS): tree[key]}
            case 2:
                other = dice.choice(list(tree))
                return tree | {key: tree[other], other: tree[key]}
        return tree | {key: _altered(dice, tree[key])}
    if isinstance(tree, list) and tree and dice.random() < 0.93:
        place = dice.randrange(len(tree))
        match dice.randrange(10):
            case 0:
                return tree[:place] + tree[place + 1 :]
            case 1:
                return [*tree, tree[place]]
        return [*tree[:place], _altered(dice, tree[place]), *tree[place + 1 :]]
    return _leaf(dice, tree)


_KEYS = ("", "a", "kind", "real", "arrays", "data", "event", "ε", "ε\ud800")


def _nested(depth: int) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = [tree]
    return tree


_LEAVES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**31,
    2**63,
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    5e-324,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "a",
    "inf",
    "none",
    "\ud800",
    [],
    {},
    [1],
    {"a": 1},
    [[[[]]]],
    2**53 - 1,
    -(2**53) + 1,
    [1] * 65,
    [0, 2**40, 2**40],
    _nested(600),
    "7ff0000000000000",
    "7ff8000000000000",
    "ffefffffffffffff",
    "0000000000000001",
    "0000000000000000",
    {"real": "7ff0000000000000"},
    {"real": "zzzzzzzzzzzzzzzz"},
    {"kind": "nothing"},
)


def _leaf(dice: random.Random, leaf: Any) -> Any:
    if isinstance(leaf, int) and not isinstance(leaf, bool) and dice.random() < 0.3:
        return leaf + dice.choice((-1, 1, 2, 100))
    if isinstance(leaf, str) and leaf and dice.random() < 0.5:
        place = dice.randrange(len(leaf))
        other = dice.choice("0123456789abcdef") if dice.random() < 0.7 else ""
        return leaf[:place] + other + leaf[place + 1 :]
    return dice.choice(_LEAVES)


def _entry(dice: random.Random, sample: NDArray[Any]) -> Any:
    changed = sample.copy()
    if changed.size and changed.dtype.kind in "fiu":
        value = dice.choice(
            (*SECRETS, math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0, 1e3, -7.0, 1e155)
        )
        if changed.dtype.kind == "f":
            with np.errstate(over="ignore"):
                changed.flat[dice.randrange(changed.size)] = value
        else:
            changed.flat[dice.randrange(changed.size)] = np.iinfo(changed.dtype).max
    return changed


def _read_only(sample: NDArray[Any]) -> NDArray[Any]:
    changed = sample.copy()
    changed.flags.writeable = False
    return changed


def _duplicate(sample: NDArray[Any]) -> NDArray[Any]:
    changed = sample.copy()
    if changed.ndim and len(changed):
        changed[...] = changed[:1]
    return changed


def _strided(sample: NDArray[Any]) -> NDArray[Any]:
    wide = np.repeat(sample[..., None], 3, axis=-1)
    view: NDArray[Any] = wide[..., 1]
    return view


_TURNS: tuple[Callable[[NDArray[Any]], Any], ...] = (
    np.ravel,
    lambda a: a[None],
    lambda a: a[..., None],
    lambda a: np.atleast_1d(a)[:0],
    lambda a: np.atleast_1d(a)[..., :0],
    lambda a: a.T,
    np.asfortranarray,
    lambda a: a[::-1] if a.ndim else a,
    _strided,
    _read_only,
    _duplicate,
    lambda a: np.broadcast_to(a[:1] if a.ndim else a, a.shape),
    lambda a: np.zeros_like(a),
    lambda a: np.repeat(a[None] if a.ndim == 0 else a, 7, axis=0),
    lambda a: np.zeros((100_000, *a.shape[1:])) if a.ndim else np.zeros(100_000),
    lambda a: a.astype(np.float16),
    lambda a: a.astype(np.float32),
    lambda a: a.astype(np.int64),
    lambda a: a.astype(bool),
    lambda a: a.astype(np.complex128),
    lambda a: a.astype(object),
    lambda a: a.astype(str),
    lambda a: a.astype(">f8"),
    lambda a: a.tolist(),
    lambda a: [*a.ravel().tolist(), [1.0]],
    lambda a: [None, *a.ravel().tolist()],
    lambda a: np.ma.masked_array(a, mask=True),
    lambda a: 10**400,
    lambda a: [[10**400]],
    lambda a: {"a": a},
)


def array(dice: random.Random, sample: NDArray[Any]) -> Any:
    """An array with a hostile entry, another type, another shape, or another way to lie."""
    if dice.random() < 0.35:
        return _entry(dice, sample)
    turned = dice.choice(_TURNS)(sample)
    if dice.random() < 0.2 and isinstance(turned, np.ndarray) and turned.flags.writeable:
        return _entry(dice, turned)
    return turned
