"""Options that several commands share, and builders of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from kerchief.cli.printing import json_output
from kerchief.comparison.comparison import Comparison
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.planning.plan_config import pair
from kerchief.privatizers.registry import TRUSTS

__all__ = [
    "PRIVATE_TRUSTS",
    "delta",
    "device",
    "dim",
    "env",
    "epsilon",
    "horizon",
    "json_output",
    "of_policy",
    "of_world",
    "option",
    "pairs",
    "radius",
    "seed",
    "words",
]

Decorated = TypeVar("Decorated", bound=Callable[..., Any] | click.Command)


def words(names: Iterable[str]) -> str:
    """Join names for the help of click; the library checks them later."""
    return "|".join(names)


PRIVATE_TRUSTS = words(trust for trust in TRUSTS if trust != "none")


def option(
    flag: str, help: str, *, field: str | None = None, default: object = None, **settings: Any
) -> Callable[[Decorated], Decorated]:
    """Build an option that shows its default, which a field of `Comparison` may give.

    One whose default is a tuple may be repeated; of values that were given twice one is kept.
    """
    name = field or flag.removeprefix("--")
    # Of the class: making a comparison would start JAX, before `--device` can.
    default = getattr(Comparison, name) if default is None else default
    if isinstance(default, tuple):
        settings |= {
            "multiple": True,
            "callback": lambda _, parameter, values: tuple(dict.fromkeys(values)),
        }
        help += " Repeatable."
    return click.option(flag, name, default=default, show_default=True, help=help, **settings)


def of_world(*names: str, help: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Build an option whose default depends on the environment."""
    return click.option(*names, help=f"{help}  [default: the world's own]", **settings)


def of_policy(flag: str, help: str, *, metavar: str, own: str) -> Callable[[Decorated], Decorated]:
    """Build an option for a kind of noise, whose default depends on the policy."""
    return click.option(flag, metavar=metavar, help=f"{help}  [default: {own}]")


def pairs(*names: str, help: str) -> Callable[[Decorated], Decorated]:
    """Build a repeatable option NAME=VALUE; a value is a number if it reads as one."""
    return click.option(
        *names,
        multiple=True,
        callback=lambda _, parameter, texts: _merge_pairs(map(_parse_pair, texts)),
        metavar="NAME=VALUE",
        help=f"{help} Repeatable.",
    )


def _merge_pairs(pairs: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Merge equal pairs, and refuse a name with two values."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if values.setdefault(name, value) != value:
            raise click.BadParameter(
                f"{name} is {values[name]!r} and {value!r}; give it one value, and play the other "
                "one apart"
            )
    return tuple(values.items())


def _parse_pair(text: str) -> tuple[str, int | float | str]:
    parsed = pair(text)
    if parsed is None:
        raise click.BadParameter(f"{text!r} is no NAME=VALUE")
    return parsed


env = click.option(
    "--env", metavar=words(ENVIRONMENTS), help="The world.  [default: the policy's own]"
)
dim = of_world("--dim", type=int, help="Length of an arm's feature vector.")
radius = of_world("--radius", type=float, help="Norm of the unknown parameter.")
horizon = option("--horizon", "Number of rounds.")
epsilon = option("--epsilon", "Privacy asked for.", default=1.0)
delta = option("--delta", "Privacy asked for; below 1/horizon.")
seed = option("--seed", "Of everything random.")
device = option("--device", "Where to compute.", default="auto", metavar="cpu|gpu|auto")
