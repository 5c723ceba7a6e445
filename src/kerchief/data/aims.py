"""What arms bring users: reward 1 for the right label, or a column of rewards for every arm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kerchief.core.errors import InvalidValue
from kerchief.data.declaration import declared_range
from kerchief.data.features import Category, words_of
from kerchief.data.tables import Table, is_frame, read_table

# More labels than this are numbers that were taken for labels.
_MOST_LABELS = 4096


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Aims:
    """The arms by name, what they bring as `Supervised.of` takes it, and how that was declared.

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
) -> Aims:
    """Find out which of the forms was given; see `from_supervised`."""
    if not isinstance(rewards, tuple | list) or not all(isinstance(one, str) for one in rewards):
        raise InvalidValue("rewards are no list of columns; name one column per arm")
    if (y is None) != bool(rewards):
        raise InvalidValue("labels and rewards are both given, or neither is; give one of them")
    if y is None:
        return _rewarded(table, tuple(rewards), reward_range)
    if _is_table(y):
        given = _same_length(table, read_table(y, name="the table of rewards"))
        aims = _rewarded(given, tuple(given.columns), reward_range)
        return dataclasses.replace(aims, source=given)
    if reward_range is not None:
        raise InvalidValue(
            f"the range of rewards is {reward_range}, and labels bring 0 or 1; leave it out"
        )
    if isinstance(y, str):
        return _labelled(table, y)
    labels = _same_length(table, read_table({"label": y}, name="the labels"))
    return dataclasses.replace(_labelled(labels, "label"), source=labels)


def _is_table(y: Any) -> bool:
    """Whether it has columns; a column of a frame has none itself."""
    if isinstance(y, Mapping) or is_frame(y):
        return True
    rows = isinstance(y, list | tuple) and y and isinstance(y[0], list | tuple | np.ndarray)
    return bool(rows) or len(getattr(y, "shape", ())) == 2


def _same_length(table: Table, other: Table) -> Table:
    if other.rows != table.rows:
        raise InvalidValue(
            f"{other.name} have {other.rows} rows and the features {table.rows}; give one per user"
        )
    return other


def _labelled(table: Table, label: str) -> Aims:
    """One arm per label: those that are declared, or those in the data."""
    name, _, text = label.partition("=")
    name = name.strip()
    words = words_of(text) if text else _sorted(table.words(name).tolist())
    if len(words) > _MOST_LABELS:
        raise InvalidValue(
            f"column {name!r} has {len(words)} different labels; there may be {_MOST_LABELS}: "
            "declare fewer arms, or give rewards"
        )
    if len(words) < 2:
        who = "one label is declared for" if text else "there is one label alone in"
        raise InvalidValue(f"{who} column {name!r}; give two or more to choose from")
    labels = Category(name=name, values=words)
    described = {"label": labels.texts()[0] if text else name}
    return Aims(arms=words, given={"labels": labels.places(table)}, described=described)


def _sorted(words: Sequence[str]) -> tuple[str, ...]:
    """Every word once: whole numbers by their size, others by their letters."""
    found = sorted(set(words))
    return tuple(sorted(found, key=Decimal) if all(map(_whole, found)) else found)


def _whole(word: str) -> bool:
    return word.isascii() and word.removeprefix("-").isdigit()


def _rewarded(
    table: Table, columns: tuple[str, ...], reward_range: tuple[float, float] | None
) -> Aims:
    """One arm per column of rewards."""
    if reward_range is None:
        raise InvalidValue(
            "rewards have no declared range; declare their least and greatest value, such as 0:1: "
            "bounds are never read off the data, since noise and clipping rest on them"
        )
    low, high = declared_range(reward_range)
    if len(columns) < 2 or len(set(columns)) < len(columns):
        raise InvalidValue(f"rewards are in columns {columns}; name two or more, none twice")
    found = [table.numbers(name, or_words=False) for name in columns]
    for name, column in zip(columns, found, strict=True):
        said = f"lies outside the declared range of rewards {low:g}:{high:g}; declare a wider one"
        table.refuse(name, (column < low) | (column > high), said)
    return Aims(
        arms=columns,
        given={"rewards": np.stack(found, axis=1), "low": low, "high": high},
        described={"rewards": columns, "reward_range": f"{low:.17g}:{high:.17g}"},
    )
