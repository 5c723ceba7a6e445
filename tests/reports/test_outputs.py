"""What a comparison leaves on disk can be read again, after every cell."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.comparison.fakes import fake

import kerchief
from kerchief.comparison.chunks import ChunkResult, split_chunks
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.results import Result
from kerchief.comparison.versions import versions
from kerchief.core.errors import InvalidValueError, WriteError
from kerchief.reports import outputs as module
from kerchief.reports.figures import draw
from kerchief.reports.line_styles import pen_for
from kerchief.reports.outputs import Outputs, free_folder, own_folder
from kerchief.reports.report import headlines, promises, render
from kerchief.simulation.run import Run

SMALL = Comparison(
    contexts=("ball", "fixed"), dim=2, arms=3, horizon=60, replicates=4, epsilons=(0.5, 2.0)
)


@pytest.fixture(scope="module")
def finished() -> list[Result]:
    return fake(SMALL)


@pytest.fixture(scope="module")
def outputs(finished: list[Result], tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    kept = Outputs.at(tmp_path_factory.mktemp("results") / "out", SMALL)
    for one in finished:
        kept.keep(one)
    kept.close()
    return kept


def test_the_table_holds_every_number(outputs: Outputs, finished: list[Result]) -> None:
    table = pl.read_parquet(outputs.files["table"])
    assert table.height == sum(one.curves.size for one in finished)
    for one in finished:
        epsilon = one.cell.asked[0] if one.cell.asked else None
        rows = table.filter(
            pl.col("contexts") == one.cell.world,
            pl.col("policy") == one.cell.player.policy,
            pl.col("trust") == str(one.cell.player.trust),
            pl.col("epsilon").eq_missing(epsilon),
            pl.col("replicate") == 2,
        )
        np.testing.assert_array_equal(rows["round"], one.rounds)
        np.testing.assert_array_equal(rows["regret"], one.curves[:, 2])


def test_results_so_far_are_written_in_a_small_part_of_the_time(
    finished: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand cells would else be written a thousand times, and parts wait meanwhile."""
    clock, written = [0.0], list[int]()
    monkeypatch.setattr("kerchief.reports.outputs.time.monotonic", lambda: clock[0])
    kept = Outputs.at(tmp_path / "out", SMALL)
    write = kept._write_rows

    def slowly() -> None:
        clock[0] += 2
        written.append(len(kept.finished))
        write()

    monkeypatch.setattr(kept, "_write_rows", slowly)
    for one in finished[:30]:
        clock[0] += 10
        kept.keep(one)
    assert written == [1, 5, 9, 13, 17, 21, 25, 29][: len(written)]
    assert len(written) >= 3
    kept.close()
    assert len(json.loads(kept.files["rows"].read_text())["rows"]) == len(finished[:30])


def test_the_table_holds_what_numbers_depend_on(outputs: Outputs) -> None:
    table = pl.read_parquet(outputs.files["table"])
    assert {"seed", "env", "mode", "env_param", "device"} < set(table.columns)
    assert {"version_kerchief", "version_jax", "version_numpy", "version_python"} < set(
        table.columns
    )
    assert table["seed"].unique().to_list() == [0]
    private = table.filter("private")
    assert private["spent_epsilon"].null_count() == 0
    assert table.filter(~pl.col("private"))["spent_epsilon"].null_count() > 0


