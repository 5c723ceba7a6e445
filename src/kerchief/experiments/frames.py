"""Results as data frames: plain columns, one row per cell, per tick or per replicate.

Numbers are numbers: epsilon is infinite, with a delta of 0, where nothing is private, and what is
not known is missing. Words are words, and nothing is a category or an object.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValue, KerchiefError
from kerchief.core.validate import one_of
from kerchief.experiments.players import FLAGS
from kerchief.experiments.results import Result
from kerchief.experiments.table import CELL

if TYPE_CHECKING:
    import polars as pl

Form: TypeAlias = Literal["cells", "curves", "replicates"]
Column: TypeAlias = NDArray[Any] | list[str]
Columns: TypeAlias = Mapping[str, Column]

_NAMED = ("world", "policy", "numbers", "mode", "trust", *FLAGS.values(), "epsilon", "delta")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """What was played, ready to be a data frame; `read_results` makes it.

    A form is "cells" (one row per cell: who played where, what was asked for and spent, and the
    final regret), "curves" (one row per cell and tick: mean, standard error and 95th percentile of
    the regret so far) or "replicates" (one row per cell, replicate and tick).

    Attributes:
        rows: one JSON object per cell, as in `results.json`.
        table: the numbers behind them, as in `results.parquet`.
    """

    rows: tuple[Mapping[str, Any], ...]
    table: Path | tuple[Result, ...]

    def __post_init__(self) -> None:
        """Check that every row is one."""
        try:
            _gathered([_cell(row) for row in self.rows])
        except (TypeError, ValueError, LookupError, AttributeError) as problem:
            raise InvalidValue(
                "rows are no results of kerchief; make them with `read_results`"
            ) from problem
        results = self.table if isinstance(self.table, tuple) else ()
        if not (isinstance(self.table, Path) or len(results) == len(self.rows)) or not all(
            isinstance(one, Result) for one in results
        ):
            raise InvalidValue("table is no path, and no result for each of the rows; give either")

    def __len__(self) -> int:
        """The number of cells."""
        return len(self.rows)

    def to_pandas(self, form: Form = "cells") -> Any:
        """A `pandas.DataFrame`; what is missing is NaN."""
        _need("pandas")
        return importlib.import_module("pandas").DataFrame(dict(self.columns(form)))

    def to_polars(self, form: Form = "cells") -> pl.DataFrame:
        """A `polars.DataFrame`; what is missing is null."""
        _need("polars")
        import polars as pl

        return pl.DataFrame(dict(self.columns(form)), nan_to_null=True)

    def columns(self, form: Form = "cells") -> Columns:
        """The columns by their names: arrays of numbers, and lists of words."""
        one_of("form", form, get_args(Form))
        if form == "cells":
            return _gathered([_cell(row) for row in self.rows])
        names = [{name: row[name] for name in _NAMED} for row in map(_cell, self.rows)]
        make = _curve if form == "curves" else _runs
        numbers = [make(*pair) for pair in self._curves()]
        lengths = [len(one["round"]) for one in numbers]
        shared = {name: _repeated(one, lengths) for name, one in _gathered(names).items()}
        measured = numbers[0] if numbers else ()
        return shared | {name: np.concatenate([one[name] for one in numbers]) for name in measured}

    def _curves(self) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """For each cell its ticks and its curves, one row per tick and one column per replicate."""
        if isinstance(self.table, tuple):
            return [(one.rounds, one.curves) for one in self.table]
        return _read_curves(self.table, len(self.rows))


def read_results(source: str | Path | Iterable[Result]) -> Results:
    """Results from the folder of a run, or from what `compare` yields.

    Raises:
        InvalidValue: there is no run in the folder, or it cannot be read.

    >>> from kerchief.experiments import Comparison, compare
    >>> plan = Comparison(policies=("uniform",), contexts=("ball",), horizon=40, replicates=2)
    >>> results = read_results(compare(plan))
    >>> results.columns()["policy"], results.columns()["epsilon"].tolist()
    (['uniform', 'greedy'], [inf, inf])
    """
    if isinstance(source, str | Path):
        return _of_folder(Path(source))
    played: list[Result] = []
    for one in _each(source):
        if not isinstance(one, Result):
            raise InvalidValue(
                f"there is a {type(one).__name__} among the results; give a folder, or what "
                "`compare` yields"
            )
        played.append(one)
    return Results(rows=tuple(one.to_dict() for one in played), table=tuple(played))


def _each(source: object) -> Iterator[object]:
    """What is given, one by one; what cannot be taken apart is one thing."""
    things: Any = source
    try:
        return iter(things)
    except TypeError:
        return iter((source,))


def _of_folder(folder: Path) -> Results:
    file = folder / "results.json"
    try:
        rows = tuple(json.loads(file.read_text(encoding="utf-8"))["rows"])
        return Results(rows=rows, table=file.with_name("results.parquet"))
    except (OSError, ValueError, KeyError, TypeError, InvalidValue) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "no results of kerchief"
        raise InvalidValue(
            f"{str(file)!r} cannot be read as results ({reason}); give the folder of a run, such "
            "as results/compare"
        ) from problem


def _need(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        raise KerchiefError(
            f"a data frame of {library} cannot be made without it: run `pip install {library}`, or "
            "take the columns with `columns()`"
        )


def _cell(row: Mapping[str, Any]) -> dict[str, float | int | bool | str]:
    """A row as JSON without nesting and without nulls."""
    regret, reward, sent = row["regret"], row["reward"] or {}, row["communication"]
    return {
        "world": row["world"],
        "policy": row["policy"],
        "numbers": ", ".join(f"{name}={value:g}" for name, value in row["numbers"].items()),
        **{name: row[name] for name in ("mode", "trust", *FLAGS.values())},
        "epsilon": _bound(row["epsilon"]),
        "delta": row["delta"] or 0.0,
        "private": row["private"],
        "spent_epsilon": _bound(row["spent"]["epsilon"]),
        "spent_delta": row["spent"]["delta"] or 0.0,
        "replicates": row["replicates"],
        **{f"regret_{name}": _known(value) for name, value in regret.items()},
        **{f"reward_{name}": _known(reward.get(name)) for name in ("mean", "se")},
        **{f"{name}_sent": _known(sent.get(name)) for name in ("reals", "bits")},
        "right": _known(row["right"]),
        "printed": _known(row.get("printed")),
        "microseconds": row["microseconds"],
    }


def _bound(epsilon: float | None) -> float:
    return np.inf if epsilon is None else epsilon


def _known(value: float | None) -> float:
    return np.nan if value is None else value


def _gathered(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Columns from rows: words in lists, numbers in arrays of their own kind."""
    kinds: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
    columns: dict[str, Column] = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        kind = float if any(isinstance(one, float) for one in values) else type(values[0])
        columns[name] = values if kind is str else np.array(values, kinds[kind])
    return columns


