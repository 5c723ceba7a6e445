"""`kerchief value`, and `kerchief compare` on logs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.data.simulated import logged

from kerchief.cli.data import environment_of
from kerchief.cli.file_ledger import kept
from kerchief.cli.main import main
from kerchief.comparison.datasets import describe_data
from kerchief.comparison.run_folder import Folder
from kerchief.core.errors import InvalidValueError
from kerchief.data import write_dsjson, write_feedback, write_log_table
from kerchief.data.replay import Replay
from kerchief.privacy.events import Binomial, RandomizedResponse
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privacy.receipts import Cohort, read_ledger

Call = Callable[..., Result]
COLUMNS = ("action=action", "reward=reward", "propensity=propensity")


def declare(*pairs: str) -> list[str]:
    """Words of the command line that declare these pairs."""
    return [word for pair in pairs for word in ("--declare", pair)]


RANGE = declare("reward-range=0:1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "logs.csv"
    write_log_table(logged(2000, seed=3), path)
    return path


@pytest.fixture
def value(file: Path) -> Call:
    group = type(main)(name="kerchief", commands=[click.Command("value")])

    def call(*more: object) -> Result:
        """Run with the usual declarations, except for keys that `more` declares."""
        keys = [str(word).partition("=")[0] for word in more]
        pairs = (*COLUMNS, "reward-range=0:1")
        usual = declare(*(pair for pair in pairs if pair.partition("=")[0] not in keys))
        words = ("value", "--data", file, "--arms", "3", *usual, *more)
        return CliRunner().invoke(group, [str(word) for word in words])

    return call


def test_value_prints_estimate_with_interval_and_guarantee(value: Call) -> None:
    result = value("--policy", "arm=2", *declare("least-propensity=0.1"))
    assert result.exit_code == 0
    for word in ("between", "at level 0.95", "over 2000 rows, by ips", "promised: (epsilon=1"):
        assert word in result.stdout
    assert "--ledger" in result.stdout
    told = json.loads(value("--policy", "uniform", "--estimator", "replay", "--json").stdout)
    assert told["low"] < 0.55 < told["high"]
    assert told["guarantee"]["unit"] == "row"


def test_release_states_its_guarantee_and_ledger_total(value: Call, tmp_path: Path) -> None:
    alone = value("--policy", "arm=1")
    assert "in one release" in " ".join(alone.stdout.split())
    assert "rounds" not in alone.stdout
    ledger = ("--ledger", tmp_path / "x.ledger", "--budget", "1")
    ask = ("--policy", "arm=1", "--epsilon", "0.4", "--mechanism", "laplace", *ledger)
    assert value(*ask).exit_code == 0
    text = " ".join(value(*ask).stdout.split())
    assert "budget: (epsilon=1, delta=1e-06)" in text
    assert "in all 2 calls of the ledger: epsilon 0.8 of 1, rho of zCDP" in text
    assert value(*ask).exit_code == 2
    gaussian = ("--ledger", tmp_path / "y.ledger", "--budget", "1", "--mechanism", "gaussian")
    state = json.loads(value("--policy", "arm=1", "--epsilon", "0.4", *gaussian, "--json").stdout)[
        "ledger"
    ]
    assert (state["calls"], state["budget"]["epsilon"], state["epsilon"]) == (1, 1.0, None)
    assert 0 < state["rho"] < state["rho_limit"]


def test_calls_chosen_by_earlier_results_pass_a_filter(value: Call, tmp_path: Path) -> None:
    """Forty small answers and one of more than the rest fit only if they were fixed in advance."""
    budget = Guarantee(epsilon=0.3, delta=1e-6, trust=Trust.CENTRAL, unit="row")
    with kept(tmp_path / "x.ledger", budget) as ledger:
        answer = RandomizedResponse(epsilon=0.006)
        ledger.charge(answer, cohort=Cohort(first=0, last=2000), capacity=40)
    ask = ("--policy", "arm=0", "--ledger", tmp_path / "x.ledger", "--mechanism", "laplace")
    refused = value(*ask, "--epsilon", "0.165")
    assert refused.exit_code == 2
    assert "after a user's first bill must add up" in refused.stderr
    assert value(*ask, "--epsilon", "0.05").exit_code == 0


def test_sum_without_a_rho_is_left_out(value: Call, tmp_path: Path) -> None:
    """Other users may have been charged for coins, of which no rho is known."""
    budget = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.CENTRAL, unit="row")
    with kept(tmp_path / "x.ledger", budget) as ledger:
        coins = Binomial(sensitivity=1.0, scale=400, dimension=1)
        ledger.charge(coins, cohort=Cohort(first=5000, last=5001))
    ask = ("--policy", "arm=0", "--ledger", tmp_path / "x.ledger", "--epsilon", "0.1")
    state = json.loads(value(*ask, "--json").stdout)["ledger"]
    assert (state["epsilon"], state["rho"]) == (None, None)
    assert "inf" not in value(*ask).stdout


def test_concurrent_charges_are_all_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second thread may not write between what the first one reads of a ledger and its file."""
    budget = Guarantee(epsilon=1.0, delta=0.0, trust=Trust.CENTRAL)
    write, second = Folder.write, list[threading.Thread]()

    def interrupted(folder: Folder, name: str, content: bytes) -> Path:
        if not second:
            second.append(threading.Thread(target=charge))
            second[0].start()
            second[0].join(timeout=0.5)
        return write(folder, name, content)

    monkeypatch.setattr(Folder, "write", interrupted)
    with kept(tmp_path / "x.ledger", budget) as ledger:

        def charge() -> None:
            ledger.charge(RandomizedResponse(epsilon=0.5), cohort=Cohort(first=0, last=1))

        charge()
        second[0].join()
        assert MemoryLedger.loads((tmp_path / "x.ledger").read_text()).receipts == ledger.receipts


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_ledger_of_two_names_is_refused(
    link: Callable[[Path, Path], None], value: Call, tmp_path: Path
) -> None:
    """A file that is replaced under one name would keep its old receipts under the other."""
    ask = ("--policy", "arm=0", "--epsilon", "0.5", "--budget", "1")
    assert value(*ask, "--ledger", tmp_path / "x.ledger").exit_code == 0
    link(tmp_path / "y.ledger", tmp_path / "x.ledger")
    refused = value(*ask, "--ledger", tmp_path / "y.ledger")
    assert refused.exit_code == 2
    assert "has another name" in refused.stderr


