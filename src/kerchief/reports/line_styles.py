"""How lines look: a colour is a (player, trust), a dash pattern is an epsilon.

Colours are Okabe and Ito's, which colour-blind readers can tell apart, and some of Tol's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kerchief.comparison.players import YARDSTICKS, Cell
from kerchief.comparison.results import Result
from kerchief.reports.labels import Dashes

GREY, BLACK = "#767676", "#000000"
_BROWN = "#8C5A2B"
COLOURS = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933",
    "#332288", "#117733"
)  # fmt: skip
_SOLID: Dashes = (0, ())
_DASHES: tuple[Dashes, ...] = (
    (0, (1, 1.2)),
    (0, (4, 1.5)),
    _SOLID,
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (1, 3)),
    (0, (8, 3)),
    (0, (8, 1, 1, 1, 1, 1, 1, 1)),
)
# Without protection: yardsticks are grey, all others black, and brown where patterns run out.
_PLAIN: dict[str, Dashes] = {
    "uniform": (0, (2, 2)),
    "greedy": (0, (5, 1.5, 1, 1.5)),
    "single-arm": (0, (6, 2)),
}
_BLACK_DASHES: tuple[Dashes, ...] = (_SOLID, *_DASHES[:2], *_DASHES[3:])

Key: TypeAlias = tuple[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineStyle:
    """How lines look in all panels of one picture.

    Attributes:
        epsilons: those that dashes tell apart; a single one is drawn solid.
    """

    colours: Mapping[Key, str]
    epsilons: tuple[float, ...]

    def solid(self) -> LineStyle:
        """Return this pen with solid lines, for a panel with one epsilon."""
        return dataclasses.replace(self, epsilons=self.epsilons[:1])

    def colour(self, cell: Cell) -> str:
        """The colour of a cell."""
        return self.colours[key_of(cell)]

    def style(self, cell: Cell) -> tuple[str, Dashes]:
        """Colour and dash pattern of a cell."""
        return self.colour(cell), self._dashes(cell)

    def _dashes(self, cell: Cell) -> Dashes:
        if cell.asked is not None:
            if len(self.epsilons) == 1:
                return _SOLID
            return _DASHES[self.epsilons.index(cell.asked[0]) % len(_DASHES)]
        if cell.player.policy in _PLAIN:
            return _PLAIN[cell.player.policy]
        dark = [key for key, colour in self.colours.items() if colour in (BLACK, _BROWN)]
        return _BLACK_DASHES[dark.index(key_of(cell)) % len(_BLACK_DASHES)]


def pen_for(finished: Sequence[Result]) -> LineStyle:
    """The colours and dashes of a picture of these."""
    epsilons = {result.cell.asked[0] for result in finished if result.cell.asked is not None}
    return LineStyle(colours=_colours(finished), epsilons=tuple(sorted(epsilons)))


def key_of(cell: Cell) -> Key:
    """What has a colour of its own."""
    return cell.player.name, cell.player.protection


def _colours(results: Sequence[Result]) -> dict[Key, str]:
    """One colour per protected policy; grey, black and brown without protection."""
    keys = dict.fromkeys(key_of(result.cell) for result in results)
    private = [key for key in keys if key[1] != "none"]
    plain = [key for key in keys if key[1] == "none" and key[0] not in YARDSTICKS]
    patterns = len(_BLACK_DASHES)
    return (
        {key: COLOURS[place % len(COLOURS)] for place, key in enumerate(private)}
        | {key: GREY for key in keys if key[1] == "none" and key[0] in YARDSTICKS}
        | {key: BLACK if place < patterns else _BROWN for place, key in enumerate(plain)}
    )
