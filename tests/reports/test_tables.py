"""Tables for papers: every text can be read back, and none can break its table."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.comparison.fakes import fake

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.table import Table
from kerchief.reports.tables import by_world, latex, latex_text, markdown, markdown_text

PLAN = Comparison(contexts=("ball", "fixed"), horizon=60, replicates=4, epsilons=(0.5, 2.0))
TABLES = by_world(fake(PLAN), PLAN.caption)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")))


def test_there_is_one_table_per_world_with_what_papers_print() -> None:
    assert [one.caption for one in TABLES] == ["ball contexts", "fixed contexts"]
    for table in TABLES:
        assert table.headings == (
            "policy", "trust", "ε", "δ", "regret ± s.e.", "p95", "% unconverged"
        )  # fmt: skip
        assert len(table.lines) == len(PLAN.cells()) / 2
        assert all(len(line) == len(table.headings) == len(table.columns) for line in table.lines)
    private = [line for line in TABLES[0].lines if line[1] == "joint"]
    assert [line[2:4] for line in private] == [("0.5", "1e-05"), ("2", "1e-05")]


def _read_latex(text: str) -> str:
    """What a reader of typeset LaTeX sees."""
    text = re.sub(r"\$10\^\{(-?\d+)\}\$", lambda found: f"1e{int(found[1]):+03d}", text)
    text = re.sub(r"\$([\d.]+) \\cdot 10\^\{(-?\d+)\}\$", _number, text)
    names = {
        "textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textless": "<",
        "textgreater": ">", "textbar": "|",
    }  # fmt: skip
    symbols = {
        "pm": "±", "varepsilon": "ε", "delta": "δ", "kappa": "κ", "mu": "µ", "surd": "√",
        "infty": "∞", "le": "≤",
    }  # fmt: skip
    token = re.compile(r"\\(text\w+)\{\}|\$\\(\w+)\$|\\([&%$#_{}])")
    return token.sub(lambda m: names[m[1]] if m[1] else symbols[m[2]] if m[2] else m[3], text)


def _number(found: re.Match[str]) -> str:
    return f"{found[1]}e{int(found[2]):+03d}"


@given(TEXTS)
def test_latex_shows_every_text_and_leaves_nothing_special(text: str) -> None:
    shown = latex_text(text)
    bare = re.sub(r"\\text\w+\{\}|\$[^$]*\$|\\[&%$#_{}]", "", shown)
    assert not set(bare) & set("&%$#_{}~^\\")
    assert re.sub(r"e([+-])0*(\d)", r"e\1\2", _read_latex(shown)) == re.sub(
        r"e([+-])0*(\d)", r"e\1\2", text
    )


@given(TEXTS)
def test_markdown_shows_every_text(text: str) -> None:
    assert re.sub(r"\\([\\`*_\[\]<>|~#])", r"\1", markdown_text(text)) == text


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1), TEXTS)
def test_a_table_keeps_its_shape(lines: list[tuple[str, str]], caption: str) -> None:
    table = Table(caption=caption, headings=("a", "b"), lines=tuple(lines), columns="lr")
    rows = [line for line in latex([table]).splitlines() if line.endswith(r"\\")]
    assert len(rows) == len(lines) + 1
    assert all(len(re.findall(r"(?<!\\)&", row)) == 1 for row in rows)
    _, _, _, _, *body = markdown([table]).splitlines()
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in body] == [3] * len(lines)
    assert [_cells(row) for row in body] == [[one.strip() for one in line] for line in lines]


def _cells(row: str) -> list[str]:
    cells = re.findall(r"(?:\\.|[^|\\])+", row.strip("|"))
    return [re.sub(r"\\(.)", r"\1", one).strip() for one in cells]


@pytest.mark.parametrize("caption", ["two\nlines", "a % comment"])
def test_captions_of_latex_stay_in_their_comment(caption: str) -> None:
    table = Table(caption=caption, headings=("a",), lines=(("b",),), columns="l")
    text = latex([table])
    assert f"% {' '.join(caption.split())}\n\\begin{{tabular}}" in text


def test_all_numbers_of_a_comparison_stand_in_both() -> None:
    for text, read in ((latex(TABLES), _read_latex), (markdown(TABLES), str)):
        seen = read(text).replace("\\%", "%")
        for table in TABLES:
            assert table.caption in text
            for line in table.lines:
                assert all(one in seen for one in line)
