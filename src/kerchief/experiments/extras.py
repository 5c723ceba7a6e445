"""Libraries that only some outputs need: imported late, with a clear error where one is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import Literal, TypeAlias

import kerchief
from kerchief.core.errors import KerchiefError

Extra: TypeAlias = Literal["table", "picture", "report"]

NEEDS: dict[Extra, tuple[str, ...]] = {
    "table": ("polars",),
    "picture": ("matplotlib",),
    "report": ("jinja2", "matplotlib"),
}
"""What each output is written with, beyond what kerchief always brings."""


def require(*outputs: Extra, instead: str = "take the numbers with --json") -> None:
    """Check that outputs can be written, or say which library is missing and how to install it."""
    libraries = missing(*outputs)
    if libraries:
        raise KerchiefError(
            f"the {' and the '.join(outputs)} cannot be written without {', '.join(libraries)}: "
            f"run {installing('report')}, or {instead}"
        )


def missing(*outputs: Extra) -> list[str]:
    """The libraries that these outputs need and that are not installed."""
    needed = dict.fromkeys(library for output in outputs for library in NEEDS[output])
    return [library for library in needed if importlib.util.find_spec(library) is None]


def installing(extra: str) -> str:
    """The command that installs an extra, from where kerchief itself was installed."""
    return f"pip install {_origin().format(extra=extra)}"


def _origin() -> str:
    """A source checkout by its path, a repository by its address, else the index."""
    checkout = Path(kerchief.__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"-e '{checkout}[{{extra}}]'"
    told = _told()
    address = str(told.get("url", ""))
    if "vcs_info" in told:
        return f"'kerchief[{{extra}}] @ {told['vcs_info']['vcs']}+{address}'"
    if "dir_info" in told:
        return f"'{address.removeprefix('file://')}[{{extra}}]'"
    return "'kerchief[{extra}]'"


def _told() -> dict[str, dict[str, str]]:
    """What pip wrote down about where the package came from, if it did."""
    try:
        text = importlib.metadata.distribution("kerchief").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    found: dict[str, dict[str, str]] = json.loads(text or "{}")
    return found
