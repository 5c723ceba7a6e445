"""The table of least eigenvalues: what an average over runs shows is not there within a run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "eigenvalues.py"


@pytest.mark.nightly
@pytest.mark.parametrize(("arms", "rounds"), [(5, 200), (5, 2000)])
def test_printed_shares_are_those_of_an_average_over_runs(arms: int, rounds: int) -> None:
    """A single run stays below its threshold, at which Algorithm 1 adds noise to features."""
    script = _script()
    between, within = script.eigenvalues(
        contexts="intercept", arms=arms, rounds=rounds, runs=50, seed=0
    )
    assert abs((between >= 0.05).mean() - script.PRINTED[arms, rounds]) < 0.02
    assert np.median(within) < 0.25 * rounds**-0.25


@pytest.mark.nightly
def test_only_the_average_over_runs_is_well_conditioned() -> None:
    between, within = _script().eigenvalues(
        contexts="fixed-intercept", arms=25, rounds=400, runs=50, seed=1
    )
    assert between.shape == (400,)
    assert within.shape == (50,)
    # The trace is at most 1; in most rounds the 50 runs play all over the place.
    assert (between <= 1 / 5 + 1e-6).all()
    assert (between >= 0.05).mean() > 0.8
    # One run comes to play few arms: below its threshold T^(-1/4), where noise would be added.
    assert np.median(within) < 0.5 * 0.05
    assert (within < 400**-0.25).all()


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("eigenvalues", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script
