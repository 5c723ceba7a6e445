"""Logs from whatever holds some: a table with named columns, DSJSON, bandit feedback."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core.errors import CodecError, InvalidValue, KerchiefError
from kerchief.core.installing import installing
from kerchief.data.declaration import Declaration, Declared
from kerchief.data.dsjson import read_dsjson
from kerchief.data.features import Category
from kerchief.data.logs import Logs
from kerchief.data.open_bandit import from_feedback, read_feedback
from kerchief.data.replay import Replay
from kerchief.data.tables import Table, Tabular, read_table

_DSJSON = (".json", ".dsjson", ".jsonl", ".ndjson")
_RESERVED = ("action", "reward", "propensity", "user")


def read_logs(
    source: Tabular | Mapping[str, Any],
    *,
    reward_range: tuple[float, float],
    action: str = "action",
    reward: str = "reward",
    propensity: str | float = "propensity",
    features: Declared | None = None,
    norm: float | None = None,
    arms: int | Sequence[str] | None = None,
    arm_features: ArrayLike | None = None,
    user: str | None = None,
) -> Logs:
    """Read logs; their kind is told by the end of a file's name, or by the keys of a dictionary.

    Args:
        source: a table with one row per decision (a CSV or Parquet file, a frame, a mapping), a
            file of Vowpal Wabbit's DSJSON (.json, .dsjson, .jsonl), or the bandit feedback of
            Open Bandit Pipeline (a dictionary or .npz). The last two have columns of their own for
            actions, rewards and propensities.
        reward_range: the least and the greatest reward, declared.
        action: the column of what was done.
        reward: the column of what it gave.
        propensity: the column of the chance that the logging policy gave to the action, or one
            chance for all rows.
        features: the users' features with their public bounds, such as "age=18:90,
            plan=basic|gold", which are scaled as `Declaration` says; or bare names of
            numbers, which are taken as they are.
        norm: public bound on the norm of features without bounds of their own.
        arms: how many arms there are, numbered from 0 in the column; or their names in it.
        arm_features: one row per arm, for tables.
        user: the column that says who came, where users came several times.

    >>> table = {"a": ["red", "blue"], "r": [1, 0], "p": [0.5, 0.5], "age": [20, 70]}
    >>> logs = read_logs(table, reward_range=(0, 1), action="a", reward="r", propensity="p",
    ...     arms=("red", "blue"), features="age=18:90")
    >>> logs.actions.tolist(), logs.names
    ([0, 1], ('age', 'constant'))
    """
    low, high = _range(reward_range)
    kind = Path(source).suffix.lower() if isinstance(source, str | Path) else ""
    if kind in _DSJSON and isinstance(source, str | Path):
        bare = None if features is None else _bare(features)
        logs = read_dsjson(source, low=low, high=high, features=bare, user=user)
        return _declared(logs, features, norm)
    if kind == ".npz" and isinstance(source, str | Path):
        return _declared(read_feedback(source, low=low, high=high), features, norm)
    if isinstance(source, Mapping) and {"pscore", "n_actions"} <= source.keys():
        return _declared(from_feedback(source, low=low, high=high), features, norm)
    table = read_table(source)
    rows, names, bound, constant = _contexts(table, features, norm)
    actions, count = _actions(table, action, arms)
    return Logs(
        contexts=rows,
        actions=actions,
        rewards=table.numbers(reward),
        propensities=_propensities(table, propensity),
        arms=count,
        low=low,
        high=high,
        arm_features=None if arm_features is None else np.asarray(arm_features),
        users=None if user is None else table.words(user),
        names=names,
        norm=bound,
        constant=constant,
    )


def from_logs(
    source: Logs | Tabular | Mapping[str, Any],
    *,
    norm: float | None = None,
    arm_norm: float | None = None,
    least: float | None = None,
    **columns: Any,
) -> Replay:
    """A world that replays logs: `Logs`, or whatever `read_logs` reads with the same arguments.

    Args:
        source: the logs.
        norm: public bound on the norm of users' features that have no declared bounds.
        arm_norm: public bound on the norm of an arm's features.
        least: the propensity below which rows count as if they had it: faster, with some bias.
        columns: what `read_logs` must be told.

    >>> table = {"a": [0, 1, 1], "r": [1, 0, 1], "p": [0.5, 0.5, 0.5], "age": [20, 70, 40]}
    >>> world = from_logs(table, reward_range=(0, 1), action="a", reward="r", propensity="p",
    ...     features="age=18:90", arms=2)
    >>> world.problem(3).arms
    2
    """
    logs = source if isinstance(source, Logs) else read_logs(source, norm=norm, **columns)
    if isinstance(source, Logs) and columns:
        raise InvalidValue(f"{next(iter(columns))} is given, and the logs were read already")
    bound = norm if logs.norm is None else None
    return Replay.of(logs, norm=bound, arm_norm=arm_norm, least=least)


def write_log_table(logs: Logs, path: Path | str) -> None:
    """Write one row per decision: action, reward, propensity, user and the features."""
    path = Path(path)
    if logs.arm_features is not None or (logs.allowed is not None and not logs.allowed.all()):
        raise CodecError("masks and features of arms have no column; write DSJSON")
    if clash := sorted(set(_RESERVED) & set(logs.names)):
        raise CodecError(f"a feature is called {clash[0]!r}, as another column is; rename it")
    if path.suffix not in (".csv", ".parquet"):
        raise InvalidValue(f"path is {str(path)!r}; let it end in .csv or .parquet")
    if importlib.util.find_spec("polars") is None:
        raise KerchiefError(f"tables cannot be written without polars: run {installing('report')}")
    import polars as pl

    columns: dict[str, NDArray[Any]] = {
        "action": logs.actions,
        "reward": logs.rewards,
        "propensity": logs.propensities,
    }
    columns |= {} if logs.users is None else {"user": logs.users}
    columns |= dict(zip(logs.names, logs.contexts.T, strict=True))
    frame = pl.DataFrame({name: np.ascontiguousarray(one) for name, one in columns.items()})
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)


def _range(given: Any) -> tuple[float, float]:
    match given:
        case [low, high]:
            return low, high
    raise InvalidValue("reward_range is no pair; declare the least and the greatest reward")


def _bare(features: Any) -> tuple[str, ...] | None:
    """The names of features, where nothing but names is given; None where bounds are."""
    texts = [features] if isinstance(features, str) else features
    if isinstance(features, Declaration | Mapping) or not isinstance(texts, Iterable):
        return None
    words = list(texts)
    if not all(isinstance(one, str) for one in words) or any("=" in one for one in words):
        return None
    return tuple(name.strip() for one in words for name in one.split(",") if name.strip())


def _contexts(
    table: Table, features: Any, norm: float | None
) -> tuple[NDArray[np.float64], tuple[str, ...], float | None, float]:
    """Rows, their names, the bound on their norm and the constant behind them."""
    if features is None:
        return np.zeros((table.rows, 0)), (), None, 0.0
    if (names := _bare(features)) is not None and norm is None:
        columns = [table.numbers(name) for name in names]
        rows = np.stack(columns, axis=1) if columns else np.zeros((table.rows, 0))
        return rows, names, None, 0.0
    declared = Declaration.of(features, norm=norm).on(table.columns)
    made = declared.encode(table)
    return made.rows, _coordinates(declared), declared.norm, declared.intercept


def _coordinates(declared: Declaration) -> tuple[str, ...]:
    """A name for every coordinate of an encoded row."""
    found: list[str] = []
    for one in declared.features:
        if isinstance(one, Category) and one.dim > 1:
            found += [f"{one.name}={value}" for value in one.values]
        else:
            found += one.names
    return (*found, "constant") if declared.intercept else tuple(found)


def _declared(logs: Logs, features: Any, norm: float | None) -> Logs:
    """The same logs with their users' features scaled by declared bounds, or a few of them."""
    if features is None:
        return logs
    columns = dict(zip(logs.names, logs.contexts.T, strict=True))
    if not columns:
        raise InvalidValue("features are declared, and the users of these logs have none")
    table = read_table(columns, name="the logs")
    rows, names, bound, constant = _contexts(table, features, norm)
    fields = {name: getattr(logs, name) for name in logs.__dataclass_fields__}
    changed = {"contexts": rows, "names": names, "norm": bound, "constant": constant}
    return Logs(**(fields | changed))


def _actions(table: Table, name: str, arms: Any) -> tuple[NDArray[Any], int]:
    """Numbers of arms, and how many arms there are: one more than the greatest where not said."""
    if arms is None or isinstance(arms, int | np.integer):
        numbers = table.numbers(name)
        count = int(min(max(numbers.max(), 0), 2**30)) + 1 if arms is None else int(arms)
        return numbers, count
    if isinstance(arms, str) or not isinstance(arms, Sequence):
        raise InvalidValue("arms are neither a number nor a list of words; give one of the two")
    return Category(name=name, values=tuple(arms)).places(table), len(arms)


def _propensities(table: Table, given: str | float) -> NDArray[np.float64]:
    if isinstance(given, str):
        return table.numbers(given)
    return np.full(table.rows, given, np.float64)
