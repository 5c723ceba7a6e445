"""`kerchief check`: a bandit of ours, a bandit of one's own, and what a program reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tests.plugins import fresh_registries

from kerchief.mechanisms.registry import MECHANISMS

Call = Callable[..., Result]

SKELETON = Path(__file__).parents[2] / "docs" / "skeleton_policy.py"


def test_a_registered_bandit_is_held_to_the_laws(call: Call) -> None:
    result = call("check", "tsallis", "--trust", "local", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["kept"] is True
    assert {law["subject"] for law in found["laws"]} == {"tsallis under local"}
    assert {"law", "result", "seconds", "seen", "expected"} < set(found["laws"][0])


def test_check_exits_with_one_when_custom_policy_fails(call: Call, tmp_path: Path) -> None:
    """A copy of the skeleton that trusts its users with the length of their features."""
    text = SKELETON.read_text()
    trusting = text.replace("clip_features(record.features, self.norm)", "finite(record.features)")
    assert trusting != text
    (tmp_path / "trusting.py").write_text(trusting)
    with fresh_registries():
        result = call("check", "trusting:AlongTheMean", "--trust", "none")
    assert result.exit_code == 1, result.output
    assert "clipping holds beyond the domain; seen:" in result.stdout


def test_check_rejects_unknown_subject(call: Call) -> None:
    for name, word in (
        ("nobody", "no bandit, world, noise or trust is called"),
        ("nowhere:Nothing", "module:Class"),
    ):
        result = call("check", name)
        assert result.exit_code == 2
        assert word in result.stderr


def test_check_rejects_mechanism_without_specimen(call: Call) -> None:
    with fresh_registries():
        MECHANISMS.add("half", MECHANISMS["gaussian"])
        result = call("check", "half")
    assert result.exit_code == 2
    assert "'half' is a noise without a specimen" in result.stderr


def test_check_rejects_trust_model_that_subject_lacks(call: Call) -> None:
    """No law is broken by a word that is misspelt."""
    for name, trust in (("linucb", "bogus"), ("dpe", "joint"), ("joint", "local")):
        result = call("check", name, "--trust", trust)
        assert result.exit_code == 2, result.output
        assert f"trust is '{trust}'; choose one of" in result.stderr
    assert "only bandits have one" in call("check", "linear", "--trust", "local").stderr


def test_a_class_of_worlds_is_not_taken_for_a_ledger(call: Call) -> None:
    result = call("check", "kerchief.environments:Population")
    assert result.exit_code == 2, result.output
    assert "give a world that is built" in result.stderr


@pytest.mark.parametrize("name", [*MECHANISMS])
def test_a_registered_noise_is_held_to_the_laws(call: Call, name: str) -> None:
    """By its draws too, where it is added to one vector."""
    result = call("check", name, "--thorough", "--json")
    assert result.exit_code == 0, result.output
    kept = [law["law"] for law in json.loads(result.stdout)["laws"] if law["result"] == "kept"]
    assert kept[:2] == ["frozen and keyword only", "its event is priced"]
    alone = MECHANISMS[name].factor is None and name.split("-")[-1] not in ("bits", "coins")
    assert ("draws are fresh" in kept) == (alone and name != "binomial")


NOISE = """
from kerchief.core.struct import struct
from kerchief.mechanisms.gaussian import Gaussian


@struct
class Own(Gaussian):
    @classmethod
    def of(cls, *, noise_multiplier, FACTS):
        return cls(std=noise_multiplier * sensitivity, sensitivity=sensitivity)

    def add(self, vector, stream):
        return vector + SHARE * (Gaussian.add(self, vector, stream) - vector)
"""


def test_check_tests_custom_mechanism(call: Call, tmp_path: Path) -> None:
    """Built from what its `of` asks for; one that asks for more is refused in one line."""
    for module, facts, share in (
        ("sound_noise", "sensitivity", "1"),
        ("weak_noise", "sensitivity", "0.5"),
        ("asking_noise", "sensitivity, colour", "1"),
    ):
        text = NOISE.replace("FACTS", facts).replace("SHARE", share)
        (tmp_path / f"{module}.py").write_text(text)
    result = call("check", "sound_noise:Own", "--thorough")
    assert result.exit_code == 0, result.output
    assert "the noise Own" in result.stdout
    broken = call("check", "weak_noise:Own", "--thorough")
    assert broken.exit_code == 1, broken.output
    assert "draws have the stated deviation; seen:" in broken.stdout
    refused = call("check", "asking_noise:Own")
    assert refused.exit_code == 2, refused.output
    assert "Own needs 'colour'" in refused.stderr
    assert call("check", "kerchief.mechanisms.gaussian:Gaussian").exit_code == 0
