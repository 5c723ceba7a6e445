"""Checks on values that users give: each error names the value, the bound and the remedy."""

from __future__ import annotations

import math

from kerchief.core.errors import InvalidValue

__all__ = ["at_least", "between", "one_of", "positive", "whole"]


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidValue(f"{name} is {value!r}; it must be a number")
    return float(value)


def positive(name: str, value: float, *, infinite: bool = False) -> float:
    """Return the value if it is above zero (and finite, unless `infinite`).

    >>> positive("epsilon", 0.5)
    0.5
    >>> positive("epsilon", 0.0)
    Traceback (most recent call last):
    ...
    kerchief.core.errors.InvalidValue: epsilon is 0.0; it must be above 0
    """
    value = _number(name, value)
    if value <= 0:
        raise InvalidValue(f"{name} is {value}; it must be above 0")
    if math.isinf(value) and not infinite:
        raise InvalidValue(f"{name} is {value}; it must be finite")
    return value


def at_least(name: str, value: float, low: float) -> float:
    """Return the value if it is finite and at least `low`."""
    value = _number(name, value)
    if value < low or math.isinf(value):
        raise InvalidValue(f"{name} is {value}; it must be finite and at least {low}")
    return value


def between(name: str, value: float, low: float, high: float, *, closed: bool = False) -> float:
    """Return the value if low < value < high (or low <= value <= high, if `closed`)."""
    value = _number(name, value)
    inside = low <= value <= high if closed else low < value < high
    if not inside:
        bounds = f"[{low}, {high}]" if closed else f"({low}, {high})"
        raise InvalidValue(f"{name} is {value}; it must lie in {bounds}")
    return value


def whole(name: str, value: int, *, low: int = 1, high: int | None = None) -> int:
    """Return the value if it is a whole number within [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{name} is {value!r}; it must be a whole number")
    if value < low or (high is not None and value > high):
        upper = "" if high is None else f" and at most {high}"
        raise InvalidValue(f"{name} is {value}; it must be at least {low}{upper}")
    return value


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return the value if it is one of the allowed words."""
    if value not in allowed:
        raise InvalidValue(f"{name} is {value!r}; choose one of {', '.join(allowed)}")
    return value
