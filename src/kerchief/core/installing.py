"""How to install what only some parts of kerchief need, from where kerchief itself came."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import kerchief


def format_install_command(extra: str) -> str:
    """The command that installs an extra, from where kerchief itself was installed."""
    return f"pip install {_origin().format(extra=extra)}"


def _origin() -> str:
    """A source checkout by its path, a repository by its address, else the index."""
    checkout = Path(kerchief.__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"-e '{checkout}[{{extra}}]'"
    record = _read_direct_url()
    address = str(record.get("url", ""))
    if "vcs_info" in record:
        return f"'kerchief[{{extra}}] @ {record['vcs_info']['vcs']}+{address}'"
    if "dir_info" in record:
        return f"'{address.removeprefix('file://')}[{{extra}}]'"
    return "'kerchief[{extra}]'"


def _read_direct_url() -> dict[str, dict[str, str]]:
    """What pip wrote down about where the package came from, if it did."""
    try:
        text = importlib.metadata.distribution("kerchief").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    record: dict[str, dict[str, str]] = json.loads(text or "{}")
    return record
