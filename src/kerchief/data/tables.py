"""Tables of data: files, frames and arrays, column by column, with errors that name the place."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
import numbers
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.stable.v2.typing import IntoFrame
from numpy.typing import ArrayLike, NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.data.files import check_names, let_pass, read_file

_SHOWN = 40

Tabular: TypeAlias = "Table | IntoFrame | Mapping[str, ArrayLike] | ArrayLike | Path | str"
"""What a table can be made from: a path, a frame of pandas, Polars or Arrow, columns, an array."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of one length, as they were given; make it with `read_table`.

    Attributes:
        name: what it is called, such as the name of its file.
        columns: one array per column.
        digest: SHA-256 of the file, or of the columns where there is none.
        path: the file, where there is one.
        taken: columns that are no features, since they are something else already.
    """

    name: str
    columns: Mapping[str, NDArray[Any]]
    digest: str
    path: str | None = None
    taken: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values())))

    def without(self, *taken: str) -> Table:
        """The same to read features from, of which these are none: a bandit must not see them.

        >>> table = read_table({"age": [18, 60], "click": [0, 1]}).without("click")
        >>> table.free
        ('age',)
        >>> table.column("click")
        Traceback (most recent call last):
        ...
        kerchief_protocol.errors.InvalidValueError: column 'click' of the table is something else \
