"""`kerchief compare` as a user meets it."""

from __future__ import annotations

import errno
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import Result as Called
from tests.comparison.fakes import fake_play, fake_result

from kerchief.cli.printing import print_table
from kerchief.comparison.chunks import build_protected_policy
from kerchief.comparison.players import Cell, player
from kerchief.comparison.results import HEADINGS, Result
from kerchief.comparison.runner import RunState, Watch

Call = Callable[..., Called]
TREE = ("--contexts", "ball", "--trust", "joint", "--trust", "central", "--mechanism", "tree")
SMALL = ("compare", "--dim", 2, "--arms", 3, "--horizon", 60, "--replicates", 4, "--epsilon", 1)


@pytest.mark.nightly
def test_the_table_fits_a_terminal(call: Call) -> None:
    result = call(*SMALL, "--trust", "local", "--trust", "joint")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("kerchief: playing: 10 cells of 60 rounds")
    table, _, rest = result.stdout.partition("(epsilon=")
    assert max(map(len, table.splitlines())) <= 80
    assert "ball contexts" in table
    assert "fixed contexts" in table
    assert table.count("not private") == 4
    assert " ".join(rest.split()).count("differential privacy") == 2
    assert "report: results/compare/report.html" in rest


def test_wide_numbers_fit_too(capsys: pytest.CaptureFixture[str]) -> None:
    who = player("linucb@paper", trust="central", epsilon=0.123456)
    cell = Cell(player=who, world="intercept", delta=1.234e-6, horizon=10)
    row = fake_result(cell, 1234567.0, 12345.0)
    print_table(HEADINGS, [row.texts()], columns="llrrrrRRRR")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1234567 ± 12345" in line for line in lines)


@pytest.mark.usefixtures("undrawn")
def test_json_is_one_object_and_nothing_else(call: Call, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "here")
    result = call(*SMALL, "--json", *TREE, *out)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) >= {"rows", "parameters", "versions", "files"}
    assert len(document["rows"]) == 5
    for row in document["rows"]:
        _check_row(row)
    for path in document["files"].values():
        assert Path(path).is_file()
    # Continual noise is chosen and recorded.
    assert document["parameters"]["mechanism"] == ["joint=tree", "central=best"]
    assert "--mechanism joint=tree" in document["command"]
    words = {(row["trust"], row["continual"]) for row in document["rows"]}
    assert words == {("none", "best"), ("joint", "tree"), ("central", "best")}


def _check_row(row: dict[str, Any]) -> None:
    assert set(row) >= {
        "policy",
        "trust",
        "contexts",
        "epsilon",
        "delta",
        "private",
        "microseconds",
    }
    assert set(row["spent"]) == {"epsilon", "delta"}
    assert set(row["regret"]) == {
        "mean",
        "se",
        "uniform_share",
        "median",
        "p95",
        "max",
        "unconverged",
    }
    assert row["regret"]["mean"] > 0
    if row["trust"] == "none":
        assert row["epsilon"] is None
        assert row["private"] == (row["policy"] == "uniform")
        assert row["spent"]["epsilon"] == (0.0 if row["private"] else None)
    else:
        assert 0 < row["spent"]["epsilon"] <= row["epsilon"] * (1 + 1e-9)


@pytest.mark.usefixtures("undrawn")
def test_continual_noise_is_printed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # narrower tables break words where times are long
    monkeypatch.setattr(RunState, "results", fake_play())
    shown = call(*SMALL, *TREE)
    assert "joint, tree" in shown.stdout
    assert "central, tree" not in shown.stdout


