"""Entries about locally private bandits: who plays, and what is said to be the paper's."""

from __future__ import annotations

from typing import Any

import pytest
from tools.catalogue_page import page

from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.papers.claims import Claim
from kerchief.policies.registry import paper_keys

NAMES = [name for name, entry in EXPERIMENTS.items() if "zheng2020" in paper_keys(entry.source)]


def claims_at(place: str) -> list[tuple[str, Claim]]:
    entries = [(name, EXPERIMENTS[name]) for name in NAMES]
    return [(name, one) for name, entry in entries for one in entry.claims if one.place == place]


def test_claims_of_the_paper_name_the_place_that_makes_them() -> None:
    """The paper has no experiment: its claims are rates, and how many users are asked."""
    places = {one.place for name in NAMES for one in EXPERIMENTS[name].of_paper}
    here = {"Table 1", "Theorem 6", "Theorem 12", "Corollary 4"}
    assert places == here


@pytest.mark.parametrize("place", ["Table 1", "Corollary 4"])
def test_claims_run_with_one_bit_state_it(place: str) -> None:
    """The paper adds normal noise to one loss; these rows send one bit in its place."""
    found = claims_at(place)
    assert found
    for name, claim in found:
        assert "one bit per user" in claim.sentence
        setting = EXPERIMENTS[name].settings[0]
        for player in {key.player for key in claim.needs}:
            protected: Any = player.build_protected(
                setting.environment.problem(1000), player.promise(1e-6, 1000)
            )
            noises = [one for sums in protected.privatizers.values() for one in sums.noises]
            assert {type(noise).__name__ for noise in noises} == {"OneBit"}


def test_theorem_6_is_judged_of_the_printed_steps() -> None:
    found = claims_at("Theorem 6")
    assert [name for name, _ in found] == ["convex-rates", "smooth-rates"]
    for _, claim in found:
        assert "as printed" in claim.sentence
        assert all(key.player.policy.endswith("@paper") for key in claim.needs)


def test_page_mentions_no_removed_implementation() -> None:
    """Such as an implementation that is gone: the page names what is played alone."""
    text = page().lower()
    assert not any(word in text for word in ("implementation", "earlier version", "previously"))
