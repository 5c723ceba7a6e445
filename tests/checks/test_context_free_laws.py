"""Bandits without contexts keep the laws: one or two of them by day, all others by night."""

from __future__ import annotations

import itertools

import pytest

from kerchief.checks import (
    CheckFailed,
    Law,
    PlainCase,
    check_context_free,
    plain_cases,
    yield_plain_checks,
)
from kerchief.checks.context_free_fixture import HORIZON, walk
from kerchief.checks.reports import noise_is_what_was_charged

LAWS = dict(yield_plain_checks())
# By day one bandit on arms is held to all laws but these, and one on a disc to two.
_SLOW = ("without noise it is the parent", "one replicate is a slice of many")
_BOTH = ("noise is what was charged", "losses are clipped")


def _daily(case: PlainCase, law: str) -> bool:
    if str(case) == "tsallis under local with one-bit":
        return law not in _SLOW
    return str(case) == "two-point under local with one-bit" and law in _BOTH


@pytest.mark.parametrize(
    ("case", "law"),
    [
        pytest.param(
            case,
            law,
            id=f"{case}-{name}".replace(" ", "_"),
            marks=() if _daily(case, name) else pytest.mark.nightly,
        )
        for case, (name, law) in itertools.product(plain_cases(), LAWS.items())
    ],
)
def test_users_are_treated_by_the_laws(case: PlainCase, law: Law[PlainCase]) -> None:
    law(case)


def test_every_bandit_trust_and_randomizer_is_held_to_the_laws() -> None:
    cases = list(plain_cases())
    assert {case.name for case in cases} == set(CONTEXT_FREE)
    words = {(case.name, case.randomizer) for case in cases if case.trust == "local"}
    assert {("ucb", "one-bit"), ("ucb", "gaussian"), ("ucb", "laplace")} <= words
    # Reports without bounds are refused by some.
    assert ("tsallis", "gaussian") not in words
    assert {name for name, entry in CONTEXT_FREE.items() if "local" in entry.trusts} == {
        name for name, word in words if word == "one-bit"
    }


@pytest.mark.nightly
def test_some_replicates_stop_in_the_walks() -> None:
    """Else the law about stopping would look at nothing."""
    (case,) = (c for c in plain_cases() if str(c) == "halving under local with one-bit")
    asked = walk(case)[-1].asked
    assert (asked < HORIZON).all()


@pytest.mark.nightly
def test_all_laws_at_once() -> None:
    check_context_free("ucb", "local")
    with pytest.raises(CheckFailed, match="it holds, though"):
        check_context_free("ucb", "none", expected_failures={"losses are clipped": "nothing"})
    noise_is_what_was_charged(
        PlainCase.of("ucb", CONTEXT_FREE["ucb"], "local", randomizer="laplace")
    )
