"""`python -m tools.tune` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Called
from tests.comparison.fakes import fake_play
from tools.tune import tune
from tools.tuning import halving
from tools.tuning.recorded import SEARCHES

from kerchief.comparison.runner import RunState
from kerchief.policies import tuned

Call = Callable[..., Called]

OWN = """
policy = "ucb"
seeds = [11000, 12000]
space = { width = [0.5, 1.0, 2.0] }
incumbent = { width = 1.0 }
budget = { candidates = [2], replicates = [2], confirm = 4 }

[[worlds]]
name = "coins"
env = "chance"
options = { arms = 3 }
horizon = 40
delta = 1e-5
trusts = ["local"]
epsilons = [2.0]
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(tune, [str(word) for word in words])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


def test_recorded_searches_are_listed_and_checked(call: Call) -> None:
    result = call()
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in SEARCHES)
    assert max(map(len, result.stdout.splitlines())) <= 80
    lines = json.loads(call("--json").stdout)["searches"]
    assert [one["name"] for one in lines] == list(SEARCHES)
    assert all(one["played"] == [one["chosen"]] for one in lines)
    checked = call("--check")
    assert checked.exit_code == 0
    assert checked.stdout.count("the code plays what was found") == len(SEARCHES)


def test_tune_check_fails_when_default_differs_from_outcome(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tuned.TUNED, "ucb", {"width": 3.0})
    result = call("ucb", "--check")
    assert result.exit_code == 1
    assert "the bandit plays {'width': 3.0}" in result.stdout


def test_tune_runs_and_stores_custom_search(call: Call, own: Path) -> None:
    result = call(own, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["file"] == "results/tune/own.json"
    assert document["chosen"]["width"] in (0.5, 1.0, 2.0)
    stored = json.loads(Path(document.pop("file")).read_text())
    assert stored == document
    again = call(own)
    assert again.exit_code == 0, again.output
    assert "kerchief compare --policy ucb --param width=" in again.stdout
    assert json.loads(Path("results/tune/own.json").read_text()) == stored
    other = call(own, "--budget", 1)
    assert other.exit_code == 2
    assert "holds the outcome of another search" in other.stderr
    forced = call(own, "--budget", 1, "--force", "--json")
    assert len(json.loads(forced.stdout)["evaluations"]) == 2


def test_tune_keeps_outcome_of_concurrent_search_despite_force(
    call: Call, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(own, "--out", "other.json", "--budget", 1).exit_code == 0
    there, search = Path("other.json").read_bytes(), halving.tune

    def meanwhile(*given: Any, **named: Any) -> Any:
        Path("mine.json").write_bytes(there)
        return search(*given, **named)

    monkeypatch.setattr("tools.tune.search_for", meanwhile)
    result = call(own, "--out", "mine.json", "--force")
    assert result.exit_code == 2
    assert "'mine.json' holds the outcome of another search" in result.stderr
    assert Path("mine.json").read_bytes() == there


def test_tune_show_prints_declaration_for_editing(call: Call) -> None:
    """The user edits the printed declaration for a custom environment."""
    shown = call("ucb", "--show").stdout
    assert shown == SEARCHES["ucb"].declaration.read_text(encoding="utf-8")


def test_an_interrupt_says_how_to_go_on(
    call: Call, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play(1))
    result = call(own)
    assert result.exit_code == 130
    assert "finished parts are in results/tune/parts; run it again" in result.stderr
    assert not Path("results/tune/own.json").exists()


def test_tune_does_not_overwrite_file_without_an_outcome(
    call: Call, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    (tmp_path / "users.csv").write_text("age,plan")
    refused = call(own, "--out", tmp_path / "users.csv")
    assert refused.exit_code == 2
    assert "holds no outcome of a search; choose another --out, or" in refused.stderr
    assert (tmp_path / "users.csv").read_text() == "age,plan"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ubc",), "no search is called 'ubc'; did you mean 'ucb'?"),
        (("nowhere.toml",), "'nowhere.toml' cannot be read"),
        (("ucb", "--seed", "0", "--seed", "11000"), "seed is 0, on which results are reported"),
        (("ucb", "--seed", "11000"), "give two, one to search on"),
        (("ucb", "--budget", "0"), "budget is 0; it must be at least 1"),
        (("ucb", "--jobs", "0"), "jobs is 0"),
        (("--budget", "3"), "--budget is given, and no search is played; give the NAME of a"),
        (("--force",), "--force is given, and no search is played"),
        (("--check", "--seed", "11000"), "--seed is given, and no search is played"),
        (("ucb", "--show", "--out", "x"), "--out is given, and no search is played; leave --out"),
        (
            ("ucb", "--check", "--jobs", "2"),
            "--jobs is given, and no search is played; leave --jobs",
        ),
        (("ucb", "--show", "--scheduler", "x"), "--scheduler is given, and no search is played"),
        (("ucb", "--show", "--check"), "and --show prints it; give one of them"),
        (("ucb", "--out", "..", "--force"), "is a folder, and a file would stand there"),
        (("nowhere.toml", "--show"), "the configuration 'nowhere.toml' cannot be read"),
        (("mine.toml", "--check"), "'mine.toml' is a file of your own; leave --check out"),
        (("--show",), "give its NAME, and no --json"),
        (("ucb", "--show", "--json"), "give its NAME, and no --json"),
        (("ucb", "--out", "/dev/null/x.json"), "cannot be written"),
    ],
)
def test_wrong_words_get_one_line(call: Call, words: tuple[str, ...], message: str) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
