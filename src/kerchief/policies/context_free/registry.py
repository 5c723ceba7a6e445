"""Where bandits without contexts are entered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, TypeAlias

from kerchief.core.context_free import ContextFreeProblem
from kerchief.core.registry import Registry
from kerchief.policies.context_free.contract import Channel, ContextFreePolicy
from kerchief.policies.registry import Mode

__all__ = ["CONTEXT_FREE", "Actions", "Aim", "Entry"]

Actions: TypeAlias = Literal["arms", "domain"]
Aim: TypeAlias = Literal["regret", "best arm"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered bandit without contexts.

    Attributes:
        make: builds it from public facts alone: the problem, the mode, and what reports
            will be like.
        kind: the class it builds.
        summary: one line for listings.
        source: the paper and the algorithm.
        actions: what it chooses from.
        aim: what it is for: little regret, or the name of the best arm and then no more questions.
        trusts: the words of `--trust` under which it may run.
        parent: the name of the non-private bandit that it equals when the noise is off.
    """

    make: Callable[[ContextFreeProblem, Mode, Channel], ContextFreePolicy]
    kind: type
    summary: str
    source: str
    actions: Actions = "arms"
    aim: Aim = "regret"
    trusts: tuple[str, ...] = ("none", "local")
    parent: str


CONTEXT_FREE: Registry[Entry] = Registry("policy without contexts")
