"""How a command starts: quickly, and with what the user has set."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SHOW = "import kerchief.cli, os; print(os.environ['OPENBLAS_NUM_THREADS'])"


@pytest.mark.parametrize("chosen", [None, "3"])
def test_openblas_uses_one_thread_unless_user_sets_it(chosen: str | None) -> None:
    rest = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    settings = rest if chosen is None else rest | {"OPENBLAS_NUM_THREADS": chosen}
    shown = subprocess.check_output([sys.executable, "-c", _SHOW], env=settings, text=True)
    assert shown.strip() == (chosen or "1")


def test_a_comparison_takes_the_device_before_it_makes_an_array() -> None:
    """The device is refused before anything of the plan is looked at."""
    code = (
        "from kerchief.cli.main import main; "
        "main(['--device', 'tpu', 'compare', '--policy', 'nobody'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("kerchief: error: device is 'tpu'")
