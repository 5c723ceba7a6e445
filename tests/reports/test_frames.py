"""Results as data frames: from a folder and from memory alike, with plain columns."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.comparison.fakes import fake

import kerchief
from kerchief.comparison.comparison import Comparison
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.reports.frames import Results
from kerchief.reports.outputs import Outputs

PLAN = Comparison(contexts=("ball", "fixed"), horizon=60, replicates=4, epsilons=(0.5, 2.0))
ROWS = fake(PLAN)
WORDS = (
    "environment", "policy", "parameters", "mode", "trust",
    "continual", "shuffling", "randomizer", "curator",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    kept = Outputs.at(path, PLAN)
    for one in ROWS:
        kept.keep(one)
    kept.close()
    return path


@pytest.fixture(scope="module", params=["folder", "memory"])
def results(request: pytest.FixtureRequest, folder: Path) -> Results:
    return kerchief.read_results(folder if request.param == "folder" else iter(ROWS))


def test_there_is_one_row_per_cell(results: Results) -> None:
    frame = results.to_pandas()
    assert len(frame) == len(results) == len(PLAN.cells())
    assert frame["regret_mean"].tolist() == [one.regret.mean for one in ROWS]
    assert frame["trust"].tolist() == [str(one.cell.player.trust) for one in ROWS]


def test_non_private_rows_have_infinite_epsilon(results: Results) -> None:
    frame = results.to_pandas()
    plain = frame["trust"] == "none"
    assert np.isinf(frame.loc[plain, "epsilon"]).all()
    assert set(frame.loc[~plain, "epsilon"]) == {0.5, 2.0}
    assert (frame.loc[plain, "delta"] == 0).all()
    assert (frame.loc[~plain, "delta"] == PLAN.delta).all()
    assert results.to_polars()["epsilon"].null_count() == 0


@pytest.mark.parametrize("form", ["cells", "curves", "replicates"])
def test_columns_are_plain(results: Results, form: str) -> None:
    frame = results.to_pandas(form)  # type: ignore[arg-type]
    for name, kind in frame.dtypes.items():
        if name in WORDS:
            assert str(kind) == "str"
        else:
            assert kind in (np.float64, np.int64, np.bool_), (name, kind)
    other = results.to_polars(form)  # type: ignore[arg-type]
    assert other.columns == frame.columns.tolist()
    assert set(other.dtypes) <= {pl.String, pl.Float64, pl.Int64, pl.Boolean}
    assert other["epsilon"].to_list() == frame["epsilon"].tolist()


def test_curves_have_one_row_per_cell_and_tick(results: Results) -> None:
    frame = results.to_pandas("curves")
    assert len(frame) == sum(len(one.rounds) for one in ROWS)
    last = frame[frame["round"] == PLAN.horizon]
    assert last["regret_mean"].tolist() == pytest.approx([one.regret.mean for one in ROWS])
    assert last["regret_se"].tolist() == pytest.approx([one.regret.se for one in ROWS])
    assert last["regret_p95"].tolist() == pytest.approx([one.regret.p95 for one in ROWS])


def test_replicates_have_every_number(results: Results) -> None:
    frame = results.to_polars("replicates")
    assert frame.height == sum(one.curves.size for one in ROWS)
    one = ROWS[7]
    mine = frame.slice(7 * one.curves.size, one.curves.size).filter(pl.col("replicate") == 2)
    assert mine["regret"].to_list() == one.curves[:, 2].tolist()
    assert mine["round"].to_list() == one.rounds.tolist()


def test_curves_separate_single_replicates_of_growing_length(tmp_path: Path) -> None:
    """Nothing but who plays separates them in the long form."""
    plan = dataclasses.replace(PLAN, contexts=("ball",), replicates=1)
    kept = Outputs.at(tmp_path, plan)
    for place, one in enumerate(fake(plan, ticks=1)):
        kept.keep(dataclasses.replace(one, rounds=one.rounds * (place + 1)))
    kept.close()
    frame = kerchief.read_results(tmp_path).to_pandas("curves")
    assert len(frame) == len(plan.cells())
    assert frame["regret_se"].isna().all()


def test_unknown_values_are_null(results: Results) -> None:
    assert results.to_pandas()["reward_mean"].isna().all()
    assert results.to_polars()["reward_mean"].is_null().all()


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"rows": [{}]}', '{"rows": 3}'])
def test_read_results_rejects_folder_without_results(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "results.json").write_text(text)
    with pytest.raises(
        InvalidValueError, match=r"cannot be read as results .*give the folder of a run"
    ):
        kerchief.read_results(tmp_path)


def test_curves_need_their_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes((folder / "results.json").read_bytes())
    found = kerchief.read_results(str(tmp_path))
    assert len(found.to_pandas()) == len(ROWS)
    with pytest.raises(InvalidValueError, match=r"results\.parquet' cannot be read"):
        found.to_pandas("curves")
    one = ROWS[0]
    kept = Outputs.at(tmp_path / "other", PLAN)
    kept.keep(one)
    (tmp_path / "results.parquet").write_bytes(kept.files["table"].read_bytes())
    with pytest.raises(InvalidValueError, match=r"has 1 cells and its results\.json 22"):
        found.to_polars("curves")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named_with_its_remedy(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kerchief.read_results(ROWS)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(KerchiefError, match=rf"without it: run `pip install {library}`"):
        getattr(found, f"to_{library}")()
    assert len(found.columns()["policy"]) == len(ROWS)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="form is 'long'"):
        kerchief.read_results(ROWS).to_pandas("long")  # type: ignore[arg-type]
