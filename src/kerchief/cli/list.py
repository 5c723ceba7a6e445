"""`kerchief list`: what can be named on the command line."""

from __future__ import annotations

from typing import cast

import click

from kerchief.cli.index import Line, read
from kerchief.cli.plugins import load, plugin_files
from kerchief.cli.printing import json_output, print_json, print_table
from kerchief.core.registry import Registry

# Columns that are for machines: they would not fit a terminal, or say what another one says.
_ONLY_JSON = {
    "policies": ("source", "citation", "parent", "worlds", "numbers", "noises"),
    "environments": ("problem",),
    "experiments": ("source",),
    "proofs": ("kind", "summary"),
}


@click.command("list")
@click.argument("kind", metavar="policies|environments|mechanisms|trusts|experiments|proofs")
@click.option(
    "--source",
    metavar="KEY",
    help="Only policies or experiments of one paper: its first author and year, as zheng2020.",
)
@plugin_files
@json_output
def list_(*, kind: str, source: str | None, plugins: tuple[str, ...], as_json: bool) -> None:
    """List policies, environments, mechanisms, trusts, experiments or proofs."""
    lines = _read_listings()[kind]
    # Proofs are of our own.
    if load(plugins) and kind != "proofs":
        lines = _list_live(kind)
    if source is not None:
        lines = _filter_by_paper(lines, source, kind)
    if as_json:
        print_json({kind: lines})
        return
    headings = [name for name in lines[0] if name not in _ONLY_JSON.get(kind, ())]
    rows = [[_format_value(line.get(name, "")) for name in headings] for line in lines]
    print_table(headings, rows, columns="l" * len(headings))


def _read_listings() -> Registry[list[Line]]:
    """Read all listings into a registry, whose errors name the nearest kind."""
    listings: Registry[list[Line]] = Registry("listing")
    for kind, lines in read()["listings"].items():
        listings.add(kind, lines)
    return listings


def _list_live(kind: str) -> list[Line]:
    """List the entries of a registry, including those of plugins."""
    from kerchief.experiments.listing import LISTINGS

    return LISTINGS[kind]()


def _filter_by_paper(lines: list[Line], source: str, kind: str) -> list[Line]:
    """Return the lines that cite a paper; errors name the nearest key."""
    papers: dict[str, list[Line]] = {}
    for line in lines:
        for key in cast(list[str], line.get("source", [])):
            papers.setdefault(key, []).append(line)
    if not papers:
        raise click.UsageError(
            f"--source is {source!r}, and {kind} have no papers; list policies or experiments."
        )
    registry: Registry[list[Line]] = Registry("paper", listed=(f"{kind} --json",))
    for key in sorted(papers):
        registry.add(key, papers[key])
    return registry[source]


def _format_value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
