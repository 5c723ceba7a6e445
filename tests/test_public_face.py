"""`import kerchief` offers what is documented, each name with an example, and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import kerchief
from kerchief.cli.main import main

_ROOT = Path(__file__).parents[1]


def _documented() -> set[str]:
    """The names in the table of the section on importing."""
    section = (_ROOT / "docs/design.md").read_text(encoding="utf-8").partition("Importing\n")[2]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return set(re.findall(r"`(\w+)`", "\n".join(lines)))


def _typed() -> dict[str, str]:
    """What type checkers are told: each name with its module."""
    source = Path(kerchief.__file__).read_text(encoding="utf-8")
    imports = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ImportFrom)]
    return {
        alias.name: one.module or ""
        for one in imports
        for alias in one.names
        if (one.module or "").startswith("kerchief") and alias.asname == alias.name
    }


def test_public_names_equal_documented_names() -> None:
    assert set(kerchief.__all__) == _documented()
    assert len(kerchief.__all__) == len(set(kerchief.__all__))
    assert set(dir(kerchief)) == {*kerchief.__all__, "__version__"}


def test_type_checkers_see_the_same_names() -> None:
    typed = _typed()
    assert set(typed) == set(kerchief.__all__)
    for name, module in typed.items():
        assert getattr(import_module(module), name) is getattr(kerchief, name)


@pytest.mark.parametrize("name", kerchief.__all__)
def test_every_name_has_an_example_and_a_home(name: str) -> None:
    thing = getattr(kerchief, name)
    assert ">>> " in (inspect.getdoc(thing) or "")
    assert " at 0x" not in repr(thing) or inspect.isfunction(thing)
    kind = thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)
    assert kind.__module__.split(".")[0] in ("kerchief", "kerchief_device", "kerchief_protocol")
    assert getattr(import_module(kind.__module__), kind.__qualname__) is kind


def test_first_lines_promise_bounded_influence_alone() -> None:
    """Differential privacy bounds what one user's data changes; learning about users it allows."""
    readme = (_ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")[1]
    for promise in (readme, inspect.getdoc(kerchief) or "", inspect.getdoc(main) or ""):
        first = " ".join(promise.partition(".")[0].split())
        assert "any one user" in first
        assert "bound" in first
        assert not re.search(r"nothing|without learning|not about|any one person|anyone", first)


def test_readme_names_all_who_must_be_honest() -> None:
    """Beside shuffler and curator: whoever carries reports, and whoever admits users."""
    section = (_ROOT / "README.md").read_text(encoding="utf-8").partition("## Four trusts")[2]
    section = " ".join(section.partition("\n## ")[0].split())
    assert "nobody else may read a report on its way" in section
    assert "somebody who admits that part of the users" in section


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="'kerchief' has no attribute 'bandit'"):
        getattr(kerchief, "bandit")  # noqa: B009
