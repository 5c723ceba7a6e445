"""`kerchief compare --config FILE`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as Called
from tests.comparison.fakes import fake_play

from kerchief.comparison.runner import RunState

Call = Callable[..., Called]
FILE = """
env = "own"
arms = 3
dim = 2
horizon = 60
replicates = 4
trust = "joint"
epsilon = [0.5, 2.0]
param = ["exploration=0.5"]
env_param = "noise=bounded"
mechanism = "tree"
"""


def test_config_file_sets_options_that_command_line_overrides(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    (tmp_path / "mine.toml").write_text(FILE)
    result = call("compare", "--config", "mine.toml", "--horizon", 80, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)["parameters"]
    assert (said["env"], said["horizon"], said["epsilon"]) == ("own", 80, [0.5, 2.0])
    assert (said["trust"], said["param"]) == (["joint"], ["exploration=0.5"])
    assert said["mechanism"] == ["joint=tree"]
    assert "noise=bounded" in said["env_param"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("horizn = 60", "horizn"),
        ("horizon = [60, 70]", "give one value"),
        ("epsilon = {low = 1}", "give plain values"),
        ("horizon = ", "cannot be read"),
        ('config = "other.toml"', "config"),
        ('horizon = "many"', "many"),
        ("horizon = 20.9", "--horizon is 20.9 in the configuration; give a whole number"),
        ("replicates = 2.7", "--replicates is 2.7 in the configuration; give a whole number"),
        ("seed = 3.9", "--seed is 3.9"),
        ("seed = true", "--seed is true in the configuration; give a whole number"),
        ("horizon = inf", "--horizon is inf"),
        ("horizon = 2026-01-01", "--horizon is 2026-01-01"),
        ("epsilon = [1.0, false]", "--epsilon is false in the configuration; give a number"),
        (f"epsilon = 1{400 * '0'}", "give a number"),
        ("delta = 12:00:00", "--delta is 12:00:00"),
        ("policy = true", "--policy is true"),
        ("out = 3", "--out is 3 in the configuration; give text in quotes"),
        ("force = 1", "--force is 1 in the configuration; give true or false"),
        ('force = "yes"', "--force is 'yes'"),
        ('env-param = "gap=1"\nenv_param = "gap=2"', "by two spellings"),
        ("force = true\nresume = true", "give one of them"),
        ("problem = 3", "problem is 3"),
        ("[problem]\narms = 3", "arms stands in table 'problem'"),
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