already (the label, a reward, what was done, its chance or who came), and no feature; leave it out \
of them
        """
        return dataclasses.replace(self, taken=frozenset(taken))

    @property
    def free(self) -> tuple[str, ...]:
        """The columns that a `*` in the name of a feature may stand for."""
        return tuple(name for name in self.columns if name not in self.taken)

    def column(self, name: str) -> NDArray[Any]:
        """A column as it was given, or an error that names those that are spelt alike."""
        if name in self.taken:
            raise InvalidValueError(
                f"column {name!r} of {self.name} is something else already (the label, a reward, "
                "what was done, its chance or who came), and no feature; leave it out of them"
            )
        if name not in self.columns:
            near = difflib.get_close_matches(str(name), list(self.columns), n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? It" if near else "it"
            names = ", ".join(list(self.columns)[:_SHOWN])
            raise InvalidValueError(f"{self.name} has no column {name!r}; {hint} has {names}")
        column = self.columns[name]
        if column.ndim != 1 or column.dtype.kind not in "fiubUO":
            raise InvalidValueError(
                f"column {name!r} of {self.name} has shape {column.shape} of {column.dtype}; give "
                "one number or one word per row"
            )
        return column

    def numbers(self, name: str, *, or_words: bool = True) -> NDArray[np.float64]:
        """A column of finite numbers; what is none is named by its row, counted from 1.

        Args:
            name: of the column.
            or_words: whether values could be declared instead.
        """
        column = self.column(name)
        values = column if column.dtype.kind in "fiub" else _parse_numbers(column)
        self._refuse_gaps(name, column, gaps=np.isnan(values), or_words=or_words)
        finite = values.astype(np.float64)
        self.refuse(name, np.isinf(finite), "is not finite; leave such rows out")
        return finite

    def words(self, name: str) -> NDArray[np.str_]:
        """A column of words; whole numbers are words, too."""
        column = self.column(name)
        if column.dtype.kind == "f":
            self.refuse(name, np.isnan(column), _MISSING)
        texts = [_format_value(value) for value in column.tolist()]
        self._refuse_other_kinds(name, column)
        self.refuse(name, np.array([text is None for text in texts]), _MISSING)
        return np.array(texts, np.str_)

    def _refuse_other_kinds(self, name: str, column: NDArray[Any]) -> None:
        """Refuse values that are neither numbers nor texts nor missing."""
        if column.dtype.kind == "O":
            foreign = [
                _format_value(value) is None and not _is_missing(value) for value in column.tolist()
            ]
            self.refuse(
                name, np.array(foreign), "is neither a number nor a word; give one of the two"
            )

    def _refuse_gaps(
        self, name: str, column: NDArray[Any], *, gaps: NDArray[np.bool_], or_words: bool
    ) -> None:
        """Refuse rows without a number; a text that is no number is not called missing."""
        if column.dtype.kind not in "fiub" and gaps.any():
            self._refuse_other_kinds(name, column)
            empty = np.array([_format_value(value) is None for value in column.tolist()])
            self.refuse(name, empty, _MISSING)
            remedy = f"declare the column's values, as in {name}=first|second, or "
            self.refuse(name, gaps, f"is no number; {remedy * or_words}mend the row")
        self.refuse(name, gaps, _MISSING)

    def refuse(self, name: str, wrong: NDArray[np.bool_], reason: str) -> None:
        """Refuse the first row that is wrong, without showing what it holds."""
        if wrong.any():
            row, more = int(wrong.argmax()) + 1, int(wrong.sum()) - 1
            others = f" (and {more} more row{'s' * (more > 1)})" if more else ""
            raise InvalidValueError(f"row {row}{others} of column {name!r} in {self.name} {reason}")


_MISSING = "is missing; fill it in or leave the row out"


def read_table(source: Tabular, *, name: str | None = None) -> Table:
    """Read a CSV or Parquet file, a frame of pandas, Polars or Arrow, a mapping or an array.

    Columns of an array are called x0, x1 and so on. Files are read by Polars, and frames by
    Narwhals.

    >>> table = read_table({"age": [18, 60], "plan": ["basic", "gold"]})
    >>> table.rows, table.numbers("age").tolist(), table.words("plan").tolist()
    (2, [18.0, 60.0], ['basic', 'gold'])
    >>> table.column("agee")
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: the table has no column 'agee'; did you mean \
'age'? It has age, plan
    """
    if isinstance(source, Table):
        return source
    if name is not None and not isinstance(name, str):
        raise InvalidValueError(f"the name of the table is a {type(name).__name__}; give a text")
    digest, path = "", None
    if isinstance(source, str | Path):
        columns, digest = read_file(Path(source))
        name, path = Path(source).name, str(source)
    else:
        columns = _read_columns(source)
    name = name or "the table"
    _check_shape(name, columns)
    return Table(name=name, columns=columns, digest=digest or digest_of(columns), path=path)


def is_frame(source: object) -> bool:
    """Whether it is a frame of pandas, Polars, Arrow or another library that Narwhals reads."""
    return isinstance(nw.from_native(source, pass_through=True), nw.DataFrame | nw.LazyFrame)


def _read_columns(source: Any) -> dict[str, NDArray[Any]]:
    """The columns of a frame, a mapping or an array."""
    if isinstance(source, Mapping):
        check_names("the table", [str(key) for key in source])
        return {str(key): _read_column(str(key), column) for key, column in source.items()}
    frame = _read_frame(source)
    if frame is not None:
        return frame
    if isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype.names:
        return {name: _read_array(name, source[name]) for name in source.dtype.names}
    array = _read_array("the table", source)
    if array.ndim != 2:
        raise InvalidValueError(
            f"the table has shape {array.shape}; give one row per user and one column per feature"
        )
    return {f"x{place}": array[:, place] for place in range(array.shape[1])}


def _read_frame(source: Any) -> dict[str, NDArray[Any]] | None:
    """The columns of a frame, by their names; None of what is no frame."""
    try:
        frame = nw.from_native(source, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
        if not isinstance(frame, nw.DataFrame):
            return None
        names = [str(name) for name in frame.columns]
        columns = [_read_series(series) for series in frame.iter_columns()]
    except nw.exceptions.DuplicateError:
        raise InvalidValueError("the table has two columns of one name; rename one") from None
    # What a query says of its failure may hold values of the data.
    except BaseException as error:
        let_pass(error)
        raise InvalidValueError(
            f"the frame of the table cannot be read ({type(error).__name__}); collect it yourself "
            "to see why, and mend it"
        ) from None
    check_names("the table", names)
    return dict(zip(names, columns, strict=True))


def _read_series(series: Any) -> NDArray[Any]:
    """A column of a frame as an array; missing numbers are NaN, and missing texts None."""
    kind = series.dtype
    if kind.is_decimal() or (kind.is_numeric() and series.null_count()):
        series = series.cast(nw.Float64)
    is_text = kind in (nw.String, nw.Categorical, nw.Enum, nw.Object)
    if is_text or (kind == nw.Boolean and series.null_count()):
        return np.fromiter(series.to_list(), object, len(series))
    column: NDArray[Any] = series.to_numpy()
    return column


def _read_column(name: str, values: Any) -> NDArray[Any]:
    """A column of a mapping: an array, a list, or a series of a frame."""
    series = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(series, nw.Series):
        return _read_series(series)
    column = _read_array(f"column {name!r}", values)
    if not column.ndim:
        raise InvalidValueError(
            f"column {name!r} is no column; give one number or one word per row"
        )
    return column


def _read_array(name: str, values: Any) -> NDArray[Any]:
    """An array; masked values are None."""
    try:
        array: NDArray[Any] = np.asarray(values)
        if np.ma.is_masked(values):
            array = array.astype(object)
            array[np.ma.getmaskarray(values)] = None
        return array
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(f"{name} is no array: its rows have several lengths") from None


def _check_shape(name: str, columns: Mapping[str, NDArray[Any]]) -> None:
    lengths = {key: len(column) for key, column in columns.items()}
    if not lengths or not min(lengths.values()):
        raise InvalidValueError(f"{name} is empty; give at least one column and one row")
    if len(set(lengths.values())) > 1:
        raise InvalidValueError(f"columns of {name} have {lengths} rows; give as many in each")


def _parse_numbers(column: NDArray[Any]) -> NDArray[np.float64]:
    """Texts and objects as numbers; NaN for those that are none."""
    values = column.tolist()
    try:
        parsed = column.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        parsed = np.array([_parse_number(value) for value in values], np.float64)
    parsed[[_is_misspelt(value) for value in values]] = math.nan
    return parsed


def _is_misspelt(value: Any) -> bool:
    """Whether a text is a number to Python alone: 2_0, or digits that are not those from 0 to 9."""
    return isinstance(value, str) and ("_" in value or not value.strip().isascii())


def _parse_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _format_value(value: Any) -> str | None:
    """A value as a text, or None of what is no number and no text; 1.0 is the text 1."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return f"{Decimal(int(value)):f}"
    if not isinstance(value, numbers.Real | Decimal):
        return None
    number = _parse_number(value)
    if math.isnan(number):
        return None
    return f"{number:.0f}" if number.is_integer() else str(number)


