"""Numbers of a bandit that are replaced: which there are, and how far each may go."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from kerchief.checks.policy_fixture import small_home
from kerchief.comparison.players import player
from kerchief.core.errors import InvalidValueError
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.policies import POLICIES, Mode
from kerchief.privacy import Guarantee, Trust
from kerchief.privatizers import Protection

OPEN = Protection(guarantee=Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE))
NAMES = [name for name in POLICIES if name != "best"]


PRINTED = [(name, trust) for name in NAMES for trust in POLICIES[name].noises]


@pytest.mark.parametrize(("name", "trust"), PRINTED)
def test_guarantee_without_mechanism_uses_that_of_the_policy(name: str, trust: str) -> None:
    """The one that its entry names, which a table's row and an audit play; `best` is another."""
    problem = small_home(POLICIES[name].default_environment or "linear").problem(400)
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust))
    made, own, row = (
        list(arranged.privatizers.values())
        for arranged in (
            build_protected(name, problem, Protection(guarantee=promise)),
            build_protected(
                name, problem, Protection(guarantee=promise, mechanism=POLICIES[name].noises[trust])
            ),
            player(name, trust=trust, epsilon=1.0).build_protected(
                problem, player(name, trust=trust, epsilon=1.0).promise(1e-5, 400)
            ),
        )
    )
    drawn = [
        [(type(noise), np.asarray(noise.std).tolist()) for one in way for noise in one.noises]
        for way in (made, own, row)
    ]
    assert drawn[0]
    assert drawn[0] == drawn[1] == drawn[2]


def with_number(policy: str, number: str, value: float) -> Any:
    world = small_home(POLICIES[policy].default_environment or "linear")
    return build_protected(policy, world.problem(400), OPEN, numbers={number: value}).policy


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_bound(name: str) -> None:
    """What is no number at all, such as a channel or a learner, is not among them."""
    world = small_home(POLICIES[name].default_environment or "linear")
    made: Any = build_protected(name, world.problem(400), OPEN).policy
    for field in dataclasses.fields(made):
        if not field.metadata.get("static") or field.metadata.get("number"):
            wrong = f"{field.name} is 1e[+]30; it must|parameter is '{field.name}'"
            with pytest.raises(InvalidValueError, match=wrong):
                with_number(name, field.name, 1e30)


@pytest.mark.parametrize(
    ("policy", "number", "within", "beyond", "bound"),
    [
        ("glm-batched", "learned", 1.0, 2.0, r"\[0\.0, 1\.0\]"),
        ("one-point", "radius", 1.0, 50.0, r"\[1e-12, 1\.0\]"),
        ("one-point", "radius", 0.5, 0.0, r"\[1e-12, 1\.0\]"),
        ("one-point-smooth", "radius", 1.0, 1.5, r"\[1e-12, 1\.0\]"),
        ("two-point", "radius", 0.5, 1.5, r"\[1e-12, 1\.0\]"),
        ("two-point", "firmness", 0.5, 0.0, "1e-12"),
        ("two-point-strong@paper", "firmness", 0.0, 1e10, "1000000000"),
        ("k-point", "radius", 0.5, 1.5, r"\[1e-12, 1\.0\]"),
        ("lil-ucb", "delta", 0.5, 1.0, r"\(0\.0, 1\.0\)"),
        ("lil-ucb", "slack", 1.5, 0.5, r"\[1\.0, "),
        ("linucb", "confidence", 0.5, 0.0, r"\(0\.0, 1\.0\)"),
        ("linucb", "regularizer", 0.5, 0.0, "1e-12"),
        ("linucb", "exploration", 0.0, 1e10, r"\[0\.0, "),
        ("ecolog", "chance", 0.5, 2.0, r"\(0\.0, 1\.0\)"),
        ("ecolog", "ridge", 0.5, 0.0, "1e-12"),
        ("online-linucb", "ridge", 0.0, 1e10, r"\[0\.0, "),
        ("gloc", "flattest", 0.5, 0.0, "1e-12"),
        ("glm-greedy", "pull", 0.5, 0.0, "1e-12"),
        ("sblb", "local", 2.0, 0.0, "1e-12"),
        ("dpe", "growth", 0.5, 3.0, r"\[0\.0, 2\.0\]"),
        ("dpe-fixed-u", "clients", 20.0, 2.5, "round it"),
    ],
)
def test_a_number_beyond_its_bound_is_refused(
    policy: str, number: str, within: float, beyond: float, bound: str
) -> None:
    assert getattr(with_number(policy, number, within), number) == within
    with pytest.raises(InvalidValueError, match=f"{number} is .*{bound}"):
        with_number(policy, number, beyond)


def test_theory_widths_get_the_noise_of_their_proof() -> None:
    """The tuned defaults, Laplace noise or PrivUnit, have other tails."""
    facts = make_environment(dim=2).problem(1000)
    for trust, tuned in ((Trust.CENTRAL, Laplace), (Trust.LOCAL, PrivUnitG)):
        promise = Guarantee(epsilon=1.0, delta=1e-6, trust=trust, rounds=1000)
        modes: tuple[tuple[Mode, type], ...] = (("tuned", tuned), ("theory", Gaussian))
        for mode, noise in modes:
            made = build_protected("linucb", facts, Protection(guarantee=promise), mode=mode)
            assert type(made.privatizers["moments"].noises[0]) is noise
        pure = Guarantee(epsilon=1.0, delta=0.0, trust=trust, rounds=1000)
        made = build_protected("linucb", facts, Protection(guarantee=pure), mode="theory")
        assert type(made.privatizers["moments"].noises[0]) is tuned


def test_parameters_that_others_depend_on_are_applied_first() -> None:
    """λ_min of a paper's Algorithm 1: without it, arms get more noise, and the set is wider."""
    facts = make_environment(dim=2).problem(1000)
    promise = Guarantee(epsilon=10.0, delta=1e-5, trust=Trust.LOCAL, rounds=1000)

    def made(**numbers: float) -> Any:
        guard = Protection(guarantee=promise)
        return build_protected(
            "online-linucb@paper", facts, guard, mode="theory", numbers=numbers
        ).policy

    assert made().ridge == 0.0
    assert made(least=0.0).ridge == 1000**-0.25
    assert made(least=0.0, power=0.5).ridge == 1000**-0.5
    assert made(least=0.0).square > made().square
    assert made(least=0.0, exploration=0.5).exploration == 0.5
    with pytest.raises(InvalidValueError, match=r"least is -1.0; it must lie in \[0.0"):
        made(least=-1.0)
    with pytest.raises(InvalidValueError, match=r"parameter is 'most'; PrintedLinUCB has .*least"):
        made(most=1.0)
