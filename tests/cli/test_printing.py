"""Tables that fit the terminal, whatever its width."""

from __future__ import annotations

import pytest

from kerchief.cli.printing import fits, print_table, print_wrapped

HEADINGS = ("policy", "trust", "ε", "spent ε, δ", "regret ± s.e.", "µs")
ROWS = [
    ("uniform", "none", "-", "0, 0", "26.2 ± 1.4", "29.5"),
    ("linucb theory exploration=2", "joint, tree", "1", "1, 1e-05", "556612 ± 1234", "95.3"),
]
COLUMNS = "llrRrR"


def _shown(
    capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, width: int
) -> tuple[str, list[str]]:
    patch.setenv("COLUMNS", str(width))
    print_table(HEADINGS, ROWS, columns=COLUMNS, title="a title")
    text = capsys.readouterr().out
    return text, text.splitlines()


@pytest.mark.parametrize("width", range(20, 101, 4))
def test_no_line_is_wider_and_no_number_is_lost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    text, lines = _shown(capsys, monkeypatch, width)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    flat = " ".join(text.split())
    for word in ("uniform", "exploration=2", "556612 ± 1234", "a title"):
        assert word in flat


def test_a_wide_terminal_has_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, lines = _shown(capsys, monkeypatch, 80)
    assert "no room for" not in text
    assert any("linucb theory exploration=2" in line and "95.3" in line for line in lines)
    assert fits(HEADINGS, ROWS, columns=COLUMNS)


def test_narrow_terminal_names_dropped_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _ = _shown(capsys, monkeypatch, 52)
    assert "95.3" not in text
    assert "1, 1e-05" in text
    assert "no room for: µs (widen the terminal, or see --json)" in " ".join(text.split())
    assert not fits(HEADINGS, ROWS, columns=COLUMNS)


def test_a_very_narrow_terminal_has_lines_below_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lines = _shown(capsys, monkeypatch, 30)
    assert "policy: uniform" in lines
    assert "regret ± s.e.: 26.2 ± 1.4" in lines


def test_sentences_are_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_wrapped("word " * 40)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