def _is_missing(value: Any) -> bool:
    """Whether there is no value: None, an empty text, or what is not equal to itself."""
    if value is None or isinstance(value, str):
        return not (value or "").strip()
    if isinstance(value, np.ndarray):
        return False
    try:
        return not bool(value == value)
    except ArithmeticError:
        return True  # a decimal number that signals that it is none
    except (TypeError, ValueError):
        # What pandas calls NA.
        return type(value).__name__ == "NAType"


def digest_of(columns: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of names, kinds, shapes and values, in their order."""
    digest = hashlib.sha256()
    for name, column in columns.items():
        shape = "x".join(map(str, column.shape))
        # Of numbers that other machines write the other way round, the values count.
        ordered = column.astype(column.dtype.newbyteorder("<"), copy=False)
        is_text = ordered.dtype.kind in "OU"
        kind = ordered.dtype.kind if is_text else ordered.dtype.str
        content = (
            _to_bytes("\0".join(map(_describe_value, column.tolist())))
            if is_text
            else ordered.tobytes()
        )
        digest.update(_to_bytes(f"{name}\0{kind}\0{shape}\0{len(content)}\0") + content)
    return digest.hexdigest()


def check_digest(digest: str, expected: str | None) -> None:
    """Refuse data whose digest is not the one that was asked for, if one was."""
    if expected is not None and str(expected) != digest:
        raise InvalidValueError(
            f"the SHA-256 digest of the data is {digest}, and {str(expected)[:64]} was asked for: "
            "these are not the same data"
        )


def _describe_value(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # a whole number that is too long for it
        return str(_format_value(value))


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
