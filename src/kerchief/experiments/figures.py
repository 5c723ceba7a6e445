"""The picture of a comparison: what privacy costs, over time and over epsilon.

One row of panels a kind of contexts. Colours are Okabe and Ito's, which colour-blind readers can
tell apart; a colour is a (policy, trust), a dash pattern is an epsilon, and every line is named
where it ends.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kerchief.experiments.compare import Finished
from kerchief.experiments.declare import YARDSTICKS, Cell
from kerchief.experiments.extras import require_report

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
_PLAIN: dict[str, Dashes] = {"uniform": (0, (2, 2)), "greedy": (0, (5, 1.5, 1, 1.5))}
_GAP = 0.052  # of a panel's height: the least distance of two labels

Colours: TypeAlias = Mapping[tuple[str, str], str]


def picture(finished: Sequence[Finished]) -> bytes:
    """Draw the finished cells as PNG.

    Raises:
        KerchiefError: matplotlib is not installed.
    """
    stream = io.BytesIO()
    draw(finished).savefig(stream, format="png", dpi=160)
    return stream.getvalue()


def draw(finished: Sequence[Finished]) -> Figure:
    """Left: regret against rounds, mean and two standard errors. Right: against epsilon."""
    require_report()
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(one.cell.contexts for one in finished))
    lines = max(sum(one.cell.contexts == kind for one in finished) for kind in kinds)
    figure = Figure(figsize=(11, max(3.4, 0.2 * lines) * len(kinds)), layout="constrained")
    panels = figure.subplots(len(kinds), 2, squeeze=False, sharey="row", width_ratios=(1.35, 1))
    colours, epsilons = _colours(finished), _epsilons(finished)
    for (left, right), kind in zip(panels, kinds, strict=True):
        cells = [one for one in finished if one.cell.contexts == kind]
        _over_rounds(left, cells, colours, epsilons)
        _over_epsilon(right, cells, colours, epsilons)
        left.set_title(f"{kind} contexts: over time", loc="left", fontsize=10)
        right.set_title(f"{kind} contexts: the price of ε", loc="left", fontsize=10)
    return figure


def _over_rounds(
    axes: Axes, cells: Sequence[Finished], colours: Colours, epsilons: list[float]
) -> None:
    for one in cells:
        mean, error = _mean(one), _error(one)
        colour, dashes = _style(one.cell, colours, epsilons)
        axes.plot(one.rounds, mean, color=colour, linestyle=dashes, linewidth=1.6)
        low = np.maximum(mean - 2 * error, mean / 10)
        axes.fill_between(one.rounds, low, mean + 2 * error, color=colour, alpha=0.12, linewidth=0)
    if not any((one.regret > 0).any() for one in cells):
        axes.set_ylim(0.1, 1)  # a logarithmic axis cannot find its own limits in zeros
    axes.set(yscale="log", xlabel="rounds", ylabel="cumulative regret")
    axes.set_xlim(0, int(cells[0].rounds[-1]))
    _tidy(axes)
    _name_ends(axes, cells, colours)


def _over_epsilon(
    axes: Axes, cells: Sequence[Finished], colours: Colours, epsilons: list[float]
) -> None:
    for key, colour in colours.items():
        _curve(axes, [one for one in cells if _key(one) == key and one.cell.asked], colour)
    flat = [one for one in cells if one.cell.asked is None]
    for one in flat:
        colour, dashes = _style(one.cell, colours, epsilons)
        axes.axhline(_mean(one)[-1], color=colour, linestyle=dashes, linewidth=1.1)
    reach = epsilons or [1.0]
    axes.set(xscale="log", xlabel="ε asked for", xlim=(reach[0] / 1.6, reach[-1] * 1.6))
    axes.set_xticks(reach, [f"{epsilon:g}" for epsilon in reach])
    axes.set_xticks([], minor=True)
    _tidy(axes)
    _name_ends(axes, flat, colours)
    if epsilons:
        axes.legend(frameon=False, fontsize=8, loc="best")


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
            label=" ".join(_key(points[0])),
        )


def _name_ends(axes: Axes, cells: Sequence[Finished], colours: Colours) -> None:
    """Name every line at its right end, moving names apart where lines end close together."""
    low, high = np.log(axes.get_ylim())
    ends = sorted(cells, key=lambda one: float(_mean(one)[-1]))
    values = np.log([max(float(_mean(one)[-1]), 1e-12) for one in ends])
    # No regret at all has no place on a logarithmic axis: it is named at the bottom.
    heights = np.clip((values - low) / (high - low), 0, 1).tolist()
    for one, true, height in zip(ends, heights, _apart(heights), strict=True):
        _name(axes, one.cell.label(), colours[one.cell.policy, one.cell.trust], true, height)


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


def _style(cell: Cell, colours: Colours, epsilons: list[float]) -> tuple[str, Dashes]:
    """Colour and dash pattern of a cell."""
    colour = colours[cell.policy, cell.trust]
    if cell.asked is None:
        return colour, _PLAIN.get(cell.policy, (0, None))
    return colour, _DASHES[epsilons.index(cell.asked[0]) % len(_DASHES)]


def _colours(finished: Sequence[Finished]) -> dict[tuple[str, str], str]:
    """Black and grey without protection, a colour a protected policy."""
    keys = dict.fromkeys(map(_key, finished))
    private = [key for key in keys if key[1] != "none"]
    chosen = {key: _COLOURS[i % len(_COLOURS)] for i, key in enumerate(private)}
    plain = {key: _GREY if key[0] in YARDSTICKS else _BLACK for key in keys if key[1] == "none"}
    return chosen | plain


def _key(one: Finished) -> tuple[str, str]:
    return one.cell.policy, one.cell.trust


def _epsilons(finished: Sequence[Finished]) -> list[float]:
    return sorted({one.cell.asked[0] for one in finished if one.cell.asked is not None})


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
