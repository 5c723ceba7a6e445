"""Picture of a plan: the cost of privacy over rounds, epsilon and environments.

A picture has one block of panels per environment, and one more where environments have a number.
It is as wide as a page of a paper. Lines are named where they end. Lines that are too many for
names are split into small multiples with common axes, by trust model, epsilon or policy.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerchief.comparison.plan import Panel as Word
from kerchief.comparison.plan import Plan
from kerchief.comparison.results import Result
from kerchief.core.validate import one_of
from kerchief.reports.extras import require
from kerchief.reports.facets import Facet, facets
from kerchief.reports.labels import Names, name_ends
from kerchief.reports.line_styles import GREY, LineStyle, pen_for
from kerchief.reports.panels import OverBits, OverEpsilon, OverRounds, OverWorlds, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

FORMATS = ("png", "pdf", "svg")
"""What a picture may be written as; the first is the default."""

# Letters stay letters, as fonts in PDF and as text in SVG, and equal pictures are equal files.
_SAVE_SETTINGS: Any = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "kerchief",
}
_METADATA: Mapping[str, dict[str, None]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
_DOTS = 220  # per inch, of a PNG

_WIDTH = 7.2  # inches: the text of a page
_HEIGHT = 2.05  # of a row of panels
_TITLE, _LETTERS, _NUMBERS, _NOTE = 7.5, 7.0, 6.5, 6.0  # points
_LONG, _LONG_TITLE = 16, 32  # letters that leave room for two panels in a row, not three
_PANELS: Mapping[Word, Panel] = {"rounds": OverRounds(), "epsilon": OverEpsilon()}
_CAPTION = (
    "Lines are means over replicates, bands and bars two standard errors either side, short dashes "
    "95th percentiles; ε=∞ is not private."
)


class _Plot(NamedTuple):
    """Facet of a panel, with its title."""

    panel: Panel
    facet: Facet
    title: str


def picture(plan: Plan, finished: Sequence[Result], form: str = FORMATS[0]) -> bytes:
    """Draw the finished cells as PNG, or for a paper as PDF or SVG."""
    one_of("format", form, FORMATS)
    require("picture")
    import matplotlib as mpl

    stream = io.BytesIO()
    with mpl.rc_context(_SAVE_SETTINGS):
        figure = draw(plan, finished)
        figure.savefig(stream, format=form, dpi=_DOTS, metadata=_METADATA[form])
    return stream.getvalue()


def draw(plan: Plan, finished: Sequence[Result]) -> Figure:
    """Draw one block of panels per environment, as the plan's layout says."""
    require("picture")
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    blocks = _build_blocks(plan, finished)
    rows = [-(-len(block) // _count_columns(block)) for _, block in blocks]
    height = _HEIGHT * sum(rows) + 0.2 * len(rows)
    engine = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, hspace=0.03)
    figure = Figure(figsize=(_WIDTH, height), layout=engine)
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=rows)[:, 0]
    pen = pen_for(finished)
    names = [
        name
        for part, (title, block) in zip(parts, blocks, strict=True)
        for name in _draw_block(part, title, block, pen)
    ]
    figure.supxlabel(_CAPTION, fontsize=_NOTE, color=GREY, x=0.01, horizontalalignment="left")
    engine.execute(figure)
    # Names only move along their panels: whatever has found its place keeps it.
    figure.set_layout_engine("none")
    for panel_names in names:
        panel_names.space()
    return figure


def _build_blocks(plan: Plan, results: Sequence[Result]) -> list[tuple[str, list[_Plot]]]:
    """Build the plots of each environment, with its caption."""
    layout = plan.layout()
    panels = [_PANELS[panel_name] for panel_name in layout.panels]
    if len(pen_for(results).epsilons) == 1 and len(panels) > 1:
        panels.remove(_PANELS["epsilon"])
    has_communication = any(sum(result.communication.values()) for result in results)
    panels += [OverBits()] * has_communication
    blocks: list[tuple[str, list[_Plot]]] = []
    if layout.axis is not None:
        over = OverWorlds(axis=layout.axis, numbers=layout.numbers)
        blocks.append(("", _split_panels([over], results)))
    if layout.panels:
        for world in dict.fromkeys(result.cell.world for result in results):
            cells = [result for result in results if result.cell.world == world]
            blocks.append((plan.caption(world), _split_panels(panels, cells)))
    return blocks


