"""Intervals, crossings and verdicts, on numbers worked out by hand and on laws that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerchief.core.errors import InvalidValueError
from kerchief.planning.forecast import (
    average,
    epsilon_needed,
    predict_interval,
    users_needed,
    verdict,
)


@pytest.mark.parametrize("count", [3, 6, 12, 19, 40])
@pytest.mark.parametrize("law", ["normal", "uniform", "exponential", "two points"])
def test_a_new_world_lies_where_it_was_predicted(count: int, law: str) -> None:
    random = np.random.default_rng(count)
    draw: Any = {
        "normal": random.normal,
        "uniform": random.uniform,
        "exponential": random.exponential,
        "two points": lambda size: random.integers(0, 2, size).astype(float),
    }[law]
    worlds = np.asarray(draw(size=(2000, count + 1)))
    held = [predict_interval(row[:-1]).covers(row[-1]) for row in worlds]
    # 90 % but for the error of 2000 draws; three that are alike cannot know of another.
    assert np.mean(held) > (0.87 if count > 3 else 0.84)


def test_intervals_are_not_idly_wide() -> None:
    random = np.random.default_rng(0)
    widths = [predict_interval(random.normal(size=12)) for _ in range(500)]
    held = [one.covers(value) for one in widths for value in random.normal(size=20)]
    assert np.mean(held) < 0.97
    assert predict_interval([0.5] * 30).text() == "0.5 (0.5 to 0.5)"


def test_the_mean_lies_closer_than_a_world() -> None:
    values = np.arange(10.0)
    mean, world = average(values), predict_interval(values)
    assert world.low < mean.low < mean.mean == 4.5 < mean.high < world.high


@pytest.mark.parametrize("values", [[], [1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_too_few_or_broken_values_are_refused(values: list[float]) -> None:
    with pytest.raises(InvalidValueError, match="2 or more finite"):
        predict_interval(values)


def test_users_needed_is_where_gain_turns_positive_for_good() -> None:
    rounds = [10, 20, 30, 40]
    assert users_needed(rounds, [-1.0, 1.0, -1.0, 1.0]).value == 35.0
    first = users_needed(rounds, [1.0, 2.0, 3.0, 4.0])
    assert first.value == 10.0
    assert first.bound
    never = users_needed(rounds, [-1.0, -2.0, -3.0, -4.0])
    assert (never.value, never.most, never.guess) == (None, 40.0, None)


def test_extrapolated_users_stay_within_ten_times_the_run() -> None:
    rounds = list(range(10, 110, 10))
    slow = [-50.0] * 9 + [-49.9]
    assert users_needed(rounds, slow).guess is None
    fast = [-50.0] * 8 + [-45.0, -40.0]
    assert users_needed(rounds, fast).guess == pytest.approx(180.0)


def test_epsilon_is_found_between_those_that_were_played() -> None:
    found = epsilon_needed({0.25: -2.0, 1.0: -1.0, 4.0: 1.0})
    assert found.value == pytest.approx(2.0)
    assert not found.bound
    enough = epsilon_needed({0.25: 0.1, 1.0: 1.0})
    assert enough.value == 0.25
    assert enough.bound
    none = epsilon_needed({1.0: -1.0, 4.0: -0.2})
    assert (none.value, none.most) == (None, 4.0)


def test_more_epsilon_never_counts_as_worse() -> None:
    # The dip at 4 is noise: together with 1 it is above 0.
    assert epsilon_needed({0.25: -1.0, 1.0: 0.5, 4.0: -0.1, 16.0: 1.0}).value == pytest.approx(
        np.exp(np.log(0.25) + np.log(4) * 1.0 / 1.2)
    )


def test_only_a_gain_that_is_sure_speaks_for_learning() -> None:
    assert verdict([0.02, 0.03, 0.025, 0.02]) == "personalise"
    assert verdict([0.3, -0.2, 0.1, 0.05]) == "undecided"
    assert verdict([0.0, 0.0, 0.0]) == "one arm"
    assert verdict([0.1, -0.5, -0.2]) == "one arm"
