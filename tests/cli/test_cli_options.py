"""Options that stand for several facts: `--mechanism`, `--declare`, `--jobs` and global options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as Called

from kerchief.cli.options import choose_mechanisms
from kerchief.core.errors import KerchiefError
from kerchief.data.declaration_file import read_declarations

Call = Callable[..., Called]


@pytest.mark.parametrize(
    ("texts", "trusts", "fields"),
    [
        ((), None, {}),
        (("tree",), None, {"continual": "tree"}),
        (("bit", "one-bit"), None, {"shuffling": "bit", "randomizer": "one-bit"}),
        (("central=laplace",), None, {"curator": "laplace"}),
        (("laplace",), ("local", "joint"), {"randomizer": "laplace"}),
        (
            ("local=gaussian", "central=gaussian"),
            None,
            dict.fromkeys(("randomizer", "curator"), "gaussian"),
        ),
        (("tree", "joint=tree"), None, {"continual": "tree"}),
    ],
)
def test_mechanism_goes_to_the_trust_model_that_has_it(
    texts: tuple[str, ...], trusts: tuple[str, ...] | None, fields: dict[str, str]
) -> None:
    assert choose_mechanisms(texts, trusts) == fields


@pytest.mark.parametrize(
    ("texts", "trusts", "message"),
    [
        (
            ("nothing",),
            None,
            "choose one of joint: best, blt, .*; central: best, gaussian, laplace",
        ),
        (
            ("gaussian",),
            None,
            "several trust models have; write local=gaussian or central=gaussian",
        ),
        (("gaussian",), ("local", "central"), "write local=gaussian or central=gaussian"),
        (("tree", "blt"), None, "names 'tree' and 'blt' for joint trust"),
        (("none=tree",), None, "write TRUST=NAME, where TRUST is one of joint, shuffle"),
        (("joint=gaussian",), None, "is called 'gaussian'"),
    ],
)
def test_mechanism_that_fits_no_trust_model_is_refused(
    texts: tuple[str, ...], trusts: tuple[str, ...] | None, message: str
) -> None:
    with pytest.raises(KerchiefError, match=message):
        choose_mechanisms(texts, trusts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("norm=3", "norm=4"), "norm is declared twice, as '3.0' and as '4.0'"),
        (("labl=x",), "did you mean 'label'"),
        (("norm=",), "--declare is 'norm='; write KEY=VALUE, or FILE.toml"),
        (("nowhere.toml",), "the declaration 'nowhere.toml' cannot be read"),
        (("nowhere",), "the declaration 'nowhere' cannot be read"),
    ],
)
def test_declaration_that_states_no_fact_is_refused(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(KerchiefError, match=message):
        read_declarations(texts)


def test_declarations_come_from_files_and_pairs(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text('reward-range = [0, 1]\nnorm = 3\nrewards = ["a", "b"]\n')
    declared = read_declarations([str(file), "norm=3", "data-sha256=ab", "action=item=news|sport"])
    assert declared == {
        "reward_range": [0, 1], "norm": 3, "rewards": ["a", "b"], "data_sha256": "ab",
        "action": "item=news|sport",
    }  # fmt: skip


@pytest.mark.parametrize("command", [("compare",), ("reproduce", "tsallis"), ("audit", "linucb")])
def test_device_stands_before_the_command(call: Call, command: tuple[str, ...]) -> None:
    result = call("--device", "tpu", *command)
    assert result.exit_code == 2
    assert "device is 'tpu'; choose one of cpu, gpu, auto" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("action = 5", "action is 5 in the declaration; give the name of a column in quotes"),
        ("label = 5", "label is 5 in the declaration; give the name of a column in quotes"),
        ("reward = true", "reward is True in the declaration"),
    ],
)
def test_column_of_another_kind_is_refused(
    call: Call, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "logs.toml").write_text(text)
    result = call("compare", "--data", "logs.csv", "--declare", "logs.toml")
    assert result.exit_code == 2
    assert message in result.stderr
