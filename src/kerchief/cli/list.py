"""`kerchief list`: names for the command line."""

from __future__ import annotations

from typing import cast

import click

from kerchief.cli.global_options import chosen_plugins, load
from kerchief.cli.index import Line, read
from kerchief.cli.printing import json_output, print_json, print_table, print_wrapped
from kerchief.core.registry import Registry

# Columns that are for machines: they would not fit a terminal, or say what another one says.
_ONLY_JSON = {
    "policies": (
        "kind",
        "variant_of",
        "citation",
        "parent",
        "environments",
        "parameters",
        "noises",
    ),
    "environments": ("problem",),
    "experiments": ("source",),
    "proofs": ("kind", "summary"),
}
_SHORT_TRUSTS = {
    (): "not private",
    ("local", "shuffle", "central"): "all but joint",
    ("local", "shuffle", "joint", "central"): "all",
}


@click.command("list")
@click.argument("kind", metavar="policies|environments|mechanisms|trusts|experiments|proofs")
@click.option(
    "--source",
    metavar="KEY",
    help="Key of a paper, its first author and year, such as zheng2020: list only its policies or "
    "experiments.",
)
@click.option(
    "--all", "is_complete", is_flag=True, help="Include variants, and the versions of papers."
)
@json_output
def list_(
    *,
    kind: str,
    source: str | None,
    is_complete: bool,
    as_json: bool,
) -> None:
    """List policies, environments, mechanisms, trust models, experiments or proofs.

    Lists of policies omit variants and the versions of papers; --all or --source includes them.
    """
    lines = _read_listings()[kind]
    # Proofs are of our own.
    if load(chosen_plugins()) and kind != "proofs":
        lines = _list_live(kind)
    if source is not None:
        lines = _filter_by_paper(lines, source, kind)
    if as_json:
        print_json({kind: lines})
        return
    shown = lines if is_complete or source is not None else [*filter(_is_main, lines)]
    headings = [name for name in lines[0] if name not in _ONLY_JSON.get(kind, ())]
    rows = [[_format_value(kind, name, line.get(name, "")) for name in headings] for line in shown]
    print_table(headings, rows, columns="l" * len(headings))
    if len(shown) < len(lines):
        print_wrapped(f"{len(lines) - len(shown)} variants are left out; --all lists them.")


def _read_listings() -> Registry[list[Line]]:
    """Read all listings into a registry, whose errors name the nearest kind."""
    listings: Registry[list[Line]] = Registry("listing")
    for kind, lines in read()["listings"].items():
        listings.add(kind, lines)
    return listings


def _list_live(kind: str) -> list[Line]:
    """List the entries of a registry, including those of plugins."""
    from kerchief.cli.listing import LISTINGS

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


def _is_main(line: Line) -> bool:
    """Whether lists show an entry by default."""
    return not line.get("variant_of") and "@" not in str(line["name"])


def _format_value(kind: str, heading: str, value: object) -> str:
    """Format one value; a policy has room for its first source and a short word for its trusts."""
    if kind == "policies" and isinstance(value, list):
        if heading == "source":
            return str(value[0]) if value else ""
        trusts = [trust for trust in value if trust != "none"]
        return _SHORT_TRUSTS.get(tuple(trusts)) or ", ".join(trusts)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
