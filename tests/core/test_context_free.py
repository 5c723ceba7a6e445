"""Games: what is refused, and what a domain adds."""

from __future__ import annotations

from typing import Any

import pytest

from kerchief.core.convex import Ball
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem

FACTS: dict[str, Any] = {"horizon": 10, "low": -1.0, "high": 2.0, "arms": 3}


def test_a_game_has_arms_or_a_domain() -> None:
    assert ContextFreeProblem(**FACTS).dim == 0
    assert ContextFreeProblem(**FACTS).width == 3.0
    on_ball = ContextFreeProblem(
        **FACTS | {"arms": 0}, domain=Ball(dim=4, radius=1.0), lipschitz=1.0
    )
    assert on_ball.dim == 4


@pytest.mark.parametrize(
    "change",
    [
        {"arms": 0},
        {"domain": Ball(dim=2, radius=1.0), "lipschitz": 1.0},
        {"arms": 0, "domain": Ball(dim=2, radius=1.0)},
        {"high": -1.0},
        {"horizon": 0},
        {"low": float("nan")},
        {"smoothness": -1.0},
        {"convexity": -1.0},
    ],
)
def test_other_games_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        ContextFreeProblem(**FACTS | change)
