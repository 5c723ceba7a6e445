"""Options that make a world of data, and the world that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kerchief.comparison.datasets import WorldOfData
from kerchief.core.errors import InvalidValueError
from kerchief.data.declaration_file import WORDS, read_declared
from kerchief.data.features import parted
from kerchief.data.replay import Replay
from kerchief.data.replaying import from_logs
from kerchief.data.sources import are_logs
from kerchief.data.supervised import from_supervised
from kerchief.environments.supervised import ORDERS

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_FILE = click.Path(path_type=Path)
_REWARD = click.option("--reward", metavar="COLUMN", help="Of logs, what it gave.")
logged = (
    click.option(
        "--action",
        metavar="COLUMN",
        help="Of logs, what was done; COLUMN=first|second declares the arms.",
    ),
    _REWARD,
    click.option(
        "--propensity", metavar="COLUMN", help="Of logs, the chance that it had; or one number."
    ),
    click.option("--user", metavar="COLUMN", help="Of logs, who came, if some came often."),
)
"""Options that name the columns of logs."""
_OPTIONS = (
    click.option("--data", type=_FILE, help="Play on a CSV or Parquet file, in place of --env."),
    click.option("--data-sha256", metavar="HEX", help="The digest that the data must have."),
    click.option("--declare", type=_FILE, help="A TOML file with the options below."),
    click.option(
        "--features",
        multiple=True,
        metavar="NAME=LOW:HIGH|NAME=WORD|WORD",
        help="Features of users, with their public bounds, such as age=18:90,plan=basic|gold. "
        "Repeatable.",
    ),
    click.option(
        "--label",
        metavar="COLUMN",
        help="The right arm of each user; COLUMN=first|second declares the arms.",
    ),
    click.option(
        "--rewards", multiple=True, metavar="COLUMNS", help="One column of rewards per arm."
    ),
    click.option("--reward-range", metavar="LOW:HIGH", help="The least and the greatest reward."),
    click.option(
        "--arm-features",
        multiple=True,
        metavar="NAME=LOW:HIGH",
        help="Features of arms, with one model for all; price_{arm} has a column per arm.",
    ),
    click.option("--arm-table", type=_FILE, help="Features of arms, by a column `arm`."),
    click.option("--norm", type=float, help="Bound on the norm of features without a range."),
    click.option(
        "--intercept", type=float, help="The constant behind all features.  [default: 0.5]"
    ),
    click.option(
        "--orders",
        metavar="|".join(ORDERS),
        help="Users come once each, or are drawn anew.  [default: permutation]",
    ),
    *logged,
    click.option("--arm-norm", type=float, help="Bound on the norm of an arm's features in logs."),
    click.option(
        "--least-propensity",
        type=float,
        help="Logged chances below it count as if they were it: faster, with some bias.",
    ),
)
_OF_LOGS = ("action", "reward", "propensity", "user", "arm_norm", "least_propensity")
NAMES = ("data", "data_sha256", "declare", *WORDS)
"""Names of the options about data."""


def of_data(command: Decorated, *, reward: Callable[[Decorated], Decorated] = _REWARD) -> Decorated:
    """Add the options to a command, where `--reward` may mean more than a column of logs."""
    for option in reversed(_OPTIONS):
        command = (reward if option is _REWARD else option)(command)
    return command


def check_without(given: dict[str, Any]) -> None:
    """Refuse options about data where there are none."""
    for name, value in given.items():
        if value not in (None, ()):
            raise InvalidValueError(
                f"--{_spell_flag(name)} is given without data; give --data FILE too"
            )


def world_of(given: dict[str, Any]) -> WorldOfData:
    """Build the environment of these options: of logs where there are actions."""
    options = {name: value for name, value in given.items() if value not in (None, ())}
    declaration = {name: options[name] for name in WORDS if name in options}
    if "declare" in options:
        declaration = _merge_declarations(declaration, read_declared(options["declare"]))
    if "rewards" in declaration:
        declaration["rewards"] = _split_columns(declaration["rewards"])
    if "reward_range" in declaration:
        declaration["reward_range"] = range_of(declaration["reward_range"])
    if "action" in declaration or are_logs(options["data"]):
        return _replay_logs(options, declaration)
    label, sha256 = declaration.pop("label", None), options.get("data_sha256")
    if not isinstance(label, str | None):
        raise InvalidValueError(
            f"label is {str(label)[:80]} in the declaration; give the name of a column in quotes"
        )
    for name in declaration:
        if name in _OF_LOGS:
            raise InvalidValueError(
                f"--{_spell_flag(name)} is for logs; give --action COLUMN too, or neither"
            )
    return from_supervised(options["data"], label, sha256=sha256, **declaration)


def _replay_logs(options: dict[str, Any], declaration: dict[str, Any]) -> Replay:
    """Build an environment that replays logs."""
    for name in ("label", "rewards", "arm_features", "arm_table", "orders"):
        if name in declaration:
            raise InvalidValueError(
                f"--{_spell_flag(name)} is given, and these are logs; leave it out"
            )
    if "propensity" in declaration:
        declaration["propensity"] = chance_of(declaration["propensity"])
    return from_logs(options["data"], sha256=options.get("data_sha256"), **declaration)


def chance_of(given: Any) -> Any:
    """The name of a column, or one chance for all rows."""
    try:
        return float(given)
    except (TypeError, ValueError):
        return given


def _spell_flag(name: str) -> str:
    return name.replace("_", "-")


def _merge_declarations(flags: dict[str, Any], file: dict[str, Any]) -> dict[str, Any]:
    for name in flags:
        if name in file:
            raise InvalidValueError(
                f"{name} is declared in the file and beside it; declare it once"
            )
    return flags | file


def _split_columns(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InvalidValueError(
            f"rewards are {str(value)[:80]!r}; name one column per arm, as in --rewards r_a,r_b"
        )
    return tuple(column for text in texts for column in parted(text, ",") if column)


def range_of(given: Any) -> tuple[float, float]:
    """The least and the greatest reward."""
    try:
        low, high = map(float, given.split(":") if isinstance(given, str) else given)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"the range of rewards is {str(given)[:80]!r}; give it as in --reward-range 0:1"
        ) from None
    return low, high
