"""Small multiples: lines that are too many for one panel are dealt to several, by what they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from kerchief.experiments.labels import MOST_NAMED
from kerchief.experiments.players import YARDSTICKS, Player
from kerchief.experiments.results import Result
from kerchief.privacy.guarantee import Trust

Trait: TypeAlias = Literal["policy", "trust", "epsilon"]

_TRAITS: Mapping[Trait, Callable[[Player], str]] = {
    "policy": lambda one: one.name,
    "trust": lambda one: one.protection,
    "epsilon": lambda one: f"ε={one.epsilon:g}",
}
# By what lines are dealt, in the order of preference: readers compare trusts and epsilons first.
_WAYS: tuple[tuple[Trait, ...], ...] = (
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
    """What is drawn as one line: results of one player, or of one at several epsilons.

    Attributes:
        swept: whether epsilon lies along the axis, and so is no part of the name.
    """

    points: tuple[Result, ...]
    swept: bool = False

    @property
    def player(self) -> Player:
        """Who plays, at the last of its epsilons."""
        return self.points[-1].cell.player

    @property
    def private(self) -> bool:
        """Whether anything is promised."""
        return self.player.trust is not Trust.NONE

    def traits(self) -> dict[Trait, str]:
        """What tells it from other private lines."""
        found = {name: trait(self.player) for name, trait in _TRAITS.items()}
        return {name: one for name, one in found.items() if name != "epsilon" or not self.swept}

    def label(self) -> str:
        """Its whole name."""
        if not self.private:
            return self.player.label()
        return " ".join(self.traits().values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facet:
    """The lines of one panel.

    Attributes:
        title: what its private lines have in common; empty where lines have their whole names.
        names: what each line is called here, without what the title says.
    """

    title: str
    lines: tuple[Line, ...]
    names: tuple[str, ...]

    def named_in_full(self) -> Facet:
        """The same lines, where no other panel stands beside them."""
        return Facet(title="", lines=self.lines, names=tuple(line.label() for line in self.lines))

    @property
    def one_epsilon(self) -> bool:
        """Whether dashes have no epsilons to tell apart here."""
        return len({one.player.epsilon for one in self.lines if one.private}) == 1


def facets(lines: Sequence[Line]) -> list[Facet]:
    """One panel while its lines can be named; else several, none with more than can be.

    Every panel shows uniform and greedy play, and the non-private parents of its private lines.
    """
    if len(lines) <= MOST_NAMED:
        return [_facet(lines)]
    ways = [_dealt(lines, way) for way in _WAYS]
    fitting = (groups for groups in ways if max(map(len, groups)) <= MOST_NAMED)
    groups = next(fitting, ways[-1])
    return [_facet(part) for group in groups for part in _parts(group)]


def _dealt(lines: Sequence[Line], way: Sequence[Trait]) -> list[list[Line]]:
    """Private lines by some traits, each with what it is compared to; then all other lines."""
    groups: dict[tuple[str | None, ...], list[Line]] = {}
    for one in lines:
        if one.private:
            groups.setdefault(tuple(one.traits().get(trait) for trait in way), []).append(one)
    plain = [one for one in lines if not one.private]
    dealt = [[*_plain_ones_of(group, plain), *group] for group in groups.values()]
    shown = {id(one) for group in dealt for one in group}
    others = [one for one in plain if id(one) not in shown]
    return dealt + [[*filter(_is_yardstick, plain), *others]] * bool(others)


def _plain_ones_of(group: Sequence[Line], plain: Sequence[Line]) -> list[Line]:
    parents = {parent for one in group for parent in one.player.parents()}
    return [one for one in plain if _is_yardstick(one) or one.player in parents]


def _is_yardstick(line: Line) -> bool:
    return not line.private and line.player.policy in YARDSTICKS


def _parts(group: Sequence[Line]) -> list[list[Line]]:
    """Yardsticks, and as many others as can be named beside them."""
    common = [one for one in group if _is_yardstick(one)]
    others = [one for one in group if not _is_yardstick(one)]
    room = MOST_NAMED - len(common)
    starts = range(0, len(others), room)
    return [[*common, *others[start : start + room]] for start in starts] or [common]


def _facet(lines: Sequence[Line]) -> Facet:
    private = [one.traits() for one in lines if one.private]
    common = dict(private[0]) if private else {}
    for traits in private[1:]:
        common = {name: one for name, one in common.items() if traits[name] == one}
    return Facet(
        title=" ".join(common.values()) or ("" if private else "not private"),
        lines=tuple(lines),
        names=tuple(_name(one, common) for one in lines),
    )


def _name(line: Line, common: Mapping[Trait, str]) -> str:
    """What the title does not say; infinite epsilons stand for no promise at all."""
    player = line.player
    if line.private:
        rest = [one for name, one in line.traits().items() if name not in common]
        return " ".join(rest) or "private"
    if player.policy == "uniform":
        return player.name
    told = common.get("policy", "").split(" ")[0]
    words = player.name.split(" ")
    shown = words[1:] if player.policy == told and not _is_yardstick(line) else words
    return " ".join([*shown, "ε=∞"])