def _repeated(column: Column, lengths: Sequence[int]) -> Column:
    if isinstance(column, list):
        pairs = zip(column, lengths, strict=True)
        return [word for word, length in pairs for _ in range(length)]
    return np.repeat(column, lengths)


def _curve(rounds: NDArray[np.int64], curves: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    count = curves.shape[1]
    spread = curves.std(axis=1, ddof=1) if count > 1 else np.full(len(curves), np.nan)
    return {
        "round": np.asarray(rounds, np.int64),
        "regret_mean": curves.mean(axis=1),
        "regret_se": spread / np.sqrt(count),
        "regret_p95": np.percentile(curves, 95.0, axis=1),
    }


def _runs(rounds: NDArray[np.int64], curves: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    ticks, count = curves.shape
    return {
        "replicate": np.repeat(np.arange(count, dtype=np.int64), ticks),
        "round": np.tile(np.asarray(rounds, np.int64), count),
        "regret": curves.T.ravel(),
    }


def _read_curves(file: Path, cells: int) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Cells lie one behind another in the long form, each replicate by replicate."""
    _need("polars")
    import polars as pl

    try:
        table = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as problem:
        raise InvalidValue(
            f"{str(file)!r} cannot be read; curves are written where Polars is installed: run the "
            "comparison again"
        ) from problem
    number = table.select(pl.struct(CELL).rle_id()).to_series().to_numpy()
    starts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    if len(starts) != cells:
        raise InvalidValue(
            f"{str(file)!r} has {len(starts)} cells and its results.json {cells}; run it again"
        )
    columns = [table[name].to_numpy() for name in ("replicate", "round", "regret")]
    ends = [*starts[1:], len(table)]
    return [
        _cut(*(one[start:end] for one in columns)) for start, end in zip(starts, ends, strict=True)
    ]


def _cut(
    replicates: NDArray[Any], rounds: NDArray[Any], regrets: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    count = int(replicates[-1]) + 1
    return rounds[: len(rounds) // count], regrets.reshape(count, -1).T
