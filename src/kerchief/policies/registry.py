"""Where policies are entered, each with the facts that listings, comparisons and checks need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from kerchief.core.channel import Channel
from kerchief.core.contracts import Policy
from kerchief.core.errors import InvalidValue
from kerchief.core.phases import PhasePolicy
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem, ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.registry import Registry

__all__ = ["POLICIES", "AnyPolicy", "Make", "Mode", "PolicyEntry", "Terms", "register"]

Mode: TypeAlias = Literal["theory", "tuned"]
AnyPolicy: TypeAlias = Policy | PhasePolicy
Make: TypeAlias = Callable[[Any, Mode], AnyPolicy]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """What a bandit may know of its protection before the first user; all of it public.

    Attributes:
        epsilon: of the promise.
        delta: of the promise.
        channel: what single reports will be like, for a bandit that hears them.
    """

    epsilon: float
    delta: float
    channel: Channel | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyEntry:
    """A registered bandit.

    Attributes:
        make: builds the policy from public facts alone, in either mode.
        kinds: the classes it builds.
        summary: one line for listings.
        source: the paper, algorithm and theorem, or the textbook.
        problems: the kinds of problems that it takes.
        actions: what it chooses from: arms, or points of a convex domain.
        aim: little regret, or the name of the best arm and then no more questions.
        trusts: the words of `--trust` under which it may run.
        parent: the name of the non-private bandit that it must equal when the noise is off.
        home: the world in which it must beat uniform play, or None for uniform play itself.
        promised: builds it from the terms too, where a paper's constants need epsilon, batches must
            be long enough for the noise, or steps short enough. All else reads the noise off the
            releases.
        noises: for a trust, the word of its noise where it is not the best that there is: a paper's
            own version plays with the paper's noise.
        deployable: whether people's data may be given to it; a paper's own version is for study.
    """

    make: Make
    kinds: tuple[type, ...]
    summary: str
    source: str
    problems: tuple[type[AnyProblem], ...]
    actions: tuple[str, ...]
    aim: Literal["regret", "best arm"]
    trusts: tuple[str, ...]
    parent: str
    home: str | None
    promised: Callable[[Any, Mode, Terms], AnyPolicy] | None
    noises: Mapping[str, str]
    deployable: bool

    @double_precision
    def build(self, problem: AnyProblem, mode: Mode, terms: Terms | None = None) -> Any:
        """The policy, one of `kinds`, for the terms of a promise or for none.

        Raises:
            InvalidValue: it does not play problems of this kind.
        """
        if not self.plays(problem):
            kinds = " or ".join(kind.__name__ for kind in self.problems)
            raise InvalidValue(
                f"the problem is a {type(problem).__name__} with {actions_of(problem)}; this "
                f"bandit takes a {kinds} with {' or '.join(self.actions)}"
            )
        if self.promised is None or terms is None:
            return self.make(problem, mode)
        return self.promised(problem, mode, terms)

    def plays(self, problem: AnyProblem) -> bool:
        """Whether it takes problems of this kind."""
        return type(problem) in self.problems and actions_of(problem) in self.actions

    def trusts_in(self, kind: type[AnyProblem]) -> tuple[str, ...]:
        """The trusts under which it may play problems of a kind.

        Phases have one total each, and so no prefix totals; single reports have no totals at all.
        """
        return tuple(trust for trust in self.trusts if trust in _ANSWERED[kind])


POLICIES: Registry[PolicyEntry] = Registry("policy")
"""Every bandit by its name."""

_ALL = ("none", "local", "shuffle", "joint", "central")
_ANSWERED: Mapping[type[AnyProblem], tuple[str, ...]] = {
    Problem: _ALL,
    PopulationProblem: ("none", "local", "shuffle", "central"),
    ContextFreeProblem: ("none", "local"),
}


def register(
    name: str,
    make: Make | None = None,
    kind: type | tuple[type, ...] = (),
    *,
    summary: str,
    source: str,
    problem: type[AnyProblem] | tuple[type[AnyProblem], ...] = Problem,
    actions: str | tuple[str, ...] = "arms",
    aim: Literal["regret", "best arm"] = "regret",
    trusts: tuple[str, ...] = _ALL,
    parent: str | None = None,
    home: str | None = "linear",
    promised: Callable[[Any, Mode, Terms], AnyPolicy] | None = None,
    heard: Callable[[Any, Mode, Channel], AnyPolicy] | None = None,
    noises: Mapping[str, str] | None = None,
    deployable: bool = True,
) -> None:
    """Enter a bandit under its name, beside its definition; see `PolicyEntry` for the facts.

    Args:
        name: the word of `--policy`.
        make: builds it; where `heard` is given, it is not needed.
        kind: the class or the classes that it builds.
        summary: one line for listings.
        source: the paper, algorithm and theorem, or the textbook.
        problem: the kind or the kinds of problems that it takes.
        actions: what it chooses from.
        aim: what it is for.
        trusts: under which it may run.
        parent: the non-private bandit; itself if None.
        home: its own world.
        promised: builds it from the terms.
        heard: builds it for what single reports will be like.
        noises: the words of its own noise, by trust.
        deployable: whether people's data may be given to it.
    """
    if heard is not None:
        make, promised = _unheard(heard), _heard(heard)
    assert make is not None
    entry = PolicyEntry(
        make=make,
        kinds=kind if isinstance(kind, tuple) else (kind,),
        summary=summary,
        source=source,
        problems=problem if isinstance(problem, tuple) else (problem,),
        actions=actions if isinstance(actions, tuple) else (actions,),
        aim=aim,
        trusts=trusts,
        parent=parent or name,
        home=home,
        promised=promised,
        noises=noises or {},
        deployable=deployable,
    )
    POLICIES.add(name, entry)


def actions_of(problem: AnyProblem) -> str:
    """What a problem's actions are: a word of `PolicyEntry.actions`."""
    return "arms" if problem.arms else "domain"


def _unheard(heard: Callable[[Any, Mode, Channel], AnyPolicy]) -> Make:
    """Reports that are the losses themselves."""

    def make(problem: ContextFreeProblem, mode: Mode) -> AnyPolicy:
        return heard(problem, mode, Channel.clear(low=problem.low, high=problem.high))

    return make


def _heard(
    heard: Callable[[Any, Mode, Channel], AnyPolicy],
) -> Callable[[Any, Mode, Terms], AnyPolicy]:
    """Reports through the channel of the terms, where it is known already."""

    def promised(problem: ContextFreeProblem, mode: Mode, terms: Terms) -> AnyPolicy:
        if terms.channel is None:
            return _unheard(heard)(problem, mode)
        return heard(problem, mode, terms.channel)

    return promised