def test_largest_reward_cannot_be_probed_by_ranges(tmp_path: Path) -> None:
    """No call is refused for a reward beyond its range, and what is said is the same for all."""
    path = tmp_path / "logs.csv"
    rewards = ["0.25", "0.731", "-0.5", "0.1"] * 25
    path.write_text("action,reward,propensity\n" + "".join(f"0,{r},0.5\n" for r in rewards))
    for high in (0.05, 0.5, 0.73, 0.7311, 1.0):
        ask = (
            "--data",
            path,
            "--arms",
            "2",
            "--policy",
            "arm=0",
            *declare(f"reward-range=0:{high}"),
        )
        found = called(*ask)
        assert found.exit_code == 0, found.stderr
        assert "rewards are clipped to the declared range" in found.stdout


def test_value_errors_from_rows_state_they_are_not_private(tmp_path: Path) -> None:
    path = tmp_path / "logs.csv"
    path.write_text("action,reward,propensity\n" + "0,1,0.5\n1,0,0.5\n" * 50)
    ask = ("--data", path, "--policy", "arm=0", *declare("reward-range=0:1"))
    refused = called(*ask, "--arms", "1")
    assert refused.exit_code == 2
    assert "errors are not private" in refused.stderr
    assert "errors are not private" not in called(*ask).stderr
    assert "Errors are not private" in called("--help").stdout


