"""Worlds by name, each with its own options, and the kind of problem that it poses."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kerchief.core.convex import DOMAINS
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import LINKS
from kerchief.core.problems import AnyProblem, ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.registry import Registry
from kerchief.core.validate import whole
from kerchief.environments.context_free import Alternating, ChanceArms, CountedArms, Switching
from kerchief.environments.context_free_adversarial import Drifting, Reacting
from kerchief.environments.context_free_convex import CONVEX, Absolute, ConvexWorld
from kerchief.environments.disjoint import DisjointModels
from kerchief.environments.population import Population
from kerchief.environments.worlds import make_environment


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentEntry:
    """A registered world.

    Attributes:
        factory: builds it from its options, all of which have defaults.
        problem: the kind of problem that it poses.
        actions: what is chosen from: arms, arms with models of their own, or points of a domain.
    """

    factory: Callable[..., Any]
    summary: str
    problem: type[AnyProblem]
    actions: str = "arms"

    @property
    def options(self) -> Mapping[str, Any]:
        """The names of its options, with their defaults."""
        parameters = inspect.signature(self.factory).parameters
        return {name: parameter.default for name, parameter in parameters.items() if name != "link"}

    def make(self, **options: Any) -> Any:
        """Build it; options that are None keep their defaults."""
        arguments = {name: value for name, value in options.items() if value is not None}
        for name in arguments:
            if name not in self.options:
                raise InvalidValueError(
                    f"parameter is {name!r}; this environment has {', '.join(self.options)}"
                )
        return self.factory(**arguments)


ENVIRONMENTS: Registry[EnvironmentEntry] = Registry("environment", listed=("environments",))
"""Worlds by the word of `--env`."""


def _convex(
    kind: type[ConvexWorld],
    *,
    domain: str = "ball",
    dim: int = 5,
    away: float | None = None,
    noise: float = 0.5,
) -> ConvexWorld:
    shape = DOMAINS[domain](dim=whole("dim", dim, high=64))
    return kind.of(domain=shape, away=away, noise=noise)


def _drifting(
    *,
    domain: str = "ball",
    dim: int = 5,
    away: float | None = None,
    noise: float = 0.5,
    swing: float = 0.5,
    period: int = 1000,
) -> ConvexWorld:
    shape = DOMAINS[domain](dim=whole("dim", dim, high=64))
    return Drifting.of(domain=shape, away=away, noise=noise, swing=swing, period=period)


def _reacting(
    *,
    domain: str = "ball",
    dim: int = 5,
    away: float | None = None,
    noise: float = 0.5,
    swing: float = 0.5,
) -> ConvexWorld:
    shape = DOMAINS[domain](dim=whole("dim", dim, high=64))
    return Reacting.of(domain=shape, away=away, noise=noise, swing=swing)


def _line(*, away: float | None = None, noise: float = 0.5) -> ConvexWorld:
    return _convex(Absolute, dim=1, away=away, noise=noise)


def _enter(
    problem: type[AnyProblem],
    name: str,
    factory: Callable[..., Any],
    summary: str,
    actions: str = "arms",
) -> None:
    entry = EnvironmentEntry(factory=factory, summary=summary, problem=problem, actions=actions)
    ENVIRONMENTS.add(name, entry)


for _name, _link in LINKS.items():
    _summary = f"users bring arms; {_link.summary}"
    _enter(Problem, _name, partial(make_environment, link=_name), _summary)
_enter(
    Problem,
    "own",
    DisjointModels.of,
    "users bring features of their own; every arm has a parameter of its own",
    actions="models",
)
_enter(
    PopulationProblem,
    "population",
    partial(Population.of, dim=5, arms=20),
    "one public action reaches everyone, and a few clients are asked",
)
_enter(
    PopulationProblem,
    "continuum",
    Population.covering,
    "the same, where every point of the unit sphere is an action: a cover of it is played",
)
for _name, _kind, _summary in (
    ("chance", ChanceArms, "arms whose losses are coins, one of them better by a gap"),
    ("counted", CountedArms, "the same, and every user who is asked costs one"),
    ("alternating", Alternating, "an adversary whose losses swing, with a gap that stays"),
    ("switching", Switching, "an adversary whose good arm changes early"),
):
    _enter(ContextFreeProblem, _name, _kind.of, _summary)
for _name, _loss in CONVEX.items():
    _entry_name = f"{_name}-loss" if _name in LINKS else _name
    _summary = f"{_name} losses on a convex set"
    _enter(ContextFreeProblem, _entry_name, partial(_convex, _loss), _summary, actions="domain")
for _name, _make, _summary in (
    ("line", _line, "absolute losses on a line"),
    (
        "drifting",
        _drifting,
        "quadratic losses swing to and fro; regret is against the best point of whole periods",
    ),
    ("reacting", _reacting, "an adversary whose quadratic losses rise after some questions"),
):
    _enter(ContextFreeProblem, _name, _make, _summary, actions="domain")
