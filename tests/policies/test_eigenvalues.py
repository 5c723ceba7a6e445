"""The table of least eigenvalues: what an average over runs shows is not there within a run."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kerchief.environments import make_environment

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "papers" / "online_confidence.md"
_SETS = 2


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "eigenvalues", _ROOT / "benchmarks/eigenvalues.py"
    )
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by its name.
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    return script


SCRIPT = _script()


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _page_rows() -> dict[tuple[str, int, int], list[str]]:
    """The rows of the page's table, by arms, their number and the number of rounds."""
    _, _, below = _PAGE.read_text("utf-8").partition(f"| {SCRIPT.HEAD} |\n")
    table = itertools.takewhile(lambda line: line.startswith("|"), below.splitlines()[1:])
    rows = [_cells(line) for line in table]
    return {(row[0], int(row[1]), int(row[2])): row for row in rows}


def _numbers(row: list[str]) -> tuple[float, float]:
    """The least and the greatest number that meet the printed share."""
    least, most = map(float, row[4].split(" to "))
    return least, most


def test_page_has_each_printed_cell_with_its_share() -> None:
    expected = {
        (arms, *cell): f"{100 * share:.3g} %"
        for arms in SCRIPT.CONTEXTS.values()
        for cell, share in SCRIPT.PRINTED.items()
    }
    assert {key: row[3] for key, row in _page_rows().items()} == expected


def test_page_names_the_command_and_the_number_of_runs() -> None:
    page = _PAGE.read_text("utf-8")
    assert f"`python -m benchmarks.eigenvalues --sets {_SETS}`" in page
    assert f"{_SETS * SCRIPT.EXPERIMENTS} runs in sets of {SCRIPT.EXPERIMENTS}" in page


@pytest.mark.parametrize(
    ("contexts", "arms", "rounds"),
    [
        ("intercept", 5, 200),
        *(
            pytest.param(contexts, *cell, marks=pytest.mark.nightly)
            for contexts in SCRIPT.CONTEXTS
            for cell in SCRIPT.PRINTED
            if (contexts, *cell) != ("intercept", 5, 200)
        ),
    ],
)
def test_page_row_is_what_is_played(contexts: str, arms: int, rounds: int) -> None:
    """Verdicts are the recorded ones, and figures are close.

    Another compilation rounds differently, and a run then goes on with other arms.
    """
    measured = SCRIPT.measure(contexts=contexts, arms=arms, rounds=rounds, sets=_SETS, seed=0)
    assert measured.within.shape == (_SETS * SCRIPT.EXPERIMENTS,)
    row, recorded = _cells(measured.row()), _page_rows()[SCRIPT.CONTEXTS[contexts], arms, rounds]
    assert row[6:] == recorded[6:]
    assert _numbers(row) == pytest.approx(_numbers(recorded), abs=0.005)
    assert float(row[5]) == pytest.approx(float(recorded[5]), rel=0.1)


def test_page_verdicts_follow_from_its_figures() -> None:
    for (_, _, rounds), row in _page_rows().items():
        above, runs = map(int, row[7].split(" of "))
        assert runs == _SETS * SCRIPT.EXPERIMENTS
        assert row[6] == f"{rounds**-0.25:.3f}"
        assert row[8] == ("holds" if above > runs / 2 else "does not hold here")
        # Most runs are above the threshold where the median is.
        assert (float(row[5]) > float(row[6])) == (row[8] == "holds")


@pytest.mark.parametrize("arms", list(SCRIPT.CONTEXTS.values()))
def test_no_number_meets_all_printed_shares(arms: str) -> None:
    ranges = [_numbers(row) for key, row in _page_rows().items() if key[0] == arms]
    assert len(ranges) == len(SCRIPT.PRINTED)
    assert all(least < most for least, most in ranges)
    assert max(least for least, _ in ranges) > min(most for _, most in ranges) + 0.005


def test_figures_follow_from_the_eigenvalues() -> None:
    def eigenvalues(rounds: int, averages: list[float], within: list[float]) -> Any:
        return SCRIPT.Eigenvalues(
            contexts="intercept",
            arms=100,
            rounds=rounds,
            averages=np.array(averages),
            within=np.array(within),
        )

    # Of the eigenvalues 0.00 to 0.99, 90 % reach 0.10 and 86 % reach 0.14.
    few = eigenvalues(200, [i / 100 for i in range(100)], [0.1, 0.01, 0.3])
    assert few.meeting == pytest.approx((0.1, 0.14), abs=0.011)
    assert few.is_favourable == "does not hold here"
    # Any number that is small enough gives all rounds, where 99.8 % are printed.
    many = eigenvalues(20_000, [0.5, 0.6, 0.7], [0.1, 0.2, 0.05])
    assert many.meeting == (0.0, 0.5)
    assert many.is_favourable == "holds"


def test_no_play_exceeds_the_threshold_with_few_users() -> None:
    """Four coordinates share a square of ½: the least eigenvalue is at most 1/8 = 4096^(-1/4)."""
    world = make_environment(contexts="intercept", dim=5, arms=100)
    rest = world.problem(4096).norm ** 2 - world.problem(4096).constant ** 2
    assert rest / 4 == pytest.approx(4096**-0.25)
    assert math.isclose(rest, 0.5)
