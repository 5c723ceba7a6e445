"""`kerchief check`: a bandit of ours, a bandit of one's own, and what a program reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result
from tests.plugins import fresh_registries

Call = Callable[..., Result]

SKELETON = Path(__file__).parents[2] / "docs" / "skeleton_policy.py"


def test_a_registered_bandit_is_held_to_the_laws(call: Call) -> None:
    result = call("check", "tsallis", "--trust", "local", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["kept"] is True
    assert {law["subject"] for law in found["laws"]} == {"tsallis under local"}
    assert {"law", "result", "seconds", "seen", "expected"} < set(found["laws"][0])


def test_a_bandit_of_ones_own_that_breaks_a_law_leaves_with_one(call: Call, tmp_path: Path) -> None:
    """A copy of the skeleton that trusts its users with the length of their features."""
    text = SKELETON.read_text()
    trusting = text.replace("clip_features(record.features, self.norm)", "finite(record.features)")
    assert trusting != text
    (tmp_path / "trusting.py").write_text(trusting)
    with fresh_registries():
        result = call("check", "trusting:AlongTheMean", "--trust", "none")
    assert result.exit_code == 1, result.output
    assert "clipping holds beyond the domain; seen:" in result.stdout


def test_what_is_not_there_is_refused_in_one_line(call: Call) -> None:
    for name, word in (("nobody", "no policy is called"), ("nowhere:Nothing", "module:Class")):
        result = call("check", name)
        assert result.exit_code == 2
        assert word in result.stderr


def test_a_trust_that_the_subject_does_not_have_is_refused_in_one_line(call: Call) -> None:
    """No law is broken by a word that is misspelt."""
    for name, trust in (("linucb", "bogus"), ("dpe", "joint"), ("joint", "local")):
        result = call("check", name, "--trust", trust)
        assert result.exit_code == 2, result.output
        assert f"trust is '{trust}'; choose one of" in result.stderr
    assert "only bandits have one" in call("check", "linear", "--trust", "local").stderr


def test_a_class_of_worlds_or_noises_is_not_taken_for_a_ledger(call: Call) -> None:
    for name in ("kerchief.mechanisms.gaussian:Gaussian", "kerchief.environments:Population"):
        result = call("check", name)
        assert result.exit_code == 2, result.output
        assert "give a world or a noise that is built" in result.stderr
