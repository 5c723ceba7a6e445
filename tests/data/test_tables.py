"""Tables from files, frames and arrays; what is wrong with one is said in one line."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pytest

from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.data.tables import read_table

# They come without types.
pd: Any = importlib.import_module("pandas")
pa: Any = importlib.import_module("pyarrow")

PEOPLE: dict[str, list[Any]] = {
    "age": [18, 60, 33],
    "plan": ["basic", "gold", "basic"],
    "spend": [0.5, 2.0, 1.0],
}


def _csv(folder: Path) -> Path:
    pl.DataFrame(PEOPLE).write_csv(folder / "people.csv")
    return folder / "people.csv"


def _tsv(folder: Path) -> Path:
    pl.DataFrame(PEOPLE).write_csv(folder / "people.tsv", separator="\t")
    return folder / "people.tsv"


def _parquet(folder: Path) -> Path:
    pl.DataFrame(PEOPLE).write_parquet(folder / "people.parquet")
    return folder / "people.parquet"


@pytest.mark.parametrize(
    "make",
    [
        _csv,
        _tsv,
        _parquet,
        lambda folder: str(_csv(folder)),
        lambda folder: pl.DataFrame(PEOPLE),
        lambda folder: pl.DataFrame(PEOPLE).lazy(),
        lambda folder: pd.DataFrame(PEOPLE),
        lambda folder: pd.DataFrame(PEOPLE).convert_dtypes(),
        lambda folder: pd.DataFrame(PEOPLE).astype({"plan": "category"}),
        lambda folder: pa.table(PEOPLE),
        lambda folder: PEOPLE,
        lambda folder: {name: np.array(column) for name, column in PEOPLE.items()},
        lambda folder: read_table(PEOPLE),
    ],
)
def test_every_form_is_the_same_table(make: Callable[[Path], Any], tmp_path: Path) -> None:
    table = read_table(make(tmp_path))
    assert list(table.columns) == ["age", "plan", "spend"]
    assert table.rows == 3
    assert table.numbers("age").tolist() == [18.0, 60.0, 33.0]
    assert table.words("age").tolist() == ["18", "60", "33"]
    assert table.words("plan").tolist() == ["basic", "gold", "basic"]
    assert table.numbers("spend").tolist() == [0.5, 2.0, 1.0]


def test_columns_of_arrays_are_numbered() -> None:
    assert read_table(np.eye(2)).numbers("x1").tolist() == [0.0, 1.0]
    named = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    assert read_table(named).numbers("b").tolist() == [2.5]


def test_table_digest_covers_file_bytes_or_values(tmp_path: Path) -> None:
    path = _csv(tmp_path)
    assert read_table(path).digest == hashlib.sha256(path.read_bytes()).hexdigest()
    held = read_table(PEOPLE).digest
    assert held == read_table(dict(PEOPLE)).digest
    for name, other in (("age", [18, 60, 34]), ("plan", ["basic", "gold", "gold"])):
        assert read_table(PEOPLE | {name: other}).digest != held


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty or cut off"),
        ("age,plan\n", "x.csv is empty"),
        ("age,age\n1,2\n", "two columns called 'age'"),
        ("age,plan\n1,basic\n2,gold,3\n", "a row longer than its heading"),
        ("age,plan,spend\n1,basic,2\n3,go", "x.csv ends within row 2, as if it were cut off"),
        ("age,plan\n1,basic\n3,go", "x.csv ends within row 2, as if it were cut off"),
        ('age,plan,spend\n1,basic,2\n3,"go', "is empty or cut off"),
        ('\r\r\r\r\r"\n', "cannot be read as CSV"),
        ("a,b\r21,77\r31,78\r", r"x\.csv has lines that end in \\r alone"),
        ("a,b\r21,77\r31,78\n", r"x\.csv has lines that end in \\r alone"),
        ('"a","b"\r"21","77"\r', r"as on old Macs; write it anew with lines that end in \\n"),
    ],
)
def test_files_that_are_no_tables(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(text.encode())
    with pytest.raises(InvalidValueError, match=said) as caught:
        read_table(tmp_path / "x.csv")
    # Errors end up in logs, and what users are like must not.
    assert "77" not in str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_lines_may_have_any_common_line_ending(end: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(f'a,"b\rc"{end}1,"2\r3"{end}'.encode())
    table = read_table(tmp_path / "x.csv")
    assert (list(table.columns), table.numbers("a").tolist()) == (["a", "b\rc"], [1.0])


def test_a_parquet_file_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole, cut = _parquet(tmp_path).read_bytes(), tmp_path / "cut.parquet"
    for end in range(0, len(whole), 37):
        cut.write_bytes(whole[:end])
        with pytest.raises(InvalidValueError, match=r"cut\.parquet is no whole Parquet file"):
            read_table(cut)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ([1.0, float("nan"), 2.0], "row 2 of column 'x' in the table is missing"),
        ([1.0, None, None], r"row 2 \(and 1 more row\) of column 'x' in the table is missing"),
        ([1.0, float("inf"), 2.0], "row 2 of column 'x' in the table is not finite"),
        (["1", "2", "many"], "row 3 of column 'x' in the table is no number"),
        (["1", "", "many"], "row 2 of column 'x' in the table is missing"),
        (["1", "2_0", "3"], "row 2 of column 'x' in the table is no number"),
        (["1", "\uff12\uff10", "3"], "row 2 of column 'x' in the table is no number"),
        (["1", "\u0662", "many"], r"row 2 \(and 1 more row\) of column 'x' in the table is no num"),
    ],
)
def test_a_column_of_numbers_holds_numbers(column: list[Any], said: str) -> None:
    table = read_table({"x": np.array(column, object)})
    with pytest.raises(InvalidValueError, match=said) as caught:
        table.numbers("x")
    # Errors end up in logs, and what users are like must not.
    assert "many" not in str(caught.value)


def test_text_numbers_may_have_spaces_and_exponents() -> None:
    texts = np.array([" 1", "2\u00a0", "-3e1", "+.5"])
    for column in (texts, texts.astype(object)):
        assert read_table({"x": column}).numbers("x").tolist() == [1.0, 2.0, -30.0, 0.5]


def test_words_are_never_missing() -> None:
    assert read_table({"x": [1.0, 2.5]}).words("x").tolist() == ["1", "2.5"]
    assert read_table({"x": [True, False]}).words("x").tolist() == ["true", "false"]
    for wrong in ([1.0, np.nan], np.array(["a", None], object), np.array(["a", " "])):
        with pytest.raises(InvalidValueError, match="row 2 of column 'x'"):
            read_table({"x": wrong}).words("x")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("people.xls", r"ends in \.csv"),
        ("nowhere.csv", "cannot be read"),
        ("no\0where.csv", "cannot be read"),
        ([1.0, 2.0], "one row per user"),
        ([[1.0, 2.0], [3.0]], "several lengths"),
        ({}, "empty"),
        ({"a": []}, "empty"),
        ({"a": [1], "b": [1, 2]}, "as many in each"),
        ({"a": 1}, "one number or one word per row"),
        (None, "one row per user"),
    ],
)
def test_read_table_rejects_source_that_is_no_table(source: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        read_table(source)


def test_files_need_polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _csv(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(KerchiefError, match=r"without polars: run pip install"):
        read_table(path)


def test_columns_of_other_kinds_may_stand_by_but_not_be_used() -> None:
    days = pl.DataFrame({"age": [18], "day": ["2020-01-01"], "path": [[1, 2]]}).with_columns(
        pl.col("day").str.to_date()
    )
    table = read_table(days)
    assert table.numbers("age").tolist() == [18.0]
    with pytest.raises(
        InvalidValueError, match=r"column 'day' of the table .* one number or one word"
    ):
        table.numbers("day")
    with pytest.raises(
        InvalidValueError, match=r"row 1 of column 'path' .* is neither a number nor a word"
    ):
        table.words("path")
    with pytest.raises(InvalidValueError, match="one number or one word"):
        read_table({"a": [[1]]}).words("a")


def test_masked_numbers_are_missing() -> None:
    masked = np.ma.masked_greater(np.array([[20.0], [50.0], [85.0]]), 80)
    with pytest.raises(InvalidValueError, match="row 3 of column 'x0' in the table is missing"):
        read_table(masked).numbers("x0")
    assert read_table(np.ma.array([[20.0]])).numbers("x0").tolist() == [20.0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([Decimal("1.00"), Decimal("2.5")], ["1", "2.5"]),
        ([np.int64(1), np.bool_(True)], ["1", "true"]),
        ([np.float64(3.0), 4], ["3", "4"]),
        ([np.longdouble(2.5), np.longdouble(3)], ["2.5", "3"]),
        ([Fraction(1, 2), Fraction(3)], ["0.5", "3"]),
        ([Decimal("1E6"), Decimal("-0.0")], ["1000000", "-0"]),
        ([Decimal("1E+999999999"), Decimal("Infinity")], ["inf", "inf"]),
        ([10**5000, -(10**700)], ["1" + 5000 * "0", "-1" + 700 * "0"]),
    ],
)
def test_numbers_of_other_libraries_are_words(values: list[Any], words: list[str]) -> None:
    column = np.empty(2, object)
    column[:] = values
    assert read_table({"a": column}).words("a").tolist() == words


@pytest.mark.parametrize(
    "value",
    [
        *(date(2020, 1, 1), [1, 2], {"a": 1}, {1, 2}, 1 + 2j, b"a", object()),
        *(UUID(int=1), pd.Interval(0, 1), pd.Period("2020-01"), np.array([np.nan])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_present_non_numeric_values_are_not_called_missing(value: object) -> None:
    column = np.empty(2, object)
    column[0], column[1] = "a", value
    with pytest.raises(InvalidValueError, match=r"row 2 of .* is neither a number nor a word"):
        read_table({"a": column}).words("a")
    with pytest.raises(InvalidValueError, match=r"row 2 of .* is neither a number nor a word"):
        read_table({"a": column}).numbers("a")


class NotADay(date):
    """What pandas calls NaT: a date that equals nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = date.__hash__


