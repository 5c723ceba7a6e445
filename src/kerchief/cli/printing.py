"""How commands speak: tables on stdout that fit the terminal, everything else on stderr."""

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

json_output = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)


def _width() -> int:
    """Columns of the terminal, as far as we use them."""
    return min(_WIDEST, max(20, shutil.get_terminal_size((_WIDTH, 24)).columns))


def complain(kind: str, message: str) -> None:
    """One line on stderr."""
    click.echo(f"kerchief: {kind}: {' '.join(message.split())}", err=True)


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, allow_nan=False))


def print_wrapped(text: str) -> None:
    """A sentence on stdout, in as many lines as it takes."""
    click.echo(textwrap.fill(text, _width(), break_long_words=False, break_on_hyphens=False))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    columns: str,
) -> None:
    """A table that fits the terminal: what has no room is left out, or stands below each other.

    There is one letter per column: l for words, on the left; r for numbers, on the right. A capital
    may be left out, the last one first.
    """
    drawn = _drawn(headings, rows, columns)
    left: list[str] = []
    while _spare_width(drawn) < 0:
        spare = [one for one in drawn if one.letter.isupper()]
        if not spare:
            _print_stacked(drawn, title)
            return
        drawn.remove(spare[-1])
        left.append(spare[-1].heading)
    Console(width=_width(), highlight=False).print(_table(drawn, title))
    if left:
        print_wrapped(f"no room for: {'; '.join(left)} (widen the terminal, or see --json)")


def fits(headings: Sequence[str], rows: Iterable[Sequence[str]], *, columns: str) -> bool:
    """Whether such a table fits the terminal with all its columns, and without breaking a word."""
    return _spare_width(_drawn(headings, rows, columns)) >= 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Column:
    """A column with its texts, and how narrow and how wide it may be."""

    heading: str
    texts: tuple[str, ...]
    letter: str

    @property
    def words(self) -> bool:
        return self.letter in "lL"

    @property
    def least(self) -> int:
        texts = [word for text in self.texts for word in text.split()] if self.words else self.texts
        return max(map(len, [*self.heading.split(), *texts]), default=1)

    @property
    def most(self) -> int:
        return max(map(len, [self.heading, *self.texts])) if self.words else self.least


def _drawn(headings: Sequence[str], rows: Iterable[Sequence[str]], columns: str) -> list[_Column]:
    lines = [[_written(text) for text in row] for row in rows]
    return [
        _Column(
            heading=_written(heading), texts=tuple(line[place] for line in lines), letter=letter
        )
        for place, (heading, letter) in enumerate(zip(headings, columns, strict=True))
    ]


def _spare_width(drawn: Sequence[_Column]) -> int:
    """What the narrowest columns, two spaces apart and from the edges, leave of the terminal."""
    return _width() - sum(one.least + 2 for one in drawn)


def _table(drawn: Sequence[_Column], title: str | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.title, table.title_justify = title, "left"
    for one, wide in zip(drawn, _widths(drawn), strict=True):
        side: JustifyMethod = "left" if one.words else "right"
        # Text, so that nothing is read as markup.
        heading = textwrap.fill(one.heading, wide, break_long_words=False, break_on_hyphens=False)
        table.add_column(Text(heading), justify=side, width=wide)
    for line in zip(*(one.texts for one in drawn), strict=True):
        table.add_row(*map(Text, line))
    return table


def _widths(drawn: Sequence[_Column]) -> list[int]:
    """No word is broken; what room is left goes to the narrowest column that can use it."""
    widths, most = [one.least for one in drawn], [one.most for one in drawn]
    for _ in range(_spare_width(drawn)):
        open_ = [place for place, wide in enumerate(widths) if wide < most[place]]
        if not open_:
            break
        widths[min(open_, key=widths.__getitem__)] += 1
    return widths


def _print_stacked(drawn: Sequence[_Column], title: str | None) -> None:
    """Every row as a few lines of its own."""
    if title:
        print_wrapped(title)
    for line in zip(*(one.texts for one in drawn), strict=True):
        click.echo()
        for one, text in zip(drawn, line, strict=True):
            print_wrapped(f"{one.heading}: {text}" if one.heading else text)
    click.echo()


def _written(text: str) -> str:
    """A text in letters that the terminal has."""
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
