"""The benchmark times what it says, on one core."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
from tools.baseline import play_numpy
from tools.benchmark import bench, one_core
from tools.interactive import interactive_timer

from kerchief.core.errors import InvalidValueError
from kerchief.environments import make_environment
from kerchief.privacy.guarantee import Guarantee, Trust
from tools import benchmark as module


def test_the_yardstick_is_linucb() -> None:
    generator = np.random.default_rng(1)
    features = generator.normal(size=(2000, 5, 3)) / 2
    truth = np.array([0.5, -0.3, 0.2])
    rewards = features @ truth + 0.1 * generator.normal(size=(2000, 5))
    np.testing.assert_allclose(play_numpy(features, rewards), truth, atol=0.02)


@pytest.mark.nightly
def test_every_case_is_timed_beside_the_yardstick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DECISIONS", 60)
    monkeypatch.setattr(module, "_PLAYERS", (("uniform", "none"), ("linucb", "central")))
    monkeypatch.setattr(module, "interactive_timer", lambda *facts: lambda: 7.0)
    shares: list[float] = []
    result = bench(arms=(4,), replicates=(2,), repeats=2, watch=lambda _, s: shares.append(s))
    answer = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert answer["yardstick_microseconds"] > 0
    assert [(row["policy"], row["trust"]) for row in answer["rows"]] == list(module._PLAYERS)
    for row in answer["rows"]:
        assert (row["arms"], row["replicates"]) == (4, 2)
        assert row["ratio"] == pytest.approx(row["microseconds"] / answer["yardsticks"]["4"])
    interactive = answer["interactive"]
    timed = [(row["trust"], row["noise"]) for row in interactive["rows"]]
    assert timed[0] == ("none", "exact")
    assert ("local", "exact") in timed
    assert interactive["microseconds"] == interactive["rows"][0]["microseconds"] == 7.0
    assert shares[-1] == 1.0


def test_interactive_use_is_timed() -> None:
    problem = make_environment(dim=2, arms=3).problem(100)
    free = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    timer = interactive_timer("linucb", problem, free)
    assert 0 < timer() < 1e5


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="replicates is 0"):
        bench(replicates=(0,))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot pin")
def test_one_core_is_used_and_given_back() -> None:
    before = os.sched_getaffinity(0)
    with one_core() as core:
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
