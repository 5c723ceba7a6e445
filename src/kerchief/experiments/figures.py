"""The picture of a plan: what privacy costs, over time, over epsilon, and from world to world.

One block of panels per world, and one more where worlds have a number, as wide as a page of a
paper. Lines are named where they end; more than can be named are dealt to small multiples with
common axes, by trust, epsilon or policy.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerchief.core.validate import one_of
from kerchief.experiments.extras import require
from kerchief.experiments.facets import Facet, facets
from kerchief.experiments.labels import Names, name_ends
from kerchief.experiments.panels import OverBits, OverEpsilon, OverRounds, OverWorlds, Panel
from kerchief.experiments.pens import GREY, Pen, pen_for
from kerchief.experiments.plan import Panel as Word
from kerchief.experiments.plan import Plan
from kerchief.experiments.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

FORMATS = ("png", "pdf", "svg")
"""What a picture may be written as; the first is the default."""

# Letters stay letters, as fonts in PDF and as text in SVG, and equal pictures are equal files.
_SAVING: Any = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "kerchief",
}
_UNDATED: Mapping[str, dict[str, None]] = {
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
_EXPLAINED = (
    "Lines are means over replicates, bands and bars two standard errors either side, short dashes "
    "95th percentiles; ε=∞ is not private."
)


class _Drawn(NamedTuple):
    """A facet of a panel, and what stands above it."""

    panel: Panel
    facet: Facet
    title: str


def picture(plan: Plan, finished: Sequence[Result], form: str = FORMATS[0]) -> bytes:
    """Draw the finished cells, as PNG or for a paper as PDF or SVG."""
    one_of("format", form, FORMATS)
    require("picture")
    import matplotlib as mpl

    stream = io.BytesIO()
    with mpl.rc_context(_SAVING):
        drawn = draw(plan, finished)
        drawn.savefig(stream, format=form, dpi=_DOTS, metadata=_UNDATED[form])
    return stream.getvalue()


def draw(plan: Plan, finished: Sequence[Result]) -> Figure:
    """One block of panels per world, as the plan's layout says."""
    require("picture")
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    blocks = _blocks(plan, finished)
    rows = [-(-len(block) // _columns(block)) for _, block in blocks]
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
    figure.supxlabel(_EXPLAINED, fontsize=_NOTE, color=GREY, x=0.01, horizontalalignment="left")
    engine.execute(figure)
    # Names only move along their panels: whatever has found its place keeps it.
    figure.set_layout_engine("none")
    for one in names:
        one.space()
    return figure


def _blocks(plan: Plan, finished: Sequence[Result]) -> list[tuple[str, list[_Drawn]]]:
    """What is drawn of each world, under its caption."""
    layout = plan.layout()
    panels = [_PANELS[word] for word in layout.panels]
    if len(pen_for(finished).epsilons) == 1 and len(panels) > 1:
        panels.remove(_PANELS["epsilon"])
    sent = any(sum(one.communication.values()) for one in finished)
    panels += [OverBits()] * sent
    blocks: list[tuple[str, list[_Drawn]]] = []
    if layout.axis is not None:
        over = OverWorlds(axis=layout.axis, numbers=layout.numbers)
        blocks.append(("", _dealt([over], finished)))
    if layout.panels:
        for world in dict.fromkeys(one.cell.world for one in finished):
            cells = [one for one in finished if one.cell.world == world]
            blocks.append((plan.caption(world), _dealt(panels, cells)))
    return blocks


def _dealt(panels: Sequence[Panel], cells: Sequence[Result]) -> list[_Drawn]:
    """The facets of all panels of a world; names are whole while no panel had to be dealt."""
    dealt = [facets(panel.lines(cells)) for panel in panels]
    pairs = zip(panels, dealt, strict=True)
    if all(len(group) == 1 for group in dealt):
        return [_Drawn(panel, one.named_in_full(), panel.title) for panel, (one,) in pairs]
    return [
        _Drawn(panel, one, _title(panel, one, group)) for panel, group in pairs for one in group
    ]


def _title(panel: Panel, facet: Facet, group: Sequence[Facet]) -> str:
    """What sets a facet apart from others like it; the axis says what it shows."""
    if len(group) > 1:
        return facet.title
    return ": ".join(one for one in (facet.title, panel.title) if one)


def _columns(block: Sequence[_Drawn]) -> int:
    """How many panels stand side by side: two or three, by the length of what is written."""
    long = any(len(name) > _LONG for one in block for name in one.facet.names)
    most = 2 if long or len(block) == 4 or any(len(one.title) > _LONG_TITLE for one in block) else 3
    rows = -(-len(block) // most)
    return -(-len(block) // rows)


def _draw_block(part: SubFigure, title: str, block: Sequence[_Drawn], pen: Pen) -> list[Names]:
    """The panels of one world, with one scale of regret."""
    columns = _columns(block)
    rows = -(-len(block) // columns)
    shares = [one.panel.share for one in block] if rows == 1 else [1.0] * columns
    grid = part.subplots(rows, columns, squeeze=False, sharey=True, width_ratios=shares)
    if title:
        part.suptitle(title, fontsize=_TITLE + 1, fontweight="bold", x=0.01, ha="left")
    every = list(itertools.chain.from_iterable(grid))
    for spare in every[len(block) :]:
        spare.remove()
    lost = any(
        (p.curves > 0).any() for one in block for line in one.facet.lines for p in line.points
    )
    for place, (axes, one) in enumerate(zip(every, block, strict=False)):
        one.panel.draw(axes, one.facet, pen)
        _finish(axes, one.title, first=place % columns == 0, lost=lost)
    _share_places(every, block)
    return [
        name_ends(axes, one.panel.ends(one.facet, pen))
        for axes, one in zip(every, block, strict=False)
    ]


def _share_places(every: Sequence[Axes], block: Sequence[_Drawn]) -> None:
    """Panels of one kind have one horizontal axis."""
    for panel in {one.panel for one in block}:
        alike = [axes for axes, one in zip(every, block, strict=False) if one.panel is panel]
        limits = [axes.get_xlim() for axes in alike]
        for axes in alike:
            axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))


def _finish(axes: Axes, title: str, *, first: bool, lost: bool) -> None:
    """Scale the regret, draw the grid, and say what the panel shows."""
    if not lost:
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
