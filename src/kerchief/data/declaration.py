"""What is public about features, declared before anyone looks at the data.

Noise is as large as a user's features could make it, so their bounds must not depend on the users:
each feature has a declared range, declared values, or a place in a vector with a declared norm.
Nothing here is ever read off the data, and devices can do the same with their own user's features.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.data.features import (
    Category,
    Encoded,
    Feature,
    Ranged,
    Vector,
    check_name,
    parted,
    words_of,
)
from kerchief.data.tables import Table
from kerchief.environments.ranges import RANGED_CONSTANT, into_ball


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """The public bounds of a user's features; make it with `Declaration.of`.

    Features are put side by side, divided by the norm that is usual for such a declaration,
    shortened to norm 1 where they are longer, and get a constant behind them, so that an arm can be
    better for everyone. For ranges alone this is `kerchief.environments.ranged`.

    Attributes:
        intercept: the constant.

    >>> from kerchief.data.tables import read_table
    >>> public = Declaration.of("age=18:90, plan=basic|gold")
    >>> table = read_table({"age": [18, 99], "plan": ["gold", "basic"]})
    >>> encoded = public.encode(table)
    >>> encoded.rows.round(2), encoded.clipped
    (array([[-0.71,  0.71,  0.5 ],
           [ 0.71, -0.71,  0.5 ]]), array([False,  True]))
    """

    features: tuple[Feature, ...]
    intercept: float = RANGED_CONSTANT

    def __post_init__(self) -> None:
        """Check that features are declared, and none of them twice."""
        validate.plain(self)
        validate.between("intercept", self.intercept, 0.0, 1e3, closed=True)
        if not isinstance(self.features, tuple) or not self.features:
            raise InvalidValueError(f"no feature is declared; {_REMEDY}")
        if not all(isinstance(feature, Feature) for feature in self.features):
            raise InvalidValueError(f"features are not all declared; {_REMEDY}")
        names = [name for feature in self.features for name in feature.names]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise InvalidValueError(f"feature {name!r} is declared twice; declare it once")

    @classmethod
    def of(
        cls, features: Declared, *, norm: float | None = None, intercept: float = RANGED_CONSTANT
    ) -> Declaration:
        """Read a declaration.

        Args:
            features: such as "age=18:90, plan=basic|gold", or several such texts, or a mapping of
                names to a pair of bounds or to words. With a `*` in its name a feature stands for
                all columns that match.
            norm: bound on the norm of all features without a range, which are a vector then.
            intercept: the constant behind all features.
        """
        if isinstance(features, Declaration):
            if norm is not None:
                checked_norm = validate.positive("norm", norm)
                raise InvalidValueError(
                    f"norm is {checked_norm}, and the declaration of features says its own; leave "
                    "it out"
                )
            return features
        entries = [_build_feature(name, bounds) for name, bounds in _split_features(features)]
        bare = tuple(entry for entry in entries if isinstance(entry, str))
        bounded = tuple(entry for entry in entries if not isinstance(entry, str))
        if bare and norm is None:
            raise InvalidValueError(f"feature {bare[0]!r} has no declared range; {_REMEDY}")
        if norm is not None and not bare:
            if not bounded:
                raise InvalidValueError(
                    f"norm is {norm}, and no features are named; name them, such as x* for all "
                    "columns of an array"
                )
            raise InvalidValueError(f"norm is {norm}, and every feature has a range; leave it out")
        vector = () if norm is None else (Vector(names=bare, norm=norm),)
        return cls(features=(*bounded, *vector), intercept=intercept)

    @property
    def dim(self) -> int:
        """How many coordinates a row has, the constant included."""
        return sum(feature.dim for feature in self.features) + (self.intercept > 0)

    @property
    def norm(self) -> float:
        """A bound on the norm of every row."""
        return math.hypot(1.0, self.intercept)

    def on(self, columns: Iterable[str]) -> Declaration:
        """Replace every feature with a `*` by features of the columns that match."""
        names = list(columns)
        expanded = [
            column_feature
            for feature in self.features
            for column_feature in _expand_feature(feature, names)
        ]
        return dataclasses.replace(self, features=tuple(expanded))

    def encode(self, table: Table) -> Encoded:
        """Encode the features of every row, and mark rows with a value beyond its bounds.

        How many were clipped is not private: it is for simulations alone.
        """
        features = self.on(table.free).features
        parts, usual = (
            [feature.encode(table) for feature in features],
            sum(feature.usual for feature in features),
        )
        pairs = zip(features, parts, strict=True)
        rows = into_ball(np.concatenate([part.rows for part in parts], axis=1), usual)
        constant = np.full((len(rows), int(self.intercept > 0)), self.intercept)
        shares = ((", ".join(feature.names), float(part.clipped.mean())) for feature, part in pairs)
        return Encoded(
            rows=np.concatenate([rows, constant], axis=1),
            clipped=np.any([part.clipped for part in parts], axis=0),
            shares=tuple((name, share) for name, share in shares if share),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are declared, some with a `*`."""
        return tuple(name for feature in self.features for name in feature.names)

    def texts(self) -> tuple[str, ...]:
        """Every feature as it can be declared again."""
        return tuple(text for feature in self.features for text in feature.texts())

    @property
    def vector_norm(self) -> float | None:
        """The declared norm of the features without ranges."""
        norms = [feature.norm for feature in self.features if isinstance(feature, Vector)]
        return norms[0] if norms else None


