"""Options that several commands share, and how any option is made: the same word means the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from kerchief.cli.printing import json_output
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.experiments.declare import Comparison
from kerchief.experiments.settings import pair
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
    """Words as click shows them; they are checked by the library, which names the nearest ones."""
    return "|".join(names)


PRIVATE_TRUSTS = words(word for word in TRUSTS if word != "none")


def option(
    flag: str, help: str, *, field: str | None = None, default: object = None, **more: Any
) -> Callable[[Decorated], Decorated]:
    """An option that shows its default: that of the `Comparison`'s field, unless it is given.

    One whose default is a tuple may be repeated; of values that were given twice one is kept.
    """
    name = field or flag.removeprefix("--")
    # Of the class: making a comparison would start JAX, before `--device` can.
    default = getattr(Comparison, name) if default is None else default
    if isinstance(default, tuple):
        more |= {"multiple": True, "callback": lambda _, this, given: tuple(dict.fromkeys(given))}
        help += " Repeatable."
    return click.option(flag, name, default=default, show_default=True, help=help, **more)


def of_world(*names: str, help: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """An option whose default is the world's own."""
    return click.option(*names, help=f"{help}  [default: the world's own]", **more)


def of_policy(flag: str, help: str, *, metavar: str, own: str) -> Callable[[Decorated], Decorated]:
    """An option for a word of noise, whose default is each policy's own."""
    return click.option(flag, metavar=metavar, help=f"{help}  [default: {own}]")


def pairs(*names: str, help: str) -> Callable[[Decorated], Decorated]:
    """A repeatable option with a name and a value each, which is a number if it can be read so."""
    return click.option(
        *names,
        multiple=True,
        callback=lambda _, this, given: _once(map(_pair, given)),
        metavar="NAME=VALUE",
        help=f"{help} Repeatable.",
    )


def _once(pairs: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Every name with its one value."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise click.BadParameter(
                f"{name} is {found[name]!r} and {value!r}; give it one value, and play the other "
                "one apart"
            )
    return tuple(found.items())


def _pair(text: str) -> tuple[str, int | float | str]:
    found = pair(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no NAME=VALUE")
    return found


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
