"""Names of lines: few beside their ends, many in a legend that hides nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.experiments.fakes import fake

from kerchief.experiments.declare import Comparison
from kerchief.experiments.figures import draw
from kerchief.experiments.labels import MOST_NAMED, _apart


@pytest.mark.parametrize(
    "heights",
    [[0.5] * 8, [0.0, 0.0, 0.01], [0.99, 1.0, 1.0], [0.1, 0.11, 0.5, 0.52, 0.9], [], [0.3] * 30],
)
def test_names_keep_their_order_and_distance(heights: list[float]) -> None:
    placed = _apart(heights)
    gap = min(0.056, 1 / max(1, len(heights) - 1))
    assert all(high - low > gap - 1e-9 for low, high in itertools.pairwise(placed))
    assert all(-1e-9 <= height <= 1 + 1e-9 for height in placed)


def test_names_move_no_farther_than_they_must() -> None:
    assert _apart([0.2, 0.8]) == [0.2, 0.8]
    low, high = _apart([0.5, 0.5])
    assert low + high == pytest.approx(1.0)


def test_few_lines_are_named_where_they_end() -> None:
    plan = Comparison(contexts=("ball",), trusts=("joint",), epsilons=(1.0, 4.0))
    time, price = draw(plan, fake(plan)).axes
    assert {text.get_text() for text in time.texts} == {cell.label() for cell in plan.cells()}
    assert {text.get_text() for text in price.texts} == {
        "sampling joint", "uniform", "greedy not private", "sampling not private"
    }  # fmt: skip
    assert time.get_legend() is None
    assert price.get_legend() is None


def test_leaders_do_not_cross() -> None:
    plan = Comparison(contexts=("ball",), trusts=("joint",), epsilons=(1.0, 1.1, 1.2, 1.3, 1.4))
    time = draw(plan, fake(plan)).axes[0]
    leaders = [line for line in time.lines if line.get_transform() == time.transAxes]
    ends = [tuple(np.asarray(line.get_ydata(), float)[[0, -1]].tolist()) for line in leaders]
    assert len(ends) == len(plan.cells()) == MOST_NAMED
    assert sorted(ends) == sorted(ends, key=lambda end: end[1])


def test_many_lines_have_a_legend_outside() -> None:
    """Beside the last panel, by colour and by dashes; nothing is written at the ends."""
    plan = Comparison(contexts=("ball",))
    figure = draw(plan, fake(plan))
    figure.draw_without_rendering()
    time, price = figure.axes
    assert not time.texts
    assert not price.texts
    assert time.get_legend() is None
    legend = price.get_legend()
    assert legend is not None
    assert legend.get_window_extent().x0 > price.get_window_extent().x1
    words = [text.get_text() for text in legend.get_texts()]
    assert words == [
        "colour: policy and trust", "sampling local", "sampling shuffle", "sampling joint",
        "sampling central", "dashes: ε asked for", "0.2", "1", "10", "without protection",
        "uniform", "greedy", "sampling",
    ]  # fmt: skip


def test_every_epsilon_has_dashes_of_its_own() -> None:
    epsilons = tuple(float(number) for number in range(1, 9))
    plan = Comparison(contexts=("ball",), trusts=("local",), epsilons=epsilons)
    time = draw(plan, fake(plan)).axes[0]
    coloured = [line for line in time.lines if line.get_color() == "#D55E00"]
    patterns = {str(line._unscaled_dash_pattern) for line in coloured}  # type: ignore[attr-defined]
    assert len(coloured) == len(patterns) == 8


def test_every_line_without_protection_looks_different() -> None:
    """Beyond the patterns there is a second colour."""
    policies = (
        "linucb", "linucb-pairs", "online-linucb", "elimination", "glm", "glm-greedy", "glm-rare",
        "combiner", "sblb"
    )  # fmt: skip
    plan = Comparison(contexts=("ball",), trusts=("none",), policies=policies)
    lines = [one for one in draw(plan, fake(plan)).axes[0].lines if one.get_linewidth() > 1]
    looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines}  # type: ignore[attr-defined]
    assert len(lines) == len(plan.cells()) > MOST_NAMED + 2
    assert len(looks) == len(lines)


@pytest.mark.parametrize(
    "plan",
    [
        Comparison(),
        Comparison(contexts=("ball",), trusts=("joint",), epsilons=(1.0, 1.1, 1.2, 1.3, 1.4)),
        Comparison(contexts=("ball",), policies=("linucb-pairs", "linucb"), mode="theory"),
    ],
)
def test_nothing_that_is_written_touches_anything_else(plan: Comparison) -> None:
    """Names, axis labels and legends lie in the picture, off the panels and off each other."""
    figure = draw(plan, fake(plan))
    figure.draw_without_rendering()
    boxes = [axes.get_window_extent() for axes in figure.axes]
    for axes in figure.axes:
        legend = axes.get_legend()
        boxes += [legend.get_window_extent()] if legend else []
        boxes += [text.get_window_extent() for text in (*axes.texts, axes.xaxis.label)]
    for one, other in itertools.combinations(boxes, 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        high = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(wide, high) < 0.5
    whole = figure.bbox.padded(0.5)
    assert all(whole.contains(*one.min) and whole.contains(*one.max) for one in boxes)


def test_a_dash_is_a_percentile_and_bars_of_one_epsilon_stand_apart() -> None:
    """Caps of error bars would look like the dash of the 95th percentile."""
    plan = Comparison(contexts=("ball",))
    price = draw(plan, fake(plan)).axes[1]
    low, high = price.get_xlim()
    places = []
    for points, caps, _ in price.containers:
        assert caps == ()
        places += np.asarray(points.get_xdata(), float).tolist()
    assert len(set(places)) == len(places) == 12
    assert low < min(places) < max(places) < high


def test_names_and_numbers_can_be_read() -> None:
    """Names are black, whatever their line's colour; all ticks have letters of one size."""
    plan = Comparison(contexts=("ball",), trusts=("joint",), epsilons=(1.0,))
    time = draw(plan, fake(plan)).axes[0]
    assert {text.get_color() for text in time.texts} == {"black"}
    sizes = {label.get_fontsize() for label in time.yaxis.get_ticklabels(which="both")}
    assert sizes == {8.0}