def test_results_are_whole_after_every_cell(
    finished: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where writing them takes no time."""
    monkeypatch.setattr("kerchief.reports.outputs.time.monotonic", lambda: 1.0)
    kept = Outputs.at(tmp_path, SMALL)
    for count, one in enumerate(finished[:3], start=1):
        kept.keep(one)
        assert pl.read_parquet(tmp_path / "results.parquet").height == count * one.curves.size
        document = json.loads((tmp_path / "results.json").read_text())
        assert len(document["rows"]) == count
        assert document["complete"] is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "results.parquet"]


def test_the_picture_has_a_block_of_panels_for_each_world(
    outputs: Outputs, finished: list[Result]
) -> None:
    """Four trusts, and the price of epsilon."""
    assert outputs.files["picture"].read_bytes().startswith(b"\x89PNG")
    figure = draw(SMALL, finished)
    assert [part.get_suptitle() for part in figure.subfigs] == ["ball contexts", "fixed contexts"]
    assert [len(part.axes) for part in figure.subfigs] == [5, 5]


def test_a_picture_without_protection_is_drawn(finished: list[Result]) -> None:
    plain = [one for one in finished if one.cell.asked is None]
    assert len(draw(SMALL, plain).axes) == 4


def test_a_stopped_picture_is_drawn(finished: list[Result]) -> None:
    """Few cells were finished in the second world: one panel shows them all."""
    first, second = draw(SMALL, finished[:13]).subfigs
    assert [len(panel.texts) for panel in second.axes] == [2, 2]
    assert len(first.axes) == 5


def test_the_report_stands_alone(outputs: Outputs, finished: list[Result]) -> None:
    page = outputs.files["report"].read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")
    for promise in promises(SMALL, (one.cell for one in finished)):
        assert promise.statement.split(".")[1] in page
    assert "interrupted" not in page
    assert page.count("not private") >= 4


def test_a_partial_report_says_so(finished: list[Result]) -> None:
    page = render(SMALL, finished[:2], b"png")
    assert "interrupted: 2 of 22 cells" in page


def test_the_report_begins_with_what_privacy_costs() -> None:
    """At the strictest and the loosest epsilon, beside uniform play and the parent."""
    rows = fake(SMALL)
    first, second = headlines(SMALL, rows)
    assert first == (
        "Ball contexts: at ε = 0.5 the least private regret is 82.0 ± 3.5 (sampling, trust: "
        "central), 82.0 % of the 100 of uniform play and 85.4 % of the 96.0 of sampling without "
        "privacy; at ε = 2 the least private regret is 80.0 ± 3.4 (sampling, trust: central), "
        "80.0 % of the 100 of uniform play and 83.3 % of the 96.0 of sampling without privacy."
    )
    assert second.startswith("Fixed contexts: at ε = 0.5 the least")
    page = render(SMALL, fake(SMALL), b"png")
    assert first in page
    nobody = headlines(SMALL, rows[:2])
    assert nobody == ["Ball contexts: no private bandit was played to the end."]


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    """What differs is said; the same run may go on there, and force replaces."""
    _played(tmp_path, 3)
    other = dataclasses.replace(SMALL, seed=1, horizon=61)
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(InvalidValueError, match=r"horizon 60 there, 61 now, seed 0 there, 1 now\)"):
        Outputs.at(tmp_path, other)
    assert (tmp_path / "results.json").read_bytes() == before
    assert _played(tmp_path, 2).folder.path == tmp_path
    assert free_folder(tmp_path, SMALL) == tmp_path
    assert free_folder(tmp_path, other) == tmp_path.with_name(f"{tmp_path.name}-2")
    before = (tmp_path / "results.json").read_bytes()
    forced = Outputs.at(tmp_path, other, force=True)
    assert (tmp_path / "results.json").read_bytes() == before
    forced.begin()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "results.json"]


def test_own_folder_is_that_of_the_same_comparison(tmp_path: Path) -> None:
    """And not in the folder of another run, which is nobody's to replace then."""
    usual, other = tmp_path / "run", dataclasses.replace(SMALL, seed=1)
    _played(usual, 2)
    assert own_folder(usual, other) is None
    Outputs.at(free_folder(usual, other), other).begin()
    assert own_folder(usual, other) == tmp_path / "run-2"
    assert own_folder(usual, SMALL) == usual


def _names(path: Path) -> dict[str, bytes]:
    files = (one for one in path.rglob("*") if one.is_file())
    return {str(one.relative_to(path)): one.read_bytes() for one in files}


def test_run_stops_before_writing_when_its_folder_was_taken(
    finished: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, tables, pictures and parts: the finished run of whoever has taken it stays whole."""
    monkeypatch.setattr(module, "picture", lambda plan, finished, form: b"\x89PNG")
    monkeypatch.setattr("kerchief.reports.outputs.time.monotonic", lambda: 1.0)
    first = Outputs.at(tmp_path, SMALL)
    first.begin()
    archive = first.archive
    first.keep(finished[0])
    other = dataclasses.replace(SMALL, seed=1)
    second = Outputs.at(tmp_path, other, force=True)
    second.begin()
    for one in fake(other):
        second.keep(one)
    second.close()
    whole = _names(tmp_path)
    assert json.loads(whole["results.json"])["complete"] is True
    said = r"was taken by another run meanwhile \(seed 1 there, 0 now\).*another --out"
    (part,) = next(split_chunks(SMALL, ticks=5, width=4))
    with pytest.raises(WriteError, match=said):
        archive.keep(part, ChunkResult(run=_run(), noises={}, alone=None))
    with pytest.raises(WriteError, match=said):
        first.keep(finished[1])
    first.finished = finished
    with pytest.raises(WriteError, match=said):
        first.close()
    assert _names(tmp_path) == whole


def _run() -> Run:
    numbers = np.zeros((1, 1))
    return Run(
        rounds=np.array([60]),
        regret=numbers,
        releases={},
        spent=SMALL.cells()[0].guarantee,
        seconds=1.0,
        seconds_alone=1.0,
        compile_seconds=0.0,
        device="cpu",
        communication={},
    )


@pytest.mark.parametrize("force", [False, True])
def test_partial_rows_never_replace_finished_rows(
    finished: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """Two of the same run at once: the one that is behind leaves what the other has finished."""
    monkeypatch.setattr(module, "picture", lambda plan, finished, form: b"\x89PNG")
    monkeypatch.setattr("kerchief.reports.outputs.time.monotonic", lambda: 1.0)
    first = Outputs.at(tmp_path, SMALL)
    first.begin()
    first.keep(finished[0])
    second = Outputs.at(tmp_path, SMALL, force=force)
    second.begin()
    for one in finished:
        second.keep(one)
    second.close()
    whole = _names(tmp_path)
    first.keep(finished[1])
    first.close()
    assert _names(tmp_path) == whole
    first.finished = finished
    first.close()
    assert json.loads((tmp_path / "results.json").read_text())["complete"] is True


def test_only_first_of_concurrent_runs_gets_the_folder(tmp_path: Path) -> None:
    """Both have seen that nobody was there; the second to begin is refused and changes nothing."""
    one, other = (
        Outputs.at(tmp_path, dataclasses.replace(Comparison(), seed=seed)) for seed in (1, 2)
    )
    one.begin()
    held = (tmp_path / "results.json").read_bytes()
    with pytest.raises(InvalidValueError, match="holds another run \\(seed 1 there, 2 now\\)"):
        other.begin()
    assert (tmp_path / "results.json").read_bytes() == held


def test_a_run_of_other_versions_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _played(tmp_path, 3)
    now = versions() | {"jax": "9.9"}
    monkeypatch.setattr(module, "versions", lambda: now)
    with pytest.raises(InvalidValueError, match=r"version of jax .* there, 9.9 now"):
        Outputs.at(tmp_path, SMALL)


def test_rows_that_cannot_be_read_are_those_of_another_run(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[")
    with pytest.raises(InvalidValueError, match=r"its results.json cannot be read"):
        Outputs.at(tmp_path, SMALL)
    assert (tmp_path / "results.json").read_text() == "["


def test_foreign_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("precious")
    with pytest.raises(InvalidValueError, match=r"report.html without results.json"):
        Outputs.at(tmp_path, SMALL)
    assert (tmp_path / "report.html").read_text() == "precious"


def test_parts_that_are_a_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "parts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidValueError, match="is a link"):
        Outputs.at(tmp_path / "run", SMALL, force=True)


def test_force_removes_only_chunk_files(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "own.npz").write_bytes(b"precious")
    (parts / f"{64 * 'a'}.npz").write_bytes(b"a part")
    Outputs.at(tmp_path, SMALL, force=True).begin()
    assert [path.name for path in parts.iterdir()] == ["own.npz"]


def test_a_finished_run_is_replaced_by_a_finished_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts may be lost, and playing it again may be interrupted."""
    monkeypatch.setattr(module, "picture", lambda plan, finished, form: b"\x89PNG")
    _played(tmp_path, 22)
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    _played(tmp_path, 3)
    assert {name: (tmp_path / name).read_bytes() for name in old} == old
    again = _played(tmp_path, 22)
    assert set(again.files) == {"rows", "table", "picture", "report"}
    assert json.loads((tmp_path / "results.json").read_text())["complete"] is True


def test_resume_requires_an_earlier_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="no run in"):
        Outputs.at(tmp_path, SMALL, resume=True)
    _played(tmp_path, 1)
    assert Outputs.at(tmp_path, SMALL, resume=True).folder.path == tmp_path


def test_failed_resume_creates_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="there is no run"):
        Outputs.at(tmp_path / "new", Comparison(), resume=True)
    assert not (tmp_path / "new").exists()


