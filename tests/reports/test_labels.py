"""Names of lines: beside their ends, off each other, and never more than a panel can show."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from tests.comparison.fakes import fake

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.plan import Plan
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.reports.facets import Line, facets
from kerchief.reports.figures import draw
from kerchief.reports.labels import LEADER, MOST_NAMED, _spread_heights

MANY = Comparison(contexts=("ball",))


def _curves(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_gid() != LEADER]


def _dashes(line: Line2D) -> str:
    return str(line._unscaled_dash_pattern)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "heights",
    [[0.5] * 8, [0.0, 0.0, 0.01], [0.99, 1.0, 1.0], [0.1, 0.11, 0.5, 0.52, 0.9], [], [0.3] * 30],
)
def test_names_keep_their_order_and_distance(heights: list[float]) -> None:
    placed = _spread_heights(heights, 0.056)
    gap = min(0.056, 1 / max(1, len(heights) - 1))
    assert all(high - low > gap - 1e-9 for low, high in itertools.pairwise(placed))
    assert all(-1e-9 <= height <= 1 + 1e-9 for height in placed)


def test_names_move_no_farther_than_they_must() -> None:
    assert _spread_heights([0.2, 0.8], 0.056) == [0.2, 0.8]
    low, high = _spread_heights([0.5, 0.5], 0.056)
    assert low + high == pytest.approx(1.0)


def test_few_lines_are_named_where_they_end() -> None:
    plan = Comparison(contexts=("ball",), trusts=("joint",), epsilons=(1.0, 4.0))
    time, price = draw(plan, fake(plan)).axes
    assert {text.get_text() for text in time.texts} == {cell.label() for cell in plan.cells()}
    assert {text.get_text() for text in price.texts} == {
        "sampling joint", "uniform", "greedy not private", "sampling not private"
    }  # fmt: skip


def test_leaders_do_not_cross_and_begin_where_lines_end() -> None:
    plan = Comparison(contexts=("ball",), trusts=("joint",), epsilons=(1.0, 1.1, 1.2, 1.3, 1.4))
    rows = fake(plan)
    time = draw(plan, rows).axes[0]
    leaders = [line for line in time.lines if line.get_gid() == LEADER]
    heights = [np.asarray(line.get_ydata(), float) for line in leaders]
    ends = [(float(one[0]), float(one[-1])) for one in heights]
    assert len(ends) == len(plan.cells()) == MOST_NAMED
    assert sorted(ends) == sorted(ends, key=lambda end: end[1])
    low, high = np.log(time.get_ylim())
    true = sorted((np.log(one.regret.mean) - low) / (high - low) for one in rows)
    assert [start for start, _ in ends] == pytest.approx(true)


def test_many_lines_are_dealt_by_trust() -> None:
    """Each panel has its trust, uniform and greedy play and the parent; what is left is short."""
    figure = draw(MANY, fake(MANY))
    *times, price = figure.axes
    assert [one.get_title(loc="left") for one in times] == [
        "sampling local", "sampling shuffle", "sampling joint", "sampling central"
    ]  # fmt: skip
    for one in times:
        assert {text.get_text() for text in one.texts} == {
            "uniform", "greedy ε=∞", "ε=∞", "ε=0.2", "ε=1", "ε=10"
        }  # fmt: skip
        assert one.get_xlim() == times[0].get_xlim()
        assert one.get_ylim() == times[0].get_ylim()
    assert price.get_title(loc="left") == "sampling: the price of ε"
    assert len(price.texts) == 7
    assert all(one.get_legend() is None for one in figure.axes)


def test_one_trust_is_dealt_by_epsilon_and_each_is_drawn_solid() -> None:
    policies = ("linucb", "glm", "sampling")
    plan = Comparison(contexts=("ball",), trusts=("joint",), epsilons=(1.0, 4.0), policies=policies)
    *times, _ = draw(plan, fake(plan)).axes
    assert [one.get_title(loc="left") for one in times] == ["joint ε=1", "joint ε=4"]
    for one in times:
        coloured = [line for line in _curves(one) if line.get_color() not in ("#767676", "#000000")]
        assert len(coloured) == 3
        assert {_dashes(line) for line in coloured} == {"(0, ())"}


def test_single_epsilon_is_drawn_solid_without_price_panel() -> None:
    plan = Comparison(contexts=("ball",), epsilons=(1.0,))
    (time,) = draw(plan, fake(plan)).axes
    coloured = [line for line in _curves(time) if line.get_color() not in ("#767676", "#000000")]
    assert len(coloured) == 4
    assert {_dashes(line) for line in coloured} == {"(0, ())"}


def test_every_epsilon_has_dashes_of_its_own() -> None:
    epsilons = tuple(float(number) for number in range(1, 6))
    plan = Comparison(contexts=("ball",), trusts=("local",), epsilons=epsilons)
    time = draw(plan, fake(plan)).axes[0]
    coloured = [line for line in _curves(time) if line.get_color() == "#D55E00"]
    assert len(coloured) == len({_dashes(line) for line in coloured}) == 5


def test_every_line_without_protection_looks_different() -> None:
    """Beyond the patterns there is a second colour; all are dealt, and none is left out."""
    policies = (
        "linucb", "linucb-pairs", "online-linucb", "elimination", "glm", "glm-greedy", "glm-rare",
        "combiner", "sblb"
    )  # fmt: skip
    plan = Comparison(contexts=("ball",), trusts=("none",), policies=policies)
    axes = [one for one in draw(plan, fake(plan)).axes if one.get_xlabel() == "rounds"]
    looks = {(line.get_color(), _dashes(line)) for one in axes for line in _curves(one)}
    assert len(looks) == len(plan.cells())
    assert all(len(one.texts) <= MOST_NAMED for one in axes)


_FULL = [experiment.plan() for _, experiment in EXPERIMENTS.items()]


@pytest.mark.parametrize("plan", _FULL, ids=lambda plan: plan.name)
def test_panels_name_every_line_and_hold_no_more_than_they_can(plan: Plan) -> None:
    cells = fake(plan)
    world = [one for one in cells if one.cell.world == cells[0].cell.world]
    dealt = facets([Line(points=(one,)) for one in world])
    assert {one.player for facet in dealt for one in facet.lines} == {
        one.cell.player for one in world
    }
    for facet in dealt:
        assert len(facet.lines) == len(facet.names) <= MOST_NAMED
        assert len(set(facet.names)) == len(facet.names)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Comparison(), marks=pytest.mark.nightly),
        Comparison(contexts=("ball",), trusts=("joint",), epsilons=(1.0, 1.1, 1.2, 1.3, 1.4)),
        pytest.param(
            Comparison(contexts=("ball",), policies=("linucb-pairs", "linucb"), mode="theory"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(EXPERIMENTS["two-point"].plan(), marks=pytest.mark.nightly),
        EXPERIMENTS["dpe-privacy"].plan(quick=True),
    ],
    ids=lambda plan: plan.name,
)
def test_labels_titles_and_panels_do_not_overlap(plan: Plan) -> None:
    """Names, titles and axis labels lie in the picture, off the panels and off each other."""
    figure = draw(plan, fake(plan))
    figure.draw_without_rendering()
    boxes = [axes.get_window_extent() for axes in figure.axes]
    for axes in figure.axes:
        title = axes._left_title  # type: ignore[attr-defined]
        boxes += [text.get_window_extent() for text in (*axes.texts, axes.xaxis.label, title)]
    for one, other in itertools.combinations(boxes, 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        high = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(wide, high) < 0.5
    whole = figure.bbox.padded(0.5)
    assert all(whole.contains(*one.min) and whole.contains(*one.max) for one in boxes)


def test_ticks_do_not_run_into_each_other() -> None:
    figure = draw(MANY, fake(MANY))
    figure.draw_without_rendering()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        places = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        shown = [one for place, one in places if one.get_text() and low <= place <= high]
        boxes = [one.get_window_extent() for one in shown]
        assert len(boxes) >= 2
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_error_bars_have_no_caps_and_do_not_overlap() -> None:
    """Caps of error bars would look like the dash of the 95th percentile."""
    price = draw(MANY, fake(MANY)).axes[-1]
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
    figure = draw(plan, fake(plan))
    (time,) = figure.axes
    assert {text.get_color() for text in time.texts} == {"black"}
    sizes = {label.get_fontsize() for label in time.yaxis.get_ticklabels(which="both")}
    assert sizes == {6.5}
    assert figure.get_figwidth() == pytest.approx(7.2)
