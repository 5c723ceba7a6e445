"""The programs in the docs run as they say."""

from __future__ import annotations

import re
import runpy
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


def test_a_bandit_in_one_process_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(DOCS / "one_process.py")
    monkeypatch.setattr(sys, "argv", [program, str(tmp_path / "bandit")])
    for users in (50, 85):
        runpy.run_path(program, run_name="__main__")
        assert f"{users} of 2000 users" in capsys.readouterr().out


@pytest.mark.nightly
def test_one_process_example_resumes_in_a_new_process(tmp_path: Path) -> None:
    for users in (50, 85):
        assert f"{users} of 2000 users" in told(str(DOCS / "one_process.py"), str(tmp_path / "it"))


def test_examples_of_the_field_page_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "field.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    exec(compile("\n".join(blocks), "field.md", "exec"), {"__name__": "field"})


@pytest.mark.nightly
def test_three_processes_exchange_bytes() -> None:
    assert told(str(DOCS / "three_processes.py")) == "the model has learned from 85 users\n"
