"""Exit codes of commands, with one line on stderr for every error."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any

import click

from kerchief.cli.printing import complain
from kerchief.core.errors import KerchiefError, WriteError

# Nearly all objects of a command live until its end: garbage is looked for rarely, and not before
# anything is played (some 270 000 objects).
_OBJECTS_BETWEEN_COLLECTIONS = 400_000


class CommandWithExitCodes(click.Command):
    """Command that prints each error, click's own included, as one line on stderr."""

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
