"""Line names beside the right ends, without overlaps or crossing leaders."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

Dashes: TypeAlias = tuple[float, tuple[float, ...]]

MOST_NAMED = 8
"""The most lines of a panel; more are dealt to several panels."""

LEADER = "leader"
"""What the thin lines from the ends to the names are called, for those who look for them."""

SIZE = 6.5
"""Of names, in points."""

_GAP = 1.25  # of the size: the least distance of two names
# Where a leader leaves the panel, bends, bends again and meets its name, in inches.
_LEADER = (0.0, 0.03, 0.11, 0.14)
_SPACE = 0.03


class End(NamedTuple):
    """End of a line: its name, height and colour."""

    name: str
    height: float
    colour: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """Names of the lines of one panel; see `name_ends`."""

    axes: Axes
    ends: tuple[End, ...]
    leaders: tuple[Line2D, ...]
    texts: tuple[Text, ...]

    def space(self) -> None:
        """Place the names beside the line ends, once the panel has its size."""
        low, high = np.log(self.axes.get_ylim())
        values = np.log([max(end.height, 1e-12) for end in self.ends])
        # No regret at all has no place on a logarithmic axis: it is named at the bottom.
        heights = np.clip((values - low) / (high - low), 0, 1).tolist()
        figure = self.axes.get_figure(root=True)
        assert figure is not None
        points = self.axes.get_window_extent().height * 72 / figure.dpi
        label_heights = _spread_heights(heights, _GAP * SIZE / points)
        for line, text, end_height, height in zip(
            self.leaders, self.texts, heights, label_heights, strict=True
        ):
            line.set_ydata([end_height, end_height, height, height])
            text.set_y(height)


def name_ends(axes: Axes, ends: Sequence[End]) -> Names:
    """Write the names right of a panel, so that the layout makes room for them."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    figure = axes.get_figure(root=True)
    assert figure is not None
    corner: Any = axes.transAxes
    right_edge = figure.dpi_scale_trans + ScaledTranslation(1, 0, corner)
    place = blended_transform_factory(right_edge, axes.transAxes)
    sorted_ends = tuple(sorted(ends, key=lambda end: end.height))
    leaders, texts = [], []
    for end in sorted_ends:
        line = Line2D(_LEADER, [0.5] * 4, color=end.colour, linewidth=1, gid=LEADER)
        line.set(transform=place, clip_on=False)
        axes.add_artist(line)
        leaders.append(line)
        texts.append(
            axes.text(
                _LEADER[-1] + _SPACE,
                0.5,
                end.name,
                fontsize=SIZE,
                verticalalignment="center",
                transform=place,
            )
        )
    return Names(axes=axes, ends=sorted_ends, leaders=tuple(leaders), texts=tuple(texts))


def _spread_heights(heights: Sequence[float], least: float) -> list[float]:
    """Move sorted heights apart to the least gap, as little as possible.

    After subtracting a gap for each height below, heights need only not fall: those that do are
    pooled at their mean.

    >>> [round(height, 3) for height in _spread_heights([0.5, 0.5, 1.02], 0.056)]
    [0.472, 0.528, 1.0]
    """
    gap = min(least, 1 / max(1, len(heights) - 1))
    blocks: list[list[float]] = []
    for place, height in enumerate(heights):
        block = [height - place * gap]
        while blocks and np.mean(blocks[-1]) >= np.mean(block):
            block = blocks.pop() + block
        blocks.append(block)
    highest = 1 - (len(heights) - 1) * gap
    levels = [min(max(float(np.mean(block)), 0.0), highest) for block in blocks for _ in block]
    return [level + place * gap for place, level in enumerate(levels)]
