"""`kerchief list`: what can be named on the command line."""

from __future__ import annotations

import click

from kerchief.cli.index import Line, read
from kerchief.cli.plugins import load, plugin_files
from kerchief.cli.printing import json_output, print_json, print_table
from kerchief.core.registry import Registry

# Columns that are for machines: they would not fit a terminal, or say what another one says.
_ONLY_JSON = {
    "policies": ("source", "parent", "worlds", "numbers", "noises"),
    "environments": ("problem",),
    "proofs": ("kind", "summary"),
}


@click.command("list")
@click.argument("kind", metavar="policies|environments|mechanisms|trusts|experiments|proofs")
@plugin_files
@json_output
def list_(*, kind: str, plugins: tuple[str, ...], as_json: bool) -> None:
    """List policies, environments, mechanisms, trusts, experiments or proofs."""
    lines = _listings()[kind]
    # Proofs are of our own.
    if load(plugins) and kind != "proofs":
        lines = _live(kind)
    if as_json:
        print_json({kind: lines})
        return
    headings = [name for name in lines[0] if name not in _ONLY_JSON.get(kind, ())]
    rows = [[_text(line.get(name, "")) for name in headings] for line in lines]
    print_table(headings, rows, columns="l" * len(headings))


def _listings() -> Registry[list[Line]]:
    """As a registry, which names the nearest word for a wrong one."""
    listings: Registry[list[Line]] = Registry("listing")
    for kind, lines in read()["listings"].items():
        listings.add(kind, lines)
    return listings


def _live(kind: str) -> list[Line]:
    """From the registries, with what plugins have entered."""
    from kerchief.experiments.listing import LISTINGS

    return LISTINGS[kind]()


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
