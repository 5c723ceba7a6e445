"""`kerchief audit`: one name, everything, refusals, and what a program reads."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from kerchief.audits import Subject, find
from kerchief.cli import audit as command

Call = Callable[..., Result]


def test_a_mechanism_is_audited(call: Call) -> None:
    """The words of the JSON, and a bound that is above zero and at most the claim."""
    result = call("audit", "one-bit", "--epsilon", 2, "--replicates", 2000, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["name"] == "one-bit"
    assert found["epsilon_claimed"] == 2.0
    assert found["trust"] == "local"
    assert 1.0 < found["epsilon_lower"] <= 2.0


def test_a_bandit_is_audited_and_drawn(call: Call, tmp_path: Path) -> None:
    """A bandit without contexts, by its kind, with the picture."""
    pytest.importorskip("matplotlib")
    words = ("--kind", "context-free", "--epsilon", 2, "--replicates", 1000, "--out", "seen")
    result = call("audit", "greedy", *words)
    assert result.exit_code == 0, result.output
    assert "an audit is an alarm, not a proof" in result.stdout
    assert (tmp_path / "seen" / "audit.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("json_too", [True, False])
def test_everything_is_audited(call: Call, monkeypatch: pytest.MonkeyPatch, json_too: bool) -> None:
    """A line each, with its kind."""

    def few() -> Iterator[Subject]:
        return iter([find("laplace"), find("one-bit")])

    monkeypatch.setattr(command, "entries", few)
    result = call("audit", "--all", "--replicates", 2000, *["--json"][: int(json_too)])
    assert result.exit_code == 0, result.output
    if json_too:
        lines = json.loads(result.stdout)["audits"]
        assert [(line["kind"], line["name"]) for line in lines] == [
            ("mechanism", "laplace"),
            ("mechanism", "one-bit"),
        ]
        assert all(line["failure"] == 1e-3 for line in lines)
    else:
        assert "one-bit" in result.stdout
        assert "confidence 0.999" in result.stdout


def test_audit_fails_with_warning_when_claim_is_false(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status and a warning."""
    honest = Subject.audit

    def boast(self: Subject, *, epsilon: float, **rest: object) -> object:
        found = honest(self, epsilon=4.0, **rest)  # type: ignore[arg-type]
        return dataclasses.replace(found, claim=dataclasses.replace(found.claim, epsilon=epsilon))

    monkeypatch.setattr(Subject, "audit", boast)
    result = call("audit", "one-bit", "--epsilon", 1, "--replicates", 2000)
    assert result.exit_code == 1
    assert "the claim is false" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name one bandit or mechanism, or say --all"),
        (("linucb", "--all"), "name one bandit or mechanism, or say --all"),
        (("--all", "--trust", "local"), "say no trust, kind, canaries, folder or force"),
        (("--all", "--force"), "say no trust, kind, canaries, folder or force"),
        (("one-bit", "--force"), "give --out FOLDER too, or leave --force out"),
        (("glm-rare", "--canaries", "100", "--force"), "without a picture; say no other trust"),
        (("gloc",), "claims something under no trust"),
        (("linucb", "--trust", "nobody"), "claims something under local, shuffle"),
        (("laplace", "--kind", "plain"), "no policy without contexts is called 'laplace'"),
        (("laplace", "--replicates", "0"), "runs is 0"),
        (("laplace", "--seed", "4294967295"), "seed is 4294967295"),
        (("glm-rare", "--canaries", "100", "--trust", "local"), "without a picture"),
    ],
)
def test_nonsense_is_refused(call: Call, words: tuple[str, ...], said: str) -> None:
    """By our own errors, with the remedy."""
    result = call("audit", *words)
    assert result.exit_code != 0
    assert said in " ".join(result.stderr.split())


def test_audit_rejects_out_without_matplotlib_before_any_run(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(Subject, "audit", lambda *told, **options: pytest.fail("it was played"))
    result = call("audit", "one-bit", "--out", "seen", "--json")
    assert result.exit_code == 2, result.output
    assert result.stderr.rstrip().endswith(", or leave --out away")


def test_audit_replaces_earlier_picture_only_with_force(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before anything is played."""
    pytest.importorskip("matplotlib")
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "audit.png").write_text("an earlier one")
    words = ("audit", "one-bit", "--epsilon", 2, "--replicates", 1000, "--out", "seen")
    with monkeypatch.context() as patched:
        patched.setattr(Subject, "audit", lambda *told, **options: pytest.fail("it was played"))
        refused = call(*words)
    assert refused.exit_code == 2
    assert "holds an earlier audit (audit.png)" in refused.stderr
    assert "replace it with --force" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert (tmp_path / "seen" / "audit.png").read_text() == "an earlier one"
    assert call(*words, "--force").exit_code == 0
    assert (tmp_path / "seen" / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_audit_rejects_folder_at_picture_path_before_any_run(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be replaced, so --force is no remedy."""
    pytest.importorskip("matplotlib")
    (tmp_path / "seen" / "audit.png").mkdir(parents=True)
    monkeypatch.setattr(Subject, "audit", lambda *told, **options: pytest.fail("it was played"))
    for force in ((), ("--force",)):
        refused = call("audit", "one-bit", "--out", "seen", *force)
        assert refused.exit_code == 2
        assert "is a folder, and a file would stand there" in refused.stderr


def test_audit_prints_result_when_concurrent_picture_exists(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that picture is left as it is."""
    pytest.importorskip("matplotlib")
    honest = Subject.audit

    def meanwhile(self: Subject, **asked: object) -> object:
        (tmp_path / "seen" / "audit.png").write_text("another one")
        return honest(self, **asked)  # type: ignore[arg-type]

    monkeypatch.setattr(Subject, "audit", meanwhile)
    result = call("audit", "one-bit", "--replicates", 1000, "--out", "seen")
    assert result.exit_code == 3
    assert "another audit was written" in result.stderr
    assert "epsilon is at least" in result.stdout
    assert (tmp_path / "seen" / "audit.png").read_text() == "another one"