@pytest.mark.nightly
@pytest.mark.usefixtures("undrawn")
def test_compare_prints_mechanism_chosen_by_default(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A curator's Laplace noise, by its word in the table and by its class in the rows."""
    monkeypatch.setenv("COLUMNS", "120")
    who = ("--policy", "pe", "--env", "population", "--trust", "central", "--epsilon", 1)
    size = ("--horizon", 300, "--replicates", 2, "--env-param", "clients=300", "--dim", 2)
    flags = ("compare", *who, *size, "--arms", 4)
    *_, row = json.loads(call(*flags, "--json").stdout)["rows"]
    assert (row["curator"], row["noises"]) == ("best", {"answers": "Laplace"})
    assert "laplace" in call(*flags).stdout


@pytest.mark.usefixtures("undrawn")
def test_the_promise_of_one_report_is_printed(call: Call) -> None:
    """Where a number asks for it: the report's own epsilon, at most what was asked for."""
    who = ("--policy", "sblb", "--trust", "shuffle", "--epsilon", 1, "--contexts", "ball")
    size = ("--horizon", 60, "--replicates", 2, "--dim", 2, "--arms", 3, "--param", "local=2")
    flags = ("compare", *who, *size, "--param", "length=30", "--mechanism", "bit", "--out", "here")
    *_, row = json.loads(call(*flags, "--json").stdout)["rows"]
    assert 1.9 < row["report_epsilon"] <= 2
    shown = " ".join(call(*flags).stdout.split())
    told = f"(epsilon={row['report_epsilon']:.6g}, delta=0) local differential privacy"
    whose = "one report of sblb length=30 local=2 shuffle, bit by itself"
    assert f"{whose}, on its way to the shuffler: {told}" in shown


@pytest.mark.nightly
def test_other_worlds_play(call: Call) -> None:
    flags = (
        "--env",
        "probit",
        "--env-param",
        "fewest=2",
        "--mode",
        "theory",
        "--contexts",
        "starved",
    )
    result = call(*SMALL, *flags, "--env-param", "noise=bounded", "--trust", "none")
    assert result.exit_code == 0, result.output


def test_options_and_numbers_reach_the_world_and_the_policy(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is played is what the flags say, and the command is recorded with them."""
    seen: list[tuple[Any, Any]] = []

    def play(work: RunState, watch: Watch) -> Iterator[Result]:
        plan: Any = work.plan
        cell, world = plan.cells()[-1], plan.environment(plan.world)
        seen.append(
            (world.problem(plan.horizon), build_protected_policy(cell, world.problem(plan.horizon)))
        )
        yield from ()

    monkeypatch.setattr(RunState, "results", play)
    call("compare", "--policy", "dpe", "--env-param", "clients=2000", "--param", "growth=0.5")
    call("compare", "--policy", "ucb", "--env-param", "gap=0.3", "--param", "width=0.25")
    (crowd, phased), (_, plain) = seen
    assert crowd.clients == 2000
    assert phased.policy.growth == 0.5
    assert plain.policy.width == 0.25


@pytest.mark.usefixtures("undrawn")
def test_a_world_with_options_is_played(call: Call) -> None:
    flags = ("--env-param", "gap=0.3", "--arms", 3, "--horizon", 300, "--replicates", 2, "--json")
    result = call("compare", "--policy", "tsallis", "--epsilon", 4, *flags)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["parameters"]["env"] == "chance"
    assert "gap=0.3" in document["parameters"]["env_param"]
    rows = {(row["policy"], row["trust"]): row for row in document["rows"]}
    # Every wrong arm loses the gap, and uniform play chooses two of three.
    assert rows["uniform", "none"]["regret"]["mean"] == pytest.approx(0.3 * 300 * 2 / 3, rel=0.15)
    assert rows["tsallis", "local"]["spent"]["epsilon"] <= 4.0


@pytest.mark.usefixtures("undrawn")
def test_a_large_delta_is_one_line_of_warning(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call(*SMALL, "--delta", 0.05, "--contexts", "ball", "--trust", "central", "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith("kerchief: warning: delta is 0.05")
    assert result.stderr.count("\n") == 1
    json.loads(result.stdout)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--param", "exploration=1", "--param", "exploration=2"),
            "is 1 and 2; give it one value",
        ),
        (("--policy", "linucp"), "did you mean 'linucb'"),
        (("--policy", "LinUCB"), "did you mean 'linucb'"),
        (("--policy", "GLM "), "did you mean 'glm'"),
        (("--policy", "linucb@book"), "no policy is called"),
        (("--trust", "locl"), "did you mean 'local'"),
        (("--policy", "uniform", "--trust", "shuffle"), "supports none"),
        (("--trust", "joint", "--horizon", "20000000"), "at most 10000000"),
        (("--mechanism", "joint=tre"), "did you mean 'tree'"),
        (("--mechanism", "toeplitz", "--horizon", "30000"), "at most 20000"),
        (("--contexts", "bal"), "did you mean 'ball'"),
        (("--env", "logit"), "Known: absolute, alternating, chance"),
        (("--env-param", "noise=x"), "known: bernoulli"),
        (("--mode", "x"), "known: theory, tuned"),
        (("--epsilon", 0), "epsilon is 0.0; it must be above 0"),
        (("--epsilon", -1), "epsilon is -1.0; it must be above 0"),
        (("--epsilon", "nan"), "epsilon is nan; it must be a number"),
        (("--epsilon", "inf"), "epsilon is inf; it must be finite"),
        (("--epsilon", "one"), "'one' is not a valid float"),
        (("--delta", 0), "needs one above 0; choose one, or trust"),
        (("--delta", 1), "delta is 1.0; it must lie in (0.0, 1.0)"),
        (("--delta", "nan"), "delta is nan"),
        (("--horizon", -5), "horizon is -5"),
        (("--horizon", 1.5), "not a valid integer"),
        (("--replicates", 0), "replicates is 0"),
        (("--dim", 0), "dim is 0"),
        (("--dim", 513), "at most 512"),
        (("--arms", 0), "arms is 0"),
        (("--env-param", "fewest=4"), "fewest arms is 4"),
        (("--radius", "nan"), "radius is nan"),
        (("--seed", -1), "seed is -1"),
        (("--out", "/dev/null/x"), "cannot be written"),
        (("--bogus", 1), "--bogus"),
        (("--epsilon", "1e-320"), "epsilon is 1e-320; it must be finite and at least"),
        (("--mechanism", "tree", "--trust", "local"), "no row has joint trust"),
        (("--mechanism", "tree", "--policy", "glm-descent"), "no row has joint trust"),
        (("--env", "linear", "--policy", "dpe"), "policy 'dpe' plays in population"),
        (("--env", "population"), "policy 'best' plays in linear, logistic"),
        (("--env-param", "clients"), "is not NAME=VALUE"),
        (("--env-param", "clients=5"), "parameter is 'clients'; this environment has"),
        (("--param", "exploration=x"), "exploration is 'x'; it must be a number"),
        (("--param", "courage=2"), "parameter is 'courage'; LinearSampling has"),
    ],
)
def test_bad_input_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, flags: tuple[object, ...], words: str
) -> None:
    monkeypatch.setattr(RunState, "results", _never)
    result = call(*SMALL, *flags)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("kerchief: error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_whole_output_fits(call: Call, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call(*SMALL, "--epsilon", 4)
    assert result.exit_code == 0, result.output
    said = result.stdout.splitlines()
    assert max(map(len, said)) <= width
    assert ("no room for: µs" in result.stdout) == (width < 100)


@pytest.mark.usefixtures("undrawn")
def test_promises_are_one_sentence_a_trust(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call(*SMALL, "--epsilon", 4, "--epsilon", 10)
    said = " ".join(result.stdout.split())
    assert said.count("(epsilon=1, 4 or 10, delta=1e-05)") == 4
    assert said.count("differential privacy") == 4


@pytest.mark.usefixtures("undrawn")
def test_repeated_options_count_once(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    twice = ("--trust", "joint", "--policy", "linucb", "--contexts", "ball", "--epsilon", "1.0")
    document = json.loads(call(*SMALL, *twice, *twice, "--json").stdout)
    given = document["parameters"]
    assert [given[word] for word in ("trust", "policy", "contexts", "epsilon")] == [
        ["joint"], ["linucb"], ["ball"], [1.0]
    ]  # fmt: skip
    assert document["command"].count("--epsilon") == 1


def test_compare_announces_size_of_run_first(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play(0))
    said = call(*SMALL, "--contexts", "ball").stderr.splitlines()[0]
    assert said == (
        "kerchief: playing: 7 cells of 60 rounds, with 4 replicates each; less with --contexts, "
        "--trust, --epsilon, --horizon or --replicates"
    )
    assert "playing" not in call(*SMALL, "--json").stderr


def test_json_needs_no_library_for_reports(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs one is left out, with a warning; without --json it is an error with a remedy."""
    find = importlib.util.find_spec
    missing = ("polars", "jinja2", "matplotlib")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find(name)
    )
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call(*SMALL, "--json")
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["files"]) == {"rows"}
    assert "table and picture and report will not be written without polars" in result.stderr
    names = {path.name for path in Path("results/compare").iterdir()}
    assert names == {"results.json", "parts"}
    refused = call(*SMALL)
    assert refused.exit_code == 2
    assert "run pip install -e '" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.usefixtures("undrawn")
