"""Options that declare data, and the environment that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kerchief.comparison.datasets import WorldOfData
from kerchief.core.errors import InvalidValueError
from kerchief.data.declaration_file import KEYS, read_declarations
from kerchief.data.features import parted
from kerchief.data.replay import Replay
from kerchief.data.replaying import from_logs
from kerchief.data.sources import are_logs
from kerchief.data.supervised import from_supervised

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
"""A path on the command line."""

declare = click.option(
    "--declare",
    multiple=True,
    metavar="FILE.toml|KEY=VALUE",
    help="Declaration about the data, such as action=shown, reward-range=0:1 or norm=3; a TOML "
    "file has the same keys. Repeatable.",
)
_OPTIONS = (
    click.option("--data", type=FILE, help="CSV or Parquet file, in place of --env."),
    declare,
    click.option(
        "--features",
        multiple=True,
        metavar="NAME=LOW:HIGH|NAME=A|B",
        help="Features of users with their public bounds, such as age=18:90,plan=basic|gold. "
        "Repeatable.",
    ),
    click.option(
        "--label",
        metavar="COLUMN",
        help="Column with the best arm of each user; COLUMN=first|second declares the arms.",
    ),
)
_KEYS_OF_LOGS = ("action", "reward", "propensity", "user", "arm_norm", "least_propensity")
NAMES = ("data", "declare", "features", "label")
"""Names of the options about data."""


def of_data(command: Decorated) -> Decorated:
    """Add the options about data to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_without(settings: dict[str, Any]) -> None:
    """Refuse options about data where there are none."""
    for name, value in settings.items():
        if value not in (None, ()):
            raise InvalidValueError(f"--{name} is given without data; give --data FILE too")


def environment_of(settings: dict[str, Any]) -> WorldOfData:
    """Build the environment of these options: of logs where there are actions."""
    declaration = merge_declarations(settings, KEYS)
    if "rewards" in declaration:
        declaration["rewards"] = _split_columns(declaration["rewards"])
    if "reward_range" in declaration:
        declaration["reward_range"] = range_of(declaration["reward_range"])
    check_columns(declaration)
    sha256 = declaration.pop("data_sha256", None)
    if "action" in declaration or are_logs(settings["data"]):
        return _replay_logs(settings["data"], sha256, declaration)
    label = declaration.pop("label", None)
    for name in declaration:
        if name in _KEYS_OF_LOGS:
            raise InvalidValueError(
                f"{_spell_declaration(name)} is for logs; add --declare action=COLUMN, or leave it "
                "out"
            )
    return from_supervised(settings["data"], label, sha256=sha256, **declaration)


def check_columns(declaration: dict[str, Any]) -> None:
    """Refuse names of columns that are not text, as a TOML file may hold."""
    for name in ("label", "action", "reward", "user"):
        if not isinstance(declaration.get(name), str | None):
            raise InvalidValueError(
                f"{name} is {str(declaration[name])[:80]} in the declaration; give the name of a "
                "column in quotes"
            )


def merge_declarations(settings: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Merge declarations with the options that declare the same, and refuse what is said twice."""
    declaration = read_declarations(settings["declare"], keys)
    for name in ("features", "label"):
        if settings.get(name) in (None, ()):
            continue
        if name in declaration:
            raise InvalidValueError(
                f"{name} is declared by --declare and by --{name}; declare it once"
            )
        declaration[name] = settings[name]
    return declaration


def _replay_logs(data: Path, sha256: str | None, declaration: dict[str, Any]) -> Replay:
    """Build an environment that replays logs."""
    for name in ("label", "rewards", "arm_features", "arm_table", "orders"):
        if name in declaration:
            raise InvalidValueError(
                f"{_spell_declaration(name)} is given, and these are logs; leave it out"
            )
    if "propensity" in declaration:
        declaration["propensity"] = propensity_of(declaration["propensity"])
    return from_logs(data, sha256=sha256, **declaration)


def propensity_of(value: Any) -> Any:
    """Return the name of a column, or one propensity for all rows."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _spell_declaration(name: str) -> str:
    if name in NAMES:
        return f"--{name}"
    return f"--declare {name.replace('_', '-')}"


def _split_columns(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InvalidValueError(
            f"rewards are {str(value)[:80]!r}; name one column per arm, as in --declare "
            "rewards=r_a,r_b"
        )
    return tuple(column for text in texts for column in parted(text, ",") if column)


def range_of(value: Any) -> tuple[float, float]:
    """Return the least and the greatest reward."""
    try:
        low, high = map(float, value.split(":") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"the range of rewards is {str(value)[:80]!r}; give it as in --declare reward-range=0:1"
        ) from None
    return low, high
