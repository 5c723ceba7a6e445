"""Options in a TOML file, so that a run can be kept, reviewed and asked for again."""

from __future__ import annotations

from pathlib import Path

import click

from kerchief.core.errors import InvalidValue
from kerchief.core.registry import Registry
from kerchief.experiments.settings import BANDIT, read_toml


def _take(context: click.Context, this: click.Parameter, path: Path | None) -> None:
    """Let the file stand for options that are not on the command line.

    A table of what to deploy, which a plan writes there too, is passed over.
    """
    if path is None:
        return
    known: Registry[click.Parameter] = Registry("option")
    for one in context.command.params:
        if one is not this:
            known.add(one.opts[0].removeprefix("--"), one)
    read = {name: value for name, value in read_toml(path).items() if name != BANDIT}
    given = {known[name.replace("_", "-")]: value for name, value in read.items()}
    context.default_map = {one.name: _value(one, value) for one, value in given.items() if one.name}


def _value(option: click.Parameter, given: object) -> object:
    """One value, or a list of them where an option may be repeated."""
    values = given if isinstance(given, list) else [given]
    if any(isinstance(one, dict | list) for one in values):
        raise InvalidValue(f"{option.opts[0]} is {given!r} in the configuration; give plain values")
    if option.multiple:
        return values
    if isinstance(given, list):
        raise InvalidValue(f"{option.opts[0]} is {given!r} in the configuration; give one value")
    return given


config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_take,
    help="A TOML file with options by their names; those on the command line come first.",
)
"""The option that reads them."""