def test_calls_with_one_ledger_share_its_budget(value: Call, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    ask = ("--ledger", ledger, "--budget", "1", "--epsilon", "0.4", "--mechanism", "gaussian")
    codes = [value("--policy", "arm=0", *ask).exit_code for _ in range(9)]
    paid = codes.count(0)
    assert codes == [0] * paid + [2] * (9 - paid)
    assert 2 < paid < 9
    budget, receipts = read_ledger(ledger.read_text())
    assert (budget.epsilon, len(receipts), receipts[-1].used) == (1.0, paid, 1)
    other = value("--policy", "arm=0", "--ledger", ledger, "--budget", "2")
    assert "has the budget" in other.stderr
    ledger.write_text("{")
    assert value("--policy", "arm=0", "--ledger", ledger).exit_code == 2


def test_a_charge_is_in_the_file_before_anything_is_drawn(
    value: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def draw(*given: object, **more: object) -> None:
        seen.append(len(read_ledger((tmp_path / "ledger.json").read_text())[1]))
        raise InvalidValueError("the power fails here")

    monkeypatch.setattr("kerchief.data.off_policy._add_noise", draw)
    assert value("--policy", "arm=0", "--ledger", tmp_path / "ledger.json").exit_code == 2
    assert seen == [1]


def test_model_file_serves_as_policy_and_reward_model(value: Call, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    model.write_text('{"by_arm": [[1, 0], [-1, 0], [0, 1]]}')
    result = value("--features", "x0,x1", "--policy", f"model={model}", "--json")
    assert json.loads(result.stdout)["units"] == 2000
    robust = ("--estimator", "dr", "--reward-model", model)
    result = value("--features", "x0,x1", "--policy", "arm=1", *robust, "--json")
    assert json.loads(result.stdout)["estimator"] == "dr"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "Missing option '--policy'"),
        (("--policy", "arm"), "policy is 'arm'; write uniform, arm=ARM or model=FILE"),
        (("--policy", "arm=3"), "the arms are 0, 1, 2"),
        (("--policy", "greedy"), "write uniform, arm=ARM or model=FILE"),
        (("--policy", "arm=1", "--budget", "2"), "give --ledger FILE too"),
        (("--policy", "arm=1", *declare("reward-range=wide")), "--declare reward-range=0:1"),
        (("--policy", "arm=1", *declare("action=act")), "did you mean 'action'"),
        (("--policy", "model=nowhere.json"), "cannot be read"),
        (("--policy", "arm=1", "--delta", "2"), "delta is 2"),
        (("--policy", "arm=1", "--delta", "2"), "not below 1/rows = 0.0005"),
        (("--policy", "arm=1", *declare("norm=2")), "norm is 2.0, and no features are named"),
        (
            ("--policy", "arm=1", "--features", "x0"),
            "neither this policy nor ips reads any",
        ),
        (("--policy", "arm=1", *declare("action=action=0|1")), "arms is 3, and action names 2"),
        (("--policy", "arm=1", "--ledger", "x.ledger", "--budget", "nan"), "budget is nan"),
        (("--policy", "arm=1", "--ledger", "x.ledger", "--budget", "-1"), "budget is -1"),
        (
            ("--policy", "arm=1", "--ledger", ""),
            "the ledger '.' is a folder; give",
        ),
    ],
)
def test_value_rejects_invalid_options_in_one_line(
    value: Call, more: tuple[str, ...], said: str
) -> None:
    result = value(*more)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("kerchief: error: ")


def test_how_many_arms_there_are_is_not_read_off_private_data(file: Path) -> None:
    group = type(main)(name="kerchief", commands=[click.Command("value")])
    words = ["value", "--data", str(file), *declare(*COLUMNS[1:]), *RANGE, "--policy", "arm=1"]
    usual = ["value", "--data", str(file), *RANGE, "--policy", "arm=1"]
    for asked in ([*words, *declare(COLUMNS[0])], usual):
        assert "--arms is not given" in CliRunner().invoke(group, asked).stderr
    named = [*words, *declare("action=action=0|1|2")]
    assert CliRunner().invoke(group, named).exit_code == 0


