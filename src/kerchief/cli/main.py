"""The entry point: `kerchief COMMAND`."""

from __future__ import annotations

import click

import kerchief
from kerchief.cli.exit_codes import CommandWithExitCodes
from kerchief.cli.global_options import device_option, plugin_files
from kerchief.cli.index import command, read


class _Commands(CommandWithExitCodes, click.Group):
    """Commands that are imported when they are run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line, and import it."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub and command(stub.name or ""), rest


@click.group(
    cls=_Commands,
    commands=[click.Command(name, help=text) for name, text in read()["commands"].items()],
)
@click.version_option(kerchief.__version__, prog_name="kerchief")
@plugin_files
@device_option
def main(**_: object) -> None:
    """Differentially private bandits: the influence of any one user's data is bounded.

    Exit codes: 0 all is well; 1 a claim, a promise or a bill does not hold; 2 what was asked for is
    not possible; 3 a result could not be written; 130 interrupted.
    """
