"""A comparison is checked whole before anything runs, and plays what it must."""

from __future__ import annotations

import dataclasses
import math
import shlex
from typing import Any

import pytest

from kerchief.core.errors import KerchiefError
from kerchief.experiments.declare import Comparison
from kerchief.experiments.plan import player
from kerchief.experiments.runner import width


def test_yardsticks_and_parents_always_play_along() -> None:
    comparison = Comparison(contexts=("ball", "fixed"), policies=("linucb",), epsilons=(0.5, 2.0))
    for contexts in comparison.contexts:
        cells = [cell for cell in comparison.cells() if cell.contexts == contexts]
        plain = [cell.policy for cell in cells if cell.asked is None]
        assert plain == ["uniform", "greedy", "linucb"]
        assert {cell.trust for cell in cells if cell.asked} == {
            "local",
            "shuffle",
            "joint",
            "central",
        }
        assert len(cells) == 3 + 4 * 2


def test_no_cell_plays_twice() -> None:
    comparison = Comparison(
        contexts=("ball", "ball"),
        policies=("greedy", "linucb", "uniform"),
        trusts=("none", "none"),
        epsilons=(1.0, 1.0),
    )
    assert [cell.policy for cell in comparison.cells()] == ["uniform", "greedy", "linucb"]


def test_continual_noise_is_for_joint_trust() -> None:
    plain, chosen = Comparison().cells(), Comparison(continual="doubling").cells()
    for one, other in zip(plain, chosen, strict=True):
        assert (one == other) == (one.trust != "joint")
        assert other.label() == one.label().replace("joint", "joint, doubling")
    with pytest.raises(KerchiefError, match="no continual noise is called 'x'"):
        player("linucb", trust="joint", epsilon=1.0, mechanism="x")


def test_without_protection_nothing_is_asked() -> None:
    cell = Comparison(trusts=("none",)).cells()[0]
    assert cell.asked is None
    assert math.isinf(cell.guarantee.epsilon)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"link": "linar"}, "did you mean 'linear'"),
        ({"contexts": ("bal",)}, "did you mean 'ball'"),
        ({"contexts": ()}, "contexts is empty"),
        ({"policies": ("linucp",)}, "did you mean 'linucb'"),
        ({"policies": ("linucb@book",)}, "no policy is called 'linucb@book'"),
        ({"trusts": ("locl",)}, "did you mean 'local'"),
        (
            {"policies": ("glm-rare",), "trusts": ("local",), "link": "probit"},
            "'glm-rare' supports none, joint",
        ),
        ({"policies": ("uniform",), "trusts": ("local",)}, "'uniform' supports none"),
        ({"continual": "dubling"}, "did you mean 'doubling'"),
        ({"continual": "toeplitz", "horizon": 20_001}, "at most 20000"),
        ({"noise": "gausian"}, "did you mean 'gaussian'"),
        ({"mode": "tunned"}, "did you mean 'tuned'"),
        ({"epsilons": (0.0,)}, "epsilon is 0.0; it must be above 0"),
        ({"epsilons": (math.nan,)}, "epsilon is nan"),
        ({"epsilons": (math.inf,)}, "epsilon is inf"),
        ({"delta": 0.0}, "delta is 0.0; it must lie in (0.0, 1.0)"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"horizon": -1}, "horizon is -1; it must be at least 1"),
        ({"horizon": 2**31}, "it must be at least 1 and at most 10000000"),
        (
            {"horizon": 2**31, "trusts": ("local",)},
            "it must be at least 1 and at most 2147483647",
        ),
        ({"replicates": 0}, "replicates is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"dim": 1, "contexts": ("intercept",)}, "dim is 1; it must be at least 2"),
        ({"arms": 0}, "arms is 0"),
        ({"arms": 10**9}, "arms is 1000000000"),
        ({"fewest": 30}, "fewest arms is 30"),
        ({"radius": math.nan}, "radius is nan"),
    ],
)
def test_bad_values_are_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(KerchiefError) as caught:
        Comparison(**change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_large_delta_is_allowed_with_a_warning() -> None:
    assert Comparison(horizon=1000, delta=1e-4).warnings() == ()
    (warning,) = Comparison(horizon=1000, delta=1e-3).warnings()
    assert "1/horizon = 0.001" in warning
    assert Comparison(horizon=1000, delta=0.5, trusts=("none",)).warnings() == ()


def test_the_command_names_every_parameter() -> None:
    comparison = Comparison(contexts=("starved",), epsilons=(0.1, 3.0), fewest=2, seed=7)
    words = shlex.split(comparison.command())
    flags = [word for word in words if word.startswith("--")]
    assert set(flags) == {f"--{name.replace('_', '-')}" for name in comparison.parameters()}
    assert len(dataclasses.fields(comparison)) == len(comparison.parameters())
    assert words.count("--epsilon") == 2


def test_long_histories_play_in_smaller_chunks() -> None:
    """A million rows of six numbers, for each of a thousand replicates, would not fit."""
    long = Comparison(
        link="probit",
        contexts=("ball",),
        policies=("glm-rare",),
        trusts=("joint",),
        epsilons=(1.0,),
        horizon=1_000_000,
        replicates=1000,
    )
    assert width(long) == 2**28 // (1_000_000 * 6)
    assert width(dataclasses.replace(long, policies=("glm",))) == 1000
