"""Everything that can be audited, by kind, name and trust."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from kerchief.audits.audit import Audit, check_runs, look, said
from kerchief.audits.neighbours import Floats
from kerchief.audits.specimens import SPECIMENS
from kerchief.audits.views import phased_views, round_views
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import PhasePolicy
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem, ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.registry import Registry
from kerchief.core.validate import whole
from kerchief.deployment.protected_policy import build_protected, choose_mechanism
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.policies import POLICIES, PolicyEntry
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.protect import Protection
from kerchief.simulation.run import AnyEnvironment

HORIZON, ROUNDS = 64, 1024
"""How many users each audited run has, enough for a batch of every bandit here; and how many rounds
a bandit that goes by phases is built for, enough for two phases of it.
"""

RUNS = 20_000
"""How often each population of a bandit is played, if nothing is said."""

Views: TypeAlias = tuple[Floats, Floats]
Seen: TypeAlias = tuple[str, Views]
"""Which noise was drawn, and what was seen of each of two neighbouring populations."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of thing that can be audited: all of them by name, and what is seen of one.

    `views` takes its name, the claim, how often each of two neighbouring populations is played, and
    a seed. `problem` is the kind of problem that bandits are audited in; None for mechanisms.
    """

    entries: Callable[[], Any]
    views: Callable[[str, Guarantee, int, int], Seen]
    problem: type[AnyProblem] | None = None

    def trusts(self, name: str) -> tuple[str, ...]:
        """The trusts under which a thing claims something."""
        entry = self.entries()[name]
        trusts = entry.trusts if self.problem is None else entry.trusts_in(self.problem)
        return tuple(trust for trust in trusts if trust != Trust.NONE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """Something that claims to be private: of a kind of `KINDS`, by its name, under a trust.

    >>> find("tsallis")
    Subject(kind='context-free', name='tsallis', trust='local')
    """

    kind: str
    name: str
    trust: str

    @property
    def runs(self) -> int:
        """How often each population is played, if nothing is said."""
        entry = KINDS[_resolve_kind(self.kind)].entries()[self.name]
        return int(getattr(entry, "runs", RUNS))

    @double_precision
    def audit(
        self,
        *,
        epsilon: float,
        delta: float = 1e-5,
        runs: int | None = None,
        seed: int = 0,
        failure: float = 0.05,
    ) -> Audit:
        """Hold it to a claim; the bound is wrong with a chance of `failure`."""
        runs = check_runs(self.runs if runs is None else runs)
        # The second population has the next seed.
        whole("seed", seed, low=0, high=2**32 - 2)
        claim = Guarantee(epsilon=epsilon, delta=delta, trust=Trust(self.trust))
        noise, views = KINDS[_resolve_kind(self.kind)].views(self.name, claim, runs, seed)
        return look(
            name=self.name, claim=claim, views=views, noise=noise, seed=seed, failure=failure
        )


def find(name: str, *, trust: str | None = None, kind: str | None = None) -> Subject:
    """What is to be audited; by default of the first kind that has it, under its first trust.

    Raises:
        KerchiefError: there is no such thing, or not under this trust, or it claims nothing.
    """
    kinds = (
        [_resolve_kind(kind)]
        if kind
        else [key for key, group in KINDS.items() if name in group.entries()]
    )
    if not kinds:
        subjects: Registry[str] = Registry("bandit or mechanism", listed=("policies", "mechanisms"))
        for entry_name in dict.fromkeys(
            entry_name for _, group in KINDS.items() for entry_name in group.entries()
        ):
            subjects.add(entry_name, entry_name)
        subjects[name]
    offered = KINDS[kinds[0]].trusts(name)
    if not offered or trust not in (None, *offered):
        raise InvalidValueError(
            f"trust is {trust!r}; {name!r} claims something under "
            f"{', '.join(offered) or 'no trust'}"
        )
    return Subject(kind=kinds[0], name=name, trust=trust or offered[0])


def _resolve_kind(kind: str) -> str:
    """Resolve the name of a kind, also by an earlier name."""
    return {"phased": "population", "plain": "context-free"}.get(kind, kind)


def entries() -> Iterator[Subject]:
    """Every registered mechanism, and every deployable bandit under each of its trusts.

    Papers' own versions, which are not offered for deployment, are left out; `find` knows them.

    >>> [subject.trust for subject in entries() if subject.name == "dpe"]
    ['local', 'shuffle', 'central']
    """
    for key, kind in KINDS.items():
        for name in kind.entries():
            if "@" not in name:
                yield from (
                    Subject(kind=key, name=name, trust=trust) for trust in kind.trusts(name)
                )


def _view_bandit(kind: type[AnyProblem], name: str, claim: Guarantee, runs: int, seed: int) -> Seen:
    """Draw views of a bandit with its own noise in a small environment."""
    entry = POLICIES[name]
    world = _build_world(entry, kind)
    facts = world.problem(ROUNDS if kind is PopulationProblem else HORIZON)
    bandit = build_protected(name, facts, Protection(guarantee=claim))
    noises = [noise for privatizer in bandit.privatizers.values() for noise in privatizer.noises]
    noise = said(choose_mechanism(entry, claim.trust), *noises)
    options: Any = {"privatizers": bandit.privatizers, "runs": runs, "seed": seed}
    if isinstance(bandit.policy, PhasePolicy):
        return noise, phased_views(policy=bandit.policy, **options)
    return noise, round_views(policy=bandit.policy, facts=facts, **options)


def _build_world(entry: PolicyEntry, kind: type[AnyProblem]) -> AnyEnvironment:
    home = ENVIRONMENTS[entry.default_environment or "linear"]
    if home.problem is not kind:
        home = next(world for _, world in ENVIRONMENTS.items() if world.problem is kind)
    sizes = {"dim": 2, "arms": 4 if kind is PopulationProblem else 2, "clients": 10_000}
    world: AnyEnvironment = home.make(
        **{name: size for name, size in sizes.items() if name in home.options}
    )
    return world


def _find_bandits(kind: type[AnyProblem], title: str) -> Registry[PolicyEntry]:
    """Find the bandits that take problems of a kind."""
    bandits: Registry[PolicyEntry] = Registry(title, listed=("policies",))
    for name, entry in POLICIES.items():
        if kind in entry.problems:
            bandits.add(name, entry)
    return bandits


def _view_mechanism(name: str, claim: Guarantee, runs: int, seed: int) -> Seen:
    specimen = SPECIMENS[name]
    noise = specimen.make(claim.epsilon, claim.delta)
    first, second = specimen.draw(noise, 1, runs, seed), specimen.draw(noise, -1, runs, seed + 1)
    return said(name, noise), (first, second)


KINDS: Registry[Kind] = Registry("kind of audit")
"""What can be audited, by the word of `--kind`; a name that two kinds have means the first."""


def _enter_bandits(key: str, problem: type[AnyProblem], title: str) -> None:
    """Enter a kind of bandits."""
    entries, views = partial(_find_bandits, problem, title), partial(_view_bandit, problem)
    KINDS.add(key, Kind(entries=entries, views=views, problem=problem))


_enter_bandits("contextual", Problem, "policy with contexts")
_enter_bandits("population", PopulationProblem, "policy for populations")
_enter_bandits("context-free", ContextFreeProblem, "policy without contexts")
KINDS.add("mechanism", Kind(entries=lambda: SPECIMENS, views=_view_mechanism))
