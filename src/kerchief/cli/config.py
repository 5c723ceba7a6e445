"""Options in a TOML file, so that a run can be kept, reviewed and asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from kerchief.core.errors import InvalidValue
from kerchief.core.registry import Registry
from kerchief.experiments.settings import BANDIT, check_halves, read_toml


def _take(context: click.Context, this: click.Parameter, path: Path | None) -> None:
    """Let the file stand for options that are not on the command line.

    A table of what to deploy, which a plan writes there too, must say the same, and is passed over.
    """
    if path is None:
        return
    known: Registry[click.Parameter] = Registry("option")
    for one in context.command.params:
        if one is not this:
            known.add(one.opts[0].removeprefix("--"), one)
    read = read_toml(path)
    check_halves(path, read)
    given = {known[name]: value for name, value in _named(read).items()}
    context.default_map = {one.name: _value(one, value) for one, value in given.items() if one.name}


def _named(read: Mapping[str, object]) -> dict[str, object]:
    """What is said of each option, which is said once."""
    found: dict[str, object] = {}
    for name, value in read.items():
        flag = name.replace("_", "-")
        if flag in found:
            raise InvalidValue(
                f"--{flag} is {found[flag]!r} and {value!r} in the configuration, by two "
                "spellings; give it once"
            )
        if name != BANDIT:
            found[flag] = value
    return found


def _value(option: click.Parameter, given: object) -> object:
    """One value, or a list of them where an option may be repeated."""
    values = given if isinstance(given, list) else [given]
    if any(isinstance(one, dict | list) for one in values):
        raise _refused(option, given, "plain values")
    if isinstance(given, list) and not option.multiple:
        raise _refused(option, given, "one value")
    for one in values:
        _check(option, one)
    return values if option.multiple else given


def _check(option: click.Parameter, value: object) -> None:
    """Refuse what is no value of the option's kind: else it would be cut or read as another one.

    Text is read as on the command line.
    """
    if isinstance(option, click.Option) and option.is_flag:
        if not isinstance(value, bool):
            raise _refused(option, value, "true or false")
    elif isinstance(option.type, click.types.IntParamType):
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _refused(option, value, "a whole number")
    elif isinstance(option.type, click.types.FloatParamType):
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise _refused(option, value, "a number")
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise _refused(option, value, "a number that has no more than 300 digits")
    elif isinstance(option.type, click.Path):
        if not isinstance(value, str):
            raise _refused(option, value, "text in quotes")
    elif isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _refused(option, value, "text in quotes")


# Beyond it a whole number may be none in floating point.
_LARGEST = 10**300


def _refused(option: click.Parameter, given: object, wanted: str) -> InvalidValue:
    return InvalidValue(f"{option.opts[0]} is {_shown(given)} in the configuration; give {wanted}")


def _shown(given: object) -> str:
    """As the file says it, as far as one line has room."""
    text = str(given).lower() if isinstance(given, bool) else str(given)
    quoted = repr(given) if isinstance(given, str | list | dict) else text
    return quoted if len(quoted) <= 80 else f"{quoted[:77]}..."


config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_take,
    help="A TOML file with options by their names; those on the command line come first.",
)
"""The option that reads them."""
