"""Pictures for papers: letters are letters, and the same picture is the same file."""

from __future__ import annotations

import functools
import re
import zlib
from pathlib import Path

import pytest
from tests.comparison.fakes import fake

from kerchief.comparison.comparison import Comparison
from kerchief.core.errors import InvalidValueError
from kerchief.reports.figures import FORMATS, picture
from kerchief.reports.outputs import Outputs

PLAN = Comparison(contexts=("ball",), trusts=("joint",), horizon=60, replicates=4)
ROWS = fake(PLAN)


@functools.cache
def drawn(form: str) -> bytes:
    return picture(PLAN, ROWS, form)


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("svg", b"<?xml"),
        pytest.param("png", b"\x89PNG", marks=pytest.mark.nightly),
        pytest.param("pdf", b"%PDF", marks=pytest.mark.nightly),
    ],
)
def test_a_picture_is_the_same_bytes_every_time(form: str, start: bytes) -> None:
    first = drawn(form)
    assert first.startswith(start)
    assert picture(PLAN, ROWS, form) == first
    assert b"Date" not in first
    assert b"dc:date" not in first


def test_pdf_embeds_its_fonts_as_fonts() -> None:
    page = drawn("pdf")
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", page, re.DOTALL)
    plain = page + b"".join(zlib.decompress(one) for one in streams if one[:1] == b"\x78")
    assert b"/FontFile2" in plain
    assert b"/Type3" not in plain


def test_svg_keeps_its_letters() -> None:
    page = drawn("svg").decode()
    assert ">sampling joint</text>" in page
    assert "ε=10" in page


def test_other_formats_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="format is 'gif'"):
        picture(PLAN, ROWS, "gif")


def test_formats_and_tables_are_written_beside_the_rest(tmp_path: Path) -> None:
    kept = Outputs.at(tmp_path, PLAN, formats=("pdf", "svg"), tables=("latex", "markdown"))
    for one in ROWS:
        kept.keep(one)
    kept.close()
    names = {path.name for path in kept.files.values()}
    assert names == {
        "compare.pdf", "compare.svg", "results.tex", "results.md", "results.json",
        "results.parquet", "report.html",
    }  # fmt: skip
    assert "data:image/png;base64," in (tmp_path / "report.html").read_text()
    Outputs.at(tmp_path, PLAN, force=True).begin()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "results.json"]
    assert FORMATS[0] == "png"
