"""How commands speak: tables on stdout, of 80 columns unless said, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

import click
from rich import box
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = ["WIDTH", "complain", "json_output", "print_json", "print_table", "progress_bar"]

WIDTH = 80
_PLAIN = str.maketrans({"±": "~", "ε": "e", "δ": "d", "µ": "u"})

json_output = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)


def complain(kind: str, message: str) -> None:
    """One line on stderr."""
    click.echo(f"kerchief: {kind}: {' '.join(message.split())}", err=True)


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, allow_nan=False))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    columns: str,
    width: int = WIDTH,
) -> None:
    """A table that fits a terminal.

    Args:
        headings: one a column.
        rows: texts, one a column.
        title: a line above it.
        columns: a letter a column: l for words, on the left; r for numbers, on the right.
        width: of the terminal.
    """
    plain = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    table = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        title=title,
        title_justify="left",
    )
    for heading, letter in zip(headings, columns, strict=True):
        side: JustifyMethod = "left" if letter == "l" else "right"
        table.add_column(_text(heading, plain), justify=side, no_wrap=letter == "r")
    for row in rows:
        table.add_row(*(_text(text, plain) for text in row))
    Console(width=width, highlight=False).print(table)


def _text(text: str, plain: bool) -> Text:
    """A cell, never read as markup, in letters that the terminal has."""
    return Text(text.translate(_PLAIN) if plain else text)


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
