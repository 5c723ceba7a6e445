"""Proof notes of the papers: members of classes and modules that they name are there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import kerchief

SOURCE = Path(kerchief.__file__).parent
NOTES = (
    "mechanisms/randomized_bits.md",
    "policies/glm/batched.md",
    "policies/glm/rare_switching.md",
    "policies/linear/sblb.md",
    "policies/phased/elimination.md",
    "privacy/randomized_bits.md",
    "privatizers/bits.md",
)
PACKAGES = ("mechanisms", "policies", "privacy", "privatizers", "deployment", "simulation")


def owners() -> dict[str, object]:
    """Classes by name, and modules by their last name and by that with its package."""
    found: dict[str, object] = {}
    for package in PACKAGES:
        for entry in pkgutil.walk_packages([str(SOURCE / package)], f"kerchief.{package}."):
            module = importlib.import_module(entry.name)
            found |= dict(inspect.getmembers(module, inspect.isclass))
            *_, parent, last = entry.name.split(".")
            found |= {last: module, f"{parent}.{last}": module}
    return found


@pytest.mark.parametrize("note", NOTES)
def test_members_that_a_note_names_are_there(note: str) -> None:
    known, text = owners(), (SOURCE / note).read_text("utf-8")
    for owner, member in re.findall(r"`([A-Za-z_.]+)\.(?!py`|md`)(\w+)`", text):
        if owner in known:
            members = {*dir(known[owner]), *getattr(known[owner], "__annotations__", {})}
            assert member in members, f"{owner}.{member}"