def _split_panels(panels: Sequence[Panel], cells: Sequence[Result]) -> list[_Plot]:
    """Split panels into facets; names are full while no panel is split."""
    facet_groups = [facets(panel.lines(cells)) for panel in panels]
    pairs = zip(panels, facet_groups, strict=True)
    if all(len(group) == 1 for group in facet_groups):
        return [_Plot(panel, facet.named_in_full(), panel.title) for panel, (facet,) in pairs]
    return [
        _Plot(panel, facet, _title_facet(panel, facet, group))
        for panel, group in pairs
        for facet in group
    ]


def _title_facet(panel: Panel, facet: Facet, group: Sequence[Facet]) -> str:
    """Title a facet by what sets it apart from others of its group."""
    if len(group) > 1:
        return facet.title
    return ": ".join(text for text in (facet.title, panel.title) if text)


def _count_columns(block: Sequence[_Plot]) -> int:
    """Count the panels of a row: two or three, by the length of their texts."""
    long = any(len(name) > _LONG for plot in block for name in plot.facet.names)
    max_columns = (
        2 if long or len(block) == 4 or any(len(plot.title) > _LONG_TITLE for plot in block) else 3
    )
    rows = -(-len(block) // max_columns)
    return -(-len(block) // rows)


def _draw_block(part: SubFigure, title: str, block: Sequence[_Plot], pen: LineStyle) -> list[Names]:
    """Draw the panels of one environment, with one scale of regret."""
    columns = _count_columns(block)
    rows = -(-len(block) // columns)
    shares = [plot.panel.share for plot in block] if rows == 1 else [1.0] * columns
    grid = part.subplots(rows, columns, squeeze=False, sharey=True, width_ratios=shares)
    if title:
        part.suptitle(title, fontsize=_TITLE + 1, fontweight="bold", x=0.01, ha="left")
    all_axes = list(itertools.chain.from_iterable(grid))
    for spare in all_axes[len(block) :]:
        spare.remove()
    has_regret = any(
        (point.curves > 0).any()
        for plot in block
        for line in plot.facet.lines
        for point in line.points
    )
    for place, (axes, plot) in enumerate(zip(all_axes, block, strict=False)):
        plot.panel.draw(axes, plot.facet, pen)
        _format_axes(axes, plot.title, first=place % columns == 0, has_regret=has_regret)
    _align_axes(all_axes, block)
    return [
        name_ends(axes, plot.panel.ends(plot.facet, pen))
        for axes, plot in zip(all_axes, block, strict=False)
    ]


def _align_axes(all_axes: Sequence[Axes], block: Sequence[_Plot]) -> None:
    """Give panels of one kind the same horizontal limits."""
    for panel in {plot.panel for plot in block}:
        alike = [axes for axes, plot in zip(all_axes, block, strict=False) if plot.panel is panel]
        limits = [axes.get_xlim() for axes in alike]
        for axes in alike:
            axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))


def _format_axes(axes: Axes, title: str, *, first: bool, has_regret: bool) -> None:
    """Scale the regret, draw the grid and write the title of a panel."""
    if not has_regret:
        axes.set_ylim(0.1, 1)  # a logarithmic axis cannot find its own limits in zeros
    axes.set_yscale("log")
    if first:
        axes.set_ylabel("cumulative regret", fontsize=_LETTERS)
    axes.set_title(title, loc="left", fontsize=_TITLE)
    axes.xaxis.label.set_fontsize(_LETTERS)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color="#e4e4e4", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=_NUMBERS)
    axes.tick_params(which="both", labelleft=first, left=first)
