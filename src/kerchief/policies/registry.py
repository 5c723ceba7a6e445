"""Where policies are entered, each with the facts that listings, comparisons and checks need."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Never, TypeAlias, get_args

from kerchief.core.contracts import Feedback, Policy
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import PhasePolicy
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem, ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.registry import Registry
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.validate import one_of

Mode: TypeAlias = Literal["theory", "tuned"]
AnyPolicy: TypeAlias = Policy | PhasePolicy
Factory: TypeAlias = Callable[..., AnyPolicy]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyBudget:
    """What a bandit may know of its protection before the first user; all of it public.

    Attributes:
        noise_multiplier: that of one Gaussian release which costs the whole promise; infinite
            where the promise has no such release.
        channel: what single reports will be like, for a bandit that hears them.
    """

    epsilon: float
    delta: float
    trust: str
    noise_multiplier: float = math.inf
    channel: ReportDistribution | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyEntry:
    """A registered bandit.

    Attributes:
        factory: builds the policy from public facts alone, in either mode.
        source: the paper, algorithm and theorem, or the textbook.
        problems: the kinds of problems that it takes.
        actions: what it chooses from: arms, arms with models of their own, or points of a domain.
        aim: little regret, or the name of the best arm and then no more questions.
        trusts: the words of `--trust` under which it may run.
        parent: the name of the non-private bandit that it must equal when the noise is off.
        default_environment: environment in which it must beat uniform play; None for uniform play
            itself.
        build_with_budget: builds it from the privacy budget too, where a paper's constants need
            epsilon, batches must be long enough for the noise, or steps short enough. All other
            policies read the noise off the releases.
        noises: for a trust, the word of its noise where it is not the best that there is.
        deployable: whether people's data may be given to it; names in `STUDIES` are for study.
        arguments: numbers that a user may choose and on which the others rest, so that it is built
            with them.
        variant_of: the policy that it varies, if lists show that one in its place by default.
    """

    factory: Factory
    kinds: tuple[type, ...]
    summary: str
    source: str
    problems: tuple[type[AnyProblem], ...]
    actions: tuple[str, ...]
    aim: Literal["regret", "best arm"]
    trusts: tuple[str, ...]
    parent: str
    default_environment: str | None
    build_with_budget: Factory | None
    noises: Mapping[str, str]
    deployable: bool
    arguments: tuple[str, ...] = ()
    variant_of: str | None = None

    @double_precision
    def build(
        self,
        problem: AnyProblem,
        mode: Mode,
        budget: PrivacyBudget | None = None,
        **arguments: float,
    ) -> Any:
        """Build the policy, one of `kinds`, from its arguments and perhaps the privacy budget."""
        one_of("mode", mode, get_args(Mode))
        if not self.plays(problem):
            kinds = " or ".join(kind.__name__ for kind in self.problems)
            labels = " or ".join(_LABELS[action] for action in self.actions)
            fit = sorted(name for name, entry in POLICIES.items() if entry.replaces(self, problem))
            raise InvalidValueError(
                f"the problem is a {type(problem).__name__} with {_LABELS[actions_of(problem)]}; "
                f"this bandit takes a {kinds} with {labels}: choose one of {', '.join(fit)}"
            )
        if self.build_with_budget is None or budget is None:
            return self.factory(problem, mode, **arguments)
        return self.build_with_budget(problem, mode, budget, **arguments)

    def plays(self, problem: AnyProblem) -> bool:
        """Whether it takes problems of this kind, with these actions."""
        return type(problem) in self.problems and actions_of(problem) in self.actions

    def replaces(self, other: PolicyEntry, problem: AnyProblem) -> bool:
        """Whether it can replace another policy in a problem, under all its trust models."""
        required = set(other.trusts_in(type(problem)))
        return self.deployable and self.plays(problem) and required <= set(self.trusts)

    def actions_among(self, actions: Iterable[str]) -> bool:
        """Whether it chooses from one of these kinds of actions."""
        return not set(self.actions).isdisjoint(actions)

    def trusts_in(self, kind: type[AnyProblem]) -> tuple[str, ...]:
        """The trusts under which it may play problems of a kind.

        Phases have one total each, and so no prefix totals; single reports have no totals at all.
        """
        return tuple(trust for trust in self.trusts if trust in _SUPPORTED_TRUSTS[kind])


STUDIES = {
    "paper": "what a paper prints, with the paper's own kind of noise, enough for the promise",
    "author-code": "the constants and steps of an author's public code, with noise that is enough",
}
"""What may follow the @ of a name. Such a bandit is for study: no deployment has it, nor `best`."""

POLICIES: Registry[PolicyEntry] = Registry("policy", listed=("policies --all",))
"""Every bandit by its name."""

_LABELS = {"arms": "arms", "models": "arms with models of their own", "domain": "domain"}
TRUSTS = ("none", "local", "shuffle", "joint", "central")
"""All words of `--trust`."""
_SUPPORTED_TRUSTS: Mapping[type[AnyProblem], tuple[str, ...]] = {
    Problem: TRUSTS,
    PopulationProblem: ("none", "local", "shuffle", "central"),
    ContextFreeProblem: ("none", "local"),
}
_PROBLEM_BY_FEEDBACK: Mapping[Feedback, type[AnyProblem]] = {
    "totals": Problem,
    "phases": PopulationProblem,
    "reports": ContextFreeProblem,
}


def register(
    name: str,
    kind: type[AnyPolicy] | tuple[type[AnyPolicy], ...],
    factory: Factory | None = None,
    *,
    summary: str,
    source: str,
    problems: tuple[type[AnyProblem], ...] = (),
    actions: str | tuple[str, ...] = "arms",
    aim: Literal["regret", "best arm"] = "regret",
    trusts: tuple[str, ...] = (),
    default_environment: str | None = "linear",
    build_with_budget: Factory | None = None,
    build_with_report_distribution: Factory | None = None,
    noises: Mapping[str, str] | None = None,
    deployable: bool = True,
    arguments: tuple[str, ...] = (),
    variant_of: str | None = None,
    **unknown: Never,
) -> None:
    """Register a policy under its name; see `PolicyEntry` for the facts.

    A name with an @ is for study, and what follows it is a word of `STUDIES`.

    It is built by `factory(problem, mode=...)`; by `build_with_budget(problem, mode=...,
    epsilon=..., delta=...)`, and with `trust=...` and `noise_multiplier=...` if it has such
    arguments, without these where it has no guarantee; or by
    `build_with_report_distribution(problem, mode=..., channel=...)` for the law of single reports.
    Without any of them the class's own `of` builds it, with the channel if its feedback is reports.

    By default it takes the kind of problem that goes with its feedback, and runs under every trust
    under which such problems are answered.
    """
    _refuse_unknown(unknown)
    _, at, study = name.partition("@")
    if at:
        one_of("the word after @", study, tuple(STUDIES))
    kinds = kind if isinstance(kind, tuple) else (kind,)
    first: Any = kinds[0]
    if build_with_report_distribution is None and factory is None and first.feedback == "reports":
        build_with_report_distribution = first.of
    build = _bind_factory(
        factory or build_with_budget or build_with_report_distribution or first.of,
        takes_budget=build_with_budget is not None,
        takes_channel=build_with_report_distribution is not None,
    )
    problems = problems or (_PROBLEM_BY_FEEDBACK[first.feedback],)
    supported = {trust for problem_type in problems for trust in _SUPPORTED_TRUSTS[problem_type]}
    entry = PolicyEntry(
        factory=build,
        kinds=kinds,
        summary=summary,
        source=source,
        problems=problems,
        actions=actions if isinstance(actions, tuple) else (actions,),
        aim=aim,
        trusts=trusts or tuple(trust for trust in TRUSTS if trust in supported),
        parent=name,
        default_environment=default_environment,
        build_with_budget=build if build_with_budget or build_with_report_distribution else None,
        noises=noises or {},
        deployable=deployable and not at,
        arguments=arguments,
        variant_of=variant_of,
    )
    POLICIES.add(name, entry)


RENAMED_OPTIONS = {
    "make": "factory",
    "home": "default_environment",
    "promised": "build_with_budget",
    "heard": "build_with_report_distribution",
}
"""Options of `register` in plug-ins written for an earlier version, and their names."""


def _refuse_unknown(options: Mapping[str, object]) -> None:
    """Refuse options that `register` does not have; of a renamed one say the name."""
    for option in options:
        if option in RENAMED_OPTIONS:
            raise InvalidValueError(
                f"register() has no option {option!r}; use {RENAMED_OPTIONS[option]!r} instead"
            )
        raise TypeError(f"register() got an unexpected keyword argument {option!r}")


_WORK = re.compile(r"([A-Z][\w-]*)(?:, [A-Z][\w-]*)*(?: and [A-Z][\w-]*)?(?: et al\.)? (\d{4})\b")
# Works that name no author. The year is that of the latest work that they cite.
_ANONYMOUS = {
    "Improved rate for Locally Differentially Private Linear Bandits": "anonymous2023",
    "TMLR submission on LDP linear bandits": "anonymous2023",
}


def paper_keys(source: str) -> list[str]:
    """Return a key of first author and year for each work that a source names.

    >>> paper_keys("Jamieson, Malloy, Nowak, Bubeck 2014; Zheng et al. 2020, Theorem 12")
    ['jamieson2014', 'zheng2020']
    """
    anonymous = [key for title, key in _ANONYMOUS.items() if title in source]
    author_keys = [author.casefold() + year for author, year in _WORK.findall(source)]
    return list(dict.fromkeys([*anonymous, *author_keys]))


def resolve_name(name: str, problem: AnyProblem) -> str:
    """Resolve a policy name, which may be the alias of the best one for a problem.

    >>> facts = {"dim": 2, "arms": 3, "norm": 1.0, "radius": 1.0, "low": 0.0, "high": 1.0}
    >>> [resolve_name("best", Problem(**facts, horizon=9, own=own)) for own in (0, 2)]
    ['sampling', 'own-models']
    """
    return POLICIES.resolve_alias(name, lambda entry: entry.plays(problem))


def actions_of(problem: AnyProblem) -> str:
    """Return the kind of a problem's actions, as in `PolicyEntry.actions`."""
    if isinstance(problem, Problem) and problem.own:
        return "models"
    return "arms" if problem.arms else "domain"


def _bind_factory(factory: Factory, *, takes_budget: bool, takes_channel: bool) -> Factory:
    """Wrap a factory, to call it with the problem, the mode and perhaps the privacy budget.

    Without the channel of a budget, reports are the losses themselves.
    """
    parameters = inspect.signature(factory).parameters
    optional = [name for name in ("trust", "noise_multiplier") if name in parameters]

    def build(
        problem: AnyProblem, mode: Mode, budget: PrivacyBudget | None = None, **arguments: float
    ) -> AnyPolicy:
        facts: dict[str, Any] = {}
        if takes_channel:
            clear = ReportDistribution.clear(low=problem.low, high=problem.high)
            facts = {"channel": (budget and budget.channel) or clear}
        elif takes_budget and budget is not None:
            facts = {"epsilon": budget.epsilon, "delta": budget.delta}
            facts |= {name: getattr(budget, name) for name in optional}
        return factory(problem, mode=mode, **facts, **arguments)

    return build