def test_days_that_are_missing_are_missing() -> None:
    days = np.array([NotADay(2020, 1, 1), "a"], object)
    with pytest.raises(InvalidValueError, match="row 1 of column 'a' in the table is missing"):
        read_table({"a": days}).words("a")


@pytest.mark.parametrize(
    "value",
    [None, math.nan, np.longdouble("nan"), " ", pd.NA, pd.NaT, Decimal("NaN"), Decimal("sNaN")],
    ids=repr,
)
def test_absent_values_are_called_missing(value: object) -> None:
    column = np.empty(2, object)
    column[0], column[1] = 1.5, value
    for read in (read_table({"a": column}).words, read_table({"a": column}).numbers):
        with pytest.raises(InvalidValueError, match="row 2 of column 'a' in the table is missing"):
            read("a")


def test_numbers_are_read_whatever_library_made_them() -> None:
    column = np.array([np.longdouble(2.5), Fraction(1, 2), Decimal("1E30"), "7"], object)
    assert read_table({"a": column}).numbers("a").tolist() == [2.5, 0.5, 1e30, 7.0]


def test_masked_values_of_named_columns_are_missing() -> None:
    given: Any = np.ma.array(
        [(1, 2.5), (2, 3.5)], dtype=[("a", "i4"), ("b", "f8")], mask=[(False, False), (True, False)]
    )
    table = read_table(given)
    assert table.numbers("b").tolist() == [2.5, 3.5]
    with pytest.raises(InvalidValueError, match="row 2 of column 'a' in the table is missing"):
        table.numbers("a")


