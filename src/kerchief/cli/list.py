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
    lines = _listings()[kind]
    # Proofs are of our own.
    if load(plugins) and kind != "proofs":
        lines = _live(kind)
    if source is not None:
        lines = _from_paper(lines, source, kind)
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


def _from_paper(lines: list[Line], source: str, kind: str) -> list[Line]:
    """The lines that name a paper; a registry says which key is near a wrong one."""
    papers: dict[str, list[Line]] = {}
    for line in lines:
        for key in cast(list[str], line.get("source", [])):
            papers.setdefault(key, []).append(line)
    if not papers:
        raise click.UsageError(
            f"--source is {source!r}, and {kind} have no papers; list policies or experiments."
        )
    known: Registry[list[Line]] = Registry("paper", listed=(f"{kind} --json",))
    for key in sorted(papers):
        known.add(key, papers[key])
    return known[source]


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
