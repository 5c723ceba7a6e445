"""The programs in the docs run as they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def told(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_bandit_in_one_process_goes_on_where_it_was(tmp_path: Path) -> None:
    program, folder = str(DOCS / "one_process.py"), str(tmp_path / "bandit")
    assert "50 of 2000 users" in told(program, folder)
    assert "85 of 2000 users" in told(program, folder)


@pytest.mark.nightly
def test_three_processes_exchange_bytes() -> None:
    assert told(str(DOCS / "three_processes.py")) == "the model has learned from 85 users\n"
