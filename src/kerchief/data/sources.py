"""Logs from whatever holds some: a table with named columns, DSJSON, bandit feedback."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.errors import CodecError, InvalidValue, KerchiefError
from kerchief.core.installing import installing
from kerchief.data.declaration import Declaration, Declared, declared_range
from kerchief.data.dsjson import read_dsjson
from kerchief.data.features import Category, Encoded, words_of
from kerchief.data.files import write_file
from kerchief.data.logs import Floats, Logs
from kerchief.data.open_bandit import from_feedback, read_feedback
from kerchief.data.tables import Table, Tabular, read_table
from kerchief.environments.ranges import RANGED_CONSTANT

_DSJSON, _FEEDBACK = (".json", ".dsjson", ".jsonl", ".ndjson"), ".npz"
_RESERVED = ("action", "reward", "propensity", "user")


def are_logs(path: Path | str) -> bool:
    """Whether a file can hold nothing but logs, by the end of its name.

    >>> are_logs("log.npz"), are_logs("table.csv")
    (True, False)
    """
    return Path(path).suffix.lower() in (*_DSJSON, _FEEDBACK)


def nothing(given: object) -> bool:
    """Whether something was left out, or is empty."""
    return given is None or (isinstance(given, Sequence | Mapping) and not given)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReadLogs:
    """Logs, and what is known of where they come from.

    Attributes:
        table: where they were, if it was a table.
        declaration: of the users' features, if they have one.
        encoded: the features, and what declared bounds cut of them.
    """

    logs: Logs
    table: Table | None
    declaration: Declaration | None
    encoded: Encoded


def read_logs(
    source: Tabular | Mapping[str, Any],
    *,
    reward_range: tuple[float, float],
    action: str = "action",
    reward: str = "reward",
    propensity: str | float = "propensity",
    features: Declared = (),
    norm: float | None = None,
    intercept: float = RANGED_CONSTANT,
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
        action: the column of what was done: numbers from 0, or words, as in "item=red|blue".
        reward: the column of what it gave.
        propensity: the column of the chance that the logging policy gave to the action, or one
            chance for all rows.
        features: the users' features with their public bounds, such as "age=18:90,
            plan=basic|gold", which are scaled as `Declaration` says; or bare names of
            numbers, which are taken as they are.
        norm: public bound on the norm of features without bounds of their own.
        intercept: the constant behind features with bounds.
        arms: how many arms there are, or their names in the column of actions. Of DSJSON nothing
            is then read off the lines but the users' features that are named.
        arm_features: one row per arm, for tables.
        user: the column that says who came, where users came several times.

    >>> table = {"item": ["red", "blue"], "r": [1, 0], "p": [0.5, 0.5], "age": [20, 70]}
    >>> logs = read_logs(table, reward_range=(0, 1), action="item=red|blue", reward="r",
    ...     propensity="p", features="age=18:90")
    >>> logs.actions.tolist(), logs.names
    ([0, 1], ('age', 'constant'))
    """
    columns: dict[str, Any] = {"action": action, "reward": reward, "propensity": propensity}
    columns |= {"arms": arms, "arm_features": arm_features, "user": user}
    bounds = {"features": features, "norm": norm, "intercept": intercept}
    return read_with_origin(source, reward_range, columns, bounds).logs


def read_with_origin(
    source: Any, reward_range: Any, columns: Mapping[str, Any], bounds: Mapping[str, Any]
) -> ReadLogs:
    """The same, with what was found on the way."""
    low, high = declared_range(reward_range)
    asked = _Features(**bounds)
    kind = Path(source).suffix.lower() if isinstance(source, str | Path) else ""
    if kind in _DSJSON:
        arms = columns.get("arms")
        # Who declares the arms declares the features too: none is then read off the lines.
        names = asked.bare or (None if arms is None or not nothing(asked.features) else ())
        given: dict[str, Any] = {
            "features": names,
            "arm_features": None if arms is None else (),
            "arms": arms,
        }
        return asked.of(read_dsjson(source, low=low, high=high, user=columns.get("user"), **given))
    if kind == _FEEDBACK:
        return asked.of(read_feedback(source, low=low, high=high))
    if isinstance(source, Mapping) and {"pscore", "n_actions"} <= source.keys():
        return asked.of(from_feedback(source, low=low, high=high))
    return _of_table(read_table(source), (low, high), asked, **columns)


