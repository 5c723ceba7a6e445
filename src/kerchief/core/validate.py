"""Checks on values that users give: each error names the value, the bound and the remedy."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core.errors import InvalidValueError

MOST_DIM = 2**12
"""The longest feature vector: its outer product with itself has 2**24 numbers."""
MOST_ROUNDS = 2**31 - 1
"""The longest horizon: a round is counted by a 32-bit number."""

# The bounds that fields of these names have wherever they are; those of whole numbers are whole.
_USUAL: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("dim", "groups"), (1, MOST_DIM)),
    **dict.fromkeys(("horizon", "clients", "fits", "steps"), (1, MOST_ROUNDS)),
    **dict.fromkeys(("norm", "radius", "half", "balance", "importance"), (1e-9, 1e9)),
    **dict.fromkeys(("low", "high", "offset", "constant"), (-1e9, 1e9)),
    "clip": (1e-9, 1e18),
}


def _number(name: str, value: float) -> float:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if isinstance(value, bool) or not is_number or value != value:
        raise InvalidValueError(f"{name} is {_format_value(value)}; it must be a number")
    try:
        return float(value)
    except OverflowError:
        raise InvalidValueError(
            f"{name} is beyond all floats; it must be a number below 1e308"
        ) from None


def _format_value(value: object) -> str:
    """A value in an error: in short, and without what no terminal or file can write."""
    return repr(value).encode("utf-8", "backslashreplace").decode()[:80]


def positive(name: str, value: float, *, infinite: bool = False) -> float:
    """Return the value if it is above zero (and finite, unless `infinite`).

    >>> positive("epsilon", 0.5)
    0.5
    >>> positive("epsilon", 0.0)
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: epsilon is 0.0; it must be above 0
    """
    value = _number(name, value)
    if value <= 0:
        raise InvalidValueError(f"{name} is {value}; it must be above 0")
    if math.isinf(value) and not infinite:
        raise InvalidValueError(f"{name} is {value}; it must be finite")
    return value


def at_least(name: str, value: float, low: float) -> float:
    """Return the value if it is finite and at least `low`."""
    value = _number(name, value)
    if value < low or math.isinf(value):
        raise InvalidValueError(f"{name} is {value}; it must be finite and at least {low}")
    return value


def between(name: str, value: float, low: float, high: float, *, closed: bool = False) -> float:
    """Return the value if low < value < high (or low <= value <= high, if `closed`)."""
    value = _number(name, value)
    inside = low <= value <= high if closed else low < value < high
    if not inside:
        bounds = f"[{low}, {high}]" if closed else f"({low}, {high})"
        raise InvalidValueError(f"{name} is {value}; it must lie in {bounds}")
    return value


def whole(name: str, value: int, *, low: int = 1, high: int | None = None) -> int:
    """Return the value as a plain int if it is a whole number within [low, high].

    >>> whole("dim", np.int64(12))
    12
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidValueError(f"{name} is {_format_value(value)}; it must be a whole number")
    value = int(value)
    if value < low or (high is not None and value > high):
        upper = "" if high is None else f" and at most {high}"
        raise InvalidValueError(
            f"{name} is {_format_value(value)}; it must be at least {low}{upper}"
        )
    return value


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return the value if it is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValueError(
            f"{name} is {_format_value(value)}; choose one of {', '.join(allowed)}"
        )
    return value


def or_default(name: str, value: float | None, default: float) -> float:
    """Return the value if it is finite and not negative, or the default where it is None.

    >>> or_default("exploration", None, 0.5)
    0.5
    """
    return default if value is None else at_least(name, value, 0.0)


def increasing(name: str, values: tuple[int, ...]) -> tuple[int, ...]:
    """Return the values if they are whole numbers from 1 on, each above the one before.

    >>> increasing("batches", (3, 3))
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: batches are (3, 3); each must be above the one \
before
    """
    if not isinstance(values, tuple):
        raise InvalidValueError(
            f"{name} are {_format_value(values)}; they must be a tuple of whole numbers"
        )
    wholes = tuple(whole(name, value, high=MOST_ROUNDS) for value in values)
    if any(later <= earlier for earlier, later in itertools.pairwise(wholes)):
        raise InvalidValueError(
            f"{name} are {_format_value(wholes)}; each must be above the one before"
        )
    return wholes


def check_bounds(checked: Any) -> None:
    """Check the public bounds of a frozen dataclass, by the names of its fields; see `plain`.

    For `__post_init__`: `high` is at least `low`, and `batches` and `readings` increase.
    """
    plain(checked)
    for field in dataclasses.fields(checked):
        value = getattr(checked, field.name)
        low, high = _USUAL.get(field.name, (None, None))
        if isinstance(low, int) and isinstance(high, int):
            whole(field.name, value, low=low, high=high)
        elif low is not None and high is not None:
            between(
                field.name, value, checked.low if field.name == "high" else low, high, closed=True
            )
        elif field.name in ("batches", "readings"):
            increasing(field.name, value)


def plain(checked: object) -> None:
    """Make NumPy scalars in the fields of a frozen dataclass plain numbers.

    For `__post_init__`: a narrow NumPy number rounds or overflows where bounds are multiplied, and
    JSON has no word for it.
    """
    if not dataclasses.is_dataclass(checked) or isinstance(checked, type):
        raise InvalidValueError(f"a {type(checked).__name__} has no fields; give a dataclass")
    for field in dataclasses.fields(checked):
        object.__setattr__(checked, field.name, _plain(getattr(checked, field.name)))


def _plain(value: object) -> object:
    if isinstance(value, np.integer | np.floating):
        return int(value) if isinstance(value, np.integer) else float(value)
    return tuple(map(_plain, value)) if type(value) is tuple else value


def real_array(name: str, values: ArrayLike, *, kind: str = "an array") -> NDArray[np.float64]:
    """Return the values as a float64 array if they are real numbers, finite or not.

    >>> real_array("features", [[1, 2], [3]])
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: features are not an array of real numbers
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        # Not which values: errors end up in logs, and a context must not.
        raise InvalidValueError(f"{name} are not {kind} of real numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float64, copy=False)