Declared: TypeAlias = Declaration | str | Iterable[str] | Mapping[str, Any]
"""Anything that `Declaration.of` reads."""

_REWARD_BOUNDS = (-1e9, 1e9)

_REMEDY = (
    "declare what is public, as in age=18:90 for a range or plan=basic|gold for words: bounds are "
    "never read off the data, since noise and clipping rest on them"
)


def is_empty(features: Declared) -> bool:
    """Whether nothing is declared at all."""
    return isinstance(features, str | tuple | list | dict) and not features


def _split_features(features: Any) -> list[tuple[str, Any]]:
    """Split a declaration into names and bounds."""
    if isinstance(features, Mapping):
        return list(features.items())
    try:
        texts = [features] if isinstance(features, str) else list(features)
    except TypeError:
        raise InvalidValueError(f"features are a {type(features).__name__}; {_REMEDY}") from None
    entries = []
    for text in texts:
        if not isinstance(text, str):
            raise InvalidValueError(f"a feature is a {type(text).__name__} and no text; {_REMEDY}")
        entries += [entry.partition("=") for entry in parted(text, ",") if entry]
    return [(name.strip(), bounds.strip() or None) for name, _, bounds in entries]


def _build_feature(name: str, bounds: Any) -> Ranged | Category | str:
    """Build one feature; a bare name where no bounds are given."""
    check_name(name)
    if isinstance(bounds, str):
        bounds = _read_bounds(name, bounds)
    match bounds:
        case None:
            return name
        case [low, high] if not isinstance(low, str) and not isinstance(high, str):
            return Ranged(name=name, low=low, high=high)
        case [*values]:
            return Category(name=name, values=tuple(values))
    raise InvalidValueError(f"bounds of {name!r} are neither a range nor words; {_REMEDY}")


def _read_bounds(name: str, text: str) -> tuple[Any, ...]:
    """Read the bounds of a feature from a text."""
    if "|" in text:
        return words_of(text)
    low, colon, high = text.partition(":")
    try:
        if colon:
            return float(low), float(high)
    except ValueError:
        pass
    raise InvalidValueError(
        f"bounds of {name!r} are {text[:80]!r}, neither a range nor words; {_REMEDY}"
    )


def _expand_feature(feature: Feature, columns: list[str]) -> list[Feature]:
    if isinstance(feature, Vector):
        names = [name for pattern in feature.names for name in matching(pattern, columns)]
        return [dataclasses.replace(feature, names=tuple(names))]
    return [dataclasses.replace(feature, name=name) for name in matching(feature.name, columns)]


def matching(name: str, columns: Sequence[str]) -> list[str]:
    """The columns that a name with a `*` stands for."""
    if "*" not in name:
        return [name]
    matches = fnmatch.filter(columns, name)
    if not matches:
        candidates = ", ".join(columns[:40]) or "none"
        raise InvalidValueError(
            f"no column is like {name!r}; those that may be features are {candidates}"
        )
    return matches


def declared_range(given: object) -> tuple[float, float]:
    """Return the least and the greatest reward, if they are a valid range.

    >>> declared_range((0, 1))
    (0.0, 1.0)
    """
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InvalidValueError(
            "reward_range is no pair; declare the least and the greatest reward"
        )
    low, high = (
        validate.between("reward_range", bound, *_REWARD_BOUNDS, closed=True) for bound in given
    )
    validate.at_least("width of reward_range", high - low, 1e-9)
    return low, high
