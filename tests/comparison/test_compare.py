"""Cells are played one by one, on the same worlds, and their numbers are honest."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.players import Cell
from kerchief.comparison.results import Result
from kerchief.comparison.run_folder import Folder
from kerchief.comparison.runner import RunState, compare
from kerchief.core.errors import InvalidValueError
from kerchief.reports.figures import picture

SMALL = Comparison(
    trusts=("local", "central"),
    contexts=("ball",),
    dim=2,
    arms=3,
    horizon=60,
    replicates=4,
    epsilons=(1.0,),
)


@pytest.fixture(scope="module")
def finished() -> list[Result]:
    return list(compare(SMALL))


def test_cells_come_in_order(finished: list[Result]) -> None:
    assert [one.cell for one in finished] == list(SMALL.cells())
    for one in finished:
        assert one.curves.shape == (60, 4)
        assert (np.diff(one.curves, axis=0) >= -1e-6).all()
        assert one.microseconds > 0


@pytest.mark.nightly
def test_chunks_of_replicates_change_nothing(finished: list[Result]) -> None:
    local = dataclasses.replace(SMALL, trusts=("local",))
    for whole, cut in zip(finished[:4], compare(local, width=3), strict=True):
        np.testing.assert_allclose(cut.curves, whole.curves, rtol=1e-4)
        assert cut.guarantee == whole.guarantee
        assert cut.releases == whole.releases


def test_progress_grows_to_the_whole() -> None:
    # Another test may have compiled it.
    jax.clear_caches()  # type: ignore[no-untyped-call]
    none = dataclasses.replace(SMALL, trusts=("none",), policies=("uniform",), radius=2.0)
    work, stages, done = RunState.of(none, width=2), set[str](), list[float]()

    def watch(cell: Cell, stage: str, share: float) -> None:
        assert cell in none.cells()
        stages.add(stage)
        done.append(len(work.runs) + share)

    list(work.results(watch))
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0.0, work.parts)
    # The first part alone, and two that meet the same arms at once.
    assert {1.0, 2.0, 3.0} < set(done)
    assert stages == {"compiling", "playing"}


def test_rows_state_the_spent_budget(finished: list[Result]) -> None:
    by_name = {(row.cell.player.policy, str(row.cell.player.trust)): row for row in finished}
    uniform = by_name["uniform", "none"]
    assert uniform.spent == (0.0, 0.0)
    assert uniform.regret.uniform_share == 1.0
    parent = by_name["sampling", "none"]
    assert (parent.spent, parent.epsilon) == (None, None)
    for trust in ("local", "central"):
        row = by_name["sampling", trust]
        # What is pure costs a little less at a delta above 0: Laplace noise least.
        assert row.spent == (row.guarantee.epsilon, 1e-5)
        assert 1.0 + 2 * math.log1p(-1e-5) - 1e-9 <= row.guarantee.epsilon <= 1.0
        assert row.cell.asked == (1.0, 1e-5)
    assert by_name["sampling", "local"].releases == {"moments": 60.0}
    assert by_name["sampling", "central"].releases == {"moments": 3.0}


def test_regret_and_its_error(finished: list[Result]) -> None:
    one = finished[1]
    assert one.regret.mean == pytest.approx(one.curves[-1].mean())
    assert one.regret.se == pytest.approx(one.curves[-1].std(ddof=1) / 2)
    assert one.regret.p95 == pytest.approx(np.quantile(one.curves[-1], 0.95))


def test_run_counts_as_unconverged_when_regret_grows_late(finished: list[Result]) -> None:
    """Of two replicates one stops losing at half time, and one goes on at uniform play's rate."""
    rounds = finished[0].rounds
    learned = np.minimum(rounds, rounds[-1] / 2)
    one = dataclasses.replace(
        finished[0], curves=np.stack([learned, rounds], axis=1), uniform=float(rounds[-1])
    )
    assert one.regret.unconverged == 0.5
    slow = np.stack([0.09 * rounds, 0.11 * rounds], axis=1)
    assert dataclasses.replace(one, curves=slow).regret.unconverged == 0.5


def made(finished: Result, regret: float, replicates: int) -> Result:
    rounds = finished.rounds.size
    return dataclasses.replace(
        finished, curves=np.full((rounds, replicates), regret), uniform=regret
    )


def test_one_replicate_has_no_error(finished: list[Result]) -> None:
    row = made(finished[0], 5.0, replicates=1)
    assert row.regret.se is None
    assert "5.0 ± -" in row.texts()
    json.dumps(row.to_dict(), allow_nan=False)


def test_no_regret_at_all_has_no_share(finished: list[Result]) -> None:
    row = made(finished[0], 0.0, replicates=2)
    assert (row.regret.mean, row.regret.uniform_share) == (0.0, None)
    assert "nan" not in " ".join(row.texts())
    assert picture(SMALL, [made(finished[0], 0.0, replicates=2)]).startswith(b"\x89PNG")


def test_the_folder_is_proved_writable(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    for path in (blocked, blocked / "below"):
        with pytest.raises(InvalidValueError, match="cannot be written"):
            Folder.at(path)
    assert list(Folder.at(tmp_path / "a" / "b").path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder.at(tmp_path)
    (tmp_path / "note").write_text("old")

    def fail(path: Path, content: bytes) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(KeyboardInterrupt):
        folder.write("note", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["note"]
    assert (tmp_path / "note").read_text() == "old"


@pytest.mark.parametrize(
    ("policy", "horizon", "query"),
    [
        pytest.param("dpe", 500, "answers", marks=pytest.mark.nightly),
        pytest.param("tsallis", 300, "loss", marks=pytest.mark.nightly),
        pytest.param("two-point", 300, "loss", marks=pytest.mark.nightly),
    ],
)
def test_every_kind_of_bandit_is_played(policy: str, horizon: int, query: str) -> None:
    """In its own world, which nobody named, and under the promise that was asked for."""
    plan = Comparison(
        policies=(policy,), horizon=horizon, replicates=2, trusts=("local",), epsilons=(1.0,)
    )
    played = list(compare(plan, ticks=10))
    assert [one.cell for one in played] == list(plan.cells())
    for one in played:
        assert one.curves.shape == (10, 2)
        assert np.isfinite(one.curves).all()
        assert (one.curves[-1] > 0).all()
    last = played[-1]
    assert last.cell.player.policy == policy
    assert 0 < last.guarantee.epsilon <= 1.0
    assert set(last.releases) == {query}
    assert (last.releases[query] == horizon) == (query == "loss")
    assert set(last.communication) == ({"reals", "bits"} if policy == "dpe" else set())
    # A point of a convex set is never the best exactly, and a population names no action.
    assert last.right == {"dpe": None, "two-point": 0.0}.get(policy, last.right)
    assert (last.right is None) == (policy == "dpe")
