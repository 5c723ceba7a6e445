"""The bandit that is there to be copied is sound, runs as it says, and is named as a plugin."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.plugins import fresh_registries

from kerchief.checks import check
from kerchief.core.contracts import Policy

DOCS = str(Path(__file__).parents[1] / "docs")


@pytest.fixture(scope="module")
def skeleton() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched, fresh_registries():
        patched.syspath_prepend(DOCS)
        yield importlib.import_module("skeleton_policy")


def test_skeleton_example_runs_as_documented(
    skeleton: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    skeleton.main()
    told = capsys.readouterr().out
    assert told.count("regret") == 3
    assert "broken" not in told


def test_it_shows_every_member_of_the_contract(skeleton: Any) -> None:
    contract = {name for name in vars(Policy) if not name.startswith("_")} - {"feedback"}
    own = {name: one for name, one in vars(skeleton.AlongTheMean).items() if name in contract}
    assert set(own) == contract
    assert all(inspect.getdoc(one) for one in own.values())


def test_skeleton_is_checked_from_outside_the_package(skeleton: Any) -> None:
    report = check(skeleton.AlongTheMean, trusts=["local"])
    kept = {one.law for one in report.outcomes if one.result == "kept"}
    assert {"learner is blind", "statistics obey their bound", "refusal leaves no trace"} <= kept


@pytest.mark.nightly
@pytest.mark.parametrize("trust", ["none", "local", "joint"])
def test_skeleton_passes_all_checks(skeleton: Any, trust: str) -> None:
    check(skeleton.AlongTheMean, trusts=[trust], thorough=True)
