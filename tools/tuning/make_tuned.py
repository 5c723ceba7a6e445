"""Write down what recorded searches chose: `make tuned`."""

from __future__ import annotations

from pathlib import Path

from tools.tuning.recorded import module

from kerchief.policies import tuned

if __name__ == "__main__":
    Path(tuned.__file__).write_text(module(), encoding="utf-8")
