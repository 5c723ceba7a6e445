"""`kerchief plan`: one page, in bounded time, from whatever was asked."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.comparison.fakes import fake_play
from tests.planning.test_planning import SMALL, played

import kerchief
from kerchief.cli import plan as plan_command
from kerchief.cli.main import main
from kerchief.comparison.runner import RunState
from kerchief.planning.pilot_runs import SimulatedRuns
from kerchief.planning.planning import Planning

LESS = shlex.split("--horizon 60 --replicates 2 --json")
ASKED = shlex.split("--users 400 --dim 2 --arms 3 --trust central --epsilon 8 --delta 1e-4")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["plan", *words])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Planning]:
    """Worlds that were simulated once, in place of processes that simulate them."""
    asked: list[Planning] = []

    def play(planning: Planning, **rest: Any) -> SimulatedRuns:
        asked.append(planning)
        return played()

    monkeypatch.setattr(plan_command, "play", play)
    return asked


def test_plan_output_answers_every_question(quick: list[Planning], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(*ASKED, "--out", str(out))
    assert result.exit_code == 0, result.output
    assert quick == [SMALL]
    told = " ".join(result.stdout.split())
    for words in (
        *("single-arm", "own-models", "uniform", "reward per user", "regret in all"),
        *(
            "users",
            "epsilon",
            "every device sends one report of",
            "Assumed:",
            "differential privacy",
        ),
    ):
        assert words in told, words
    page = (out / "plan.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")
    assert json.loads((out / "plan.json").read_text())["rows"][1]["policy"] == "single-arm"
    assert (out / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_plan_page_omits_deployment_of_undeployable_policy(
    quick: list[Planning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "kerchief.load_plan" in _page(tmp_path / "one")
    monkeypatch.setattr("kerchief.planning.advice.wire_size", lambda *given: None)
    page = _page(tmp_path / "other")
    assert "can be simulated, and not deployed" in page
    assert "kerchief.load_plan" not in page


def _page(out: Path) -> str:
    assert run(*ASKED, "--out", str(out)).exit_code == 0
    return (out / "plan.html").read_text(encoding="utf-8")


def test_json_is_one_object(quick: list[Planning]) -> None:
    found = json.loads(run(*ASKED, "--json").stdout)
    assert [row["policy"] for row in found["rows"]] == [
        *("uniform", "single-arm", "own-models", "own-models")
    ]
    private = found["rows"][-1]
    assert private["trust"] == "central"
    assert private["reward"]["low"] < private["reward"]["mean"] < private["reward"]["high"]
    assert set(private["users_needed"]) == {"value", "least", "most", "guess"}
    assert private["wire"]["report_bytes"] > 8 * private["wire"]["numbers"]
    assert found["verdict"] in ("personalise", "one arm", "undecided")
    assert tomllib.loads(found["config"])["horizon"] == 400
    assert found["command"].startswith("kerchief plan --users 400 --env own --dim 2 --arms 3")


def test_the_settings_are_taken_by_compare_and_by_a_bandit(
    quick: list[Planning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    run(*ASKED, "--out", str(tmp_path))
    file = str(tmp_path / "plan.toml")
    again = CliRunner().invoke(
        main,
        ["compare", "--config", file, "--out", str(tmp_path / "compared"), *LESS],
    )
    assert again.exit_code == 0, again.output
    rows = json.loads(again.stdout)["rows"]
    assert (rows[-1]["policy"], rows[-1]["trust"], rows[-1]["epsilon"]) == (
        *("own-models", "central"),
        8.0,
    )
    bandit = kerchief.Bandit(**kerchief.load_plan(file), window_s=0)
    assert bandit.spent().epsilon <= 8.0


def test_plan_replaces_earlier_plan_only_with_force(quick: list[Planning], tmp_path: Path) -> None:
    assert run(*ASKED, "--out", str(tmp_path)).exit_code == 0
    before = (tmp_path / "plan.json").read_bytes()
    refused = run(*ASKED, "--out", str(tmp_path))
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert (tmp_path / "plan.json").read_bytes() == before
    assert run(*ASKED, "--out", str(tmp_path), "--force").exit_code == 0


def test_force_without_a_folder_is_refused(quick: list[Planning]) -> None:
    refused = run(*ASKED, "--force")
    assert refused.exit_code == 2
    assert "give --out FOLDER too, or leave --force out" in refused.stderr
    assert not quick


def test_forced_plan_removes_all_earlier_files(
    quick: list[Planning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the new page cannot be written: an old one would tell of another plan."""
    (tmp_path / "plan.html").write_text("an earlier plan")
    monkeypatch.setattr(plan_command, "missing", lambda *names: ("jinja2",))
    assert run(*ASKED, "--out", str(tmp_path), "--force").exit_code == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["plan.json", "plan.toml"]


