"""What a comparison leaves on disk can be read again, after every cell."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from kerchief.experiments.compare import Finished, compare
from kerchief.experiments.declare import Comparison
from kerchief.experiments.figures import draw
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.report import promises, render

SMALL = Comparison(
    contexts=("ball", "fixed"), dim=2, arms=3, horizon=60, replicates=4, epsilons=(0.5, 2.0)
)


@pytest.fixture(scope="module")
def finished() -> list[Finished]:
    return list(compare(SMALL))


@pytest.fixture(scope="module")
def outputs(finished: list[Finished], tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    kept = Outputs.at(tmp_path_factory.mktemp("results") / "out", SMALL)
    for one in finished:
        kept.keep(one)
    kept.close()
    return kept


def test_the_table_holds_every_number(outputs: Outputs, finished: list[Finished]) -> None:
    table = pl.read_parquet(outputs.files["table"])
    assert table.height == sum(one.regret.size for one in finished)
    for one in finished:
        epsilon = one.cell.asked[0] if one.cell.asked else None
        rows = table.filter(
            pl.col("contexts") == one.cell.contexts,
            pl.col("policy") == one.cell.policy,
            pl.col("trust") == one.cell.trust,
            pl.col("epsilon").eq_missing(epsilon),
            pl.col("replicate") == 2,
        )
        np.testing.assert_array_equal(rows["round"], one.rounds)
        np.testing.assert_array_equal(rows["regret"], one.regret[:, 2])


def test_the_table_holds_what_numbers_depend_on(outputs: Outputs) -> None:
    table = pl.read_parquet(outputs.files["table"])
    assert {"seed", "env", "mode", "reward_noise", "device", "fewest_arms"} < set(table.columns)
    assert {"version_kerchief", "version_jax", "version_numpy", "version_python"} < set(
        table.columns
    )
    assert table["seed"].unique().to_list() == [0]
    private = table.filter("private")
    assert private["spent_epsilon"].null_count() == 0
    assert table.filter(~pl.col("private"))["spent_epsilon"].null_count() > 0


def test_results_are_whole_after_every_cell(finished: list[Finished], tmp_path: Path) -> None:
    kept = Outputs.at(tmp_path, SMALL)
    for count, one in enumerate(finished[:3], start=1):
        kept.keep(one)
        assert pl.read_parquet(tmp_path / "results.parquet").height == count * one.regret.size
        document = json.loads((tmp_path / "results.json").read_text())
        assert len(document["rows"]) == count
        assert document["complete"] is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "results.parquet"]


def test_a_new_run_removes_the_old_picture(finished: list[Finished], tmp_path: Path) -> None:
    old = tmp_path / "compare.png"
    old.write_bytes(b"old")
    kept = Outputs.at(tmp_path, SMALL)
    assert old.exists()
    kept.keep(finished[0])
    assert not old.exists()


def test_the_picture_has_a_row_a_contexts(outputs: Outputs, finished: list[Finished]) -> None:
    assert outputs.files["picture"].read_bytes().startswith(b"\x89PNG")
    panels = draw(SMALL, finished).axes
    assert len(panels) == 4
    names = {text.get_text() for text in panels[0].texts}
    assert names == {one.cell.label() for one in finished}


def test_a_picture_without_protection_is_drawn(finished: list[Finished]) -> None:
    plain = [one for one in finished if one.cell.asked is None]
    assert len(draw(SMALL, plain).axes) == 4


def test_a_stopped_picture_is_drawn(finished: list[Finished]) -> None:
    """Nothing protected was finished in the second world: its panel has no legend."""
    panels = draw(SMALL, finished[:13]).axes
    assert [panel.get_legend() is None for panel in panels] == [True, False, True, True]


def test_the_report_stands_alone(outputs: Outputs) -> None:
    page = outputs.files["report"].read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")
    assert SMALL.command() in page
    for promise in promises(SMALL):
        assert promise.statement.split(".")[1] in page
    assert "interrupted" not in page
    assert page.count("not private") >= 4


def test_a_partial_report_says_so(finished: list[Finished]) -> None:
    page = render(SMALL, finished[:2], b"png")
    assert "interrupted: 2 of 22 cells" in page


def test_the_document_is_json(outputs: Outputs) -> None:
    document = json.loads(json.dumps(outputs.document(), allow_nan=False))
    assert document["complete"] is True
    assert document == json.loads(outputs.files["rows"].read_text())
    assert set(document["files"]) == {"table", "rows", "picture", "report"}
    assert document["parameters"]["epsilon"] == [0.5, 2.0]
