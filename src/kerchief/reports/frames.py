"""Results as data frames: plain columns, one row per cell, per tick or per replicate.

Epsilon is infinite, with a delta of 0, in rows without privacy, and unknown numbers are missing.
Texts are plain strings; no column is a category or an object.
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

from kerchief.comparison.players import FLAGS
from kerchief.comparison.results import Result
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.core.validate import one_of
from kerchief.reports.earlier_results import describe_earlier_keys
from kerchief.reports.parquet import CELL

if TYPE_CHECKING:
    import polars as pl

Form: TypeAlias = Literal["cells", "curves", "replicates"]
Column: TypeAlias = NDArray[Any] | list[str]
Columns: TypeAlias = Mapping[str, Column]

_IDENTITY_COLUMNS = (
    "environment",
    "policy",
    "parameters",
    "mode",
    "trust",
    *FLAGS.values(),
    "epsilon",
    "delta",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """Results of a run, ready to be a data frame; see `read_results`.

    A form is "cells" (one row per cell: player, environment, privacy budget and cost, and final
    regret), "curves" (one row per cell and tick: mean, standard error and 95th percentile of the
    regret so far) or "replicates" (one row per cell, replicate and tick).

    Attributes:
        rows: one JSON object per cell, as in `results.json`.
        table: the numbers behind them, as in `results.parquet`.
    """

    rows: tuple[Mapping[str, Any], ...]
    table: Path | tuple[Result, ...]

    def __post_init__(self) -> None:
        """Check that every row is a row of results."""
        try:
            _collect_columns([_flatten_row(row) for row in self.rows])
        except (TypeError, ValueError, LookupError, AttributeError) as problem:
            raise InvalidValueError(
                "rows are no results of kerchief; make them with `read_results`"
            ) from problem
        results = self.table if isinstance(self.table, tuple) else ()
        if not (isinstance(self.table, Path) or len(results) == len(self.rows)) or not all(
            isinstance(result, Result) for result in results
        ):
            raise InvalidValueError(
                "table is no path, and no result for each of the rows; give either"
            )

    def __len__(self) -> int:
        """The number of cells."""
        return len(self.rows)

    def to_pandas(self, form: Form = "cells") -> Any:
        """Return a `pandas.DataFrame`; a missing value is NaN."""
        _require_library("pandas")
        return importlib.import_module("pandas").DataFrame(dict(self.columns(form)))

    def to_polars(self, form: Form = "cells") -> pl.DataFrame:
        """Return a `polars.DataFrame`; a missing value is null."""
        _require_library("polars")
        import polars as pl

        return pl.DataFrame(dict(self.columns(form)), nan_to_null=True)

    def columns(self, form: Form = "cells") -> Columns:
        """Return columns by name: arrays of numbers, and lists of texts."""
        one_of("form", form, get_args(Form))
        if form == "cells":
            return _collect_columns([_flatten_row(row) for row in self.rows])
        names = [
            {name: row[name] for name in _IDENTITY_COLUMNS} for row in map(_flatten_row, self.rows)
        ]
        make = _summarize_curves if form == "curves" else _list_replicates
        numbers = [make(*pair) for pair in self._load_curves()]
        lengths = [len(columns["round"]) for columns in numbers]
        repeated = {
            name: _repeat_column(column, lengths)
            for name, column in _collect_columns(names).items()
        }
        measured = numbers[0] if numbers else ()
        return repeated | {
            name: np.concatenate([columns[name] for columns in numbers]) for name in measured
        }

    def _load_curves(self) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Load each cell's ticks and curves, with a column per replicate."""
        if isinstance(self.table, tuple):
            return [(result.rounds, result.curves) for result in self.table]
        return _read_curves(self.table, len(self.rows))


def read_results(source: str | Path | Iterable[Result]) -> Results:
    """Read results from the folder of a run, or from what `compare` yields.

    Raises:
        InvalidValueError: there is no run in the folder, or it cannot be read.

    >>> from kerchief.comparison import Comparison, compare
    >>> plan = Comparison(policies=("uniform",), contexts=("ball",), horizon=40, replicates=2)
    >>> results = read_results(compare(plan))
    >>> results.columns()["policy"], results.columns()["epsilon"].tolist()
    (['uniform', 'greedy'], [inf, inf])
    """
    if isinstance(source, str | Path):
        return _read_folder(Path(source))
    results: list[Result] = []
    for result in _iterate_source(source):
        if not isinstance(result, Result):
            raise InvalidValueError(
                f"there is a {type(result).__name__} among the results; give a folder, or what "
                "`compare` yields"
            )
        results.append(result)
    return Results(rows=tuple(result.to_dict() for result in results), table=tuple(results))


def _iterate_source(source: object) -> Iterator[object]:
    """Iterate over a source, or over the source alone if it is not iterable."""
    iterable: Any = source
    try:
        return iter(iterable)
    except TypeError:
        return iter((source,))


