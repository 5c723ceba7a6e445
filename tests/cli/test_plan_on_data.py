"""What `kerchief plan --data FILE` refuses, in one line and before anything is played."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kerchief.cli.main import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--users", "4000"), "users is 4000, and the data have 60, who come once each"),
        (("--env", "linear"), "env is 'linear', and the environment is that of the data"),
        (("--features", "height=1:2"), "has no column 'height'"),
        (("--features", "age"), "bounds are never read off the data"),
    ],
)
def test_a_plan_on_data_is_refused_by_name(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "users.csv"
    file.write_text("age,plan\n" + "20,basic\n70,gold\n" * 30)
    features = () if words[0] == "--features" else ("--features", "age=18:90")
    asked = ["plan", "--data", str(file), "--label", "plan=basic|gold", *features, *words]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