def test_concurrent_second_plan_is_printed_but_not_written(
    quick: list[Planning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where an earlier plan was to be replaced: nobody asked to replace this one."""
    assert run(*ASKED, "--out", str(tmp_path)).exit_code == 0

    def meanwhile(planning: Planning, **rest: Any) -> SimulatedRuns:
        (tmp_path / "plan.json").write_text("another plan")
        return played()

    monkeypatch.setattr(plan_command, "play", meanwhile)
    before = (tmp_path / "plan.toml").read_bytes()
    result = run(*ASKED, "--out", str(tmp_path), "--force")
    assert result.exit_code == 3
    assert "another plan was written to" in result.stderr
    assert "reward per user" in " ".join(result.stdout.split())
    assert (tmp_path / "plan.json").read_text() == "another plan"
    assert (tmp_path / "plan.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--dim 3", "users is not given"),
        ("--users 1000 --policy uniform", "policy is 'uniform', which never learns in private"),
        ("--users 3", "users is 3"),
        ("--users 1000 --seconds 5", "seconds is 5"),
        ("--users 1000 --jobs 0", "jobs is 0"),
        ("--users 1000 --env-param noise=clicks", "noise is 'clicks'; choose one of"),
        ("--users 1000 --env-param strength=high", "--env-param strength=0.2:0.6"),
        ("--users 1000 --env-param strength=0.6:0.3", "the less strength is 0.6"),
        ("--users 1000 --env-param weakest=0.3", "as in --env-param strength=0.2:0.6"),
        (
            "--users 1000 --env-param radius=1 --env-param radius=2",
            "radius is 1 and 2; give it one value",
        ),
        ("--users 1000 --label x", "--label is given without data"),
        ("--users 1000 --trust nobody", "no trust is called 'nobody'"),
        ("--data nowhere.csv --features a=0:1 --label b --dim 3", "dim is given, and data say it"),
        ("--data nowhere.csv --features a=0:1 --label b", "nowhere.csv"),
    ],
)
def test_plan_rejects_invalid_options_in_one_line(
    quick: list[Planning], words: str, said: str
) -> None:
    result = run(*words.split())
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not quick


def test_a_large_delta_is_warned_of(quick: list[Planning]) -> None:
    assert "delta is 0.01" in run(*ASKED, "--delta", "0.01").stderr


def test_data_are_asked_about_with_the_options_of_compare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    lines = [f"{20 + i % 60},{'gold' if i % 60 > 30 else 'basic'}" for i in range(200)]
    file.write_text("\n".join(["age,plan", *lines, ""]), encoding="utf-8")
    seen: list[Planning] = []

    def play(planning: Planning, **rest: Any) -> SimulatedRuns:
        seen.append(planning)
        raise kerchief.KerchiefError("enough was seen")

    monkeypatch.setattr(plan_command, "play", play)
    words = ["--data", str(file), "--features", "age=18:90", "--label", "plan=basic|gold"]
    result = run(*words, "--trust", "joint")
    assert "enough was seen" in result.stderr
    (asked,) = seen
    assert asked.count == 200
    assert "not private" in asked.describe_assumptions()
    assert asked.parameters()["features"] == ["age=18:90"]
    assert [cell.label() for cell in asked.cells(200)][-1] == "own-models joint ε=1"


@pytest.mark.nightly
def test_a_plan_is_made_in_time(tmp_path: Path) -> None:
    words = ["--users", "20000", "--dim", "5", "--arms", "5", "--out", str(tmp_path)]
    result = run(*words, "--seconds", "60", "--json")
    found = json.loads(result.stdout)
    assert found["seconds"] < 60
    assert {row["trust"] for row in found["rows"]} >= {"joint", "central"}
