"""Logs from tables with named columns, DSJSON or bandit feedback."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.errors import CodecError, InvalidValueError, KerchiefError
from kerchief.core.installing import format_install_command
from kerchief.data.declaration import Declared, declared_range
from kerchief.data.dsjson import read_dsjson
from kerchief.data.feature_selection import AskedFeatures, ReadLogs, nothing
from kerchief.data.features import Category, words_of
from kerchief.data.files import columns_of, write_file
from kerchief.data.logs import Floats, Logs
from kerchief.data.open_bandit import from_feedback, read_feedback
from kerchief.data.tables import Table, Tabular, read_table

if TYPE_CHECKING:
    import polars as pl

_DSJSON, _FEEDBACK = (".json", ".dsjson", ".jsonl", ".ndjson"), ".npz"
_RESERVED = ("action", "reward", "propensity", "user")


def are_logs(path: Path | str) -> bool:
    """Whether a file can hold nothing but logs, by the end of its name.

    >>> are_logs("log.npz"), are_logs("table.csv")
    (True, False)
    """
    return Path(path).suffix.lower() in (*_DSJSON, _FEEDBACK)


def read_logs(
    source: Tabular | Mapping[str, Any],
    *,
    reward_range: tuple[float, float],
    action: str | None = None,
    reward: str | None = None,
    propensity: str | float | None = None,
    features: Declared = (),
    norm: float | None = None,
    intercept: float | None = None,
    arms: int | Sequence[str] | None = None,
    arm_features: ArrayLike | None = None,
    user: str | None = None,
) -> Logs:
    """Read logs; their kind is told by the end of a file's name, or by the keys of a dictionary.

    Args:
        source: a table with one row per decision (a CSV or Parquet file, a frame, a mapping), a
            file of Vowpal Wabbit's DSJSON (.json, .dsjson, .jsonl), or the bandit feedback of
            Open Bandit Pipeline (a dictionary or .npz). The last two have columns of their own for
            actions, rewards and propensities, and what they do not take is refused by name.
        reward_range: the least and the greatest reward, declared.
        action: the column of what was done: numbers from 0, or words, as in "item=red|blue";
            "action" where nothing is said. Of DSJSON words name the arms, in their order there.
        reward: the column of what it gave; "reward" where nothing is said.
        propensity: the column of the chance that the logging policy gave to the action, or one
            chance for all rows; "propensity" where nothing is said.
        features: the users' features with their public bounds, such as "age=18:90,
            plan=basic|gold", which are scaled as `Declaration` says; or bare names of
            numbers, which are taken as they are.
        norm: public bound on the norm of features without bounds of their own.
        intercept: the constant behind features with bounds; 0.5 where nothing is said.
        arms: how many arms there are, or their names in the column of actions. Of DSJSON nothing
            is then read off the lines but the users' features that are named, each by its whole
            name. What such a line does not have is 0, if that is in its declared range.
        arm_features: one row per arm, for tables.
        user: the column that says who came, where users came several times; of DSJSON a shared
            feature, or the note `_user` where nothing is said and lines have it. Bandit feedback
            says it itself, under the key `user`.

    >>> table = {"item": ["red", "blue"], "r": [1, 0], "p": [0.5, 0.5], "age": [20, 70]}
    >>> logs = read_logs(table, reward_range=(0, 1), action="item=red|blue", reward="r",
    ...     propensity="p", features="age=18:90")
    >>> logs.actions.tolist(), logs.names
    ([0, 1], ('age', 'constant'))
    """
    options: dict[str, Any] = {"action": action, "reward": reward, "propensity": propensity}
    options |= {"arms": arms, "arm_features": arm_features, "user": user}
    columns = {name: value for name, value in options.items() if value is not None}
    if norm is not None and nothing(features):
        raise InvalidValueError(
            f"norm is {norm}, and no features are named; name them, or leave it out"
        )
    bounds = {"features": features, "norm": norm, "intercept": intercept}
    return read_with_origin(source, reward_range, columns, bounds).logs


def read_with_origin(
    source: Any, reward_range: Any, columns: Mapping[str, Any], bounds: Mapping[str, Any]
) -> ReadLogs:
    """Read logs, and return them with their source and the declaration."""
    low, high = declared_range(reward_range)
    selection = AskedFeatures(**bounds)
    selection.check()
    kind = Path(source).suffix.lower() if isinstance(source, str | Path) else ""
    if kind in _DSJSON:
        return _read_lines(source, (low, high), selection, columns)
    if kind == _FEEDBACK:
        _refuse_columns("bandit feedback", columns, allowed=())
        return selection.of(read_feedback(source, low=low, high=high))
    if isinstance(source, Mapping) and {"pscore", "n_actions"} <= source.keys():
        _refuse_columns("bandit feedback", columns, allowed=())
        return selection.of(from_feedback(source, low=low, high=high))
    return _read_decisions(read_table(source), (low, high), selection, **columns)


def _refuse_columns(form: str, columns: Mapping[str, Any], *, allowed: Sequence[str]) -> None:
    """Refuse options that a format of logs does not take because it has its own."""
    for name in columns:
        if name not in allowed:
            raise InvalidValueError(
                f"{name} is given, and {form} says it in its own way (see docs/logs.md); leave "
                f"{name} out"
            )


def _read_lines(
    source: Path | str,
    reward_range: tuple[float, float],
    selection: AskedFeatures,
    columns: Mapping[str, Any],
) -> ReadLogs:
    """Read DSJSON; with declared arms only declared features are read from lines."""
    _refuse_columns("DSJSON", columns, allowed=("action", "arms", "user"))
    arm_names = _read_arm_names(columns.get("action"), columns.get("arms"))
    if "action" in columns and arm_names is None:
        raise InvalidValueError(
            f"action is {columns['action']!r}, and DSJSON has a column of its own for it; leave "
            "it out, or name the arms in their order, as in item=first|second"
        )
    count = columns.get("arms") if arm_names is None else len(arm_names)
    options: dict[str, Any] = {
        "features": selection.in_lines(declared=count is not None),
        "arms": count,
    }
    options |= {"arm_features": None if count is None else (), "user": columns.get("user")}
    low, high = reward_range
    read = selection.of(
        read_dsjson(source, low=low, high=high, needed=selection.never_absent(), **options)
    )
    return dataclasses.replace(read, counted="the lines" if count is None else None)


def write_log_table(logs: Logs, path: Path | str) -> None:
    """Write one row per decision: action, reward, propensity, user and the features."""
    path = Path(path)
    if logs.arm_features is not None or (logs.allowed is not None and not logs.allowed.all()):
        raise CodecError("masks and features of arms have no column; write DSJSON")
    if clash := sorted(set(_RESERVED) & set(logs.names)):
        raise CodecError(f"a feature is called {clash[0]!r}, as another column is; rename it")
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise InvalidValueError(f"path is {str(path)!r}; let it end in .csv or .parquet")
    if importlib.util.find_spec("polars") is None:
        raise KerchiefError(
            f"tables cannot be written without polars: run {format_install_command('report')}"
        )
    import polars as pl

    columns: dict[str, NDArray[Any]] = {
        "action": logs.actions,
        "reward": logs.rewards,
        "propensity": logs.propensities,
    }
    columns |= {} if logs.users is None else {"user": logs.users}
    columns |= dict(zip(logs.names, logs.contexts.T, strict=True))
    frame = pl.DataFrame({name: np.ascontiguousarray(values) for name, values in columns.items()})
    _check_heading(path, _serialize_frame(frame.head(1), kind), list(columns))
    write_file(path, _serialize_frame(frame, kind))


def _serialize_frame(frame: pl.DataFrame, kind: str) -> bytes:
    content = io.BytesIO()
    if kind == ".csv":
        frame.write_csv(content)
    else:
        frame.write_parquet(content)
    return content.getvalue()


def _check_heading(path: Path, content: bytes, names: Sequence[str]) -> None:
    """Refuse names that the file would not give back."""
    stored = list(columns_of(path, content))
    for name, stored_name in zip(names, stored, strict=True):
        if name != stored_name:
            raise CodecError(
                f"a feature is called {name!r}, and {path.suffix} would give it back as "
                f"{stored_name!r}; rename it"
            )


def _read_decisions(
    table: Table,
    reward_range: tuple[float, float],
    selection: AskedFeatures,
    *,
    action: str = "action",
    reward: str = "reward",
    propensity: str | float = "propensity",
    arms: int | Sequence[str] | None = None,
    arm_features: ArrayLike | None = None,
    user: str | None = None,
) -> ReadLogs:
    reserved = (str(action).partition("=")[0], reward, propensity, user)
    names = (name for name in reserved if isinstance(name, str))
    feature_table = table.without(*names)
    encoded, declaration = selection.encode(feature_table)
    actions, count = _read_actions(table, action, arms)
    logs = Logs(
        actions=actions,
        rewards=table.numbers(_check_column_name("reward", reward), or_words=False),
        propensities=_read_propensities(table, propensity),
        arms=count,
        low=reward_range[0],
        high=reward_range[1],
        arm_features=None if arm_features is None else np.asarray(arm_features),
        users=None if user is None else table.words(_check_column_name("user", user)),
        **selection.fields(feature_table, encoded.rows, declaration),
    )
    count_source = f"column {action!r}" if arms is None and "=" not in action else None
    return ReadLogs(
        logs=logs, source=table, declaration=declaration, encoded=encoded, counted=count_source
    )


def _read_actions(table: Table, action: str, arms: Any) -> tuple[NDArray[Any], int]:
    """Read the number of each arm and the arm count, by default the greatest plus 1."""
    name, arm_names = (
        _check_column_name("action", action).partition("=")[0],
        _read_arm_names(action, arms),
    )
    if arm_names is None:
        numbers = table.numbers(name)
        count = int(min(max(numbers.max(), 0), 2**30)) + 1 if arms is None else int(arms)
        return numbers, count
    return Category(name=name, values=arm_names).places(table), len(arm_names)


def _read_arm_names(action: str | None, arms: Any) -> tuple[str, ...] | None:
    """Read declared names of arms, if there are any, and check them against `arms`."""
    name, equals, text = _check_column_name("action", action or "").partition("=")
    declared_names = Category(name=name, values=words_of(text)).values if equals else None
    if arms is None or isinstance(arms, int | np.integer):
        if declared_names is not None and arms is not None and arms != len(declared_names):
            raise InvalidValueError(
                f"arms is {arms}, and action names {len(declared_names)}; give one of the two"
            )
        return declared_names
    if isinstance(arms, str) or not isinstance(arms, Sequence):
        raise InvalidValueError(
            "arms are neither a number nor a list of words; give one of the two"
        )
    if declared_names is not None and declared_names != tuple(arms):
        raise InvalidValueError("arms are named twice, by action and by arms; give one of the two")
    return Category(name="arms", values=tuple(arms)).values


def _check_column_name(option: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidValueError(f"{option} is a {type(name).__name__}; give the name of a column")
    return name


def _read_propensities(table: Table, propensity: str | float) -> Floats:
    if isinstance(propensity, str):
        return table.numbers(propensity, or_words=False)
    chance = validate.between("propensity", propensity, 1e-12, 1.0, closed=True)
    return np.full(table.rows, chance, np.float64)