def _read_folder(folder: Path) -> Results:
    file = folder / "results.json"
    try:
        rows = tuple(json.loads(file.read_text(encoding="utf-8"))["rows"])
        if earlier := describe_earlier_keys(rows):
            raise InvalidValueError(earlier)
        return Results(rows=rows, table=file.with_name("results.parquet"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as problem:
        reason = _explain(problem)
        raise InvalidValueError(
            f"{str(file)!r} cannot be read as results ({reason}); give the folder of a run, such "
            "as results/compare, or run the command again with --force"
        ) from problem


def _explain(problem: Exception) -> str | None:
    """Explain in a few words why a folder holds no results."""
    if isinstance(problem, OSError):
        return problem.strerror
    is_earlier = isinstance(problem, InvalidValueError) and "earlier version" in str(problem)
    return str(problem) if is_earlier else "no results of kerchief"


def _require_library(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        raise KerchiefError(
            f"a data frame of {library} cannot be made without it: run `pip install {library}`, or "
            "take the columns with `columns()`"
        )


def _flatten_row(row: Mapping[str, Any]) -> dict[str, float | int | bool | str]:
    """Flatten a JSON row: no nesting and no nulls."""
    regret, reward, communication = row["regret"], row["reward"] or {}, row["communication"]
    return {
        "environment": row["environment"],
        "policy": row["policy"],
        "parameters": ", ".join(f"{name}={value:g}" for name, value in row["parameters"].items()),
        **{name: row[name] for name in ("mode", "trust", *FLAGS.values())},
        "epsilon": _fill_epsilon(row["epsilon"]),
        "delta": row["delta"] or 0.0,
        "private": row["private"],
        "spent_epsilon": _fill_epsilon(row["spent"]["epsilon"]),
        "spent_delta": row["spent"]["delta"] or 0.0,
        "replicates": row["replicates"],
        **{f"regret_{name}": _fill_missing(value) for name, value in regret.items()},
        **{f"reward_{name}": _fill_missing(reward.get(name)) for name in ("mean", "se")},
        **{f"{name}_sent": _fill_missing(communication.get(name)) for name in ("reals", "bits")},
        "found_best": _fill_missing(row["found_best"]),
        "printed": _fill_missing(row.get("printed")),
        "microseconds": row["microseconds"],
    }


def _fill_epsilon(epsilon: float | None) -> float:
    return np.inf if epsilon is None else epsilon


def _fill_missing(value: float | None) -> float:
    return np.nan if value is None else value


def _collect_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Collect rows into columns: texts in lists, numbers in typed arrays."""
    kinds: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
    columns: dict[str, Column] = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        kind = float if any(isinstance(value, float) for value in values) else type(values[0])
        columns[name] = values if kind is str else np.array(values, kinds[kind])
    return columns


def _repeat_column(column: Column, lengths: Sequence[int]) -> Column:
    if isinstance(column, list):
        pairs = zip(column, lengths, strict=True)
        return [text for text, length in pairs for _ in range(length)]
    return np.repeat(column, lengths)


def _summarize_curves(
    rounds: NDArray[np.int64], curves: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    count = curves.shape[1]
    deviation = curves.std(axis=1, ddof=1) if count > 1 else np.full(len(curves), np.nan)
    return {
        "round": np.asarray(rounds, np.int64),
        "regret_mean": curves.mean(axis=1),
        "regret_se": deviation / np.sqrt(count),
        "regret_p95": np.percentile(curves, 95.0, axis=1),
    }


def _list_replicates(
    rounds: NDArray[np.int64], curves: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    ticks, count = curves.shape
    return {
        "replicate": np.repeat(np.arange(count, dtype=np.int64), ticks),
        "round": np.tile(np.asarray(rounds, np.int64), count),
        "regret": curves.T.ravel(),
    }


def _read_curves(file: Path, cells: int) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Read curves from the long form, where cells lie one behind another."""
    _require_library("polars")
    import polars as pl

    try:
        table = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as problem:
        raise InvalidValueError(
            f"{str(file)!r} cannot be read; curves are written where Polars is installed: run the "
            "comparison again"
        ) from problem
    number = table.select(pl.struct(CELL).rle_id()).to_series().to_numpy()
    starts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    if len(starts) != cells:
        raise InvalidValueError(
            f"{str(file)!r} has {len(starts)} cells and its results.json {cells}; run it again"
        )
    columns = [table[name].to_numpy() for name in ("replicate", "round", "regret")]
    ends = [*starts[1:], len(table)]
    return [
        _reshape_curves(*(column[start:end] for column in columns))
        for start, end in zip(starts, ends, strict=True)
    ]


def _reshape_curves(
    replicates: NDArray[Any], rounds: NDArray[Any], regrets: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    count = int(replicates[-1]) + 1
    return rounds[: len(rounds) // count], regrets.reshape(count, -1).T
