"""`kerchief leaderboard`: private policies ranked by regret, under each trust model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click

from kerchief.cli import options
from kerchief.cli.device import use_device
from kerchief.cli.global_options import with_plugins
from kerchief.cli.playing import Playing, perform, playing_options, print_promises
from kerchief.cli.printing import print_json, print_table, print_wrapped
from kerchief.papers.leaderboard import Leaderboard
from kerchief.papers.leaderboard_worlds import WORLDS
from kerchief.reports.outputs import Outputs


def _repeatable_option(flag: str, name: str, help: str, metavar: str) -> Callable[..., Any]:
    return click.option(flag, name, multiple=True, metavar=metavar, help=f"{help} Repeatable.")


@click.command()
@options.option(
    "--size",
    "Size of the leaderboard: two environments, the usual ones, or all for a large machine.",
    default="usual",
    metavar="quick|usual|full",
)
@_repeatable_option(
    "--env", "worlds", "Environment.  [default: those of the size]", options.words(WORLDS)
)
@_repeatable_option("--policy", "policies", "Private policy.  [default: all]", "NAME")
@_repeatable_option("--trust", "trusts", "Trust model.  [default: all]", options.PRIVATE_TRUSTS)
@options.epsilon
@options.option("--delta", "Privacy budget delta; below 1/horizon.", default=1e-7)
@click.option(
    "--replicates", type=int, help="Number of independent runs.  [default: the size's own]"
)
@options.seed
@with_plugins
@playing_options(pictures=False)
def leaderboard(*, playing: Playing, **settings: Any) -> None:
    """Rank all private policies at one privacy guarantee, in common environments.

    Each row also shows the regret of the non-private counterpart, the 95th percentile and the time
    per decision. Ties share a rank. The folder gets `leaderboard.html`, `leaderboard.md` and the
    results. Finished runs are kept: run the same command to continue after an interrupt.
    """
    # Whether a policy fits an environment shows when it is built, on the device.
    use_device(playing.device)
    plan = Leaderboard.of(**settings)
    tables = tuple(dict.fromkeys((*playing.tables, "markdown")))
    with_markdown = dataclasses.replace(playing, tables=tables)
    narrow = "--size quick, --env, --policy, --trust or --replicates"
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
