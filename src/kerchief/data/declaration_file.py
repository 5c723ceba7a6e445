"""A declaration in a file of its own, so that it can be read, reviewed and kept."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kerchief.core.errors import InvalidValueError
from kerchief.core.registry import Registry

KEYS = (
    *("data_sha256", "features", "label", "rewards", "reward_range", "arm_features", "arm_table"),
    *("norm", "intercept", "orders"),
    *("action", "reward", "propensity", "user", "arm_norm", "least_propensity"),
)
"""Keys that a declaration may hold."""

_NUMBERS = ("norm", "intercept", "arm_norm", "least_propensity")
_LISTS = ("rewards", "arm_features", "features")


def read_declarations(texts: Iterable[str], keys: tuple[str, ...] = KEYS) -> dict[str, Any]:
    """Read declarations about data, each in a TOML file or as KEY=VALUE.

    Args:
        texts: names of TOML files, and pairs; a key of a list may be repeated.
        keys: the keys that may be declared.

    >>> read_declarations(["norm=3", "rewards=r_news", "rewards=r_sport", "arm-table=arms.csv"])
    {'norm': 3.0, 'rewards': ('r_news', 'r_sport'), 'arm_table': 'arms.csv'}
    """
    registry = _build_registry(keys)
    declared: dict[str, Any] = {}
    for text in texts:
        for key, value in _read_declaration(text, registry).items():
            declared[key] = _merge_values(key, declared.get(key), value)
    return declared


def _read_declaration(text: str, keys: Registry[str]) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    is_known = key.replace("-", "_") in tuple(keys)
    if not is_known and (not equals or text.endswith(".toml")):
        return read_declared(Path(text), keys)
    name = keys[key.replace("-", "_")]
    if not value:
        raise InvalidValueError(f"--declare is {text[:80]!r}; write KEY=VALUE, or FILE.toml")
    return {name: _parse_value(name, value)}


def _parse_value(key: str, text: str) -> Any:
    """Return a tuple for a key of a list, and a number where the text reads as one."""
    if key in _LISTS:
        return (text,)
    with contextlib.suppress(ValueError):
        return float(text) if key in _NUMBERS else text
    return text


def _merge_values(key: str, earlier: Any, value: Any) -> Any:
    """Append to a list, and refuse a second value of another key."""
    if earlier is None or earlier == value:
        return value
    if key in _LISTS and isinstance(earlier, tuple) and isinstance(value, tuple):
        return (*earlier, *value)
    raise InvalidValueError(
        f"{key} is declared twice, as {str(earlier)[:80]!r} and as {str(value)[:80]!r}; declare it "
        "once"
    )


def _build_registry(keys: Iterable[str]) -> Registry[str]:
    registry: Registry[str] = Registry("declaration")
    for key in keys:
        registry.add(key, key)
    return registry


def read_declared(path: Path, keys: Registry[str]) -> dict[str, Any]:
    """Read what a TOML file declares about data.

    Features are a table of ranges and words, or a list of texts; every other value is as in
    ``--declare KEY=VALUE``::

        label = "plan"
        [features]
        age = [18, 90]
        town = ["Rome", "Oslo", "other"]
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidValueError(
            f"the declaration {str(path)!r} cannot be read: {reason}"
        ) from error
    return {keys[name.replace("-", "_")]: value for name, value in content.items()}
