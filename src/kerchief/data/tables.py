"""Tables of data: files, frames and arrays, column by column, with errors that name the place."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core.errors import InvalidValue
from kerchief.data.files import check_names, let_pass, read_file

_SHOWN = 40
# Beyond these, Python writes no whole number out, and a decimal one would fill the memory.
_MOST_WHOLE, _MOST_DIGITS = 10**600, 10_000


@runtime_checkable
class Frame(Protocol):
    """What the data frames of pandas and Polars have in common."""

    @property
    def columns(self) -> Iterable[str]:
        """The names of its columns."""

    def __getitem__(self, name: str) -> Any:
        """One column, which has a method `to_numpy`."""


@runtime_checkable
class Query(Protocol):
    """A query of Polars', which has read nothing yet."""

    def collect(self) -> Any:
        """The frame that it asks for."""


Tabular: TypeAlias = "Table | Frame | Query | Mapping[str, ArrayLike] | ArrayLike | Path | str"
"""What a table can be made from; a text is the path of a file."""


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
        kerchief_wire.errors.InvalidValue: column 'click' of the table is something else already \
(the label, a reward, what was done, its chance or who came), and no feature; leave it out of them
        """
        return dataclasses.replace(self, taken=frozenset(taken))

    @property
    def free(self) -> tuple[str, ...]:
        """The columns that a `*` in the name of a feature may stand for."""
        return tuple(name for name in self.columns if name not in self.taken)

    def column(self, name: str) -> NDArray[Any]:
        """A column as it was given, or an error that names those that are spelt alike."""
        if name in self.taken:
            raise InvalidValue(
                f"column {name!r} of {self.name} is something else already (the label, a reward, "
                "what was done, its chance or who came), and no feature; leave it out of them"
            )
        if name not in self.columns:
            near = difflib.get_close_matches(str(name), list(self.columns), n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? It" if near else "it"
            known = ", ".join(list(self.columns)[:_SHOWN])
            raise InvalidValue(f"{self.name} has no column {name!r}; {hint} has {known}")
        found = self.columns[name]
        if found.ndim != 1 or found.dtype.kind not in "fiubUO":
            raise InvalidValue(
                f"column {name!r} of {self.name} has shape {found.shape} of {found.dtype}; give "
                "one number or one word per row"
            )
        return found

    def numbers(self, name: str, *, or_words: bool = True) -> NDArray[np.float64]:
        """A column of finite numbers; what is none is named by its row, counted from 1.

        Args:
            name: of the column.
            or_words: whether values could be declared instead.
        """
        given = self.column(name)
        numbers = np.asarray(given) if given.dtype.kind in "fiub" else _read(given)
        self._check(name, given, missing=np.isnan(numbers), or_words=or_words)
        found = numbers.astype(np.float64)
        self.refuse(name, np.isinf(found), "is not finite; leave such rows out")
        return found

    def words(self, name: str) -> NDArray[np.str_]:
        """A column of words; whole numbers are words, too."""
        given = self.column(name)
        if given.dtype.kind == "f":
            self.refuse(name, np.isnan(given), _MISSING)
        words = [_word(one) for one in given.tolist()]
        self._check_kind(name, given)
        self.refuse(name, np.array([one is None for one in words]), _MISSING)
        return np.array(words, np.str_)

    def _check_kind(self, name: str, given: NDArray[Any]) -> None:
        if given.dtype.kind == "O":
            strange = np.array([_is_strange(one) for one in given.tolist()])
            self.refuse(name, strange, "is neither a number nor a word; give one of the two")

    def _check(
        self, name: str, given: NDArray[Any], *, missing: NDArray[np.bool_], or_words: bool
    ) -> None:
        """Tell texts that are no numbers from values that are not there."""
        if given.dtype.kind not in "fiub" and missing.any():
            self._check_kind(name, given)
            empty = np.array([_word(one) is None for one in given.tolist()])
            self.refuse(name, empty, _MISSING)
            declare = f"declare the column's values, as in {name}=first|second, or "
            self.refuse(name, missing, f"is no number; {declare * or_words}mend the row")
        self.refuse(name, missing, _MISSING)

    def refuse(self, name: str, wrong: NDArray[np.bool_], said: str) -> None:
        """Refuse the first row that is wrong, without showing what it holds."""
        if wrong.any():
            row, more = int(wrong.argmax()) + 1, int(wrong.sum()) - 1
            others = f" (and {more} more row{'s' * (more > 1)})" if more else ""
            raise InvalidValue(f"row {row}{others} of column {name!r} in {self.name} {said}")


_MISSING = "is missing; fill it in or leave the row out"


def read_table(source: Tabular, *, name: str | None = None) -> Table:
    """Read a CSV or Parquet file, or take a frame of pandas or Polars, a mapping or an array.

    Columns of an array are called x0, x1 and so on. Files are read by Polars.

    >>> table = read_table({"age": [18, 60], "plan": ["basic", "gold"]})
    >>> table.rows, table.numbers("age").tolist(), table.words("plan").tolist()
    (2, [18.0, 60.0], ['basic', 'gold'])
    >>> table.column("agee")
    Traceback (most recent call last):
    ...
    kerchief_wire.errors.InvalidValue: the table has no column 'agee'; did you mean 'age'? \
