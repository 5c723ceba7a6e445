"""Options that make a world of data, and the world that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kerchief.core.errors import InvalidValue
from kerchief.data.declared import WORDS, read_declared
from kerchief.data.features import parted
from kerchief.data.replay import Replay
from kerchief.data.replaying import from_logs
from kerchief.data.sources import are_logs
from kerchief.data.supervised import from_supervised
from kerchief.environments.supervised import ORDERS
from kerchief.experiments.data import WorldOfData

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
"""What the columns of logs are."""
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
"""The names of these options."""


def of_data(command: Decorated, *, reward: Callable[[Decorated], Decorated] = _REWARD) -> Decorated:
    """Add the options to a command, where `--reward` may mean more than a column of logs."""
    for option in reversed(_OPTIONS):
        command = (reward if option is _REWARD else option)(command)
    return command


def check_without(given: dict[str, Any]) -> None:
    """Refuse options about data where there are none."""
    for name, value in given.items():
        if value not in (None, ()):
            raise InvalidValue(f"--{_flag(name)} is given without data; give --data FILE too")


def world_of(given: dict[str, Any]) -> WorldOfData:
    """The world of these options: of logs where there are actions."""
    said = {name: value for name, value in given.items() if value not in (None, ())}
    declared = {name: said[name] for name in WORDS if name in said}
    if "declare" in said:
        declared = _joined(declared, read_declared(said["declare"]))
    if "rewards" in declared:
        declared["rewards"] = _columns(declared["rewards"])
    if "reward_range" in declared:
        declared["reward_range"] = range_of(declared["reward_range"])
    if "action" in declared or are_logs(said["data"]):
        return _replayed(said, declared)
    label, sha256 = declared.pop("label", None), said.get("data_sha256")
    if not isinstance(label, str | None):
        raise InvalidValue(
            f"label is {str(label)[:80]} in the declaration; give the name of a column in quotes"
        )
    for name in declared:
        if name in _OF_LOGS:
            raise InvalidValue(f"--{_flag(name)} is for logs; give --action COLUMN too, or neither")
    return from_supervised(said["data"], label, sha256=sha256, **declared)


def _replayed(said: dict[str, Any], declared: dict[str, Any]) -> Replay:
    """A world of logs."""
    for name in ("label", "rewards", "arm_features", "arm_table", "orders"):
        if name in declared:
            raise InvalidValue(f"--{_flag(name)} is given, and these are logs; leave it out")
    if "propensity" in declared:
        declared["propensity"] = chance_of(declared["propensity"])
    return from_logs(said["data"], sha256=said.get("data_sha256"), **declared)


def chance_of(given: Any) -> Any:
    """The name of a column, or one chance for all rows."""
    try:
        return float(given)
    except (TypeError, ValueError):
        return given


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _joined(flags: dict[str, Any], file: dict[str, Any]) -> dict[str, Any]:
    for name in flags:
        if name in file:
            raise InvalidValue(f"{name} is declared in the file and beside it; declare it once")
    return flags | file


def _columns(given: Any) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(one, str) for one in texts):
        raise InvalidValue(
            f"rewards are {str(given)[:80]!r}; name one column per arm, as in --rewards r_a,r_b"
        )
    return tuple(one for text in texts for one in parted(text, ",") if one)


def range_of(given: Any) -> tuple[float, float]:
    """The least and the greatest reward."""
    try:
        low, high = map(float, given.split(":") if isinstance(given, str) else given)
    except (TypeError, ValueError):
        raise InvalidValue(
            f"the range of rewards is {str(given)[:80]!r}; give it as in --reward-range 0:1"
        ) from None
    return low, high
