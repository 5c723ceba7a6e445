"""The entry point: `kerchief COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

import kerchief
from kerchief.cli.audit import audit
from kerchief.cli.bench import bench
from kerchief.cli.calibrate import calibrate
from kerchief.cli.check import check
from kerchief.cli.compare import compare
from kerchief.cli.device import keep_compiled
from kerchief.cli.ledger import ledger
from kerchief.cli.list import list_
from kerchief.cli.printing import complain
from kerchief.cli.reproduce import reproduce
from kerchief.core.errors import KerchiefError

__all__ = ["main"]


class _OneLine(click.Group):
    """A group whose errors, click's own included, are one line on stderr and exit code 2."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        """Run a command and leave with its exit code."""
        options["standalone_mode"] = False
        try:
            code = super().main(args, *more, **options)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            complain("error", error.format_message())
            sys.exit(2)
        except KerchiefError as error:
            complain("error", str(error))
            sys.exit(2)
        except (click.Abort, KeyboardInterrupt):
            complain("interrupted", "nothing was finished")
            sys.exit(130)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(cls=_OneLine)
@click.version_option(kerchief.__version__, prog_name="kerchief")
def main() -> None:
    """Differentially private bandits: learn which action is best without learning about anyone."""
    keep_compiled()


main.add_command(compare)
main.add_command(reproduce)
main.add_command(list_)
main.add_command(calibrate)
main.add_command(ledger)
main.add_command(audit)
main.add_command(check)
main.add_command(bench)
