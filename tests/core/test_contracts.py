"""Public facts are checked when they are stated."""

from __future__ import annotations

from typing import Any

import pytest

from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import Problem

FACTS: dict[str, Any] = {
    "dim": 2,
    "arms": 3,
    "norm": 1.0,
    "radius": 1.0,
    "low": 0.0,
    "high": 1.0,
    "horizon": 10,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dim", 0),
        ("arms", 2.5),
        ("norm", 0.0),
        ("norm", float("inf")),
        ("radius", float("nan")),
        ("radius", -1.0),
        ("low", float("-inf")),
        ("high", -1.0),
        ("high", 1e200),
        ("horizon", 0),
        ("horizon", 2**31),
        ("constant", float("nan")),
    ],
)
def test_facts_out_of_bounds_are_refused(name: str, value: float) -> None:
    Problem(**FACTS)
    with pytest.raises(InvalidValueError, match=name):
        Problem(**(FACTS | {name: value}))
