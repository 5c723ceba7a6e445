"""Options that several commands share: one word a thing, in every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kerchief.environments.contexts import CONTEXTS
from kerchief.experiments.declare import Comparison

__all__ = [
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

# Words are checked by the library, which names the nearest ones; click only shows them.
_DEFAULTS = Comparison()


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
    """What was said twice is meant once."""
    return tuple(dict.fromkeys(given))


env = _option("--env", "link", _DEFAULTS.link, "Rewards.", metavar="linear|logistic|probit|poisson")
contexts = _many(
    "--contexts",
    "contexts",
    _DEFAULTS.contexts,
    "Where arms come from.",
    metavar="|".join(CONTEXTS),
)
dim = _option("--dim", "dim", _DEFAULTS.dim, "Length of an arm's feature vector.")
arms = _option("--arms", "arms", _DEFAULTS.arms, "The most arms in a round.")
many_arms = _many("--arms", "arms", (20, 100), "The most arms in a round.", type=int)
radius = _option("--radius", "radius", _DEFAULTS.radius, "Norm of the unknown parameter.")
fewest_arms = click.option(
    "--fewest-arms", "fewest", type=int, help="The fewest arms in a round.  [default: all]"
)
reward_noise = _option(
    "--reward-noise",
    "noise",
    _DEFAULTS.noise,
    "How rewards fall around their mean.",
    metavar="bernoulli|binomial|bounded|gaussian",
)
horizon = _option("--horizon", "horizon", _DEFAULTS.horizon, "Number of rounds.")
policies = _many("--policy", "policies", _DEFAULTS.policies, "A bandit's own name.", metavar="NAME")
trusts = _many(
    "--trust",
    "trusts",
    _DEFAULTS.trusts,
    "Whom users must trust.",
    metavar="none|local|shuffle|joint|central",
)
continual = _option(
    "--continual",
    "continual",
    _DEFAULTS.continual,
    "Noise on running totals, for rows of joint trust; others do without.",
    metavar="best|blt|tree|toeplitz|doubling",
)
shuffling = _option(
    "--shuffling",
    "shuffling",
    _DEFAULTS.shuffling,
    "What devices add to reports, for rows of shuffle trust; others do without.",
    metavar="best|bits|byte|bit|theorem",
)
randomizer = _option(
    "--randomizer",
    "randomizer",
    _DEFAULTS.randomizer,
    "What devices do to their reports, for rows of local trust; others do without.",
    metavar="best|gaussian|laplace|privunit|shortlist|one-bit",
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
json_output = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)
