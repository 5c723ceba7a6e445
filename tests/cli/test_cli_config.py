"""`kerchief compare --config FILE`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as Called
from tests.experiments.fakes import fake_play

from kerchief.experiments.runner import Work

Call = Callable[..., Called]
FILE = """
env = "own"
arms = 3
dim = 2
horizon = 60
replicates = 4
trust = "joint"
epsilon = [0.5, 2.0]
number = ["exploration=0.5"]
reward_noise = "bounded"
"""


def test_a_file_stands_for_options_and_the_command_line_comes_first(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    monkeypatch.setattr(Work, "results", fake_play())
    (tmp_path / "mine.toml").write_text(FILE)
    result = call("compare", "--config", "mine.toml", "--horizon", 80, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)["parameters"]
    assert (said["env"], said["horizon"], said["epsilon"]) == ("own", 80, [0.5, 2.0])
    assert (said["trust"], said["number"]) == (["joint"], ["exploration=0.5"])
    assert "noise=bounded" in said["option"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("horizn = 60", "horizn"),
        ("horizon = [60, 70]", "give one value"),
        ("epsilon = {low = 1}", "give plain values"),
        ("horizon = ", "cannot be read"),
        ('config = "other.toml"', "config"),
        ('horizon = "many"', "many"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line(
    call: Call, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "mine.toml").write_text(text)
    result = call("compare", "--config", "mine.toml")
    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_is_missing_is_one_line(call: Call) -> None:
    result = call("compare", "--config", "none.toml")
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr
