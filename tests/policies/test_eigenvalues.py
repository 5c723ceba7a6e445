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


def test_page_has_each_printed_cell_with_its_share() -> None:
    expected = {
        (arms, *cell): f"{100 * share:.3g} %"
        for arms in SCRIPT.CONTEXTS.values()
        for cell, share in SCRIPT.PRINTED.items()
    }
    assert {key: row[3] for key, row in _page_rows().items()} == expected


def test_page_names_the_command_and_the_number_of_runs() -> None:
    page = _PAGE.read_text("utf-8")
    assert f"`python benchmarks/eigenvalues.py --sets {_SETS}`" in page
    assert f"{_SETS * SCRIPT.EXPERIMENTS} runs in sets of {SCRIPT.EXPERIMENTS}" in page


@pytest.mark.parametrize(
    ("contexts", "arms", "rounds"),
    [
        ("intercept", 5, 200),
        *(
            pytest.param(contexts, arms, rounds, marks=pytest.mark.nightly)
            for contexts in ("intercept", "fixed-intercept")
            for arms in (5, 25, 100)
            for rounds in (200, 2000)
            if (contexts, arms, rounds) != ("intercept", 5, 200)
        ),
    ],
)
def test_page_row_is_what_is_played(contexts: str, arms: int, rounds: int) -> None:
    """Verdicts are the recorded ones; shares and eigenvalues are equal up to rounding."""
    measured = SCRIPT.measure(contexts=contexts, arms=arms, rounds=rounds, sets=_SETS, seed=0)
    assert measured.within.shape == (_SETS * SCRIPT.EXPERIMENTS,)
    row, recorded = _cells(measured.row()), _page_rows()[SCRIPT.CONTEXTS[contexts], arms, rounds]
    assert (row[5], row[7:]) == (recorded[5], recorded[7:])
    assert float(row[4].rstrip(" %")) == pytest.approx(float(recorded[4].rstrip(" %")), abs=1)
    assert float(row[6]) == pytest.approx(float(recorded[6]), rel=0.1)


def test_verdicts_follow_from_the_figures() -> None:
    def eigenvalues(shares: list[float], within: list[float]) -> Any:
        return SCRIPT.Eigenvalues(
            contexts="intercept",
            arms=100,
            rounds=20_000,
            shares=np.array(shares),
            within=np.array(within),
        )

    close = eigenvalues([1.0, 0.99], [0.1, 0.2, 0.05])
    far = eigenvalues([0.9, 0.91], [0.1, 0.01, 0.02])
    unclear = eigenvalues([1.0, 0.95], [0.1])
    assert (close.is_printed_share, close.is_favourable) == ("holds", "holds")
    assert (far.is_printed_share, far.is_favourable) == 2 * ("does not hold here",)
    assert unclear.is_printed_share == "undecided"


def test_no_play_exceeds_the_threshold_with_few_users() -> None:
    """Four coordinates share a square of ½: the least eigenvalue is at most 1/8 = 4096^(-1/4)."""
    world = make_environment(contexts="intercept", dim=5, arms=100)
    rest = world.problem(4096).norm ** 2 - world.problem(4096).constant ** 2
    assert rest / 4 == pytest.approx(4096**-0.25)
    assert math.isclose(rest, 0.5)
