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
    figure.canvas.draw()
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