def test_missing_library_skips_only_its_own_files(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "polars" else find(name)
    )
    monkeypatch.setattr(RunState, "results", fake_play())
    files = json.loads(call(*SMALL, "--json").stdout)["files"]
    assert set(files) == {"rows", "picture", "report"}


@pytest.mark.usefixtures("undrawn")
def test_a_full_disk_is_one_line_and_its_own_code(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    assert call(*SMALL, "--out", tmp_path / "out").exit_code == 0
    old = (tmp_path / "out" / "results.json").read_bytes()

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = call(*SMALL, "--out", tmp_path / "out", "--json")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("kerchief: error: results cannot be written to")
    assert result.stderr.count("\n") == 1
    assert (tmp_path / "out" / "results.json").read_bytes() == old


def _never(*arguments: object, **options: object) -> Iterator[Result]:
    raise AssertionError("it ran")


def _stopped_after(count: int) -> Callable[..., Iterator[Result]]:
    results = RunState.results

    def stopped(work: RunState, watch: Watch) -> Iterator[Result]:
        for number, finished in enumerate(results(work, watch)):
            if number == count:
                raise KeyboardInterrupt
            yield finished

    return stopped


def test_interrupted_compare_keeps_finished_configurations(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", _stopped_after(2))
    result = call(*SMALL, "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert "interrupted: 2 of 14 cells were finished" in result.stderr
    assert "greedy" in result.stdout
    table = pl.read_parquet(tmp_path / "out" / "results.parquet")
    assert table["policy"].unique().sort().to_list() == ["greedy", "uniform"]
    assert "was interrupted" in (tmp_path / "out" / "report.html").read_text()
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())["rows"]) == 2


def test_a_run_that_is_stopped_at_once_has_no_rows(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", _stopped_after(0))
    result = call(*SMALL, "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert f"0 of 14 cells were finished, in {tmp_path / 'out'}; run it again" in result.stderr
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (document["rows"], document["complete"]) == ([], False)


PROJECTED = (
    *("compare", "--dim", 12, "--horizon", 40, "--replicates", 2, "--epsilon", 1),
    *("--contexts", "ball", "--trust", "local", "--policy", "linucb"),
)


@pytest.mark.nightly
@pytest.mark.usefixtures("undrawn")
def test_a_projection_says_what_it_costs(call: Call) -> None:
    result = call(*PROJECTED, "--env-param", "project=4", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    cost = told["projection"]["ball"]
    assert (cost["dim"], cost["onto"]) == (12, 4)
    assert 0 < cost["lost"] < 1
    assert 0 < cost["clipped"] < 1
    assert "--env-param project=4" in told["command"]
    report = Path(told["files"]["report"]).read_text()
    assert "projected from 12 numbers to 4" in report


def test_project_rejects_more_dimensions_than_features(call: Call) -> None:
    refused = call(*PROJECTED, "--env-param", "project=12")
    assert refused.exit_code == 2
    assert "project is 12; it must be at least 1 and at most 11" in refused.stderr


@pytest.mark.usefixtures("undrawn")
def test_compare_hint_names_only_flags_of_its_environment(call: Call) -> None:
    flags = ("--trust", "none", "--horizon", 60, "--replicates", 2)
    result = call("compare", "--policy", "ucb", *flags)
    assert result.exit_code == 0, result.output
    assert "; less with --trust, --epsilon, --horizon or --replicates" in result.stderr


def test_compare_warns_of_widths_without_proof(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play(0))
    flags = (*SMALL, "--policy", "linucb", "--trust", "local", "--mode", "theory")
    told = "proved for normal noise at a delta above 0, and not for local"
    assert f"{told}, privunit" in call(*flags, "--mechanism", "privunit").stderr
    assert told in call(*flags, "--delta", 0).stderr
    assert "proved" not in call(*flags).stderr
