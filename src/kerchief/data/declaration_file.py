"""A declaration in a file of its own, so that it can be read, reviewed and kept."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from kerchief.core.errors import InvalidValueError
from kerchief.core.registry import Registry

WORDS = (
    *("features", "label", "rewards", "reward_range", "arm_features", "arm_table"),
    *("norm", "intercept", "orders"),
    *("action", "reward", "propensity", "user", "arm_norm", "least_propensity"),
)
"""Options that a declaration may hold."""


def read_declared(path: Path) -> dict[str, Any]:
    """Read what a TOML file declares about data, by names of command-line options.

    Features are a table of ranges and words, or a list of texts; the rest is as on the command
    line::

        label = "plan"
        [features]
        age = [18, 90]
        town = ["Rome", "Oslo", "other"]
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidValueError(
            f"the declaration {str(path)!r} cannot be read: {reason}"
        ) from error
    options: Registry[str] = Registry("declaration")
    for option in WORDS:
        options.add(option, option)
    return {options[name.replace("-", "_")]: value for name, value in content.items()}
