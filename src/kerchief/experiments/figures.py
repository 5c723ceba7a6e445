"""The picture of a plan: what privacy costs, over time, over epsilon, and from world to world.

One row of panels a world, and one more where worlds have a number. Colours are Okabe and Ito's,
which colour-blind readers can tell apart; a colour is a (player, trust), a dash pattern is an
epsilon, and every line is named where it ends.
"""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kerchief.experiments.compare import Finished
from kerchief.experiments.extras import require_report
from kerchief.experiments.plan import YARDSTICKS, Cell, Layout, Panel, Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "picture"]

Dashes: TypeAlias = tuple[float, tuple[float, ...] | None]

_GREY, _BLACK = "#767676", "#000000"
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES: tuple[Dashes, ...] = (
    (0, (1, 1.2)),
    (0, (4, 1.5)),
    (0, None),
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
)
# Without protection: yardsticks are grey, all others black.
_PLAIN: dict[str, Dashes] = {"uniform": (0, (2, 2)), "greedy": (0, (5, 1.5, 1, 1.5))}
_BLACK_DASHES: tuple[Dashes, ...] = ((0, None), *_DASHES[:2], *_DASHES[3:])
_GAP = 0.052  # of a panel's height: the least distance of two labels

Key: TypeAlias = tuple[str, str]
Colours: TypeAlias = Mapping[Key, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pen:
    """How lines look in all panels of one picture."""

    colours: Colours
    epsilons: list[float]

    @classmethod
    def of(cls, finished: Sequence[Finished]) -> _Pen:
        asked = {one.cell.asked[0] for one in finished if one.cell.asked is not None}
        return cls(colours=_colours(finished), epsilons=sorted(asked))

    def style(self, cell: Cell) -> tuple[str, Dashes]:
        """Colour and dash pattern of a cell."""
        if cell.asked is not None:
            dashes = _DASHES[self.epsilons.index(cell.asked[0]) % len(_DASHES)]
        elif cell.policy in _PLAIN:
            dashes = _PLAIN[cell.policy]
        else:
            black = [key for key, colour in self.colours.items() if colour == _BLACK]
            dashes = _BLACK_DASHES[black.index(_key(cell)) % len(_BLACK_DASHES)]
        return self.colours[_key(cell)], dashes


def picture(plan: Plan, finished: Sequence[Finished]) -> bytes:
    """Draw the finished cells as PNG.

    Raises:
        KerchiefError: matplotlib is not installed.
    """
    stream = io.BytesIO()
    draw(plan, finished).savefig(stream, format="png", dpi=160)
    return stream.getvalue()


def draw(plan: Plan, finished: Sequence[Finished]) -> Figure:
    """A row of panels a world, as the plan's layout says; means and two standard errors."""
    require_report()
    from matplotlib.figure import Figure

    layout, pen = plan.layout(), _Pen.of(finished)
    kinds = list(dict.fromkeys(one.cell.contexts for one in finished)) if layout.panels else []
    height = max(3.4, 0.2 * max(Counter(one.cell.contexts for one in finished).values()))
    levels = len(kinds) + (layout.axis is not None)
    figure = Figure(figsize=(11, height * levels), layout="constrained")
    bands = list(np.atleast_1d(np.asarray(figure.subfigures(levels, 1), dtype=object)))
    if layout.axis is not None:
        _over_worlds(bands.pop(0).subplots(), finished, layout, pen)
    for band, kind in zip(bands, kinds, strict=True):
        widths = [1.35 if panel == "rounds" else 1.0 for panel in layout.panels]
        axes = band.subplots(1, len(widths), squeeze=False, sharey="row", width_ratios=widths)
        cells = [one for one in finished if one.cell.contexts == kind]
        for one, panel in zip(axes[0], layout.panels, strict=True):
            over, words = _PANELS[panel]
            over(one, cells, pen)
            one.set_title(f"{plan.caption(kind)}: {words}", loc="left", fontsize=10)
    return figure


def _over_rounds(axes: Axes, cells: Sequence[Finished], pen: _Pen) -> None:
    for one in cells:
        mean, error = _mean(one), _error(one)
        colour, dashes = pen.style(one.cell)
        axes.plot(one.rounds, mean, color=colour, linestyle=dashes, linewidth=1.6)
        low = np.maximum(mean - 2 * error, mean / 10)
        axes.fill_between(one.rounds, low, mean + 2 * error, color=colour, alpha=0.12, linewidth=0)
    _regret_axis(axes, cells)
    axes.set_xlabel("rounds")
    axes.set_xlim(0, int(cells[0].rounds[-1]))
    _tidy(axes)
    _name_ends(axes, cells, pen)


def _over_epsilon(axes: Axes, cells: Sequence[Finished], pen: _Pen) -> None:
    for key, colour in pen.colours.items():
        _curve(axes, [one for one in cells if _key(one.cell) == key and one.cell.asked], colour)
    flat = [one for one in cells if one.cell.asked is None]
    for one in flat:
        colour, dashes = pen.style(one.cell)
        axes.axhline(_mean(one)[-1], color=colour, linestyle=dashes, linewidth=1.1)
    shown = pen.epsilons or [1.0]
    _regret_axis(axes, cells)
    axes.set(xscale="log", xlabel="ε asked for", xlim=(shown[0] / 1.6, shown[-1] * 1.6))
    axes.set_xticks(shown, [f"{epsilon:g}" for epsilon in shown])
    axes.set_xticks([], minor=True)
    _tidy(axes)
    _name_ends(axes, flat, pen)
    if len(flat) < len(cells):
        axes.legend(frameon=False, fontsize=8, loc="best")


def _over_worlds(axes: Axes, finished: Sequence[Finished], layout: Layout, pen: _Pen) -> None:
    """Final regret of every player against the number of the world."""
    place = layout.numbers
    players = dict.fromkeys(one.cell.player for one in finished)
    ends = []
    for one in players:
        points = [other for other in finished if other.cell.player == one]
        points.sort(key=lambda point: place[point.cell.contexts])
        colour, dashes = pen.style(points[0].cell)
        axes.errorbar(
            [place[point.cell.contexts] for point in points],
            [_mean(point)[-1] for point in points],
            yerr=[2 * _error(point)[-1] for point in points],
            color=colour,
            linestyle=dashes,
            marker="o",
            markersize=4,
            capsize=3,
            linewidth=1.6,
        )
        ends.append(points[-1])
    _regret_axis(axes, finished)
    axes.set(xscale="log", xlabel=layout.axis)
    axes.set_xticks(list(place.values()), [f"{number:g}" for number in place.values()])
    axes.set_xticks([], minor=True)
    axes.set_title(f"final regret against {layout.axis}", loc="left", fontsize=10)
    _tidy(axes)
    _name_ends(axes, ends, pen)


def _regret_axis(axes: Axes, cells: Sequence[Finished]) -> None:
    if not any((one.regret > 0).any() for one in cells):
        axes.set_ylim(0.1, 1)  # a logarithmic axis cannot find its own limits in zeros
    axes.set_yscale("log")
    axes.set_ylabel("cumulative regret")
    axes.label_outer(remove_inner_ticks=True)


def _curve(axes: Axes, cells: Sequence[Finished], colour: str) -> None:
    """Final regret of one protected policy over epsilon, with two standard errors."""
    points = sorted(cells, key=lambda one: one.cell.guarantee.epsilon)
    if points:
        axes.errorbar(
            [one.cell.guarantee.epsilon for one in points],
            [_mean(one)[-1] for one in points],
            yerr=[2 * _error(one)[-1] for one in points],
            color=colour,
            marker="o",
            markersize=4,
            capsize=3,
            linewidth=1.6,
            label=" ".join(_key(points[0].cell)),
        )


def _name_ends(axes: Axes, cells: Sequence[Finished], pen: _Pen) -> None:
    """Name every line at its right end, moving names apart where lines end close together."""
    low, high = np.log(axes.get_ylim())
    ends = sorted(cells, key=lambda one: float(_mean(one)[-1]))
    values = np.log([max(float(_mean(one)[-1]), 1e-12) for one in ends])
    # No regret at all has no place on a logarithmic axis: it is named at the bottom.
    heights = np.clip((values - low) / (high - low), 0, 1).tolist()
    for one, true, height in zip(ends, heights, _apart(heights), strict=True):
        _name(axes, one.cell.label(), pen.colours[_key(one.cell)], true, height)


def _name(axes: Axes, text: str, colour: str, true: float, height: float) -> None:
    """One name beside a panel, with a thin line to where it belongs."""
    line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0}
    axes.annotate(
        text,
        (1.0, true),
        (1.035, height),
        xycoords="axes fraction",
        textcoords="axes fraction",
        fontsize=7.5,
        color=colour,
        va="center",
        arrowprops=line,
    )


