"""The picture of a plan: what privacy costs, over time, over epsilon, and from world to world.

One row of panels per world, and one more where worlds have a number. Populations have a panel of
regret against what clients sent. Colours are Okabe and Ito's,
which colour-blind readers can tell apart, and some of Tol's; a colour is a (player, trust), a dash
pattern is an epsilon. A few lines are named where they end; more have a legend beside their row.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.experiments.extras import require
from kerchief.experiments.labels import MOST_NAMED, Dashes, End, Sample, name_ends, outside_legend
from kerchief.experiments.plan import Layout, Panel, Plan
from kerchief.experiments.players import YARDSTICKS, Cell, Player
from kerchief.experiments.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, BLACK, _BROWN = "#767676", "#000000", "#8C5A2B"
COLOURS = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933",
    "#332288", "#117733"
)  # fmt: skip
_DASHES: tuple[Dashes, ...] = (
    (0, (1, 1.2)),
    (0, (4, 1.5)),
    (0, ()),
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
_BLACK_DASHES: tuple[Dashes, ...] = ((0, ()), *_DASHES[:2], *_DASHES[3:])

_TICKS = 0.1  # of the axis: the least distance of two labels
_MARGIN = 0.06  # of the axis: beside the last epsilon, and the width of the bars at each

Key: TypeAlias = tuple[str, str]
Colours: TypeAlias = Mapping[Key, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pen:
    """How lines look in all panels of one picture."""

    colours: Colours
    epsilons: list[float]

    @classmethod
    def of(cls, finished: Sequence[Result]) -> _Pen:
        asked = {one.cell.asked[0] for one in finished if one.cell.asked is not None}
        return cls(colours=_colours(finished), epsilons=sorted(asked))

    def style(self, cell: Cell) -> tuple[str, Dashes]:
        """Colour and dash pattern of a cell."""
        if cell.asked is not None:
            dashes = self._dashes(cell.asked[0])
        elif cell.player.policy in _PLAIN:
            dashes = _PLAIN[cell.player.policy]
        else:
            dark = [key for key, colour in self.colours.items() if colour in (BLACK, _BROWN)]
            dashes = _BLACK_DASHES[dark.index(_key(cell)) % len(_BLACK_DASHES)]
        return self.colours[_key(cell)], dashes

    def samples(self, cells: Sequence[Result], *, dashed: bool = True) -> list[Sample]:
        """The legend of many lines: what colours are, what dashes are, and who else plays."""
        private = [one.cell for one in cells if one.cell.asked is not None]
        keys = dict.fromkeys(map(_key, private))
        told = dashed and len(self.epsilons) > 1
        asked = sorted({cell.guarantee.epsilon for cell in private}) if told else []
        plain = {_key(one.cell): one.cell for one in cells if one.cell.asked is None}
        groups = {
            "colour: policy and trust": [
                Sample(" ".join(key), self.colours[key], (0, ())) for key in keys
            ],
            "dashes: ε asked for": [
                Sample(f"{epsilon:.3g}", GREY, self._dashes(epsilon)) for epsilon in asked
            ],
            "without protection": [
                Sample(cell.player.name, *self.style(cell)) for cell in plain.values()
            ],
        }
        return [one for name, group in groups.items() if group for one in (Sample(name), *group)]

    def _dashes(self, epsilon: float) -> Dashes:
        """Patterns tell epsilons apart: a single one is drawn solid."""
        if len(self.epsilons) == 1:
            return (0, ())
        return _DASHES[self.epsilons.index(epsilon) % len(_DASHES)]


def picture(plan: Plan, finished: Sequence[Result]) -> bytes:
    """Draw the finished cells as PNG."""
    stream = io.BytesIO()
    draw(plan, finished).savefig(stream, format="png", dpi=160)
    return stream.getvalue()


def draw(plan: Plan, finished: Sequence[Result]) -> Figure:
    """One row of panels per world, as the plan's layout says; means and two standard errors."""
    require("picture")
    from matplotlib.figure import Figure

    layout, pen = plan.layout(), _Pen.of(finished)
    kinds = list(dict.fromkeys(one.cell.world for one in finished)) if layout.panels else []
    sent = any(sum(one.communication.values()) for one in finished)
    panels = [_PANELS[panel] for panel in layout.panels] + [_SENT] * sent
    entries = max(len(pen.samples(_of(finished, kind))) for kind in (*kinds, None))
    height = max(3.4, 0.22 * entries)
    levels = len(kinds) + (layout.axis is not None)
    figure = Figure(figsize=(14 if sent else 11, height * levels), layout="constrained")
    bands = list(np.atleast_1d(np.asarray(figure.subfigures(levels, 1), dtype=object)))
    if layout.axis is not None:
        _over_worlds(bands.pop(0).subplots(), finished, layout, pen)
    for band, kind in zip(bands, kinds, strict=True):
        widths = [1.35 if over is _over_rounds else 1.0 for over, _ in panels]
        axes = band.subplots(1, len(widths), squeeze=False, sharey="row", width_ratios=widths)
        cells = _of(finished, kind)
        for one, (over, words) in zip(axes[0], panels, strict=True):
            over(one, cells, pen)
            one.set_title(f"{plan.caption(kind)}: {words}", loc="left", fontsize=10)
        if len(cells) > MOST_NAMED:
            samples = pen.samples(cells, dashed="rounds" in layout.panels)
            outside_legend(axes[0][-1], samples)
    return figure


