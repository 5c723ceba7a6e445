"""Libraries that only some outputs need, and how to get them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

import kerchief
from kerchief.core.errors import KerchiefError
from kerchief.reports import extras


def _without(*libraries: str, patch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    patch.setattr(
        importlib.util, "find_spec", lambda name: None if name in libraries else find(name)
    )


def test_an_output_needs_its_own_libraries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _without("polars", "jinja2", patch=monkeypatch)
    extras.require("picture")
    assert extras.missing("picture", "report") == ["jinja2"]
    with pytest.raises(KerchiefError, match=r"the table and the report cannot .* polars, jinja2: "):
        extras.require("table", "report")


def test_a_checkout_is_installed_from_where_it_lies() -> None:
    root = Path(kerchief.__file__).parents[2]
    assert extras.format_install_command("report") == f"pip install -e '{root}[report]'"


class _Installed:
    def __init__(self, told: str | None) -> None:
        self.told = told

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.told


@pytest.mark.parametrize(
    ("told", "command"),
    [
        (None, "pip install 'kerchief[report]'"),
        ('{"url": "file:///src/k", "dir_info": {}}', "pip install '/src/k[report]'"),
        (
            '{"url": "https://host/k.git", "vcs_info": {"vcs": "git", "commit_id": "0"}}',
            "pip install 'kerchief[report] @ git+https://host/k.git'",
        ),
    ],
)
def test_an_installed_copy_is_installed_again_from_its_source(
    told: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kerchief, "__file__", str(tmp_path / "a" / "kerchief" / "__init__.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: _Installed(told))
    assert extras.format_install_command("report") == command


def test_install_hint_falls_back_to_pip_for_unknown_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(kerchief, "__file__", str(tmp_path / "a" / "kerchief" / "__init__.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", unknown)
    assert extras.format_install_command("cuda") == "pip install 'kerchief[cuda]'"
