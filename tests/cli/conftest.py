"""Run the command line in this process, in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kerchief.cli.main import main
from kerchief.reports import outputs

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no real picture, which takes longest to make of all that is written."""
    monkeypatch.setattr(outputs, "picture", lambda plan, finished, form: b"\x89PNG")