def _of(finished: Sequence[Result], kind: str | None) -> list[Result]:
    """The cells of one world, or of all."""
    return [one for one in finished if kind in (None, one.cell.world)]


def _over_rounds(axes: Axes, cells: Sequence[Result], pen: _Pen) -> None:
    for one in cells:
        mean, error = one.curves.mean(axis=1), _errors(one)
        colour, dashes = pen.style(one.cell)
        axes.plot(one.rounds, mean, color=colour, linestyle=dashes, linewidth=1.6)
        low = np.maximum(mean - 2 * error, mean / 10)
        axes.fill_between(one.rounds, low, mean + 2 * error, color=colour, alpha=0.12, linewidth=0)
        axes.scatter(one.rounds[-1:], [one.regret.p95], marker="_", color=colour)
    axes.set(xlabel="rounds", xlim=(0, int(cells[0].rounds[-1])))
    _finish(axes, cells, [_end(one, pen) for one in cells], named=len(cells) <= MOST_NAMED)


def _over_epsilon(axes: Axes, cells: Sequence[Result], pen: _Pen) -> None:
    ends = []
    shown = pen.epsilons or [1.0]
    private = list(dict.fromkeys(_key(one.cell) for one in cells if one.cell.asked))
    margin = (2 * shown[-1] / shown[0]) ** _MARGIN
    for place, key in enumerate(private):
        points = [one for one in cells if _key(one.cell) == key and one.cell.asked]
        points.sort(key=lambda one: one.cell.guarantee.epsilon)
        aside = margin ** ((place + 0.5) / len(private) - 0.5)
        places = [one.cell.guarantee.epsilon * aside for one in points]
        _points(axes, places, points, color=pen.colours[key])
        ends.append(End(" ".join(key), points[-1].regret.mean, pen.colours[key]))
    for one in cells:
        if one.cell.asked is None:
            colour, dashes = pen.style(one.cell)
            axes.axhline(one.regret.mean, color=colour, linestyle=dashes, linewidth=1.1)
            ends.append(_end(one, pen))
    _log_axis(axes, "ε asked for", dict(zip(shown, _spaced(shown), strict=True)))
    axes.set_xlim(shown[0] / margin, shown[-1] * margin)
    _finish(axes, cells, ends, named=len(cells) <= MOST_NAMED)


def _over_bits(axes: Axes, cells: Sequence[Result], pen: _Pen) -> None:
    """Players that differ in their numbers alone are joined: what is sent follows from these."""
    told = [one for one in cells if one.communication.get("bits")]
    told.sort(key=lambda one: one.communication["bits"])
    for alike in dict.fromkeys(map(_without_numbers, told)):
        points = [one for one in told if _without_numbers(one) == alike]
        places = [one.communication["bits"] for one in points]
        regrets = [one.regret.mean for one in points]
        axes.plot(places, regrets, color=GREY, linewidth=0.8)
        for place, one in zip(places, points, strict=True):
            _points(axes, [place], [one], color=pen.style(one.cell)[0])
    for one in cells:
        if not one.communication.get("bits"):
            colour, dashes = pen.style(one.cell)
            axes.axhline(one.regret.mean, color=colour, linestyle=dashes, linewidth=1.1)
    axes.set(xscale="log", xlabel="bits sent")
    _finish(axes, cells, [_end(one, pen) for one in cells], named=len(cells) <= MOST_NAMED)


def _without_numbers(one: Result) -> Player:
    return dataclasses.replace(one.cell.player, numbers=())


