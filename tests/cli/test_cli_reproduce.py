"""`kerchief reproduce` as a user meets it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result as Called
from tests.comparison.fakes import fake_play

from kerchief.cli import playing
from kerchief.cli import reproduce as command
from kerchief.comparison import cluster
from kerchief.comparison.chunks import Chunk
from kerchief.comparison.players import player
from kerchief.comparison.results import Result
from kerchief.comparison.runner import RunState, Watch, hand_out
from kerchief.comparison.workers import Answer, TaskResult, Tasks, Workers
from kerchief.core.registry import Registry
from kerchief.environments import make_environment
from kerchief.papers.claims import Claim, at
from kerchief.papers.experiment import Experiment, Setting, Size
from kerchief.reports.outputs import Outputs

Call = Callable[..., Called]

PRIVATE = player("linucb", trust="joint", epsilon=4.0)


def _experiment(name: str, bound: float, *paper: Claim) -> Experiment:
    """A tiny one with a long row; the bound decides whether its claim holds."""
    worlds = [f"a world, S={number}" for number in range(1, 3)]
    return Experiment(
        name=name,
        title="A small experiment",
        summary="what a small experiment shows in a rather long line that the terminal must wrap",
        source="a paper",
        settings=tuple(
            Setting(name=world, make=partial(make_environment, dim=2, arms=3)) for world in worlds
        ),
        players=(player("linucb", mode="theory"), PRIVATE),
        delta=1e-5,
        full=Size(horizon=40, replicates=2),
        quick=Size(horizon=20, replicates=2),
        claims=(
            at(PRIVATE, worlds[0]).at_most(bound, quick=True),
            at(PRIVATE, worlds[1]).at_most(99),
            *paper,
        ),
        printed={at(PRIVATE, worlds[0]): 1234.5},
    )


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    small: Registry[Experiment] = Registry("experiment")
    small.add("true", _experiment("true", 99.0))
    small.add("false", _experiment("false", 0.001))
    monkeypatch.setattr(command, "EXPERIMENTS", small)


@pytest.fixture
def of_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments with one claim of a paper each: one is confirmed, two verdicts differ."""
    small: Registry[Experiment] = Registry("experiment")
    for name, bound, recorded in (
        ("confirmed", 0.001, "does not hold here"),
        ("mended", 999.0, "does not hold here"),
        ("broken", 0.001, "holds"),
    ):
        claim = at(PRIVATE, "a world, S=1").at_most(bound, quick=True)
        paper = claim.from_paper("Table 9", recorded, figures="5 ± 1")  # type: ignore[arg-type]
        small.add(name, _experiment(name, 999.0, paper))
    monkeypatch.setattr(command, "EXPERIMENTS", small)
    monkeypatch.setattr(RunState, "results", fake_play())


@pytest.mark.usefixtures("undrawn", "of_paper")
def test_reproduce_confirms_a_paper_claim_that_does_not_hold(call: Call) -> None:
    result = call("reproduce", "confirmed")
    assert result.exit_code == 0, result.stderr
    assert "our claims: 3 hold\n" in result.stdout
    assert "the paper's claims: 1 do not hold here\n" in result.stdout
    assert "Table 9" in result.stdout
    assert max(map(len, result.stdout.partition("(epsilon=")[0].splitlines())) <= 80
    page = Path("results/confirmed/report.html").read_text()
    assert "What the paper claims" in page
    assert "(Table 9)" in page
    (claim,) = json.loads(Path("results/confirmed/results.json").read_text())["claims"][3:]
    assert {claim["source"], claim["outcome"], claim["recorded"], claim["confirmed"]} == {
        "paper", "does not hold here", True
    }  # fmt: skip


@pytest.mark.usefixtures("undrawn", "of_paper")
@pytest.mark.parametrize("size", ["--quick", "--force"])
@pytest.mark.parametrize(
    ("name", "difference"),
    [
        ("mended", "recorded as does not hold here, and holds"),
        ("broken", "recorded as holds, and does not hold here"),
    ],
)
def test_reproduce_fails_where_a_verdict_differs(
    call: Call, name: str, difference: str, size: str
) -> None:
    result = call("reproduce", name, size)
    assert result.exit_code == 1
    assert "failed: 1 of 4 claims: linucb joint ε=4 on a world, S=1" in result.stderr
    assert f"(paper, Table 9): {difference}" in result.stderr
    assert "(recorded:" in " ".join(result.stdout.split())


