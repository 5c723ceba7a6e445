"""`kerchief leaderboard` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as Called
from tests.comparison.fakes import fake_play

from kerchief.comparison.runner import RunState

Call = Callable[..., Called]
SMALL = ("--size", "quick", "--env", "chance", "--policy", "ucb", "--policy", "tsallis")


def test_it_prints_standings_and_leaves_a_page(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call("leaderboard", *SMALL)
    assert result.exit_code == 0, result.output
    for words in ("arms, local trust", "% of uniform", "A rank is one more", "(epsilon=1,"):
        assert words in " ".join(result.stdout.split()), words
    assert max(map(len, result.stdout.splitlines())) <= 80
    folder = Path("results/leaderboard")
    assert {path.name for path in folder.iterdir()} == {
        "leaderboard.html", "leaderboard.md", "results.json", "results.parquet", "parts"
    }  # fmt: skip
    page = (folder / "leaderboard.md").read_text()
    assert page.startswith("# Private bandits at one guarantee")
    assert "`kerchief leaderboard --size quick --env chance" in page
    assert "**arms, local trust**" in page


@pytest.mark.nightly
def test_a_real_board_can_be_read_by_programs(call: Call) -> None:
    result = call("leaderboard", *SMALL, "--replicates", "2", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["complete"] is True
    assert {one["policy"] for one in document["standings"]} == {"ucb", "tsallis"}
    for one in document["standings"]:
        assert one["division"] == "arms"
        assert one["environments"] == 1
        assert one["rank"] in (1, 2)
        assert one["microseconds"] > 0
    assert document["left_out"] == []
    again = call("leaderboard", *SMALL, "--replicates", "2", "--resume", "--json")
    assert json.loads(again.stdout)["standings"] == document["standings"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--size", "huge"), "size is 'huge'"),
        (("--size", "quick", "--env", "nowhere"), "nowhere"),
        (
            ("--size", "quick", "--format", "word"),
            "format is 'word'; choose one of latex, markdown",
        ),
    ],
)
def test_mistakes_are_one_line(call: Call, words: tuple[str, ...], message: str) -> None:
    result = call("leaderboard", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_leaderboard_has_no_picture_format_option(call: Call) -> None:
    result = call("leaderboard", "--format", "svg")
    assert result.exit_code == 2
    assert "format is 'svg'; choose one of latex, markdown" in result.stderr
    assert "picture" not in call("leaderboard", "--help").output


def test_unknown_picture_format_is_rejected(call: Call) -> None:
    result = call("compare", "--contexts", "ball", "--trust", "joint", "--format", "gif")
    assert result.exit_code == 2
    assert "format is 'gif'; choose one of png, pdf, svg" in result.stderr


def test_formats_and_tables_may_be_a_list(
    call: Call, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call(
        *("compare", "--contexts", "ball", "--trust", "joint", "--json"),
        *("--format", "pdf,svg", "--format", "png", "--format", "latex,markdown"),
    )
    assert result.exit_code == 0, result.output
    files = json.loads(result.stdout)["files"]
    assert {Path(path).name for path in files.values()} == {
        "compare.pdf", "compare.svg", "compare.png", "results.tex", "results.md", "report.html",
        "results.json", "results.parquet",
    }  # fmt: skip