def _apart(heights: Sequence[float]) -> list[float]:
    """Push sorted heights apart to the least gap: upwards, then down again from the panel's top.

    >>> [round(height, 3) for height in _apart([0.5, 0.5, 1.02])]
    [0.5, 0.552, 1.0]
    """
    gap = min(_GAP, 1 / max(1, len(heights)))
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = 1.0
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], ceiling)
        ceiling = placed[place] - gap
    return placed


def _colours(finished: Sequence[Finished]) -> dict[Key, str]:
    """Black and grey without protection, a colour a protected policy."""
    keys = dict.fromkeys(_key(one.cell) for one in finished)
    private = [key for key in keys if key[1] != "none"]
    chosen = {key: _COLOURS[i % len(_COLOURS)] for i, key in enumerate(private)}
    plain = {key: _GREY if key[0] in YARDSTICKS else _BLACK for key in keys if key[1] == "none"}
    return chosen | plain


def _key(cell: Cell) -> Key:
    return cell.player.name, cell.player.protection


def _mean(one: Finished) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(one.regret.mean(axis=1))


def _error(one: Finished) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Standard errors; none are known for a single replicate."""
    count = one.regret.shape[1]
    spread = one.regret.std(axis=1, ddof=1) if count > 1 else np.zeros(one.regret.shape[0])
    return np.asarray(spread / np.sqrt(count))


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


# How a panel is drawn, and what its title says.
_PANELS: Mapping[Panel, tuple[Callable[[Axes, Sequence[Finished], _Pen], None], str]] = {
    "rounds": (_over_rounds, "over time"),
    "epsilon": (_over_epsilon, "the price of ε"),
}