def test_the_output_fits_a_terminal(call: Call) -> None:
    result = call("reproduce", "true")
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "kerchief: playing: 10 cells of 40 rounds, with 2 replicates each; less with --quick or "
        "--replicates\n"
    )
    tables = result.stdout.partition("(epsilon=")[0]
    assert max(map(len, tables.splitlines())) <= 80
    for words in ("(1234)", "4, 1e-05", "linucb theory not private", "our claims: 3 hold\n"):
        assert words in tables
    folder = Path("results/true")
    assert {path.name for path in folder.iterdir()} == {
        "true.png", "report.html", "results.json", "results.parquet", "parts"
    }  # fmt: skip


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_width_has_every_world(
    call: Call, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(RunState, "results", fake_play())
    said = call("reproduce", "true").stdout
    assert max(map(len, said.splitlines())) <= width
    assert "(1234)" in said
    assert "S=1" in said
    assert "S=2" in said


@pytest.mark.usefixtures("undrawn")
def test_figures_for_another_horizon_are_not_shown(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call("reproduce", "true", "--quick")
    assert "(1234)" not in result.stdout
    assert "printed)" not in result.stdout
    note = "The paper printed its figures for 40 rounds; they are not shown beside 20."
    assert note in " ".join(result.stdout.split())
    assert note in Path("results/true/report.html").read_text()
    rows = json.loads(Path("results/true/results.json").read_text())["rows"]
    assert {row["printed"] for row in rows} == {None}
    assert note not in " ".join(call("reproduce", "true").stdout.split())


@pytest.mark.usefixtures("undrawn")
def test_a_failing_claim_is_said_clearly(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    result = call("reproduce", "false")
    assert result.exit_code == 1
    assert "kerchief: failed: 1 of 3 claims: linucb joint ε=4 on a world, S=1" in result.stderr
    assert "our claims: 2 hold, 1 fail\n" in result.stdout


@pytest.mark.usefixtures("undrawn")
def test_quick_claims_are_judged_alone(call: Call) -> None:
    result = call("reproduce", "true", "--quick", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    outcomes = [claim["outcome"] for claim in document["claims"]]
    assert outcomes == ["holds", "not judged", "holds"]
    assert document["parameters"]["horizon"] == 20
    assert document["command"] == "kerchief reproduce true --quick --replicates 2 --seed 0"


@pytest.mark.usefixtures("undrawn")
def test_json_is_one_object_and_nothing_else(call: Call, tmp_path: Path) -> None:
    flags = ("--replicates", 2, "--seed", 7, "--out", tmp_path / "here", "--json")
    result = call("reproduce", "true", *flags)
    document = json.loads(result.stdout)
    assert set(document) >= {"rows", "claims", "seconds", "parameters", "versions", "files"}
    (private,) = [row for row in document["rows"] if row["printed"] is not None]
    assert (private["policy"], private["trust"], private["printed"]) == ("linucb", "joint", 1234.5)
    assert {row["mode"] for row in document["rows"]} == {"tuned", "theory"}
    assert all(row["replicates"] == 2 for row in document["rows"])
    assert document["parameters"]["seed"] == 7
    assert {claim["outcome"] for claim in document["claims"]} == {"holds"}
    for path in document["files"].values():
        assert Path(path).parent == tmp_path / "here"
        assert Path(path).is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give the NAME of an experiment, or --all, and not both"),
        (("true", "--all"), "give the NAME of an experiment, or --all, and not both"),
        (("--all", "--out", "x"), "--all writes a folder for each experiment"),
        (("true", "--resume"), "there is no run in 'results/true' to resume"),
        (("true", "--jobs", 0), "jobs is 0"),
        (
            ("true", "--jobs", "many"),
            "--jobs is 'many'; give a number of processes, or the address",
        ),
        (("true", "--resume", "--force"), "--force throws it away; give one of them"),
        (("true", "--jobs", "tcp://127.0.0.1:1"), "none answers there"),
        (("tru",), "did you mean 'true'? Known: false, true"),
        (("true", "--replicates", 1), "replicates is 1; it must be at least 2"),
        (("true", "--replicates", "x"), "not a valid integer"),
        (("true", "--seed", -1), "seed is -1"),
        (("true", "--out", "/dev/null/x"), "cannot be written"),
    ],
)
def test_bad_input_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], message: str
) -> None:
    monkeypatch.setattr(RunState, "results", _stopped_after(0))
    monkeypatch.setattr(cluster, "SCHEDULER_TIMEOUT_S", 0.2)
    result = call("reproduce", *words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("kerchief: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def _stopped_after(count: int) -> Callable[..., Iterator[Result]]:
    results = RunState.results

    def stopped(work: RunState, watch: Watch) -> Iterator[Result]:
        for number, finished in enumerate(results(work, watch)):
            if number == count:
                raise KeyboardInterrupt
            yield finished

    return stopped


class _Idle:
    """Workers that play nothing, and remember what they were given."""

    def __init__(self) -> None:
        self.given: list[list[Chunk]] = []

    def submit(self, parts: Iterable[Chunk]) -> dict[object, object]:
        self.given.append(list(parts))
        return {}


def test_workers_get_all_experiments_at_once(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits keeps what arrives for all of them."""
    idle, arriving = _Idle(), set[int]()

    def results(work: RunState, watch: Watch) -> Iterator[Result]:
        arriving.add(id(work.arriving))
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(playing, "local_processes", lambda *given: contextlib.nullcontext(idle))
    monkeypatch.setattr(RunState, "results", results)
    begun: list[RunState] = []

    def remembered(works: list[RunState], workers: Workers) -> None:
        begun.extend(works)
        hand_out(works, workers)

    monkeypatch.setattr(playing, "hand_out", remembered)
    assert call("reproduce", "--all", "--quick", "--jobs", 2).exit_code == 130
    (given,) = idle.given
    assert {id(part) for part in given} < {id(part) for work in begun for part in work.missing}
    assert {part.address() for part in given} == {
        part.address() for work in begun for part in work.missing
    }
    assert [id(work.arriving) for work in begun] == 2 * [*arriving]


class _Backwards:
    """Workers that play everything at once, the last parts first, until the user stops them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.forwards = False

    def submit(self, parts: Iterable[Chunk]) -> Tasks:
        tasks: Tasks = {}
        for part in list(parts)[:: 1 if self.forwards else -1]:
            future: Future[Answer] = Future()
            tasks[future] = [part]
            if len(tasks) <= self.most:
                done = TaskResult(result=part.play(), process=("here", 1), memory=1)
                future.set_result(Answer(results={0: done}, error=None))
            else:
                future.set_exception(KeyboardInterrupt())
        return tasks


@pytest.fixture
def backwards(monkeypatch: pytest.MonkeyPatch) -> _Backwards:
    """Two experiments that share no part, and whoever plays them begins at the end."""
    other = dataclasses.replace(_experiment("other", 99.0), delta=1e-6)
    both: Registry[Experiment] = Registry("experiment")
    both.add("true", _experiment("true", 99.0))
    both.add("other", other)
    monkeypatch.setattr(command, "EXPERIMENTS", both)
    everyone = _Backwards(most=1000)
    monkeypatch.setattr(playing, "local_processes", lambda *given: contextlib.nullcontext(everyone))
    # Of those that are done already, the first ones first.
    monkeypatch.setattr(concurrent.futures, "as_completed", list)
    return everyone


@pytest.mark.usefixtures("undrawn", "backwards")
def test_reproduce_prints_on_arrival_and_summarizes_in_order(call: Call) -> None:
    result = call("reproduce", "--all", "--quick", "--jobs", 2)
    assert result.exit_code == 0
    rows = ["rows: results/other/results.json", "rows: results/true/results.json"]
    assert sorted(rows, key=result.stdout.index) == rows
    last = result.stdout.split("experiment")[-1]
    assert last.index("true") < last.index("other")


@pytest.mark.usefixtures("undrawn")
def test_reproduce_interrupted_in_waiting_keeps_arrived_chunks(
    call: Call, backwards: _Backwards
) -> None:
    backwards.most = 15
    result = call("reproduce", "--all", "--quick", "--jobs", 2)
    assert result.exit_code == 130
    assert len(list(Path("results").rglob("*.npz"))) == backwards.most
    # All of the other one has arrived, and of this one all but the first cells.
    assert "rows: results/other/results.json" in result.stdout
    assert "interrupted: 15 of 20 parts of what was begun are kept" in result.stderr
    backwards.most = 1000
    assert call("reproduce", "--all", "--quick", "--jobs", 2).exit_code == 0


@pytest.mark.usefixtures("undrawn")
def test_json_of_several_plans_has_all_that_was_begun(call: Call, backwards: _Backwards) -> None:
    """Rows up to the first that is missing."""
    backwards.forwards, backwards.most = True, 13
    result = call("reproduce", "--all", "--quick", "--jobs", 2, "--json")
    assert result.exit_code == 130
    found = json.loads(result.stdout)["experiments"]
    assert {name: len(one["rows"]) for name, one in found.items()} == {"true": 10, "other": 3}
    kept = json.loads(Path("results/other/results.json").read_text())
    assert len(kept["rows"]) == 3


def test_reproduce_interrupted_while_drawing_reports_kept_cells(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(outputs: Outputs) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Outputs, "close", stopped)
    result = call("reproduce", "true", "--quick")
    assert result.exit_code == 130
    assert "interrupted: 10 of 10 cells were finished, in results/true" in result.stderr


@pytest.mark.parametrize("count", [0, 6])
def test_interrupted_reproduce_keeps_finished_cells_and_claims(
    call: Call, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(RunState, "results", _stopped_after(count))
    result = call("reproduce", "false")
    assert result.exit_code == 130
    assert f"interrupted: {count} of 10 cells were finished" in result.stderr
    if count:
        claims = json.loads(Path("results/false/results.json").read_text())["claims"]
        assert [claim["outcome"] for claim in claims] == ["fails", "not judged", "not judged"]
        assert "was interrupted" in Path("results/false/report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_reproduce_all_runs_and_summarizes_every_experiment(call: Call) -> None:
    """A rerun finds everything; who asks for JSON gets one object with all of them."""
    result = call("reproduce", "--all", "--quick")
    assert result.exit_code == 1
    last = result.stdout.split("experiment")[-1]
    assert ["true" in last, "false" in last] == [True, True]
    assert "false: " in result.stderr
    again = json.loads(call("reproduce", "--all", "--quick", "--json").stdout)["experiments"]
    assert list(again) == ["true", "false"]
    for one in again.values():
        assert one["work"]["found"] == one["work"]["parts"] > 0
