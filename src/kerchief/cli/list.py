"""`kerchief list`: what can be named on the command line."""

from __future__ import annotations

import click

from kerchief.cli import options
from kerchief.cli.printing import print_json, print_table
from kerchief.experiments.listing import LISTINGS

__all__ = ["list_"]

# Columns that are for machines: they would not fit a terminal, or say what another one says.
_ONLY_JSON = {"policies": ("source", "parent"), "proofs": ("summary",)}
# Columns that a narrow terminal may do without.
_SPARE = {"proofs": ("kind",)}


@click.command("list", help=f"List {', '.join([*LISTINGS][:-1])} or {[*LISTINGS][-1]}.")
@click.argument("kind", metavar="|".join(LISTINGS))
@options.json_output
def list_(*, kind: str, as_json: bool) -> None:
    """Print one line for each name."""
    lines = LISTINGS[kind]()
    if as_json:
        print_json({kind: lines})
        return
    headings = [name for name in lines[0] if name not in _ONLY_JSON.get(kind, ())]
    rows = [[_text(line[name]) for name in headings] for line in lines]
    spare = _SPARE.get(kind, ())
    print_table(headings, rows, columns="".join("L" if one in spare else "l" for one in headings))


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
