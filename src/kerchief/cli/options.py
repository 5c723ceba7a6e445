"""Options that several commands share: the same word means the same thing in each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from kerchief.cli.printing import json_output
from kerchief.environments.contexts import CONTEXTS
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.environments.worlds import NOISES
from kerchief.experiments.declare import Comparison
from kerchief.privacy.guarantee import Trust
from kerchief.privatizers.registry import CONTINUALS, RANDOMIZERS, SHUFFLES, TRUSTS

__all__ = [
    "PRIVATE_TRUSTS",
    "arms",
    "contexts",
    "continual",
    "delta",
    "device",
    "dim",
    "env",
    "epsilon",
    "epsilons",
    "fewest_arms",
    "horizon",
    "json_output",
    "many_arms",
    "many_replicates",
    "mode",
    "number",
    "option",
    "out",
    "out_or_own",
    "policies",
    "quick",
    "radius",
    "randomizer",
    "replicates",
    "replicates_or_own",
    "reward_noise",
    "seed",
    "shuffling",
    "trusts",
]

Decorated = TypeVar("Decorated", bound=Callable[..., Any] | click.Command)

# The class, whose attributes are the defaults: making one would start JAX, before `--device` can.
_DEFAULTS = Comparison
# Words are checked by the library, which names the nearest ones; click only shows them.
PRIVATE_TRUSTS = "|".join(word for word in TRUSTS if word != "none")


def _words(names: Iterable[str]) -> str:
    return "|".join(names)


def _option(
    flag: str, target: str, default: object, help: str, **more: Any
) -> Callable[[Decorated], Decorated]:
    return click.option(flag, target, default=default, show_default=True, help=help, **more)


def _many(
    flag: str, target: str, default: object, help: str, **more: Any
) -> Callable[[Decorated], Decorated]:
    more |= {"multiple": True, "callback": _once}
    return _option(flag, target, default, f"{help} Repeatable.", **more)


def _once(context: click.Context, option: click.Parameter, given: tuple[Any, ...]) -> Any:
    """Keep one of values that were given twice."""
    return tuple(dict.fromkeys(given))


def _pair(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Any:
    """NAME=VALUE, where the value is a number if it can be read as one."""
    pairs = [one.partition("=") for one in given]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise click.BadParameter(f"{name + sign + value!r} is no NAME=VALUE")
    return tuple((name, _number(value)) for name, _, value in pairs)


def _number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _own(flag: str, target: str, kind: type, help: str) -> Callable[[Decorated], Decorated]:
    """An option whose default is the world's own."""
    return click.option(flag, target, type=kind, help=f"{help}  [default: the world's own]")


env = click.option(
    "--env",
    "env",
    metavar=_words(ENVIRONMENTS),
    help="The world.  [default: the policy's own]",
)
option = click.option(
    "--option",
    "options",
    multiple=True,
    callback=_pair,
    metavar="NAME=VALUE",
    help="A further option of the world, such as clients=5000, gap=0.1 or growth=1.6. Repeatable.",
)
number = click.option(
    "--number",
    "numbers",
    multiple=True,
    callback=_pair,
    metavar="NAME=VALUE",
    help="A parameter of the policies, such as exploration=0.5. Repeatable.",
)
contexts = _many(
    "--contexts",
    "contexts",
    _DEFAULTS.contexts,
    "Where arms come from.",
    metavar=_words(CONTEXTS),
)
dim = _own("--dim", "dim", int, "Length of an arm's feature vector.")
arms = _own("--arms", "arms", int, "The most arms in a round.")
many_arms = _many("--arms", "arms", (20, 100), "The most arms in a round.", type=int)
radius = _own("--radius", "radius", float, "Norm of the unknown parameter.")
fewest_arms = click.option(
    "--fewest-arms", "fewest", type=int, help="The fewest arms in a round.  [default: all]"
)
reward_noise = click.option(
    "--reward-noise",
    "noise",
    metavar=_words(NOISES),
    help="How rewards fall around their mean.  [default: the world's own]",
)
horizon = _option("--horizon", "horizon", _DEFAULTS.horizon, "Number of rounds.")
policies = _many("--policy", "policies", _DEFAULTS.policies, "A bandit's own name.", metavar="NAME")
trusts = click.option(
    "--trust",
    "trusts",
    multiple=True,
    callback=lambda context, parameter, given: given or None,
    metavar=_words(Trust),
    help="Whom users must trust. Repeatable.  [default: all that the policy supports]",
)
continual = _option(
    "--continual",
    "continual",
    _DEFAULTS.continual,
    "Noise on running totals, for rows of joint trust.",
    metavar=_words(CONTINUALS),
)
shuffling = _option(
    "--shuffling",
    "shuffling",
    _DEFAULTS.shuffling,
    "What devices add to reports, for rows of shuffle trust.",
    metavar=_words(SHUFFLES),
)
randomizer = _option(
    "--randomizer",
    "randomizer",
    _DEFAULTS.randomizer,
    "What devices do to their reports, for rows of local trust.",
    metavar=_words(RANDOMIZERS),
)
epsilons = _many("--epsilon", "epsilons", _DEFAULTS.epsilons, "Privacy asked for.", type=float)
epsilon = _option("--epsilon", "epsilon", 1.0, "Privacy asked for.")
delta = _option("--delta", "delta", _DEFAULTS.delta, "Privacy asked for; below 1/horizon.")
replicates = _option("--replicates", "replicates", _DEFAULTS.replicates, "Independent runs.")
many_replicates = _many(
    "--replicates", "replicates", (1, 64, 1000), "Independent runs at once.", type=int
)
seed = _option("--seed", "seed", _DEFAULTS.seed, "Of everything random.")
mode = _option(
    "--mode", "mode", _DEFAULTS.mode, "Widths, tuned or from the theorem.", metavar="tuned|theory"
)
device = _option("--device", "device", "auto", "Where to compute.", metavar="cpu|gpu|auto")
quick = click.option("--quick", is_flag=True, help="A smoke test: a short run of few replicates.")
replicates_or_own = click.option(
    "--replicates", type=int, help="Independent runs.  [default: the experiment's own]"
)
out = _option(
    "--out",
    "out",
    Path("results/compare"),
    "Folder for the picture, the report and the results.",
    type=click.Path(path_type=Path),
)
out_or_own = click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the picture, the report and the results.  [default: results/NAME]",
)