def _spaced(epsilons: Sequence[float]) -> list[str]:
    """Labels along a logarithmic axis, without those that would touch the one before.

    >>> _spaced([0.2, 0.282965, 1.0, 10.0])
    ['0.2', '', '1', '10']
    """
    whole, last, labels = np.log(epsilons[-1] / epsilons[0]), 0.0, list[str]()
    for epsilon in epsilons:
        apart = not any(labels) or np.log(epsilon / last) > _TICKS * whole
        last = epsilon if apart else last
        labels.append(f"{epsilon:.3g}" if apart else "")
    return labels


def _over_worlds(axes: Axes, finished: Sequence[Result], layout: Layout, pen: _Pen) -> None:
    """Final regret of every player against the number of the world."""
    place, last = layout.numbers, []
    for player in dict.fromkeys(one.cell.player for one in finished):
        points = [one for one in finished if one.cell.player == player]
        points.sort(key=lambda point: place[point.cell.world])
        colour, dashes = pen.style(points[0].cell)
        numbers = [place[point.cell.world] for point in points]
        _points(axes, numbers, points, color=colour, linestyle=dashes)
        last.append(points[-1])
    _log_axis(axes, layout.axis or "", {number: f"{number:g}" for number in place.values()})
    axes.set_title(
        f"final regret against {layout.axis} (dash: 95th percentile)", loc="left", fontsize=10
    )
    named = len(last) <= MOST_NAMED
    _finish(axes, finished, [_end(one, pen) for one in last], named=named)
    if not named:
        outside_legend(axes, pen.samples(last))


def _points(axes: Axes, places: Sequence[float], cells: Sequence[Result], **style: Any) -> None:
    """A line through final regrets, with bars of two standard errors and a dash at the p95."""
    means, errors = [one.regret.mean for one in cells], [2 * _errors(one)[-1] for one in cells]
    style |= {"marker": "o", "markersize": 4, "linewidth": 1.6}
    axes.errorbar(places, means, yerr=errors, **style)
    axes.scatter(places, [one.regret.p95 for one in cells], marker="_", color=style["color"])


def _end(one: Result, pen: _Pen) -> End:
    return End(one.cell.label(), one.regret.mean, pen.colours[_key(one.cell)])


def _log_axis(axes: Axes, label: str, ticks: Mapping[float, str]) -> None:
    axes.set(xscale="log", xlabel=label)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)


def _finish(axes: Axes, cells: Sequence[Result], ends: Sequence[End], *, named: bool) -> None:
    """Scale the regret, draw the grid, and name the lines where they end, if they are few."""
    if not any((one.curves > 0).any() for one in cells):
        axes.set_ylim(0.1, 1)  # a logarithmic axis cannot find its own limits in zeros
    axes.set_yscale("log")
    axes.set_ylabel("cumulative regret")
    axes.label_outer(remove_inner_ticks=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=8)
    if named:
        name_ends(axes, ends)


def _colours(finished: Sequence[Result]) -> dict[Key, str]:
    """One colour per protected policy; grey, black and brown without protection."""
    keys = dict.fromkeys(_key(one.cell) for one in finished)
    private = [key for key in keys if key[1] != "none"]
    plain = [key for key in keys if key[1] == "none" and key[0] not in YARDSTICKS]
    few = len(_BLACK_DASHES)
    return (
        {key: COLOURS[place % len(COLOURS)] for place, key in enumerate(private)}
        | {key: GREY for key in keys if key[1] == "none" and key[0] in YARDSTICKS}
        | {key: BLACK if place < few else _BROWN for place, key in enumerate(plain)}
    )


def _key(cell: Cell) -> Key:
    return cell.player.name, cell.player.protection


def _errors(one: Result) -> NDArray[np.float64]:
    """Standard errors; none are known for a single replicate."""
    count = one.replicates
    spread = one.curves.std(axis=1, ddof=1) if count > 1 else np.zeros(len(one.curves))
    return np.asarray(spread / np.sqrt(count))


# How a panel is drawn, and what its title says.
_Drawn: TypeAlias = tuple[Callable[["Axes", Sequence[Result], _Pen], None], str]
_PANELS: Mapping[Panel, _Drawn] = {
    "rounds": (_over_rounds, "over time (short dash: 95th percentile)"),
    "epsilon": (_over_epsilon, "the price of ε (dash: 95th percentile)"),
}
_SENT: _Drawn = (_over_bits, "and what clients sent")