def write_log_table(logs: Logs, path: Path | str) -> None:
    """Write one row per decision: action, reward, propensity, user and the features."""
    path = Path(path)
    if logs.arm_features is not None or (logs.allowed is not None and not logs.allowed.all()):
        raise CodecError("masks and features of arms have no column; write DSJSON")
    if clash := sorted(set(_RESERVED) & set(logs.names)):
        raise CodecError(f"a feature is called {clash[0]!r}, as another column is; rename it")
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
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
    content = io.BytesIO()
    if kind == ".csv":
        frame.write_csv(content)
    else:
        frame.write_parquet(content)
    write_file(path, content.getvalue())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Features:
    """The users' features as they were asked for."""

    features: Any = ()
    norm: float | None = None
    intercept: float = RANGED_CONSTANT

    @property
    def bare(self) -> tuple[str, ...]:
        """Their names, where names are all that is given; none where bounds are, too."""
        words = [self.features] if isinstance(self.features, str) else self.features
        if isinstance(words, Declaration | Mapping):
            return ()
        if not isinstance(words, Sequence):
            raise InvalidValue(f"features are a {type(words).__name__}; give texts, or a mapping")
        if not all(isinstance(one, str) for one in words) or any("=" in one for one in words):
            return ()
        return tuple(name.strip() for one in words for name in one.split(",") if name.strip())

    def encode(self, table: Table) -> tuple[Encoded, Declaration | None]:
        """Their rows: numbers as they are, or scaled as is declared."""
        given = self.features
        if nothing(given):
            return Encoded(rows=np.zeros((table.rows, 0)), clipped=np.zeros(table.rows, bool)), None
        if self.bare and self.norm is None:
            rows = np.stack([table.numbers(name) for name in self.bare], axis=1)
            return Encoded(rows=rows, clipped=np.zeros(table.rows, bool)), None
        declared = Declaration.of(given, norm=self.norm, intercept=self.intercept)
        declared = declared.on(table.columns)
        return declared.encode(table), declared

    def of(self, logs: Logs) -> ReadLogs:
        """Logs with the features that were asked for, out of those that they have."""
        if nothing(self.features):
            made = Encoded(rows=logs.contexts, clipped=np.zeros(logs.rows, bool))
            return ReadLogs(logs=logs, table=None, declaration=None, encoded=made)
        if not logs.dim:
            raise InvalidValue("features are declared, and the users of these logs have none")
        columns = dict(zip(logs.names, logs.contexts.T, strict=True))
        encoded, declared = self.encode(read_table(columns, name="the logs"))
        logs = dataclasses.replace(logs, **self.fields(encoded.rows, declared))
        return ReadLogs(logs=logs, table=None, declaration=declared, encoded=encoded)

    def fields(self, rows: Floats, declared: Declaration | None) -> dict[str, Any]:
        """What they are in logs."""
        if declared is None:
            return {"contexts": rows, "names": self.bare}
        public = {"norm": declared.norm, "constant": declared.intercept}
        return {"contexts": rows, "names": _coordinates(declared), **public}


def _of_table(
    table: Table,
    reward_range: tuple[float, float],
    asked: _Features,
    *,
    action: str = "action",
    reward: str = "reward",
    propensity: str | float = "propensity",
    arms: int | Sequence[str] | None = None,
    arm_features: ArrayLike | None = None,
    user: str | None = None,
) -> ReadLogs:
    encoded, declared = asked.encode(table)
    actions, count = _actions(table, action, arms)
    logs = Logs(
        actions=actions,
        rewards=table.numbers(_column("reward", reward)),
        propensities=_propensities(table, propensity),
        arms=count,
        low=reward_range[0],
        high=reward_range[1],
        arm_features=None if arm_features is None else np.asarray(arm_features),
        users=None if user is None else table.words(_column("user", user)),
        **asked.fields(encoded.rows, declared),
    )
    return ReadLogs(logs=logs, table=table, declaration=declared, encoded=encoded)


def _coordinates(declared: Declaration) -> tuple[str, ...]:
    """A name for every coordinate of an encoded row."""
    found: list[str] = []
    for one in declared.features:
        if isinstance(one, Category) and one.dim > 1:
            # Names that a list of bare names can hold, where such a table is read again.
            found += [
                f"{one.name}:{place if set(value) & set('=,|') else value}"
                for place, value in enumerate(one.values)
            ]
        else:
            found += one.names
    return (*found, "constant") if declared.intercept else tuple(found)


def _actions(table: Table, action: str, arms: Any) -> tuple[NDArray[Any], int]:
    """Numbers of arms, and how many arms there are: one more than the greatest where not said."""
    name, _, text = _column("action", action).partition("=")
    arms = words_of(text) if text else arms
    if arms is None or isinstance(arms, int | np.integer):
        numbers = table.numbers(name)
        count = int(min(max(numbers.max(), 0), 2**30)) + 1 if arms is None else int(arms)
        return numbers, count
    if isinstance(arms, str) or not isinstance(arms, Sequence):
        raise InvalidValue("arms are neither a number nor a list of words; give one of the two")
    return Category(name=name, values=tuple(arms)).places(table), len(arms)


def _column(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidValue(f"{what} is a {type(name).__name__}; give the name of a column")
    return name


def _propensities(table: Table, given: str | float) -> Floats:
    if isinstance(given, str):
        return table.numbers(given)
    chance = validate.between("propensity", given, 1e-12, 1.0, closed=True)
    return np.full(table.rows, chance, np.float64)