def test_links_are_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "report.html").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidValueError, match=r"report.html' is a link"):
        Outputs.at(tmp_path, SMALL)


def _played(path: Path, cells: int) -> Outputs:
    kept = Outputs.at(path, SMALL)
    kept.begin()
    for one in fake(SMALL)[:cells]:
        kept.keep(one)
    kept.close()
    return kept


def test_the_document_is_json(outputs: Outputs) -> None:
    document = json.loads(json.dumps(outputs.document(), allow_nan=False))
    assert document["complete"] is True
    assert document == json.loads(outputs.files["rows"].read_text())
    assert set(document["files"]) == {"table", "rows", "picture", "report"}
    assert document["parameters"]["epsilon"] == [0.5, 2.0]


@pytest.mark.parametrize("epsilons", [(0.5,), (0.5, 2.0)])
def test_a_single_epsilon_is_drawn_solid(epsilons: tuple[float, ...]) -> None:
    plan = dataclasses.replace(SMALL, contexts=("ball",), epsilons=epsilons)
    played = fake(plan)
    pen = pen_for(played)
    dashes = {pen.style(one.cell)[1][1] for one in played if one.cell.asked is not None}
    assert len(dashes) == len(epsilons)
    assert (dashes == {()}) == (len(epsilons) == 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("world", "environment"),
        ("numbers", "parameters"),
        ("right", "found_best"),
        ("stuck", "unconverged"),
    ],
)
def test_results_of_an_earlier_version_are_refused(
    outputs: Outputs, old: str, new: str, tmp_path: Path
) -> None:
    """In one line that names the new word for what is there, and the remedy."""
    document = json.loads((outputs.folder.path / "results.json").read_text())
    rows = json.dumps(document["rows"]).replace(f'"{new}":', f'"{old}":')
    (tmp_path / "results.json").write_text(json.dumps(document | {"rows": json.loads(rows)}))
    with pytest.raises(InvalidValueError, match=f"{old!r} is {new!r} now.*--force") as caught:
        Outputs.at(tmp_path, outputs.plan)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidValueError, match=f"{old!r} is {new!r} now.*--force"):
        kerchief.read_results(tmp_path)
