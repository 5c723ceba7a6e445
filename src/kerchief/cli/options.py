"""Options that several commands share, and builders of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from kerchief.cli.printing import json_output
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.players import FLAGS
from kerchief.core.errors import InvalidValueError
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.planning.plan_config import pair
from kerchief.privacy.guarantee import Trust
from kerchief.privatizers.registry import MECHANISMS_OF, TRUSTS

__all__ = [
    "PRIVATE_TRUSTS",
    "choose_mechanisms",
    "delta",
    "dim",
    "env",
    "env_param",
    "epsilon",
    "horizon",
    "json_output",
    "mechanism",
    "of_environment",
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

    An option whose default is a tuple is repeatable, and repeated values count once.
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


def of_environment(*names: str, help: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Build an option whose default depends on the environment."""
    return click.option(*names, help=f"{help}  [default: the environment's own]", **settings)


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
                f"{name} is {values[name]!r} and {value!r}; give it one value, and run the command "
                "again for the other value"
            )
    return tuple(values.items())


def _parse_pair(text: str) -> tuple[str, int | float | str]:
    parsed = pair(text)
    if parsed is None:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return parsed


def choose_mechanisms(texts: Sequence[str], trusts: Sequence[str] | None) -> dict[str, str]:
    """Return the chosen mechanisms by the field of `Comparison` for their trust model.

    Args:
        texts: as given to `--mechanism`, each TRUST=NAME or NAME.
        trusts: as given to `--trust`; None for all. They decide between several trust models
            that have a mechanism of the same name.

    >>> choose_mechanisms(("tree", "local=gaussian"), None)
    {'continual': 'tree', 'randomizer': 'gaussian'}
    >>> choose_mechanisms(("gaussian",), ("joint", "central"))
    {'curator': 'gaussian'}
    """
    mechanisms: dict[str, str] = {}
    for text in texts:
        trust, name = _resolve_mechanism(text, trusts)
        field = FLAGS[trust]
        if mechanisms.setdefault(field, name) != name:
            raise InvalidValueError(
                f"--mechanism names {mechanisms[field]!r} and {name!r} for {trust.value} trust; "
                "name one mechanism for each trust model"
            )
    return mechanisms


def _resolve_mechanism(text: str, trusts: Sequence[str] | None) -> tuple[Trust, str]:
    """Return the trust model and the name of one mechanism."""
    head, equals, name = text.partition("=")
    if equals:
        if head not in tuple(FLAGS):
            raise InvalidValueError(
                f"--mechanism is {text!r}; write TRUST=NAME, where TRUST is one of "
                f"{', '.join(trust.value for trust in FLAGS)}"
            )
        MECHANISMS_OF[Trust(head)][name]
        return Trust(head), name
    fitting = [trust for trust in FLAGS if text in tuple(MECHANISMS_OF[trust])]
    if not fitting:
        raise InvalidValueError(f"--mechanism is {text!r}; choose one of {_list_mechanisms()}")
    chosen = [trust for trust in fitting if trusts is None or trust.value in trusts]
    if len(chosen or fitting) > 1:
        choices = " or ".join(f"{trust.value}={text}" for trust in chosen or fitting)
        raise InvalidValueError(
            f"--mechanism is {text!r}, which several trust models have; write {choices}"
        )
    return (chosen or fitting)[0], text


def _list_mechanisms() -> str:
    """List the mechanisms of all trust models."""
    return "; ".join(f"{trust.value}: {', '.join(MECHANISMS_OF[trust])}" for trust in FLAGS)


env = click.option(
    "--env", metavar=words(ENVIRONMENTS), help="Environment.  [default: the first policy's own]"
)
env_param = pairs(
    "--env-param",
    "options",
    help="Further parameter of the environment, such as clients=5000, gap=0.1, noise=gaussian or "
    "fewest=2; `kerchief list environments` names them.",
)
mechanism = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    metavar="[TRUST=]NAME",
    help="Mechanism of a trust model, such as tree or local=gaussian. Repeatable.  [default: "
    "best; the mechanism of the paper for NAME@paper and NAME@author-code]",
)
dim = of_environment("--dim", type=int, help="Length of a feature vector.")
radius = of_environment("--radius", type=float, help="Norm of the hidden parameter.")
horizon = option("--horizon", "Number of rounds.")
epsilon = option("--epsilon", "Privacy budget epsilon.", default=1.0)
delta = option("--delta", "Privacy budget delta; below 1/horizon.")
seed = option("--seed", "Random seed.")
