"""Factors are searched for once, and no promise rests on the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kerchief.cli.factor_cache import KeptFactors, keep_factors
from kerchief.mechanisms import blt_fit


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(blt_fit, "found", {})
    blt_fit.fit.cache_clear()
    yield
    blt_fit.fit.cache_clear()


def _no_search(*_: Any) -> None:
    raise AssertionError("searched")


def test_a_kept_factor_is_the_same_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = blt_fit.fit(300, 2)
    blt_fit.fit.cache_clear()
    keep_factors(tmp_path)
    assert blt_fit.fit(300, 2) == alone
    blt_fit.fit.cache_clear()
    keep_factors(tmp_path)
    monkeypatch.setattr(blt_fit, "_search", _no_search)
    assert blt_fit.fit(300, 2) == alone


def test_processes_keep_their_factors_together(tmp_path: Path) -> None:
    file = tmp_path / "factors.json"
    one, other = KeptFactors(file), KeptFactors(file)
    one[10, 1], other[20, 1] = (0.25, 0.5), (0.125, 0.5)
    assert KeptFactors(file) == {(10, 1): (0.25, 0.5), (20, 1): (0.125, 0.5)}
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "content",
    [
        "[[300, 2, [0.1, 0.2,",
        "{}",
        "3",
        json.dumps([[300, 2, [0.1, 0.2, 0.3]]]),
        json.dumps([[300, 2, [0.1, 0.3, 0.2, 0.4]]]),
        json.dumps([[300, 2, [0.1, 0.2, 0.3, 1.0]]]),
        json.dumps([[300, 2, [0.0, 0.2, 0.3, 0.4]]]),
        json.dumps([[300, 2, ["0.1", "0.2", "0.3", "0.4"]]]),
        "[[300, 2, [NaN, 0.2, 0.3, 0.4]]]",
    ],
)
def test_invalid_cached_factor_is_fitted_again(content: str, tmp_path: Path) -> None:
    alone = blt_fit.fit(300, 2)
    blt_fit.fit.cache_clear()
    keep_factors(tmp_path)
    assert not list(tmp_path.iterdir())
    blt_fit.found[7, 1] = (0.25, 0.5)
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    keep_factors(tmp_path)
    assert not blt_fit.found
    assert blt_fit.fit(300, 2) == alone


def test_factor_cache_tolerates_missing_folder(tmp_path: Path) -> None:
    keep_factors(tmp_path / "missing")
    assert blt_fit.fit(300, 2).column_norm > 1
