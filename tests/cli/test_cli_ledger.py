"""`kerchief ledger show`: a stranger reads the file and prices it again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kerchief.core.errors import InvalidValueError
from kerchief.deployment import Bandit
from kerchief.environments.worlds import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Cohort, Guarantee, Laplace, MemoryLedger, Trust, Zcdp, zcdp_rho
from kerchief.privatizers import Protection
from kerchief.privatizers.protect import protect
from kerchief.simulation.run import simulate
from kerchief_protocol.task import Promise

Call = Callable[..., Result]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The ledger of a small run under joint trust."""
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT, rounds=50)
    world, ledger = make_environment(dim=2, arms=3), MemoryLedger(promise)
    policy = POLICIES["linucb"].build(world.problem(50), "tuned")
    simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=50),
        environment=world,
        ledger=ledger,
        horizon=50,
        replicates=2,
        seed=0,
        ticks=2,
    )
    path = tmp_path / "ledger.json"
    path.write_text(ledger.dumps())
    return path


def test_ledger_show_prints_events_and_their_cost(call: Call, file: Path) -> None:
    """A table that fits a terminal, the meaning of each event, and both accountants."""
    result = call("ledger", "show", file)
    assert result.exit_code == 0
    table = result.stdout.partition("promised:")[0]
    assert max(map(len, table.splitlines())) <= 80
    for word in ("0 to 49", "dp-accounting", "ours", "Gaussian noise"):
        assert word in table
    document = json.loads(call("ledger", "show", file, "--json").stdout)
    assert document["agree"]
    assert document["kept"]
    assert document["ours"] == pytest.approx(1.0, rel=1e-6)
    assert document["second"]["epsilon"] == pytest.approx(1.0, rel=5e-3)
    assert document["spent"] == {"epsilon": pytest.approx(1.0, rel=1e-6), "delta": 1e-5}


def test_ledger_show_marks_looser_bound_of_second_accountant(call: Call, file: Path) -> None:
    """A second accountant that only bounds from above may show more than the budget."""
    assert "distributions, exact" in " ".join(call("ledger", "show", file).stdout.split())
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT, rounds=50)
    ledger = MemoryLedger(promise)
    event = Zcdp(rho=zcdp_rho(1.0, 1e-5))
    ledger.charge(event, cohort=Cohort(first=0, last=50))
    file.write_text(ledger.dumps())
    result = call("ledger", "show", file)
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert "Rényi divergences: a looser bound, from above" in said
    assert json.loads(call("ledger", "show", file, "--json").stdout)["second"]["epsilon"] > 1.0


def test_ledger_show_fails_when_repeat_visits_exceed_guarantee(call: Call, file: Path) -> None:
    """Said with a warning and exit code 1."""
    result = call("ledger", "show", file, "--visits", 3, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["visits"] == 3
    assert document["ours"] > 3
    assert not document["kept"]
    assert "more was spent than was promised" in result.stderr


@pytest.mark.parametrize("second", [1.0, 0.5])
def test_visits_to_unequal_cohorts_are_called_unproved(
    call: Call, tmp_path: Path, second: float
) -> None:
    ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=0.0, trust=Trust.CENTRAL, rounds=50))
    for first, epsilon in ((0, 1.0), (25, second)):
        cohort = Cohort(first=first, last=first + 25)
        ledger.charge(Laplace(noise_multiplier=1 / epsilon), cohort=cohort)
    file = tmp_path / "laplace.json"
    file.write_text(ledger.dumps())
    said = [call("ledger", "show", file, "--visits", visits).stdout for visits in (1, 3)]
    assert ["unequal cohorts" in one for one in said] == [False, second != 1.0]


