"""Rewards of arms in a table: 1 for the right label, or a column per arm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kerchief.core.errors import InvalidValueError
from kerchief.data.declaration import declared_range
from kerchief.data.features import Category, words_of
from kerchief.data.tables import Table, is_frame, read_table

# More labels than this are numbers that were taken for labels.
_MOST_LABELS = 4096


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Targets:
    """Names of arms, their rewards as `Supervised.of` takes them, and the declaration.

    Attributes:
        source: the labels or rewards, where they were given apart from the features.
    """

    arms: tuple[str, ...]
    given: Mapping[str, Any]
    described: Mapping[str, Any]
    source: Table | None = None


def aims_of(
    table: Table,
    y: str | ArrayLike | None,
    rewards: Sequence[str],
    reward_range: tuple[float, float] | None,
) -> Targets:
    """Read the arms and their rewards in any form that `from_supervised` takes."""
    if not isinstance(rewards, tuple | list) or not all(
        isinstance(column, str) for column in rewards
    ):
        raise InvalidValueError("rewards are no list of columns; name one column per arm")
    if (y is None) != bool(rewards):
        raise InvalidValueError(
            "labels and rewards are both given, or neither is; give one of them"
        )
    if y is None:
        return _read_rewards(table, tuple(rewards), reward_range)
    if _is_table(y):
        reward_table = _require_same_length(table, read_table(y, name="the table of rewards"))
        aims = _read_rewards(reward_table, tuple(reward_table.columns), reward_range)
        return dataclasses.replace(aims, source=reward_table)
    if reward_range is not None:
        raise InvalidValueError(
            f"the range of rewards is {reward_range}, and labels bring 0 or 1; leave it out"
        )
    if isinstance(y, str):
        return _read_labels(table, y)
    labels = _require_same_length(table, read_table({"label": y}, name="the labels"))
    return dataclasses.replace(_read_labels(labels, "label"), source=labels)


def _is_table(y: Any) -> bool:
    """Whether labels come as a table; a single column of a frame is none."""
    if isinstance(y, Mapping) or is_frame(y):
        return True
    rows = isinstance(y, list | tuple) and y and isinstance(y[0], list | tuple | np.ndarray)
    return bool(rows) or len(getattr(y, "shape", ())) == 2


def _require_same_length(table: Table, targets: Table) -> Table:
    """Return labels or rewards, if they are as many as the users."""
    if targets.rows != table.rows:
        raise InvalidValueError(
            f"{targets.name} have {targets.rows} rows and the features {table.rows}; give one per "
            "user"
        )
    return targets


def _read_labels(table: Table, label: str) -> Targets:
    """Make one arm per label: those that are declared, or those in the data."""
    name, _, text = label.partition("=")
    name = name.strip()
    arms = words_of(text) if text else _sort_labels(table.words(name).tolist())
    if len(arms) > _MOST_LABELS:
        raise InvalidValueError(
            f"column {name!r} has {len(arms)} different labels; there may be {_MOST_LABELS}: "
            "declare fewer arms, or give rewards"
        )
    if len(arms) < 2:
        problem = "one label is declared for" if text else "there is one label alone in"
        raise InvalidValueError(f"{problem} column {name!r}; give two or more to choose from")
    category = Category(name=name, values=arms)
    described = {"label": category.texts()[0] if text else name}
    return Targets(arms=arms, given={"labels": category.places(table)}, described=described)


def _sort_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Sort labels without repeats: whole numbers by size, others by letters."""
    unique = sorted(set(labels))
    return tuple(sorted(unique, key=Decimal) if all(map(_is_whole_number, unique)) else unique)


def _is_whole_number(label: str) -> bool:
    return label.isascii() and label.removeprefix("-").isdigit()


def _read_rewards(
    table: Table, columns: tuple[str, ...], reward_range: tuple[float, float] | None
) -> Targets:
    """Make one arm per column of rewards."""
    if reward_range is None:
        raise InvalidValueError(
            "rewards have no declared range; declare their least and greatest value, such as 0:1: "
            "bounds are never read off the data, since noise and clipping rest on them"
        )
    low, high = declared_range(reward_range)
    if len(columns) < 2 or len(set(columns)) < len(columns):
        raise InvalidValueError(f"rewards are in columns {columns}; name two or more, none twice")
    values = [table.numbers(name, or_words=False) for name in columns]
    for name, column in zip(columns, values, strict=True):
        complaint = (
            f"lies outside the declared range of rewards {low:g}:{high:g}; declare a wider one"
        )
        table.refuse(name, (column < low) | (column > high), complaint)
    return Targets(
        arms=columns,
        given={"rewards": np.stack(values, axis=1), "low": low, "high": high},
        described={"rewards": columns, "reward_range": f"{low:.17g}:{high:.17g}"},
    )
