"""Optional libraries, imported late, with a clear error if one is missing."""

from __future__ import annotations

import importlib.util
from typing import Literal, TypeAlias

from kerchief.core.errors import KerchiefError
from kerchief.core.installing import format_install_command as format_install_command

Extra: TypeAlias = Literal["table", "picture", "report"]

NEEDS: dict[Extra, tuple[str, ...]] = {
    "table": ("polars",),
    "picture": ("matplotlib",),
    "report": ("jinja2", "matplotlib"),
}
"""What each output is written with, beyond what kerchief always brings."""


def require(*outputs: Extra, instead: str = "take the numbers with --json") -> None:
    """Check that outputs can be written, or name the missing library."""
    libraries = missing(*outputs)
    if libraries:
        raise KerchiefError(
            f"the {' and the '.join(outputs)} cannot be written without {', '.join(libraries)}: "
            f"run {format_install_command('report')}, or {instead}"
        )


def missing(*outputs: Extra) -> list[str]:
    """Return the libraries that these outputs need and that are not installed."""
    libraries = dict.fromkeys(library for output in outputs for library in NEEDS[output])
    return [library for library in libraries if importlib.util.find_spec(library) is None]