def _environment(data: Path, features: tuple[str, ...], **declared: object) -> object:
    """The environment of data with these declarations."""
    pairs = tuple(f"{name}={value}" for name, value in declared.items())
    return environment_of({"data": data, "features": features, "label": None, "declare": pairs})


def test_comparisons_replay_logs(file: Path, tmp_path: Path) -> None:
    columns = {"action": "action", "reward": "reward", "propensity": "propensity"}
    world = _environment(file, ("x0=-1:1",), reward_range="0:1", **columns)
    assert isinstance(world, Replay)
    assert (world.rows, world.count, world.rounds) == (2000, 3, 200)
    write_dsjson(logged(50, seed=3), tmp_path / "log.json")
    other = _environment(tmp_path / "log.json", ("x0", "x1"), norm=1.0, reward_range="0:1")
    assert isinstance(other, Replay)
    assert not any("Who came" in line for line in describe_data(world))
    with pytest.raises(InvalidValueError, match="least_propensity is 2"):
        _environment(file, ("x0=-1:1",), reward_range="0:1", **columns, least_propensity=2)


def test_comparison_on_logs_states_that_it_ignores_users(tmp_path: Path) -> None:
    write_log_table(logged(50, seed=3, users=np.arange(50) // 2), tmp_path / "log.csv")
    columns = {"action": "action", "reward": "reward", "propensity": "propensity"}
    world = _environment(
        tmp_path / "log.csv", ("x0=-1:1",), reward_range="0:1", user="user", **columns
    )
    assert isinstance(world, Replay)
    told = " ".join(describe_data(world))
    assert "every logged decision stands for a user of its own" in told


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"action": "action", "label": "x0"}, "--label is given, and these are logs"),
        (
            {"reward": "reward", "label": "action"},
            "reward is for logs; add --declare action=COLUMN",
        ),
    ],
)
def test_logs_and_labels_are_not_mixed(file: Path, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        _environment(file, ("x0=-1:1",), **more)


def called(*words: object) -> Result:
    group = type(main)(name="kerchief", commands=[click.Command("value")])
    return CliRunner().invoke(group, ["value", *map(str, words)])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The same logs, in forms with columns of their own."""
    logs = logged(200, seed=3)
    write_dsjson(logs, tmp_path / "log.json")
    write_feedback(logs, tmp_path / "log.npz")
    return {"json": tmp_path / "log.json", "npz": tmp_path / "log.npz"}


@pytest.mark.parametrize(
    ("form", "words"),
    [
        *(
            ("npz", ("--declare", f"{name}=x"))
            for name in ("user", "propensity", "action", "reward")
        ),
        *(("npz", ("--arms", "3")), ("npz", ("--declare", "propensity=0.5"))),
        *(("json", ("--arms", "3", "--declare", f"{name}=x")) for name in ("propensity", "reward")),
    ],
    ids=str,
)
def test_value_rejects_options_that_its_format_ignores(
    form: str, words: tuple[str, ...], files: dict[str, Path], tmp_path: Path
) -> None:
    ask = ("--policy", "arm=0", "--ledger", tmp_path / "x.ledger", "--budget", "2")
    found = called("--data", files[form], *RANGE, *ask, *words)
    assert found.exit_code == 2
    name = "arms" if "--declare" not in words else words[-1].partition("=")[0]
    assert f"{name} is given, and" in found.stderr
    assert not (tmp_path / "x.ledger").exists()


def test_declared_words_say_how_many_arms_lines_have(files: dict[str, Path]) -> None:
    """Neither how many arms there are nor which features is read off private lines."""
    named = (*declare("action=item=news|sport|shop|games"), "--policy", "arm=games", "--json")
    found = called("--data", files["json"], *RANGE, *named, *declare("least-propensity=0.1"))
    assert found.exit_code == 0, found.stderr
    few = called(
        "--data", files["json"], *RANGE, *declare("action=item=news|sport"), "--policy", "arm=news"
    )
    assert "more arms than the 2 declared" in few.stderr
    assert (
        "--arms is not given" in called("--data", files["json"], *RANGE, "--policy", "arm=0").stderr
    )
    wild = ("--arms", "3", "--features", "x*=-1:1", "--policy", "arm=0")
    assert "by its whole name" in called("--data", files["json"], *RANGE, *wild).stderr


def test_a_model_of_rewards_that_does_not_fit_costs_nothing(value: Call, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    model.write_text('{"by_arm": [[1, 0, 0], [-1, 0, 0], [0, 1, 0]]}')
    ask = ("--ledger", tmp_path / "x.ledger", "--budget", "2", "--estimator", "dr")
    found = value("--policy", "arm=1", "--features", "x0,x1", *ask, "--reward-model", model)
    assert found.exit_code == 2
    assert "by_arm of the model has shape (3, 3); these logs need (3, 2)" in found.stderr
    assert not (tmp_path / "x.ledger").exists()


def test_a_ledger_for_another_unit_names_the_option(tmp_path: Path) -> None:
    file = tmp_path / "logs.csv"
    write_log_table(logged(200, seed=3, users=np.arange(200) // 2), file)
    words = ("--data", file, *RANGE, "--arms", "3", "--policy", "arm=1", "--epsilon", "0.5")
    rows, users = tmp_path / "rows.ledger", tmp_path / "users.ledger"
    assert called(*words, "--ledger", rows, "--budget", "2").exit_code == 0
    assert called(*words, "--ledger", users, "--budget", "2", *declare("user=user")).exit_code == 0
    held = rows.read_bytes(), users.read_bytes()
    found = called(*words, "--ledger", rows, *declare("user=user"))
    assert "user is user, so that one user is protected" in found.stderr
    assert "is for one row; leave --declare user out" in found.stderr
    assert "give --declare user=COLUMN, or another file" in called(*words, "--ledger", users).stderr
    assert (rows.read_bytes(), users.read_bytes()) == held


def test_an_empty_file_is_no_ledger_that_ever_paid(value: Call, tmp_path: Path) -> None:
    (tmp_path / "x.ledger").touch()
    found = value("--policy", "arm=1", "--ledger", tmp_path / "x.ledger", "--budget", "2")
    assert found.exit_code == 2
    assert "is empty, as none is that ever paid: remove it to begin a new one" in found.stderr
    assert (tmp_path / "x.ledger").read_bytes() == b""


def test_a_log_that_grows_is_billed_for_all_its_rows(tmp_path: Path) -> None:
    """One row is in the fit of a model or in the value, and pays in every call."""
    ledger = tmp_path / "x.ledger"
    for rows in (60, 240):
        write_log_table(logged(rows, seed=3), tmp_path / "logs.csv")
        ask = ("--arms", "3", "--features", "x0=-1:1", "--estimator", "dr", "--epsilon", "0.2")
        spend = ("--ledger", ledger, "--budget", "2") if rows == 60 else ("--ledger", ledger)
        words = ("--data", tmp_path / "logs.csv", *RANGE, "--policy", "arm=1", *ask, *spend)
        codes = [called(*words).exit_code for _ in range(8)]
    _, receipts = read_ledger(ledger.read_text())
    assert {(one.cohort.first, one.cohort.last) for one in receipts} == {(0, 60), (0, 240)}
    first = MemoryLedger(Guarantee(epsilon=9.0, delta=1e-6, trust=Trust.CENTRAL, unit="row"))
    for one in receipts:
        first.charge(one.event, cohort=Cohort(first=0, last=1))
    assert first.spent().epsilon <= 2 * (1 + 1e-9)
    assert codes[0] == 0
    assert codes[-1] == 2
