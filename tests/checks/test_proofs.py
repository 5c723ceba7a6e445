"""Everything that protects has a proof note, and the page that lists them is up to date."""

from __future__ import annotations

from pathlib import Path

from tools.proofs_page import page

import kerchief
from kerchief.checks.proofs import proofs
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.policies import POLICIES

ROOT = Path(kerchief.__file__).parent
NOTHING_ASKED = {"single-arm", "uniform"}


def test_every_note_is_there_and_says_something() -> None:
    for proof in proofs():
        text = (ROOT / proof.note).read_text(encoding="utf-8")
        assert len(text) > 500, proof
        for word in ("claim", "not covered", "`"):
            assert word in text.lower(), (proof, word)


def test_all_that_is_registered_is_listed() -> None:
    listed = {(proof.kind, proof.name) for proof in proofs()}
    bandits = set(POLICIES) - NOTHING_ASKED
    assert {("policy", name) for name in bandits} <= listed
    assert {("mechanism", name) for name in MECHANISMS} <= listed


def test_statuses_are_honest() -> None:
    found = {proof.name: proof.status for proof in proofs() if proof.kind == "mechanism"}
    for name, entry in MECHANISMS.items():
        assert (found[name] == "idealized") == (entry.idealized and "bits" not in name)
    for proof in proofs():
        if proof.name.endswith("@paper"):
            assert proof.status == "for study"


def test_the_page_is_up_to_date() -> None:
    """`make pages` writes it."""
    docs = Path(__file__).parents[2] / "docs" / "proofs.md"
    assert docs.read_text(encoding="utf-8") == page()


def test_equal_statistics_of_two_policies_have_two_notes() -> None:
    """A vector in the unit ball is asked for by phases and by K questions, for reasons of each."""
    notes = {one.name: one.note.as_posix() for one in proofs() if one.kind == "policy"}
    assert notes["k-point"] == "policies/context_free/k_point.md"
    assert notes["dpe"] == "policies/phased/elimination.md"
