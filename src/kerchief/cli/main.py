"""The entry point: `kerchief COMMAND`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any

import click

import kerchief
from kerchief.cli.index import command, read
from kerchief.cli.printing import complain
from kerchief.core.errors import KerchiefError, WriteError

# Nearly all objects of a command live until its end: garbage is looked for rarely, and not before
# anything is played (some 270 000 objects).
_OBJECTS_BETWEEN_COLLECTIONS = 400_000


class _Commands(click.Group):
    """Commands that are imported when they are run.

    Every error, click's own included, is one line on stderr and exit code 2.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line, and import it."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub and command(stub.name or ""), rest

    def main(self, args: Sequence[str] | None = None, *extra: Any, **options: Any) -> Any:
        """Run a command and leave with its exit code."""
        options["standalone_mode"] = False
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        try:
            code = super().main(args, *extra, **options)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            complain("error", error.format_message())
            sys.exit(2)
        except WriteError as error:
            complain("error", str(error))
            sys.exit(3)
        except KerchiefError as error:
            complain("error", str(error))
            sys.exit(2)
        except OSError as error:
            complain("error", f"the output ends here: {error}; make room, or send it elsewhere")
            sys.exit(3)
        except (click.Abort, KeyboardInterrupt):
            complain("interrupted", "nothing was finished")
            sys.exit(130)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(
    cls=_Commands,
    commands=[click.Command(name, help=text) for name, text in read()["commands"].items()],
)
@click.version_option(kerchief.__version__, prog_name="kerchief")
def main() -> None:
    """Differentially private bandits: the influence of any one user's data is bounded.

    Exit codes: 0 all is well; 1 a claim, a promise or a bill does not hold; 2 what was asked for is
    not possible; 3 a result could not be written; 130 interrupted.
    """
