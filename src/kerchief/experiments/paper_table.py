"""The table of an experiment: a line a player, a column a world, what was printed in brackets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kerchief.experiments.plan import Plan, Player
from kerchief.experiments.rows import Row, amount

__all__ = ["Beside", "beside"]

# As many worlds as fit beside the label and the bill in a terminal.
_MOST_WORLDS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beside:
    """A table of texts.

    Attributes:
        headings: one a column.
        lines: texts, one a column.
    """

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def pages(self) -> list[Beside]:
        """The same in tables that a terminal can show, with a few worlds each."""
        starts = range(2, len(self.headings), _MOST_WORLDS)
        return [
            Beside(
                headings=_cut(self.headings, start),
                lines=tuple(_cut(line, start) for line in self.lines),
            )
            for start in starts
        ]


def beside(plan: Plan, rows: Sequence[Row]) -> Beside:
    """Arrange rows by player and world; what was spent is that of the worst world."""
    worlds = list(dict.fromkeys(row.contexts for row in rows))
    by_player: dict[Player, dict[str, Row]] = {}
    for row in rows:
        by_player.setdefault(row.cell.player, {})[row.contexts] = row
    printed = {spot.contexts for spot in plan.printed()}
    headings = [f"{world} (printed)" if world in printed else world for world in worlds]
    lines = [
        (one.label(), _worst(list(found.values())), *(_text(plan, found.get(w)) for w in worlds))
        for one, found in by_player.items()
    ]
    return Beside(headings=("", "spent ε, δ", *headings), lines=tuple(lines))


def _worst(rows: Sequence[Row]) -> str:
    return max(rows, key=lambda row: row.spent_epsilon or 0.0).spent()


def _text(plan: Plan, row: Row | None) -> str:
    if row is None:
        return "-"
    printed = plan.printed().get(row.cell.spot)
    return row.regret.text() + ("" if printed is None else f" ({amount(printed)})")


def _cut(texts: tuple[str, ...], start: int) -> tuple[str, ...]:
    """Label and bill, then a few worlds."""
    return texts[:2] + texts[start : start + _MOST_WORLDS]
