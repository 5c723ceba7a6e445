"""The users' features of logs as they were asked for: by bare names, or with public bounds."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerchief.core import validate
from kerchief.core.errors import InvalidValue
from kerchief.data.declaration import Declaration, matching
from kerchief.data.features import Category, Encoded, Ranged
from kerchief.data.logs import Floats, Logs
from kerchief.data.tables import Table, read_table
from kerchief.environments.ranges import RANGED_CONSTANT


def nothing(given: object) -> bool:
    """Whether something was left out, or is empty."""
    return given is None or (isinstance(given, Sequence | Mapping) and not given)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReadLogs:
    """Logs, and what is known of where they come from.

    Attributes:
        source: what they were read from, before features were chosen: a table, or logs.
        declaration: of the users' features, if they have one.
        encoded: the features, and what declared bounds cut of them.
        counted: where arms were counted, which nobody had declared, in words.
    """

    logs: Logs
    source: Table | Logs
    declaration: Declaration | None
    encoded: Encoded
    counted: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AskedFeatures:
    """The users' features as they were asked for."""

    features: Any = ()
    norm: float | None = None
    intercept: float | None = None

    def check(self) -> None:
        """Refuse what would not be heard: a constant is put behind declared bounds alone."""
        if self.intercept is None:
            return
        given = validate.between("intercept", self.intercept, 0.0, 1e3, closed=True)
        if isinstance(self.features, Declaration):
            raise InvalidValue(
                f"intercept is {given}, and the declaration of features says its own; leave it out"
            )
        if not self.bounded:
            raise InvalidValue(
                f"intercept is {given}, and no features have declared bounds, behind which it "
                "would stand; declare them, or leave it out"
            )

    @property
    def bounded(self) -> bool:
        """Whether there are features, and their bounds are declared with them."""
        return not nothing(self.features) and not (self.bare and self.norm is None)

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

    def in_lines(self, *, declared: bool) -> tuple[str, ...] | None:
        """The names to read of lines that may have others; None for all that there are.

        Where arms are declared, names are too: one that stands for whatever there is would let a
        single line say how many numbers are released.
        """
        if nothing(self.features):
            return () if declared else None
        names = self.bare or self.declaration().names
        wild = [name for name in names if "*" in name]
        if wild and declared:
            raise InvalidValue(
                f"feature {wild[0]!r} stands for all that private lines have; declare each feature "
                "by its whole name"
            )
        return None if wild else names

    def never_absent(self) -> tuple[str, ...]:
        """Those whose declared range has no 0, which is what a line without them would say."""
        if not self.bounded:
            return ()
        ranged = (one for one in self.declaration().features if isinstance(one, Ranged))
        return tuple(one.name for one in ranged if not one.low <= 0 <= one.high)

    def declaration(self) -> Declaration:
        """Their public bounds."""
        intercept = RANGED_CONSTANT if self.intercept is None else self.intercept
        return Declaration.of(self.features, norm=self.norm, intercept=intercept)

    def whole(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The bare names, with every `*` replaced by the columns that it stands for."""
        found = ([one] if one in columns else matching(one, columns) for one in self.bare)
        return tuple(itertools.chain.from_iterable(found))

    def encode(self, table: Table) -> tuple[Encoded, Declaration | None]:
        """Their rows: numbers as they are, or scaled as is declared."""
        if nothing(self.features):
            return Encoded(rows=np.zeros((table.rows, 0)), clipped=np.zeros(table.rows, bool)), None
        if not self.bounded:
            names = self.whole(table.free)
            if twice := [one for place, one in enumerate(names) if one in names[:place]]:
                raise InvalidValue(f"feature {twice[0]!r} is named twice; name it once")
            rows = np.stack([table.numbers(name) for name in names], axis=1)
            return Encoded(rows=rows, clipped=np.zeros(table.rows, bool)), None
        declared = self.declaration().on(table.free)
        return declared.encode(table), declared

    def of(self, logs: Logs) -> ReadLogs:
        """Logs with the features that were asked for, out of those that they have."""
        if nothing(self.features):
            made = Encoded(rows=logs.contexts, clipped=np.zeros(logs.rows, bool))
            return ReadLogs(logs=logs, source=logs, declaration=None, encoded=made)
        if not logs.dim:
            raise InvalidValue("features are declared, and the users of these logs have none")
        columns = dict(zip(logs.names, logs.contexts.T, strict=True))
        table = read_table(columns, name="the logs")
        encoded, declared = self.encode(table)
        chosen = dataclasses.replace(logs, **self.fields(table, encoded.rows, declared))
        return ReadLogs(logs=chosen, source=logs, declaration=declared, encoded=encoded)

    def fields(self, table: Table, rows: Floats, declared: Declaration | None) -> dict[str, Any]:
        """What they are in logs."""
        if declared is None:
            return {"contexts": rows, "names": self.whole(table.free)}
        public = {"norm": declared.norm, "constant": declared.intercept}
        return {"contexts": rows, "names": _coordinates(declared), **public}


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
    return _different((*found, "constant") if declared.intercept else found)


def _different(names: Sequence[str]) -> tuple[str, ...]:
    """The same, with a mark behind those that are there already."""
    found: dict[str, None] = {}
    for name in names:
        while name in found:
            name += "'"
        found[name] = None
    return tuple(found)