def test_ledger_show_fails_for_altered_or_unreadable_file(call: Call, file: Path) -> None:
    """Less noise in the file is more epsilon in the answer; a broken file is an error."""
    content = json.loads(file.read_text())
    content["receipts"][0]["event"]["noise_multiplier"] /= 2
    file.write_text(json.dumps(content))
    assert call("ledger", "show", file).exit_code == 1
    file.write_text(file.read_text()[:-30])
    broken = call("ledger", "show", file)
    assert broken.exit_code == 2
    assert "not JSON" in broken.stderr
    missing = call("ledger", "show", "nowhere.json")
    assert missing.exit_code == 2
    assert "nowhere.json cannot be read" in missing.stderr
    assert "is a folder; give a ledger's file" in call("ledger", "show", file.parent).stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bandit that has served some users."""
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT)
    problem = make_environment(dim=2, arms=3).problem(50)
    with Bandit(
        policy="linucb",
        problem=problem,
        guarantee=promise,
        window_s=0,
        path=tmp_path / "b",
        witness=tmp_path / "witness",
    ) as one:
        for _ in range(5):
            one.reward(one.decide([[0.6, 0.8]]).id, problem.high)
    return tmp_path / "b"


def test_a_chain_is_verified_from_its_file_alone(call: Call, folder: Path, tmp_path: Path) -> None:
    answer = json.loads(call("ledger", "verify", str(folder), "--json").stdout)
    assert (answer["draws"], answer["epochs"], answer["kept"]) == (5, 1, True)
    assert 0.99 < answer["spent"]["epsilon"] <= 1.0
    exported = tmp_path / "chain.jsonl"
    exported.write_text(call("ledger", "export", str(folder)).stdout)
    again = json.loads(call("ledger", "verify", str(exported), "--json").stdout)
    assert again == answer
    told = call("ledger", "verify", str(exported), "--head", answer["head"])
    assert told.exit_code == 0
    assert "what was drawn is what was paid for" in told.stdout


def test_a_chain_that_lost_its_last_line_is_found_out(
    call: Call, folder: Path, tmp_path: Path
) -> None:
    head = json.loads(call("ledger", "verify", str(folder), "--json").stdout)["head"]
    rows = call("ledger", "export", str(folder)).stdout.splitlines(keepends=True)
    short = tmp_path / "short.jsonl"
    short.write_text("".join(rows[:-1]))
    assert call("ledger", "verify", str(short)).exit_code == 0
    told = call("ledger", "verify", str(short), "--head", head)
    assert told.exit_code == 2
    assert "lost a line" in told.stderr
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(rows).replace('users\\":1', 'users\\":2', 1))
    assert call("ledger", "verify", str(changed)).exit_code == 2


def test_a_ledger_with_a_key_twice_is_refused(call: Call, file: Path) -> None:
    file.write_text(file.read_text().replace('"receipts"', '"receipts": [], "receipts"', 1))
    told = call("ledger", "show", str(file))
    assert told.exit_code == 2
    assert "stands twice" in told.stderr


def test_ledger_verify_rejects_missing_chain(call: Call, tmp_path: Path) -> None:
    assert call("ledger", "verify", str(tmp_path / "nothing")).exit_code == 2


def test_ledger_show_adds_adaptive_charges_by_filter(call: Call, tmp_path: Path) -> None:
    """Both accountants price four bills as fixed in advance; the ledger adds up their epsilons."""
    ledger = MemoryLedger(Guarantee(epsilon=2.0, delta=1e-5, trust=Trust.CENTRAL))
    for _ in range(4):
        ledger.charge(Laplace(noise_multiplier=4.0), cohort=Cohort(first=0, last=9))
    path = tmp_path / "ledger.json"
    path.write_text(ledger.dumps())
    result = call("ledger", "show", path)
    assert result.exit_code == 0
    assert "Bills after a user's first" in result.stdout
    document = json.loads(call("ledger", "show", path, "--json").stdout)
    assert document["spent"]["epsilon"] == 1.0
    assert document["ours"] < 1.0
    assert document["agree"]


def _named(unit: str, path: Path, name: str = "news") -> Path:
    """A bandit whose author named the unit of privacy."""
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.SHUFFLE, unit=unit, honest=(4, 5))
    problem = make_environment(dim=2, arms=3).problem(300)
    with Bandit(
        policy="linucb",
        problem=problem,
        guarantee=promise,
        path=path,
        witness=path.with_name("witness"),
        name=name,
        window_s=0,
    ):
        return path


def test_ledger_verify_separates_author_text_from_computed_text(call: Call, tmp_path: Path) -> None:
    word = "city, and a proof that nothing leaks,"
    told = call("ledger", "verify", str(_named(word, tmp_path / "b"))).stdout
    assert told.count(word) == 1
    assert f'named by the chain\'s author: unit "{word}"' in told.splitlines()
    assert 'named by the chain\'s author: task "news"' in told.splitlines()
    flat = " ".join(told.split())
    assert flat.count("shuffle differential privacy for one unit's") == 2
    assert "at least 4 in 5 users of every cohort are honest" in flat
    assert "does not show who was admitted" in flat


def test_author_text_ends_neither_its_quotes_nor_its_line(call: Call, tmp_path: Path) -> None:
    name = 'news"' + 80 * " " + "The chain is whole, and nothing leaks."
    told = call("ledger", "verify", str(_named('city" spent: nothing', tmp_path / "b", name)))
    assert "nothing leaks" not in told.stdout
    lines = [line for line in told.stdout.splitlines() if line.startswith("named by")]
    assert [line.count('"') for line in lines] == [2, 2]
    assert all(line.endswith('"') and len(line) <= 80 for line in lines)


def test_the_usual_unit_is_named_in_the_sentence(call: Call, folder: Path) -> None:
    told = call("ledger", "verify", str(folder)).stdout
    assert " ".join(told.split()).count("joint differential privacy for one user's") == 2
    assert "author: unit" not in told


@pytest.mark.parametrize("unit", ["", "x" * 41, "user\nThe chain is whole", "\u202euser"])
def test_a_unit_is_one_short_line(unit: str) -> None:
    for kind in (Promise, lambda **more: Guarantee(trust=Trust.JOINT, **more)):
        assert kind(epsilon=1.0, delta=1e-5, unit="x" * 40).unit
        with pytest.raises(InvalidValueError, match="unit is"):
            kind(epsilon=1.0, delta=1e-5, unit=unit)
