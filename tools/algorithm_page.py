"""The page that leads from each line of the papers' lead algorithms to the code."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PREFACE = """\
# Algorithm by line

Made by `make pages` from `algorithms.toml`. Each table leads from the lines of a paper's algorithm
to the code that plays them. *Parameter* is the field or the argument that carries the paper's
symbol; where it is a number, `--param NAME=VALUE` sets it. *Differs* says how the printed version
in this library departs from the line. `kerchief list policies --source KEY` lists all bandits of
the paper.
"""
_HEAD = """\
| line | what it does | symbol | parameter | code | differs |
|---|---|---|---|---|---|"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One line of an algorithm, or several that belong together.

    Attributes:
        line: the paper's number of the line, or a name where it has none.
        step: what the line does.
        symbol: the paper's symbols.
        code: names in the package, without `kerchief.` before them.
        parameter: fields or arguments of the algorithm's class.
        differs: how the code departs from the line.
    """

    line: str
    step: str
    symbol: str
    code: tuple[str, ...]
    parameter: tuple[str, ...] = ()
    differs: str = "-"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm:
    """An algorithm of a paper, line by line.

    Attributes:
        title: its number, its paper and what it is.
        page: the page about the paper, in the same folder.
        paper: the key of the paper.
        plays: the bandits that play it, the printed version first.
        kind: their class, whose fields and arguments are the parameters.
        note: how lines are numbered, and how repaired versions differ.
        lines: the rows of its table.
    """

    title: str
    page: str
    paper: str
    plays: tuple[str, ...]
    kind: str
    note: str
    lines: tuple[Line, ...]

    @property
    def parameters(self) -> set[str]:
        """Fields of its class, and arguments of the class's constructors."""
        kind = resolve_name(self.kind)
        builders = (getattr(kind, name, None) for name in ("of", "build_with_budget"))
        arguments = (inspect.signature(builder).parameters for builder in builders if builder)
        names = {field.name for field in dataclasses.fields(kind)}
        return names.union(*arguments)


def read_algorithms(path: Path) -> tuple[Algorithm, ...]:
    """Read the algorithms of a file."""
    tables = tomllib.loads(path.read_text("utf-8"))["algorithm"]
    return tuple(_read_algorithm(table) for table in tables)


def resolve_name(name: str) -> Any:
    """Import what a name in the package stands for.

    >>> resolve_name("core.design.near_optimal").__name__
    'near_optimal'
    """
    return pkgutil.resolve_name(f"kerchief.{name}")


def page(path: Path) -> str:
    """The page of the documentation."""
    return "\n".join([_PREFACE, *(_section(algorithm) for algorithm in read_algorithms(path))])


def _read_algorithm(table: dict[str, Any]) -> Algorithm:
    rows = (
        Line(**row | {name: tuple(row.get(name, ())) for name in ("code", "parameter")})
        for row in table["lines"]
    )
    return Algorithm(**table | {"plays": tuple(table["plays"]), "lines": tuple(rows)})


def _section(algorithm: Algorithm) -> str:
    return "\n".join(_section_lines(algorithm)) + "\n"


def _section_lines(algorithm: Algorithm) -> Iterator[str]:
    yield f"## {algorithm.title}\n"
    yield (
        f"Played by {_quoted(algorithm.plays)}; key `{algorithm.paper}`; "
        f"[the whole paper]({algorithm.page}). Parameters are those of "
        f"{_link(algorithm.kind)}. {algorithm.note}\n"
    )
    yield _HEAD
    for line in algorithm.lines:
        code = ", ".join(map(_link, line.code))
        parameter = _quoted(line.parameter) or "-"
        cells = (line.line, line.step, line.symbol, parameter, code, line.differs)
        yield f"| {' | '.join(cells)} |"


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _link(name: str) -> str:
    """The name without its packages, linked to the file that defines it."""
    value = resolve_name(name)
    module = (value.fget if isinstance(value, property) else value).__module__
    short = f"kerchief.{name}".removeprefix(f"{module}.")
    return f"[`{short}`](../../src/{module.replace('.', '/')}.py)"
