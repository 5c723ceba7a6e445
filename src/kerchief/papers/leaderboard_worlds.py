"""Environments of the leaderboard, by division."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from kerchief.core.registry import Registry
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.policies import PolicyEntry
from kerchief.simulation.run import AnyEnvironment

SizeName: TypeAlias = Literal["quick", "usual", "full"]
Division: TypeAlias = Literal[
    "contextual", "own models", "population", "arms", "best arm", "convex"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """Environment that all bandits of a division play in.

    Attributes:
        horizon: number of rounds, where it is not that of the size.
        sizes: sizes at which it is played unless environments are named.
    """

    division: Division
    summary: str
    env: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    horizon: int | None = None
    sizes: tuple[SizeName, ...] = ("usual", "full")

    @functools.cached_property
    def environment(self) -> AnyEnvironment:
        """The environment, built when it is first needed."""
        environment: AnyEnvironment = ENVIRONMENTS[self.env].make(**self.options)
        return environment

    def takes(self, policy: PolicyEntry) -> bool:
        """Whether a policy belongs to this environment's division."""
        entry = ENVIRONMENTS[self.env]
        fits = entry.problem in policy.problems and entry.actions in policy.actions
        is_same_aim = (policy.aim == "best arm") == (self.division == "best arm")
        return fits and (is_same_aim or policy.default_environment is None)


WORLDS: Registry[World] = Registry("world")
"""The worlds of the leaderboard by name."""


def _add_contextual(name: str, summary: str, env: str = "linear", **facts: Any) -> None:
    about = {key: facts.pop(key) for key in ("horizon", "sizes") if key in facts}
    world = World(division="contextual", summary=summary, env=env, options=facts, **about)
    WORLDS.add(name, world)


_ALL_SIZES: tuple[SizeName, ...] = ("quick", "usual", "full")
_add_contextual("redrawn", "20 arms redrawn from the unit ball, d=5", sizes=_ALL_SIZES)
_add_contextual("fixed", "20 arms, the same for all users, d=5", contexts="fixed")
_add_contextual("starved", "one direction is hidden in most rounds, d=5", contexts="starved")
_add_contextual(
    "misspecified",
    "logistic rewards of norm 4, and bandits are told that they are linear",
    "logistic",
    radius=4.0,
    told="linear",
)
_add_contextual("scaled", "features on scales of their own, from 1 to 1/10", contexts="skewed")
_add_contextual(
    "probit", "probit rewards of norm 2, fixed arms", "probit", contexts="fixed", radius=2.0
)
_add_contextual("d=2", "two dimensions, redrawn", dim=2)
_add_contextual("d=32", "32 dimensions, redrawn", dim=32)
_add_contextual("d=256", "256 dimensions, redrawn", dim=256, horizon=5000, sizes=("full",))
_add_contextual("K=2", "two arms, redrawn", arms=2)
_add_contextual("K=1000", "1000 arms, redrawn", arms=1000, sizes=("full",))
_add_contextual("T=10^6", "redrawn, a million rounds", horizon=10**6, sizes=("full",))
for _name, _division, _env, _summary in (
    ("own", "own models", "own", "every arm has a parameter of its own"),
    ("population", "population", "population", "one public action for everyone, few are asked"),
    ("chance", "arms", "chance", "ten arms whose losses are coins"),
    ("switching", "arms", "switching", "ten arms, and the good one changes early"),
    ("counted", "best arm", "counted", "users are asked until the best of ten arms is named"),
    ("quadratic", "convex", "quadratic", "quadratic losses on the unit ball, d=5"),
    ("absolute", "convex", "absolute", "absolute losses on the unit ball, d=5"),
):
    WORLDS.add(
        _name,
        World(
            division=_division,  # type: ignore[arg-type]
            summary=_summary,
            env=_env,
            sizes=_ALL_SIZES if _name == "chance" else ("usual", "full"),
        ),
    )
