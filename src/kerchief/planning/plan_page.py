"""A plan as one HTML page, with a picture of what learning gains and of what is left uncertain."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from kerchief.comparison.players import YARDSTICKS
from kerchief.planning.advice import HEADINGS, Advice, Row
from kerchief.planning.forecast import LEVEL, average
from kerchief.reports.extras import require
from kerchief.reports.line_styles import BLACK, COLOURS, GREY
from kerchief.reports.report import page, promises

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def picture(advice: Advice) -> bytes:
    """Draw the gain over users, and the reward of every row, as PNG."""
    require("picture")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    gains_axes, rewards_axes = figure.subplots(1, 2, width_ratios=[1.25, 1.0])
    _gains(gains_axes, advice)
    _rewards(rewards_axes, advice)
    for axes in (gains_axes, rewards_axes):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=160)
    return stream.getvalue()


def _gains(axes: Axes, advice: Advice) -> None:
    """Cumulative reward above what is to be beaten, with where its mean lies."""
    rounds = advice.played.rounds()
    axes.axhline(0.0, color=GREY, linewidth=1.1)
    for row in advice.rows:
        if row.gain is None or row.cell.player.policy == "uniform":
            continue
        curves = advice.played.gains(row.cell, advice.yardstick)[:, : advice.worlds]
        colour = _colour(advice, row)
        spans = [average(tick) for tick in curves]
        axes.plot(rounds, curves.mean(axis=1), color=colour, linewidth=1.6, label=_name(row))
        low, high = [span.low for span in spans], [span.high for span in spans]
        axes.fill_between(rounds, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_title(f"reward so far, above {advice.measure}", loc="left", fontsize=10)
    axes.set(xlabel="users", xlim=(0, int(rounds[-1])))
    axes.legend(frameon=False, fontsize=8, loc="best")


def _rewards(axes: Axes, advice: Advice) -> None:
    """Reward per user, with where it will lie in a new world."""
    rows = advice.rows[::-1]
    for place, row in enumerate(rows):
        colour = _colour(advice, row)
        axes.plot([row.reward.low, row.reward.high], [place, place], color=colour, linewidth=2.2)
        axes.plot([row.reward.mean], [place], "o", color=colour, markersize=5)
    axes.set_yticks(np.arange(len(rows)), [_name(row) for row in rows])
    share = f"{100 * LEVEL:.0f} %"
    axes.set_title(f"reward per user, and {share} of new worlds", loc="left", fontsize=10)


def _name(row: Row) -> str:
    player = row.cell.player
    return player.name if player.policy in YARDSTICKS else player.label()


def _colour(advice: Advice, row: Row) -> str:
    """Colour of a row: private bandits in colours, baselines grey, all others black."""
    if row.cell.asked is not None:
        return COLOURS[
            [private_row.cell for private_row in advice.private].index(row.cell) % len(COLOURS)
        ]
    return GREY if row.cell.player.policy in YARDSTICKS else BLACK


def render(advice: Advice, *, command: str, config: str, image: bytes) -> str:
    """The page."""
    return page(
        "plan.html.j2",
        image,
        advice=advice,
        headings=[heading.format(advice.measure) for heading in HEADINGS],
        promises=promises(advice.plan, (row.cell for row in advice.private)),
        command=command,
        config=config,
    )
