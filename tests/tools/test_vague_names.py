from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools.vague_names import count_names, find_excesses, read_bound_names


@pytest.mark.parametrize(
    "code",
    [
        "found = 1",
        "self.found = 1",
        "for found in rows: pass",
        "[found for found in rows]",
        "def _found(): pass",
        "def read(found): pass",
        "class Found: pass",
        "try: pass\nexcept ValueError as found: pass",
        "match row:\n    case [found]: pass",
        "match row:\n    case [*found]: pass",
    ],
)
def test_every_way_to_bind_a_vague_name_is_counted(tmp_path: Path, code: str) -> None:
    (folder := tmp_path / "src/kerchief/rows").mkdir(parents=True)
    (folder / "row.py").write_text(code)
    vague, total = count_names(tmp_path)["src/kerchief/rows"]
    assert vague == 1
    assert total >= 1


def test_names_that_are_read_are_not_counted() -> None:
    assert list(read_bound_names(ast.parse("found + self.found"))) == []


def test_share_above_its_limit_is_an_excess() -> None:
    limits = {"a": 50.0, "b": 50.0}
    messages = find_excesses({"a": (1, 2), "b": (2, 3), "new": (1, 9)}, limits)
    assert set(messages) == {"b", "new"}
    assert "66.67 %" in messages["b"]
