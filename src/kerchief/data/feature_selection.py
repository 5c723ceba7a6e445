"""Selection of user features in logs, by bare names or with public bounds."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.data.declaration import Declaration, matching
from kerchief.data.features import Category, Encoded, Ranged
from kerchief.data.logs import Floats, Logs
from kerchief.data.tables import Table, read_table
from kerchief.environments.ranges import RANGED_CONSTANT


def nothing(given: object) -> bool:
    """Whether an option was left out, or is empty."""
    return given is None or (isinstance(given, Sequence | Mapping) and not given)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReadLogs:
    """Logs with their source and the declaration of their features.

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
        """Refuse an intercept where no features have declared bounds."""
        if self.intercept is None:
            return
        intercept = validate.between("intercept", self.intercept, 0.0, 1e3, closed=True)
        if isinstance(self.features, Declaration):
            raise InvalidValueError(
                f"intercept is {intercept}, and the declaration of features says its own; leave it "
                "out"
            )
        if not self.bounded:
            raise InvalidValueError(
                f"intercept is {intercept}, and no features have declared bounds, behind which it "
                "would stand; declare them, or leave it out"
            )

    @property
    def bounded(self) -> bool:
        """Whether there are features, and their bounds are declared with them."""
        return not nothing(self.features) and not (self.bare and self.norm is None)

    @property
    def bare(self) -> tuple[str, ...]:
        """Names of the features without bounds; none where bounds are given, too."""
        features = [self.features] if isinstance(self.features, str) else self.features
        if isinstance(features, Declaration | Mapping):
            return ()
        if not isinstance(features, Sequence):
            raise InvalidValueError(
                f"features are a {type(features).__name__}; give texts, or a mapping"
            )
        if not all(isinstance(text, str) for text in features) or any(
            "=" in text for text in features
        ):
            return ()
        return tuple(name.strip() for text in features for name in text.split(",") if name.strip())

    def in_lines(self, *, declared: bool) -> tuple[str, ...] | None:
        """Names of features to read from lines; None for all features that lines have.

        Where arms are declared, names are too: one that stands for whatever there is would let a
        single line say how many numbers are released.
        """
        if nothing(self.features):
            return () if declared else None
        names = self.bare or self.declaration().names
        wild = [name for name in names if "*" in name]
        if wild and declared:
            raise InvalidValueError(
                f"feature {wild[0]!r} stands for all that private lines have; declare each feature "
                "by its whole name"
            )
        return None if wild else names

    def never_absent(self) -> tuple[str, ...]:
        """Features whose declared range excludes 0, the value of a missing feature."""
        if not self.bounded:
            return ()
        ranged = (feature for feature in self.declaration().features if isinstance(feature, Ranged))
        return tuple(feature.name for feature in ranged if not feature.low <= 0 <= feature.high)

    def declaration(self) -> Declaration:
        """Build the declaration of the features."""
        intercept = RANGED_CONSTANT if self.intercept is None else self.intercept
        return Declaration.of(self.features, norm=self.norm, intercept=intercept)

    def whole(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The bare names, with every `*` replaced by the columns that it stands for."""
        groups = ([name] if name in columns else matching(name, columns) for name in self.bare)
        return tuple(itertools.chain.from_iterable(groups))

    def encode(self, table: Table) -> tuple[Encoded, Declaration | None]:
        """Encode features of a table: raw numbers, or scaled as is declared."""
        if nothing(self.features):
            return Encoded(rows=np.zeros((table.rows, 0)), clipped=np.zeros(table.rows, bool)), None
        if not self.bounded:
            names = self.whole(table.free)
            if repeated := [name for place, name in enumerate(names) if name in names[:place]]:
                raise InvalidValueError(f"feature {repeated[0]!r} is named twice; name it once")
            rows = np.stack([table.numbers(name) for name in names], axis=1)
            return Encoded(rows=rows, clipped=np.zeros(table.rows, bool)), None
        declaration = self.declaration().on(table.free)
        return declaration.encode(table), declaration

    def of(self, logs: Logs) -> ReadLogs:
        """Select the features that were asked for from those that the logs have."""
        if nothing(self.features):
            unencoded = Encoded(rows=logs.contexts, clipped=np.zeros(logs.rows, bool))
            return ReadLogs(logs=logs, source=logs, declaration=None, encoded=unencoded)
        if not logs.dim:
            raise InvalidValueError("features are declared, and the users of these logs have none")
        columns = dict(zip(logs.names, logs.contexts.T, strict=True))
        table = read_table(columns, name="the logs")
        encoded, declaration = self.encode(table)
        selected = dataclasses.replace(logs, **self.fields(table, encoded.rows, declaration))
        return ReadLogs(logs=selected, source=logs, declaration=declaration, encoded=encoded)

    def fields(self, table: Table, rows: Floats, declared: Declaration | None) -> dict[str, Any]:
        """Build the fields of `Logs` that hold encoded features."""
        if declared is None:
            return {"contexts": rows, "names": self.whole(table.free)}
        public = {"norm": declared.norm, "constant": declared.intercept}
        return {"contexts": rows, "names": _name_coordinates(declared), **public}


def _name_coordinates(declaration: Declaration) -> tuple[str, ...]:
    """A name for every coordinate of an encoded row."""
    names: list[str] = []
    for feature in declaration.features:
        if isinstance(feature, Category) and feature.dim > 1:
            # Names that a list of bare names can hold, where such a table is read again.
            names += [
                f"{feature.name}:{place if set(value) & set('=,|') else value}"
                for place, value in enumerate(feature.values)
            ]
        else:
            names += feature.names
    return _make_unique((*names, "constant") if declaration.intercept else names)


def _make_unique(names: Sequence[str]) -> tuple[str, ...]:
    """Append marks to repeated names until all names differ."""
    unique: dict[str, None] = {}
    for name in names:
        while name in unique:
            name += "'"
        unique[name] = None
    return tuple(unique)
