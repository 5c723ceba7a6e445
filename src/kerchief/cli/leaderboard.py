"""`kerchief leaderboard`: which private bandit loses least, under each trust."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click

from kerchief.cli import options
from kerchief.cli.device import use_device
from kerchief.cli.playing import Playing, perform, playing_options, print_promises
from kerchief.cli.plugins import plugin_option
from kerchief.cli.printing import print_json, print_table, print_wrapped
from kerchief.core.errors import InvalidValueError
from kerchief.papers.leaderboard import Leaderboard
from kerchief.papers.leaderboard_worlds import WORLDS, SizeName
from kerchief.reports.outputs import Outputs


def _repeatable_option(flag: str, name: str, help: str, metavar: str) -> Callable[..., Any]:
    return click.option(flag, name, multiple=True, metavar=metavar, help=f"{help} Repeatable.")


@click.command()
@click.option("--quick", is_flag=True, help="A few worlds, for a look: some two minutes.")
@click.option("--full", is_flag=True, help="All worlds at their size, for a large machine.")
@_repeatable_option(
    "--world", "worlds", "A world.  [default: those of the size]", options.words(WORLDS)
)
@_repeatable_option("--policy", "policies", "A private bandit.  [default: all]", "NAME")
@_repeatable_option(
    "--trust", "trusts", "Whom users must trust.  [default: all]", options.PRIVATE_TRUSTS
)
@options.epsilon
@click.option(
    "--delta", type=float, default=1e-7, show_default=True, help="Privacy asked for; below 1/T."
)
@click.option("--replicates", type=int, help="Independent runs.  [default: the size's own]")
@options.seed
@plugin_option
@playing_options(pictures=False)
def leaderboard(*, playing: Playing, quick: bool, full: bool, **settings: Any) -> None:
    """Rank all private bandits at one guarantee, on common worlds.

    Beside each stands what the same bandit loses without privacy, its tail and its speed. Ranks
    show ties as ties. The folder gets `leaderboard.html`, `leaderboard.md` and the results. What is
    finished is kept: after an interrupt the same command continues.
    """
    if quick and full:
        raise InvalidValueError("give --quick or --full, and not both")
    size: SizeName = "quick" if quick else "full" if full else "usual"
    # Whether a bandit fits a world is found by building it, on the device.
    use_device(playing.device)
    plan = Leaderboard.of(size=size, **settings)
    tables = tuple(dict.fromkeys((*playing.tables, "markdown")))
    with_markdown = dataclasses.replace(playing, tables=tables)
    narrow = "--quick, --world, --policy, --trust or --replicates"
    (document,) = perform([plan], _print_standings, with_markdown, narrow=narrow)
    if playing.as_json:
        print_json(document)


def _print_standings(outputs: Outputs) -> None:
    """Print the standings and the paths of all files."""
    for table in outputs.plan.tables(outputs.finished):
        columns = "".join(
            letter.upper() if place > 3 else letter for place, letter in enumerate(table.columns)
        )
        print_table(table.headings, table.lines, title=table.caption, columns=columns)
    print_wrapped(outputs.plan.note())
    print_promises(outputs)
