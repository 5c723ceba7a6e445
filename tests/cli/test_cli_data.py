"""`kerchief compare --data`: from a file to a comparison, or to one clear line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import Result as Called
from tests.comparison.fakes import fake_play

from kerchief.comparison.runner import RunState

Call = Callable[..., Called]
SMALL = ("--trust", "central", "--epsilon", 2, "--replicates", 3, "--delta", 1e-6)
DECLARED = ("--features", "age=18:90,plan=basic|gold", "--label", "likes")


REWARDED = ("--declare", "rewards=news,sport", "--declare", "reward-range=0:1")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    dice = np.random.default_rng(2)
    ages = dice.integers(18, 95, 60)
    columns = {
        "age": ages,
        "plan": dice.choice(["basic", "gold"], 60),
        "likes": np.where(ages > 50, "news", "sport"),
        "news": (ages > 50).astype(float),
        "sport": dice.uniform(0, 1, 60),
    }
    pl.DataFrame(columns).write_csv(tmp_path / "users.csv")
    return tmp_path / "users.csv"


@pytest.mark.usefixtures("undrawn")
def test_a_file_becomes_a_comparison_in_one_command(call: Call, users: Path) -> None:
    result = call("compare", "--data", users, *DECLARED, *SMALL, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    names = [row["policy"] for row in document["rows"]]
    assert names == ["uniform", "greedy", "single-arm", "own-models", "own-models"]
    assert {row["environment"] for row in document["rows"]} == {"users.csv"}
    assert document["parameters"]["horizon"] == 60
    assert document["parameters"]["declare"][0].startswith("data-sha256=")
    for kind in ("table", "picture", "report", "rows"):
        assert Path(document["files"][kind]).is_file()
    single = document["rows"][2]["regret"]
    likes = pl.read_csv(users)["likes"].to_list()
    assert single["mean"] == 60 - max(likes.count(one) for one in set(likes))
    assert single["se"] == 0
    for row in document["rows"]:
        assert row["reward"]["mean"] == pytest.approx(1 - row["regret"]["mean"] / 60)


@pytest.mark.usefixtures("undrawn")
def test_the_command_plays_the_same_again(
    call: Call, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    rewards = (*REWARDED, "--declare", "orders=bootstrap")
    given = ("--features", "age=18:90", "--horizon", 99, *SMALL, *rewards)
    first = json.loads(call("compare", "--data", users, *given, "--json").stdout)
    words = shlex.split(first["command"])
    again = json.loads(call(*words[1:], "--json").stdout)
    assert again["parameters"] == first["parameters"]
    assert again["command"] == first["command"]
    users.write_text(users.read_text().replace("basic", "gold"))
    other = call(*words[1:], "--json")
    assert other.exit_code == 2
    assert "these are not the same data" in other.stderr


@pytest.mark.usefixtures("undrawn")
def test_a_declaration_may_lie_in_a_file(
    call: Call, users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    told = tmp_path / "users.toml"
    told.write_text('label = "likes"\n[features]\nage = [18, 90]\nplan = ["basic", "gold"]\n')
    plain = json.loads(call("compare", "--data", users, *DECLARED, *SMALL, "--json").stdout)
    kept = call("compare", "--data", users, "--declare", told, *SMALL, "--json")
    assert json.loads(kept.stdout)["parameters"] == plain["parameters"]
    twice = call("compare", "--data", users, "--declare", told, "--label", "likes", *SMALL)
    assert "label is declared by --declare and by --label; declare it once" in twice.stderr
    told.write_text('labl = "likes"')
    unknown = call("compare", "--data", users, "--declare", told, *SMALL)
    assert "did you mean 'label'" in unknown.stderr
    told.write_text("label = ")
    assert "cannot be read" in call("compare", "--data", users, "--declare", told).stderr


@pytest.mark.usefixtures("undrawn")
def test_the_table_shows_rewards(call: Call, users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call("compare", "--data", users, *DECLARED, *SMALL)
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert "users.csv has 60 users, 3 coordinates, 2 arms; declared bounds cut" in told
    assert "reward" in told.partition("has 60 users")[0]
    report = Path("results/compare/report.html").read_text(encoding="utf-8")
    assert "reward ± s.e." in report
    assert "a number that is read off the data and is not private" in report


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--features", "aeg=18:90", "--label", "likes"), "did you mean 'age'"),
        (("--features", "age", "--label", "likes"), "has no declared range"),
        (
            ("--features", "age=18:90", "--label", "likes=news|shop"),
            "of column 'likes' in users.csv is not declared",
        ),
        (("--features", "age=18:90"), "labels and rewards are both given, or neither"),
        (
            ("--features", "age=18:90", "--declare", "rewards=age,news", *REWARDED[2:]),
            "lies outside the declared range of rewards 0:1",
        ),
        (
            ("--features", "age=18:90", *REWARDED[:2], "--declare", "reward-range=wide"),
            "the range of rewards is 'wide'",
        ),
        (
            ("--features", "age=18:90,sport=0:1", *REWARDED),
            "'sport' of users.csv is something else",
        ),
        ((*DECLARED, "--arms", 3), "arms is 3, and data have no such option"),
        ((*DECLARED, "--env", "linear"), "env is 'linear', and data have no such option"),
        ((*DECLARED, "--contexts", "ball"), "data have no such option"),
        ((*DECLARED, "--horizon", 61), "there are 60 users who come once each"),
        ((*DECLARED, "--policy", "linucb"), "'linucb' does not play on these data"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    words: tuple[object, ...], said: str, call: Call, users: Path
) -> None:
    result = call("compare", "--data", users, *words)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age,plan,likes\n20,basic,news\n30,,sport\n", "row 2 of column 'plan' in cut.csv is miss"),
        ("age,plan,likes\n20,basic,news\nnan,gold,sport\n", "row 2 of column 'age' in cut.csv"),
        ("age,plan,likes\n20,basic,news\n30,gold", "cut.csv ends within row 2"),
        ("age,plan,likes\n20,basic,news\n30,gold,spo", "cut.csv ends within row 2, as if"),
        ("", "cut.csv cannot be read as CSV"),
    ],
)
def test_a_bad_file_is_one_line_and_changes_nothing(text: str, said: str, call: Call) -> None:
    Path("cut.csv").write_text(text)
    result = call("compare", "--data", "cut.csv", *DECLARED)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert said in result.stderr
    assert not Path("results").exists()


@pytest.mark.parametrize("rewards", ["5", "true", "[1, 2]", "{a = 1}"])
def test_columns_of_another_kind_are_one_line(rewards: str, call: Call, users: Path) -> None:
    told = users.with_name("users.toml")
    told.write_text(f'features = ["age=18:90"]\nrewards = {rewards}\nreward_range = "0:1"\n')
    result = call("compare", "--data", users, "--declare", told)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "rewards are" in result.stderr
    assert "name one column per arm, as in --declare rewards=r_a,r_b" in result.stderr


@pytest.mark.parametrize("label", ["5", "true", '["likes"]', "{a = 1}"])
def test_a_label_of_another_kind_is_one_line(label: str, call: Call, users: Path) -> None:
    """A list would be read as the labels themselves, and the column be a feature."""
    told = users.with_name("users.toml")
    told.write_text(f'features = ["age=18:90"]\nlabel = {label}\n')
    result = call("compare", "--data", users, "--declare", told)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "give the name of a column in quotes" in result.stderr


@pytest.mark.usefixtures("undrawn")
def test_unused_options_of_logs_are_rejected(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    Path("logs.csv").write_text("a,r,p,age\nx,1,0.5,30\ny,0,0.5,40\n")
    pairs = ("action=a=x|y", "reward=r", "propensity=p", "reward-range=0:1")
    words = [word for pair in pairs for word in ("--declare", pair)]
    asked = ("compare", "--data", "logs.csv", *words, *SMALL, "--features")
    refused = call(*asked, "age=18:90", "--declare", "arm-norm=9")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "arm_norm is 9.0, and no features of arms are read from these logs" in refused.stderr
    heard = json.loads(call(*asked, "age=18:90", "--declare", "intercept=2", "--json").stdout)
    assert "--declare intercept=2.0" in heard["command"]


def test_options_of_data_need_data(call: Call) -> None:
    result = call("compare", *DECLARED)
    assert result.exit_code == 2
    assert "--features is given without data; give --data FILE too" in result.stderr
