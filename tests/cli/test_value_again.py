"""A second call with a ledger's file need not repeat what the file knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kerchief.cli.file_ledger import budget_in
from kerchief.cli.main import main


@pytest.fixture
def value(tmp_path: Path) -> object:
    logs = tmp_path / "logs.csv"
    logs.write_text("action,reward,chance\n" + "0,1,0.5\n1,0,0.5\n" * 100)

    def call(*words: str) -> Result:
        pairs = ("action=action", "reward=reward", "propensity=chance", "reward-range=0:1")
        known = ["--data", str(logs), *(word for pair in pairs for word in ("--declare", pair))]
        rest = ["--arms", "2", "--policy", "arm=0"]
        ledger = ["--ledger", str(tmp_path / "ledger.json"), "--epsilon", "0.3"]
        return CliRunner().invoke(main, ["value", *known, *rest, *ledger, *words])

    return call


def test_budget_and_delta_are_taken_from_the_file(value: object, tmp_path: Path) -> None:
    assert callable(value)
    assert value("--budget", "2", "--delta", "1e-7", "--mechanism", "gaussian").exit_code == 0
    again = value("--mechanism", "gaussian")
    assert again.exit_code == 0
    assert "delta=1e-07" in again.stdout
    kept = budget_in(tmp_path / "ledger.json")
    assert kept is not None
    assert (kept.epsilon, kept.delta) == (2.0, 1e-7)


@pytest.mark.parametrize(
    ("words", "named"),
    [(("--budget", "3"), "budget is 3"), (("--delta", "1e-6"), "delta is 1e-06")],
)
def test_another_word_is_refused_by_name(value: object, words: tuple[str, ...], named: str) -> None:
    assert callable(value)
    assert value("--budget", "2", "--delta", "1e-7").exit_code == 0
    refused = value(*words)
    assert refused.exit_code == 2
    assert named in refused.stderr
    assert "has the budget" in refused.stderr
    assert "leave" in refused.stderr
