"""Small multiples: lines that are too many for one panel, split by traits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from kerchief.comparison.players import YARDSTICKS, Player
from kerchief.comparison.results import Result
from kerchief.privacy.guarantee import Trust
from kerchief.reports.labels import MOST_NAMED

Trait: TypeAlias = Literal["policy", "trust", "epsilon"]

_TRAITS: Mapping[Trait, Callable[[Player], str]] = {
    "policy": lambda player: player.name,
    "trust": lambda player: player.protection,
    "epsilon": lambda player: f"ε={player.epsilon:g}",
}
# By what lines are dealt, in the order of preference: readers compare trusts and epsilons first.
_GROUPINGS: tuple[tuple[Trait, ...], ...] = (
    ("trust",),
    ("epsilon",),
    ("policy",),
    ("trust", "epsilon"),
    ("policy", "trust"),
    ("policy", "epsilon"),
    ("policy", "trust", "epsilon"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """Line of a picture: results of one player, at one or several epsilons.

    Attributes:
        swept: whether epsilon lies along the axis, so that the name leaves it out.
    """

    points: tuple[Result, ...]
    swept: bool = False

    @property
    def player(self) -> Player:
        """Player of the line, at the last of its epsilons."""
        return self.points[-1].cell.player

    @property
    def private(self) -> bool:
        """Whether the line has a privacy guarantee."""
        return self.player.trust is not Trust.NONE

    def traits(self) -> dict[Trait, str]:
        """Return the traits that distinguish this from other private lines."""
        traits = {name: trait(self.player) for name, trait in _TRAITS.items()}
        return {name: text for name, text in traits.items() if name != "epsilon" or not self.swept}

    def label(self) -> str:
        """Return the full name of the line."""
        if not self.private:
            return self.player.label()
        return " ".join(self.traits().values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facet:
    """Lines of one panel.

    Attributes:
        title: traits that its private lines have in common; empty where lines have full names.
        names: name of each line, without the words of the title.
    """

    title: str
    lines: tuple[Line, ...]
    names: tuple[str, ...]

    def named_in_full(self) -> Facet:
        """Return a facet of these lines with full names, for a panel of its own."""
        return Facet(title="", lines=self.lines, names=tuple(line.label() for line in self.lines))

    @property
    def one_epsilon(self) -> bool:
        """Whether all private lines of the facet have one epsilon."""
        return len({line.player.epsilon for line in self.lines if line.private}) == 1


def facets(lines: Sequence[Line]) -> list[Facet]:
    """Split lines into panels, none with more lines than can be named.

    Every panel shows uniform and greedy play, and the non-private counterparts of its private
    lines.
    """
    if len(lines) <= MOST_NAMED:
        return [_build_facet(lines)]
    groupings = [_group_lines(lines, traits) for traits in _GROUPINGS]
    fitting = (groups for groups in groupings if max(map(len, groups)) <= MOST_NAMED)
    groups = next(fitting, groupings[-1])
    return [_build_facet(part) for group in groups for part in _split_group(group)]


def _group_lines(lines: Sequence[Line], traits: Sequence[Trait]) -> list[list[Line]]:
    """Group private lines by traits, each with its baselines; then the rest."""
    groups: dict[tuple[str | None, ...], list[Line]] = {}
    for line in lines:
        if line.private:
            groups.setdefault(tuple(line.traits().get(trait) for trait in traits), []).append(line)
    plain = [line for line in lines if not line.private]
    panels = [[*_select_counterparts(group, plain), *group] for group in groups.values()]
    shown_ids = {id(line) for group in panels for line in group}
    remaining = [line for line in plain if id(line) not in shown_ids]
    return panels + [[*filter(_is_yardstick, plain), *remaining]] * bool(remaining)


def _select_counterparts(group: Sequence[Line], plain: Sequence[Line]) -> list[Line]:
    parents = {parent for line in group for parent in line.player.parents()}
    return [line for line in plain if _is_yardstick(line) or line.player in parents]


def _is_yardstick(line: Line) -> bool:
    return not line.private and line.player.policy in YARDSTICKS


def _split_group(group: Sequence[Line]) -> list[list[Line]]:
    """Split a group into panels, each with the baselines."""
    common = [line for line in group if _is_yardstick(line)]
    remaining = [line for line in group if not _is_yardstick(line)]
    room = MOST_NAMED - len(common)
    starts = range(0, len(remaining), room)
    return [[*common, *remaining[start : start + room]] for start in starts] or [common]


def _build_facet(lines: Sequence[Line]) -> Facet:
    private = [line.traits() for line in lines if line.private]
    common = dict(private[0]) if private else {}
    for traits in private[1:]:
        common = {name: text for name, text in common.items() if traits[name] == text}
    return Facet(
        title=" ".join(common.values()) or ("" if private else "not private"),
        lines=tuple(lines),
        names=tuple(_name_line(line, common) for line in lines),
    )


def _name_line(line: Line, common: Mapping[Trait, str]) -> str:
    """Name a line without the words of the title; ε=∞ means not private."""
    player = line.player
    if line.private:
        texts = [text for name, text in line.traits().items() if name not in common]
        return " ".join(texts) or "private"
    if player.policy == "uniform":
        return player.name
    title_policy = common.get("policy", "").split(" ")[0]
    name_parts = player.name.split(" ")
    shown_parts = (
        name_parts[1:] if player.policy == title_policy and not _is_yardstick(line) else name_parts
    )
    return " ".join([*shown_parts, "ε=∞"])