def test_two_columns_of_a_mapping_have_two_names() -> None:
    with pytest.raises(InvalidValueError, match="the table has two columns called '1'; rename one"):
        read_table({1: [1, 2], "1": [3, 4]})  # type: ignore[dict-item]


def test_a_query_that_fails_is_one_line_without_values() -> None:
    for query in (
        pl.DataFrame({"a": ["secret"]}).lazy().select(pl.col("b")),
        pl.DataFrame({"a": ["secret"]}).lazy().select(pl.col("a").cast(pl.Int64)),
    ):
        with pytest.raises(
            InvalidValueError, match=r"the frame of the table cannot be read"
        ) as caught:
            read_table(query)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"x": [1, None], "flag": [True, None], "plan": ["a", None]}),
        pd.DataFrame({"x": [1, None], "flag": [True, None], "plan": ["a", None]}),
        pd.DataFrame({"x": [1, None], "flag": [True, None], "plan": ["a", None]}).convert_dtypes(),
        pa.table({"x": [1, None], "flag": [True, None], "plan": ["a", None]}),
    ],
    ids=["polars", "pandas", "pandas-nullable", "arrow"],
)
def test_missing_values_of_frames_are_missing(frame: Any) -> None:
    table = read_table(frame)
    with pytest.raises(InvalidValueError, match="row 2 of column 'x' in the table is missing"):
        table.numbers("x")
    for name in ("x", "flag", "plan"):
        with pytest.raises(
            InvalidValueError, match=f"row 2 of column '{name}' in the table is missing"
        ):
            table.words(name)


def test_columns_of_pandas_with_one_name_are_refused() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(InvalidValueError, match=r"two columns .* rename one"):
        read_table(frame)


def test_decimal_columns_are_numbers() -> None:
    frame = pl.DataFrame({"x": [Decimal("1.5"), Decimal("2.25")]})
    assert read_table(frame).numbers("x").tolist() == [1.5, 2.25]


def test_headings_may_hold_quotes_and_commas(tmp_path: Path) -> None:
    pl.DataFrame({'q"': [20], "a,b": [30]}).write_csv(tmp_path / "x.csv")
    assert list(read_table(tmp_path / "x.csv").columns) == ['q"', "a,b"]


def test_a_query_of_polars_is_read() -> None:
    frame = pl.DataFrame({"age": [18, 60], "plan": ["basic", "gold"]})
    assert read_table(frame.lazy()).digest == read_table(frame).digest


def test_names_in_a_heading_are_stripped_as_values_are(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("age, plan\n20, gold\n")
    assert read_table(tmp_path / "x.csv").words("plan").tolist() == ["gold"]


def test_two_names_that_differ_in_spaces_are_one(tmp_path: Path) -> None:
    pl.DataFrame({"age": [20], " age": [30]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InvalidValueError, match="two columns called 'age'"):
        read_table(tmp_path / "x.parquet")
