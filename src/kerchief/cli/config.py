"""Options in a TOML file, so that a run can be kept, reviewed and asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from kerchief.core.errors import InvalidValueError
from kerchief.core.registry import Registry
from kerchief.planning.plan_config import PROBLEM, check_problem, read_toml


def _load_file(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Let the file stand for options that are not on the command line.

    The table of the problem, which a plan of data has, is for deployment and is skipped.
    """
    if path is None:
        return
    options: Registry[click.Parameter] = Registry("option")
    for option in context.command.params:
        if option is not parameter:
            options.add(option.opts[0].removeprefix("--"), option)
    content = read_toml(path)
    check_problem(path, content)
    values = {options[name]: value for name, value in _collect_values(content).items()}
    context.default_map = {
        option.name: _read_value(option, value) for option, value in values.items() if option.name
    }


def _collect_values(content: Mapping[str, object]) -> dict[str, object]:
    """Collect the value of each option, and refuse options that are given twice."""
    values: dict[str, object] = {}
    for name, value in content.items():
        flag = name.replace("_", "-")
        if flag in values:
            raise InvalidValueError(
                f"--{flag} is {values[flag]!r} and {value!r} in the configuration, by two "
                "spellings; give it once"
            )
        if name != PROBLEM:
            values[flag] = value
    return values


def _read_value(option: click.Parameter, value: object) -> object:
    """Check one value, or a list of values where an option may be repeated."""
    values = value if isinstance(value, list) else [value]
    if any(isinstance(entry, dict | list) for entry in values):
        raise _build_error(option, value, "plain values")
    if isinstance(value, list) and not option.multiple:
        raise _build_error(option, value, "one value")
    for entry in values:
        _check_kind(option, entry)
    return values if option.multiple else value


def _check_kind(option: click.Parameter, value: object) -> None:
    """Refuse a value of another kind than the option takes.

    Text is read as on the command line.
    """
    if isinstance(option, click.Option) and option.is_flag:
        if not isinstance(value, bool):
            raise _build_error(option, value, "true or false")
    elif isinstance(option.type, click.types.IntParamType):
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _build_error(option, value, "a whole number")
    elif isinstance(option.type, click.types.FloatParamType):
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise _build_error(option, value, "a number")
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise _build_error(option, value, "a number that has no more than 300 digits")
    elif isinstance(option.type, click.Path):
        if not isinstance(value, str):
            raise _build_error(option, value, "text in quotes")
    elif isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _build_error(option, value, "text in quotes")


# Beyond it a whole number may be none in floating point.
_LARGEST = 10**300


def _build_error(option: click.Parameter, value: object, expected: str) -> InvalidValueError:
    return InvalidValueError(
        f"{option.opts[0]} is {_quote_value(value)} in the configuration; give {expected}"
    )


def _quote_value(value: object) -> str:
    """Quote a value as the file spells it, in at most 80 characters."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    quoted = repr(value) if isinstance(value, str | list | dict) else text
    return quoted if len(quoted) <= 80 else f"{quoted[:77]}..."


config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_load_file,
    help="TOML file with options by their names; options on the command line take precedence.",
)
"""The option `--config`."""
