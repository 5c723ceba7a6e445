"""Output of commands: tables on stdout that fit the terminal, messages on stderr."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

import click
from rich import box
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

# Where nobody says how wide the terminal is, and beyond which lines are hard to read.
_WIDTH, _WIDEST = 80, 100
_PLAIN = str.maketrans({"±": "~", "ε": "e", "δ": "d", "µ": "u"})

json_output = click.option("--json", "as_json", is_flag=True, help="Print one JSON object only.")


def _measure_terminal() -> int:
    """Measure the columns of the terminal, up to the widest line that is printed."""
    return min(_WIDEST, max(20, shutil.get_terminal_size((_WIDTH, 24)).columns))


def complain(kind: str, message: str) -> None:
    """Print one line on stderr."""
    click.echo(f"kerchief: {kind}: {' '.join(message.split())}", err=True)


def print_json(value: object) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(value, allow_nan=False))


def print_wrapped(text: str) -> None:
    """Print a sentence on stdout, in as many lines as it takes."""
    click.echo(
        textwrap.fill(text, _measure_terminal(), break_long_words=False, break_on_hyphens=False)
    )


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    columns: str,
) -> None:
    """Print a table that fits the terminal: leave columns out, or stack them.

    There is one letter per column: l for words, on the left; r for numbers, on the right. A capital
    may be left out, the last one first.
    """
    layout = _build_columns(headings, rows, columns)
    omitted: list[str] = []
    while _measure_spare_width(layout) < 0:
        spare = [column for column in layout if column.letter.isupper()]
        if not spare:
            _print_stacked(layout, title)
            return
        layout.remove(spare[-1])
        omitted.append(spare[-1].heading)
    Console(width=_measure_terminal(), highlight=False).print(_build_table(layout, title))
    if omitted:
        print_wrapped(f"no room for: {'; '.join(omitted)} (widen the terminal, or see --json)")


def fits(headings: Sequence[str], rows: Iterable[Sequence[str]], *, columns: str) -> bool:
    """Whether a table fits the terminal with all its columns and unbroken words."""
    return _measure_spare_width(_build_columns(headings, rows, columns)) >= 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Column:
    """A column with its texts, and how narrow and how wide it may be."""

    heading: str
    texts: tuple[str, ...]
    letter: str

    @property
    def is_text(self) -> bool:
        return self.letter in "lL"

    @property
    def min_width(self) -> int:
        texts = (
            [part for text in self.texts for part in text.split()] if self.is_text else self.texts
        )
        return max(map(len, [*self.heading.split(), *texts]), default=1)

    @property
    def max_width(self) -> int:
        return max(map(len, [self.heading, *self.texts])) if self.is_text else self.min_width


def _build_columns(
    headings: Sequence[str], rows: Iterable[Sequence[str]], columns: str
) -> list[_Column]:
    lines = [[_encode_text(text) for text in row] for row in rows]
    return [
        _Column(
            heading=_encode_text(heading), texts=tuple(line[place] for line in lines), letter=letter
        )
        for place, (heading, letter) in enumerate(zip(headings, columns, strict=True))
    ]


def _measure_spare_width(layout: Sequence[_Column]) -> int:
    """Measure how many characters the narrowest layout leaves of the terminal."""
    return _measure_terminal() - sum(column.min_width + 2 for column in layout)


def _build_table(layout: Sequence[_Column], title: str | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.title, table.title_justify = title, "left"
    for column, wide in zip(layout, _distribute_widths(layout), strict=True):
        side: JustifyMethod = "left" if column.is_text else "right"
        # Text, so that nothing is read as markup.
        heading = textwrap.fill(
            column.heading, wide, break_long_words=False, break_on_hyphens=False
        )
        table.add_column(Text(heading), justify=side, width=wide)
    for line in zip(*(column.texts for column in layout), strict=True):
        table.add_row(*map(Text, line))
    return table


def _distribute_widths(layout: Sequence[_Column]) -> list[int]:
    """Distribute spare width to the narrowest columns, and break no word."""
    widths, limits = (
        [column.min_width for column in layout],
        [column.max_width for column in layout],
    )
    for _ in range(_measure_spare_width(layout)):
        narrow = [place for place, wide in enumerate(widths) if wide < limits[place]]
        if not narrow:
            break
        widths[min(narrow, key=widths.__getitem__)] += 1
    return widths


def _print_stacked(layout: Sequence[_Column], title: str | None) -> None:
    """Print each row as a few lines."""
    if title:
        print_wrapped(title)
    for line in zip(*(column.texts for column in layout), strict=True):
        click.echo()
        for column, text in zip(layout, line, strict=True):
            print_wrapped(f"{column.heading}: {text}" if column.heading else text)
    click.echo()


def _encode_text(text: str) -> str:
    """Replace letters that the terminal does not have."""
    plain = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    return text.translate(_PLAIN) if plain else text


def progress_bar() -> Progress:
    """A bar on stderr, and none where stderr is not a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
