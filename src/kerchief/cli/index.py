"""Index file for `kerchief --help` and `kerchief list`, which import little.

`make index` writes the file from the registries, and a test fails when it is stale.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TypedDict

import click

COMMANDS = (
    *("audit", "calibrate", "check", "compare", "leaderboard", "ledger", "list", "plan"),
    *("reproduce", "value"),
)
"""Each is defined in the module of its name."""

PATH = Path(__file__).with_name("index.json")

Line = dict[str, object]


class Index(TypedDict):
    """What each command does, in one sentence, and the lines of each listing."""

    commands: dict[str, str]
    listings: dict[str, list[Line]]


def read() -> Index:
    """Read the index file."""
    index: Index = json.loads(PATH.read_text(encoding="utf-8"))
    return index


def command(name: str) -> click.Command:
    """Import a command, with all that it needs."""
    members = vars(import_module(f"kerchief.cli.{name}")).values()
    return next(
        member for member in members if isinstance(member, click.Command) and member.name == name
    )