It has age, plan
    """
    if isinstance(source, Table):
        return source
    given: Mapping[str, Any]
    if isinstance(source, str | Path):
        given, digest = read_file(Path(source))
        called, path = Path(source).name, str(source)
    else:
        given, digest, called, path = _columns(source), "", _called(name), None
    columns = {key: _column(key, one) for key, one in given.items()}
    _check_shape(called, columns)
    return Table(name=called, columns=columns, digest=digest or digest_of(columns), path=path)


def _called(name: str | None) -> str:
    if name is not None and not isinstance(name, str):
        raise InvalidValue(f"the name of the table is a {type(name).__name__}; give a text")
    return name or "the table"


def _columns(source: Any) -> Mapping[str, Any]:
    """The columns of whatever holds some."""
    if isinstance(source, Mapping):
        check_names("the table", [str(key) for key in source])
        return {str(key): one for key, one in source.items()}
    if isinstance(source, Query):
        source = _collected(source)
    if isinstance(source, Frame):
        names = [str(one) for one in source.columns]
        check_names("the table", names)
        pairs = zip(names, source.columns, strict=True)
        return {name: source[key].to_numpy() for name, key in pairs}
    if isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype.names:
        return {name: source[name] for name in source.dtype.names}
    array = _array("the table", source)
    if array.ndim != 2:
        raise InvalidValue(
            f"the table has shape {array.shape}; give one row per user and one column per feature"
        )
    return {f"x{place}": array[:, place] for place in range(array.shape[1])}


def _collected(query: Query) -> Any:
    try:
        return query.collect()
    # What a query says of its failure may hold values of the data.
    except BaseException as error:
        let_pass(error)
        raise InvalidValue(
            f"the query of the table fails ({type(error).__name__}); collect it yourself to see "
            "why, and mend it"
        ) from None


def _array(name: str, given: Any) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.asarray(given)
        if np.ma.is_masked(given):
            array = array.astype(object)
            array[np.ma.getmaskarray(given)] = None
        return array
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(f"{name} is no array: its rows have several lengths") from None


def _column(name: str, given: Any) -> NDArray[Any]:
    column = _array(f"column {name!r}", given.to_numpy() if hasattr(given, "to_numpy") else given)
    if not column.ndim:
        raise InvalidValue(f"column {name!r} is no column; give one number or one word per row")
    return column


def _check_shape(name: str, columns: Mapping[str, NDArray[Any]]) -> None:
    lengths = {key: len(one) for key, one in columns.items()}
    if not lengths or not min(lengths.values()):
        raise InvalidValue(f"{name} is empty; give at least one column and one row")
    if len(set(lengths.values())) > 1:
        raise InvalidValue(f"columns of {name} have {lengths} rows; give as many in each")


def _read(given: NDArray[Any]) -> NDArray[np.float64]:
    """Texts and objects as numbers; NaN for those that are none."""
    values = given.tolist()
    try:
        found = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.array([_number(one) for one in values], np.float64)
    found[[_is_misspelt(one) for one in values]] = math.nan
    return found


def _is_misspelt(value: Any) -> bool:
    """Whether a text is a number to Python alone: 2_0, or digits that are not those from 0 to 9."""
    return isinstance(value, str) and ("_" in value or not value.strip().isascii())


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _word(value: Any) -> str | None:
    """A value as a word, or None where there is none; 1.0 is the word 1."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < _MOST_WHOLE else f"{Decimal(value):f}"
    if isinstance(value, np.longdouble):
        value = float(value)
    if isinstance(value, Decimal):
        return _word_of_decimal(value)
    if isinstance(value, float) and not math.isnan(value):
        return f"{value:.0f}" if value == value // 1 else str(value)
    if isinstance(value, Fraction):
        parts = value.as_integer_ratio()[: 1 if value.denominator == 1 else 2]
        return "/".join(str(_word(one)) for one in parts)
    return None


def _word_of_decimal(value: Decimal) -> str | None:
    if value.is_nan():
        return None
    short = not value.is_finite() or value.adjusted() < _MOST_DIGITS
    return f"{value:.0f}" if short and value == value.to_integral_value() else str(value)


def _is_missing(value: Any) -> bool:
    """Whether there is no value: None, an empty text, or what is not equal to itself."""
    if value is None or isinstance(value, str):
        return not (value or "").strip()
    if isinstance(value, np.ndarray):
        return False
    try:
        same = bool(value == value)
    except ArithmeticError:
        return True  # a decimal number that signals that it is none
    except (TypeError, ValueError):
        # What pandas calls NA.
        return type(value).__name__ == "NAType"
    return not same


def _is_strange(value: Any) -> bool:
    """Whether a value is there, and neither a number nor a word."""
    return _word(value) is None and not _is_missing(value)


def digest_of(columns: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of names, kinds, shapes and values, in their order."""
    made = hashlib.sha256()
    for name, column in columns.items():
        shape = "x".join(map(str, column.shape))
        # Of numbers that other machines write the other way round, the values count.
        ordered = column.astype(column.dtype.newbyteorder("<"), copy=False)
        texts = ordered.dtype.kind in "OU"
        kind = ordered.dtype.kind if texts else ordered.dtype.str
        told = _bytes("\0".join(map(_told, column.tolist()))) if texts else ordered.tobytes()
        made.update(_bytes(f"{name}\0{kind}\0{shape}\0{len(told)}\0") + told)
    return made.hexdigest()


def check_digest(found: str, asked: str | None) -> None:
    """Refuse data whose digest is not the one that was asked for, if one was."""
    if asked is not None and str(asked) != found:
        raise InvalidValue(
            f"the SHA-256 digest of the data is {found}, and {str(asked)[:64]} was asked for: "
            "these are not the same data"
        )


def _told(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # a whole number that is too long for it
        return str(_word(value))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
