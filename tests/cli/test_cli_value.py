"""`kerchief value`, and `kerchief compare` on logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.data.simulated import logged

from kerchief.cli.data import world_of
from kerchief.cli.main import main
from kerchief.core.errors import InvalidValue
from kerchief.data import write_dsjson, write_log_table
from kerchief.data.replay import Replay
from kerchief.privacy.receipts import read_ledger

Call = Callable[..., Result]
COLUMNS = ("--action", "action", "--reward", "reward", "--propensity", "propensity")
RANGE = ("--reward-range", "0:1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "logs.csv"
    write_log_table(logged(2000, seed=3), path)
    return path


@pytest.fixture
def value(file: Path) -> Call:
    group = type(main)(name="kerchief", commands=[click.Command("value")])
    words = ("value", "--data", file, *COLUMNS, *RANGE, "--arms", "3")
    return lambda *more: CliRunner().invoke(group, [str(word) for word in (*words, *more)])


def test_a_value_is_told_with_its_doubt_and_its_promise(value: Call) -> None:
    result = value("--arm", "2", "--least-propensity", "0.1")
    assert result.exit_code == 0
    for word in ("between", "at level 0.95", "over 2000 rows, by ips", "promised: (epsilon=1"):
        assert word in result.stdout
    assert "--ledger" in result.stdout
    told = json.loads(value("--policy", "uniform", "--estimator", "replay", "--json").stdout)
    assert told["low"] < 0.55 < told["high"]
    assert told["guarantee"]["unit"] == "row"


def test_calls_with_one_ledger_share_its_budget(value: Call, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    ask = ("--ledger", ledger, "--budget", "1", "--epsilon", "0.4", "--mechanism", "gaussian")
    codes = [value("--arm", "0", *ask).exit_code for _ in range(9)]
    paid = codes.count(0)
    assert codes == [0] * paid + [2] * (9 - paid)
    assert 2 < paid < 9
    budget, receipts = read_ledger(ledger.read_text())
    assert (budget.epsilon, len(receipts), receipts[-1].used) == (1.0, paid, 1)
    other = value("--arm", "0", "--ledger", ledger, "--budget", "2")
    assert "has the budget" in other.stderr
    ledger.write_text("{")
    assert value("--arm", "0", "--ledger", ledger).exit_code == 2


def test_a_charge_is_in_the_file_before_anything_is_drawn(
    value: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def draw(*given: object, **more: object) -> None:
        seen.append(len(read_ledger((tmp_path / "ledger.json").read_text())[1]))
        raise InvalidValue("the power fails here")

    monkeypatch.setattr("kerchief.data.off_policy._drawn", draw)
    assert value("--arm", "0", "--ledger", tmp_path / "ledger.json").exit_code == 2
    assert seen == [1]


def test_models_are_policies_and_guesses_of_rewards(value: Call, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    model.write_text('{"by_arm": [[1, 0], [-1, 0], [0, 1]]}')
    result = value("--features", "x0,x1", "--model", model, "--json")
    assert json.loads(result.stdout)["units"] == 2000
    robust = ("--estimator", "dr", "--reward-model", model)
    result = value("--features", "x0,x1", "--arm", "1", *robust, "--json")
    assert json.loads(result.stdout)["estimator"] == "dr"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "no policy is given"),
        (("--arm", "1", "--policy", "uniform"), "--arm and --policy is given"),
        (("--arm", "3"), "the arms are 0, 1, 2"),
        (("--policy", "greedy"), "it can be uniform"),
        (("--arm", "1", "--budget", "2"), "give --ledger FILE too"),
        (("--arm", "1", "--reward-range", "0:0.5"), "reward is outside"),
        (("--arm", "1", "--reward-range", "wide"), "--reward-range 0:1"),
        (("--arm", "1", "--action", "act"), "did you mean 'action'"),
        (("--model", "nowhere.json"), "cannot be read"),
        (("--arm", "1", "--delta", "2"), "delta is 2"),
    ],
)
def test_what_is_asked_wrongly_gets_one_line(value: Call, more: tuple[str, ...], said: str) -> None:
    result = value(*more)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("kerchief: error: ")


def test_how_many_arms_there_are_is_not_read_off_private_data(file: Path) -> None:
    group = type(main)(name="kerchief", commands=[click.Command("value")])
    words = ["value", "--data", str(file), *COLUMNS, *RANGE, "--arm", "1"]
    usual = ["value", "--data", str(file), *RANGE, "--arm", "1"]
    for asked in (words, usual):
        assert "--arms is not given" in CliRunner().invoke(group, asked).stderr
    named = [*words, "--action", "action=0|1|2"]
    assert CliRunner().invoke(group, named).exit_code == 0


def test_comparisons_replay_logs(file: Path, tmp_path: Path) -> None:
    columns = {"action": "action", "reward": "reward", "propensity": "propensity"}
    world = world_of({"data": file, "features": ("x0=-1:1",), "reward_range": "0:1", **columns})
    assert isinstance(world, Replay)
    assert (world.rows, world.count, world.rounds) == (2000, 3, 200)
    write_dsjson(logged(50, seed=3), tmp_path / "log.json")
    other = {"data": tmp_path / "log.json", "features": ("x0", "x1"), "norm": 1.0}
    assert isinstance(world_of({**other, "reward_range": "0:1"}), Replay)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"action": "action", "label": "x0"}, "--label is given, and these are logs"),
        ({"reward": "reward", "label": "action"}, "--reward is for logs"),
    ],
)
def test_logs_and_labels_are_not_mixed(file: Path, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        world_of({"data": file, "features": ("x0=-1:1",), **more})
