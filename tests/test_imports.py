"""Importing kerchief is quick and changes nothing: shown in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kerchief.cli.index import COMMANDS, PATH, command, read

_HEAVY_BUT_NUMPY = ("jax", "jaxlib", "scipy", "dp_accounting", "matplotlib", "polars")
_HEAVY = ("numpy", *_HEAVY_BUT_NUMPY)


def _python(code: str, **settings: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1", "JAX_PLATFORMS": "cpu", **settings},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_LIGHT = (
    ("--help",),
    ("--version",),
    *(("list", kind) for kind in read()["listings"]),
    ("list", "policies", "--json"),
    ("list", "--help"),
)


def test_nothing_heavy_is_imported() -> None:
    """By the package, and by any of these commands: after each of them it is looked for."""
    code = f"""
import sys
import kerchief
dir(kerchief)
heavy = [["import", name] for name in {_HEAVY!r} if name in sys.modules]
from kerchief.cli.main import main
for words in {_LIGHT!r}:
    try:
        main(list(words))
    except SystemExit as left:
        assert not left.code, words
    heavy += [[*words, name] for name in {_HEAVY!r} if name in sys.modules]
print()
print(heavy)
"""
    assert _python(code).splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("room", "above"),
    [
        ("kerchief_protocol", ("kerchief", "kerchief_device", *_HEAVY_BUT_NUMPY)),
        ("kerchief_device", ("kerchief", *_HEAVY_BUT_NUMPY)),
        ("kerchief.stores", ("kerchief.deployment", "kerchief.policies", *_HEAVY_BUT_NUMPY)),
    ],
)
def test_lower_package_imports_no_higher_package(room: str, above: tuple[str, ...]) -> None:
    """What a phone or a store needs is light, whichever module of it comes first."""
    code = f"""
import importlib, pkgutil, sys
room = importlib.import_module({room!r})
for found in pkgutil.walk_packages(room.__path__, {room + "."!r}):
    importlib.import_module(found.name)
print([name for name in {above!r} if name in sys.modules])
"""
    assert _python(code).strip() == "[]"


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """What a process says that imports everything, and then writes the index anew.

    In a process of its own: other tests plant entries in the registries.
    """
    code = """
import importlib, json, logging, pkgutil, warnings
import dp_accounting, jax, jax.numpy, matplotlib.figure, numpy, scipy.optimize, scipy.stats
from jax.extend.core import Primitive

def settings():
    log = logging.getLogger()
    return dict(jax.config.values), list(warnings.filters), numpy.geterr(), log.handlers, log.level

def refuse(self, *operands, **options):
    raise AssertionError(f"{self} runs at import")

before, bind = settings(), Primitive.bind
Primitive.bind = refuse
for package in map(importlib.import_module, ("kerchief_protocol", "kerchief_device", "kerchief")):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
same, Primitive.bind = settings() == before, bind
from kerchief.cli.make_index import made
print(json.dumps({"same": same, "index": made()}))
"""
    said: dict[str, Any] = json.loads(_python(code))
    return said


def test_import_of_everything_changes_no_setting_and_runs_no_jax(
    imported: dict[str, Any],
) -> None:
    assert imported["same"]


def test_the_index_is_fresh(imported: dict[str, Any]) -> None:
    fresh = imported["index"] == PATH.read_text(encoding="utf-8")
    assert fresh, f"{PATH.name} is stale; run `make index` and commit what it writes"


def test_every_command_is_in_the_help() -> None:
    shown = _python("from kerchief.cli.main import main; main(['--help'])")
    for name in COMMANDS:
        assert f"  {name} " in shown
        assert command(name).get_short_help_str(50).removesuffix("...") in shown


def test_list_command_shows_the_registries() -> None:
    shown = _python("from kerchief.cli.main import main; main(['list', 'trusts', '--json'])")
    names = [line["name"] for line in json.loads(shown)["trusts"]]
    assert names == ["none", "local", "shuffle", "joint", "central"]
