"""Names of lines: beside their right ends while they are few, else in a legend outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Dashes: TypeAlias = tuple[float, tuple[float, ...]]

MOST_NAMED = 8
"""The most lines of a panel that are named where they end; more get a legend."""

_SIZE = 7.5
_GAP = 0.056  # of a panel's height: the least distance of two names
# Where a leader leaves the panel, bends, bends again and meets its name, in panel widths.
_LEADER = (1.0, 1.012, 1.034, 1.042)


class End(NamedTuple):
    """Where a line ends, and what it is called."""

    name: str
    height: float
    colour: str


class Sample(NamedTuple):
    """One entry of a legend, or a heading over some, which shows no line."""

    name: str
    colour: str = "none"
    dashes: Dashes = (0, ())


def name_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Name every line beside its end, in the order of the ends, so that no two leaders cross."""
    low, high = np.log(axes.get_ylim())
    ordered = sorted(ends, key=lambda end: end.height)
    values = np.log([max(end.height, 1e-12) for end in ordered])
    # No regret at all has no place on a logarithmic axis: it is named at the bottom.
    heights = np.clip((values - low) / (high - low), 0, 1).tolist()
    leader: Any = {"linewidth": 1.2, "clip_on": False, "transform": axes.transAxes}
    name: Any = {"fontsize": _SIZE, "verticalalignment": "center", "transform": axes.transAxes}
    for end, true, height in zip(ordered, heights, _apart(heights), strict=True):
        axes.plot(_LEADER, (true, true, height, height), color=end.colour, **leader)
        axes.text(_LEADER[-1] + 0.006, height, end.name, **name)


def outside_legend(axes: Axes, samples: Sequence[Sample]) -> None:
    """A legend on the right of a panel, where it hides nothing."""
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=one.colour, linestyle=one.dashes, linewidth=1.6, label=one.name)
        for one in samples
    ]
    legend = axes.legend(
        handles=lines,
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        borderaxespad=0,
        frameon=False,
        fontsize=_SIZE + 0.5,
        handlelength=2.6,
    )
    for text, one in zip(legend.get_texts(), samples, strict=True):
        if one.colour == "none":
            text.set(fontstyle="italic")


def _apart(heights: Sequence[float]) -> list[float]:
    """Move sorted heights apart to the least gap, as little as possible, within the panel.

    Less a gap for each one below, heights need only not fall: those that do are put together, at
    their mean.

    >>> [round(height, 3) for height in _apart([0.5, 0.5, 1.02])]
    [0.472, 0.528, 1.0]
    """
    gap = min(_GAP, 1 / max(1, len(heights) - 1))
    blocks: list[list[float]] = []
    for place, height in enumerate(heights):
        block = [height - place * gap]
        while blocks and np.mean(blocks[-1]) >= np.mean(block):
            block = blocks.pop() + block
        blocks.append(block)
    highest = 1 - (len(heights) - 1) * gap
    levels = [min(max(float(np.mean(block)), 0.0), highest) for block in blocks for _ in block]
    return [level + place * gap for place, level in enumerate(levels)]
