"""Where policies are entered, each with the facts that listings, comparisons and checks need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, TypeAlias

from kerchief.core.contracts import Policy, Problem
from kerchief.core.registry import Registry

__all__ = ["POLICIES", "Entry", "Mode"]

Mode: TypeAlias = Literal["theory", "tuned"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered bandit.

    Attributes:
        make: builds the policy from public facts alone, in either mode.
        kind: the class it builds.
        summary: one line for listings.
        source: the paper, algorithm and theorem, or the textbook.
        trusts: the words of `--trust` under which it may run.
        parent: the name of the non-private bandit that it must equal when the noise is off.
        home: the environment on which it must beat uniform play, or None for uniform play itself.
        promised: builds it from public facts, the mode, epsilon and delta, where a paper's
            constants need them, or batches that must be long enough for the noise. All else reads
            the noise off the releases.
        deployable: whether people's data may be given to it; a paper's own version is for study.
    """

    make: Callable[[Problem, Mode], Policy]
    kind: type
    summary: str
    source: str
    trusts: tuple[str, ...]
    parent: str
    home: str | None
    promised: Callable[[Problem, Mode, float, float], Policy] | None = None
    deployable: bool = True

    def build(self, problem: Problem, mode: Mode, promise: tuple[float, float] | None) -> Policy:
        """The policy for a promise of epsilon and delta, or for none."""
        if self.promised is None or promise is None:
            return self.make(problem, mode)
        return self.promised(problem, mode, *promise)


POLICIES: Registry[Entry] = Registry("policy")
