"""Libraries that only reports need: imported late, and missed in one clear line."""

from __future__ import annotations

import importlib.util

from kerchief.core.errors import KerchiefError

__all__ = ["require_report"]

_NEEDED = ("jinja2", "matplotlib", "polars")


def require_report() -> None:
    """Check that tables, figures and reports can be written.

    Raises:
        KerchiefError: a library is missing; says how to install it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise KerchiefError(
            f"results cannot be written without {', '.join(missing)}: "
            "run pip install 'kerchief[report]'"
        )
