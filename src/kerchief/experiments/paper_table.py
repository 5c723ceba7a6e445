"""The table of an experiment: one line per player, one column per world, printed regrets beside."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kerchief.experiments.experiment import Reproduction
from kerchief.experiments.plan import Plan
from kerchief.experiments.players import Player
from kerchief.experiments.results import Result, amount

__all__ = ["SideBySide", "side_by_side", "size_note"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A table of texts, one per column in each line: the player, the bill, then the worlds."""

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def pages(self, worlds: int) -> list[SideBySide]:
        """The same in several tables, of so many worlds each."""
        return [
            SideBySide(
                headings=_cut(self.headings, start, worlds),
                lines=tuple(_cut(line, start, worlds) for line in self.lines),
            )
            for start in range(2, len(self.headings), worlds)
        ]


def side_by_side(plan: Plan, rows: Sequence[Result]) -> SideBySide:
    """Arrange rows by player and world; what was spent is that of the worst world."""
    worlds = list(dict.fromkeys(row.world for row in rows))
    by_player: dict[Player, dict[str, Result]] = {}
    for row in rows:
        by_player.setdefault(row.cell.player, {})[row.world] = row
    printed = {key.world for key in plan.printed()}
    headings = [f"{world} (printed)" if world in printed else world for world in worlds]
    lines = [
        (one.label(), _worst(list(found.values())), *(_text(plan, found.get(w)) for w in worlds))
        for one, found in by_player.items()
    ]
    return SideBySide(headings=("", "spent ε, δ", *headings), lines=tuple(lines))


def size_note(plan: Plan) -> str:
    """A sentence where the paper's figures are not shown, since they are for another horizon.

    >>> from kerchief.experiments.catalogue import EXPERIMENTS
    >>> size_note(EXPERIMENTS["table-two"].plan(quick=True))
    'The paper printed its figures for 5000 rounds; they are not shown beside 600.'
    """
    if not isinstance(plan, Reproduction) or len(plan.printed()) == len(plan.experiment.printed):
        return ""
    return (
        f"The paper printed its figures for {plan.experiment.full.horizon} rounds; they are not "
        f"shown beside {plan.horizon}."
    )


def _worst(rows: Sequence[Result]) -> str:
    return max(rows, key=lambda row: row.spent_epsilon or 0.0).bill()


def _text(plan: Plan, row: Result | None) -> str:
    if row is None:
        return "-"
    printed = plan.printed().get(row.cell.key)
    return row.regret.text() + ("" if printed is None else f" ({amount(printed)})")


def _cut(texts: tuple[str, ...], start: int, worlds: int) -> tuple[str, ...]:
    """Label and bill, then a few worlds."""
    return texts[:2] + texts[start : start + worlds]
