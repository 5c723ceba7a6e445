"""Features with public bounds: a range, a list of words, or a bound on a norm."""

from __future__ import annotations

import dataclasses
import re
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.data.tables import Table

OTHER = "other"
"""A declared value of this name takes all values that are not declared."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """Encoded features, one row per user, and rows that were clipped.

    Attributes:
        shares: for each feature that was ever clipped, the share of rows in which it was.
    """

    rows: NDArray[np.float64]
    clipped: NDArray[np.bool_]
    shares: tuple[tuple[str, float], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranged:
    """A number with a public range: what lies beyond is cut to it. It becomes [-1, 1].

    >>> Ranged(name="age", low=18, high=90).texts()
    ('age=18:90',)
    """

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        """Check the range."""
        validate.plain(self)
        check_name(self.name)
        for bound in (self.low, self.high):
            validate.between(f"range of {self.name!r}", bound, -1e300, 1e300, closed=True)
        if not self.low < self.high:
            raise InvalidValueError(
                f"range of {self.name!r} is {self.low}:{self.high}; the first must be less: leave "
                "out features that never vary"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The column of this feature, as a tuple of one."""
        return (self.name,)

    def texts(self) -> tuple[str, ...]:
        """Texts that declare this feature again."""
        return (f"{self.name}={_format_number(self.low)}:{_format_number(self.high)}",)

    @property
    def dim(self) -> int:
        """One coordinate."""
        return 1

    @property
    def usual(self) -> float:
        """Usual squared norm: few data fill their ranges."""
        return 0.25

    def encode(self, table: Table) -> Encoded:
        """Encode values to one coordinate, and mark those that were clipped."""
        values, half = table.numbers(self.name), self.high / 2 - self.low / 2
        clipped_values = np.clip(values, self.low, self.high)
        return Encoded(
            rows=((clipped_values - self.low) / half - 1)[:, None], clipped=clipped_values != values
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Category:
    """One of several declared values: a coordinate per value, or one for two values.

    >>> Category(name="plan", values=("basic", "gold")).dim
    1
    >>> Category(name="town", values=("Rome", "Oslo", "other")).dim
    3
    """

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the list."""
        check_name(self.name)
        values = self.values
        are_texts = isinstance(values, tuple) and all(
            isinstance(value, str) and value for value in values
        )
        if not are_texts or len(values) < 2 or len(set(values)) < len(values):
            raise InvalidValueError(
                f"values of {self.name!r} are not two or more different words; declare them as "
                f"{self.name}=first|second"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The column of this feature, as a tuple of one."""
        return (self.name,)

    def texts(self) -> tuple[str, ...]:
        """Texts that declare this feature again."""
        return (f"{self.name}={'|'.join(map(_escape_value, self.values))}",)

    @property
    def dim(self) -> int:
        """Number of coordinates: one per value, but a single one for two values."""
        return 1 if len(self.values) == 2 else len(self.values)

    @property
    def usual(self) -> float:
        """Squared norm, which all values share."""
        return 1.0

    def places(self, table: Table) -> NDArray[np.int64]:
        """Index of the declared value of each row; refuse rows with undeclared values."""
        texts = table.words(self.name).tolist()
        positions = {value: place for place, value in enumerate(self.values)}
        if OTHER not in positions:
            strange = np.array([text not in positions for text in texts])
            complaint = f"is not declared; declare its value, or a value {OTHER!r} for all the rest"
            table.refuse(self.name, strange, complaint)
        rest = positions.get(OTHER, 0)
        return np.array([positions.get(text, rest) for text in texts], np.int64)

    def encode(self, table: Table) -> Encoded:
        """Encode each row by coordinates of its value; no value is ever clipped."""
        places = self.places(table)
        signs = np.array([[-1.0], [1.0]])
        coordinates = signs if self.dim == 1 else np.eye(self.dim)
        return Encoded(rows=coordinates[places], clipped=np.zeros(len(places), bool))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vector:
    """Numbers under a public bound on their norm, to which longer rows are shortened.

    >>> Vector(names=("e0", "e1"), norm=3.0).dim
    2
    """

    names: tuple[str, ...]
    norm: float

    def __post_init__(self) -> None:
        """Check the bound."""
        validate.plain(self)
        if not isinstance(self.names, tuple) or not self.names:
            raise InvalidValueError("a vector has no columns; name one at least")
        for name in self.names:
            check_name(name)
        validate.between("norm", self.norm, 1e-300, 1e300, closed=True)

    @property
    def dim(self) -> int:
        """One coordinate per column."""
        return len(self.names)

    def texts(self) -> tuple[str, ...]:
        """Texts that declare these features again, beside the norm."""
        return self.names

    @property
    def usual(self) -> float:
        """Greatest squared norm."""
        return 1.0

    def encode(self, table: Table) -> Encoded:
        """Divide columns by the bound, and mark rows that were shortened."""
        rows = np.stack([table.numbers(name) for name in self.names], axis=1) / self.norm
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(rows, axis=1)
        if not np.isfinite(lengths).all():
            raise InvalidValueError(f"a row of {table.name} has no finite norm; mend its numbers")
        return Encoded(rows=rows / np.maximum(lengths, 1.0)[:, None], clipped=lengths > 1)


Feature: TypeAlias = Ranged | Category | Vector
"""A declared feature, or several under one bound."""


def check_name(name: str) -> None:
    """Refuse what cannot be a feature's name in a declaration."""
    if not isinstance(name, str) or not name or set(name) & set("=,|\n"):
        raise InvalidValueError(
            f"the name of a feature is {str(name)[:80]!r}; it must be the name of a column without "
            "= , and |"
        )


def parted(text: str, mark: str) -> list[str]:
    r"""Split a text at every mark that has no backslash before it.

    >>> parted(r"town=Rome\, Italy|Oslo, age=0:1", ",")
    ['town=Rome\\, Italy|Oslo', 'age=0:1']
    """
    return [part.strip() for part in re.split(rf"(?<!\\){re.escape(mark)}", text)]


def words_of(text: str) -> tuple[str, ...]:
    r"""Split values at bars, and drop the backslashes before bars and commas.

    >>> words_of(r"Rome\, Italy|Oslo")
    ('Rome, Italy', 'Oslo')
    """
    return tuple(re.sub(r"\\([,|])", r"\1", part) for part in parted(text, "|"))


def _escape_value(value: str) -> str:
    return re.sub(r"([,|])", r"\\\1", value)


def _format_number(number: float) -> str:
    return f"{number:.17g}" if float(f"{number:g}") != number else f"{number:g}"
