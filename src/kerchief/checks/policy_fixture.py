"""A case: a bandit under one trust in a small world, and the rooms around it.

Sizes are fixed for each kind of bandit, so that compiled runs are shared. Runs by the dozen go
through `simulate` and are remembered; runs by hand (`checks.reference_runner`) keep everything.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import jax.numpy as jnp

from kerchief.checks.errors import refused
from kerchief.core.contracts import Feedback
from kerchief.core.convex import Ball
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import AnyProblem, ContextFreeProblem, PopulationProblem
from kerchief.core.registry import Registry
from kerchief.deployment.protected_policy import ProtectedPolicy, build_protected, choose_mechanism
from kerchief.deployment.questions import Asker
from kerchief.environments import make_environment
from kerchief.environments.context_free import ChanceArms, CountedArms
from kerchief.environments.context_free_convex import Quadratic
from kerchief.environments.disjoint import DisjointModels
from kerchief.environments.population import Population
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.policies import POLICIES, AnyPolicy, Mode, PolicyEntry
from kerchief.privacy import Guarantee, Ledger, MemoryLedger, Trust
from kerchief.privatizers import MECHANISMS_OF, Protection
from kerchief.simulation import loop, phases
from kerchief.simulation.run import AnyEnvironment, Run, simulate
from kerchief_device import Device

BEST, DELTA, SEED = "best", 1e-5, 20260601


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How long and how often bandits of a kind are played, and at which epsilon.

    At 2.5 a few thousand single bits tell epsilon from 3/2 of it; at 20 three phases fit. Of 390
    rounds halving four arms leaves some.
    """

    horizon: int
    segment: int
    width: int
    epsilon: float


SIZES: Mapping[Feedback, Size] = {
    "totals": Size(horizon=400, segment=50, width=64, epsilon=20.0),
    "reports": Size(horizon=390, segment=39, width=64, epsilon=2.5),
    "phases": Size(horizon=16_000, segment=2000, width=160, epsilon=20.0),
}

Arrange: TypeAlias = Callable[..., ProtectedPolicy]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PolicyFixture:
    """A bandit under one trust, and the rooms around it, which planted faults may replace.

    Attributes:
        mechanism: the word of the noise, of `MECHANISMS_OF` the trust.
        resizable: whether the entry builds for any problem, or for this environment alone.
        advance: plays rounds of all replicates; made by `jax.jit`.
        asker: the server of a bandit that hears reports; `device` answers it.
    """

    name: str
    entry: PolicyEntry
    trust: str
    environment: AnyEnvironment
    mechanism: str = BEST
    resizable: bool = True
    build_protected: Arrange = build_protected
    simulate: Callable[..., Run] = simulate
    advance: Any = loop.advance
    play_phase: Any = phases.play
    make_ledger: Callable[[Guarantee], Ledger] = MemoryLedger
    asker: type[Asker] = Asker
    device: type[Device] = Device

    @classmethod
    def of(cls, name: str, entry: PolicyEntry, trust: str, **options: Any) -> PolicyFixture:
        """A case in a small copy of the bandit's home, with the bandit's own noise.

        Laws cut cohorts anew and silence noise, which bits do not allow: coins stand for them, and
        the laws about words hold every word to what it says.
        """
        own = choose_mechanism(entry, trust)
        options.setdefault("mechanism", BEST if own == "bit" else own)
        options["environment"] = options.get("environment") or small_home(
            entry.default_environment or "linear"
        )
        return cls(name=name, entry=entry, trust=trust, **options)

    def __str__(self) -> str:
        """The name, the trust and the word of the noise where it is not the best."""
        how = "" if self.mechanism == BEST else f" with {self.mechanism}"
        return f"{self.name} under {self.trust}{how}"

    def _key(self) -> tuple[Any, ...]:
        parts = {name: value for name, value in vars(self).items() if name != "entry"}
        return (id(self.entry), *parts.values())

    def __eq__(self, other: object) -> bool:
        """Whether it is the same bandit, by the same entry, in the same rooms."""
        return isinstance(other, PolicyFixture) and self._key() == other._key()

    def __hash__(self) -> int:
        """Hash of the fields that equality compares."""
        return hash(self._key())

    @property
    def size(self) -> Size:
        """Size of a run of this kind of bandit: rounds, replicates and epsilon."""
        return SIZES[self.feedback]

    @property
    def feedback(self) -> Feedback:
        """What bandits hear in problems of this kind."""
        match self.environment.problem(SIZES["totals"].horizon):
            case PopulationProblem():
                return "phases"
            case ContextFreeProblem():
                return "reports"
        return "totals"

    @property
    def problem(self) -> AnyProblem:
        """The public facts."""
        return self.environment.problem(self.size.horizon)

    def promise(self, epsilon: float | None = None) -> Guarantee:
        """What a run promises; single reports promise no delta unless their noise needs one."""
        if self.trust == Trust.NONE:
            return Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
        pure = self.feedback == "reports" and self.mechanism != "gaussian"
        target = self.size.epsilon if epsilon is None else epsilon
        return Guarantee(epsilon=target, delta=0.0 if pure else DELTA, trust=Trust(self.trust))

    def arranged(
        self, epsilon: float | None = None, *, mode: Mode = "tuned", horizon: int | None = None
    ) -> ProtectedPolicy:
        """Build the bandit and its protection from public facts alone."""
        problem = self.environment.problem(horizon or self.size.horizon)
        protection = Protection(guarantee=self.promise(epsilon), mechanism=self.mechanism)
        return self.build_protected(self.entry, problem, protection, mode=mode)

    def scene(self, made: ProtectedPolicy) -> loop.Scene:
        """Build what the engine plays round by round."""
        parts: Any = {"policy": made.policy, "environment": self.environment}
        return loop.Scene(**parts, privatizers=dict(made.privatizers), seed=jnp.uint32(SEED))

    def policy(self, mode: Mode = "tuned") -> Any:
        """The bandit alone."""
        return self.arranged(mode=mode).policy


def small_home(word: str) -> AnyEnvironment:
    """A small copy of a world that a bandit is at home in, by its name."""
    kind = ENVIRONMENTS[word]
    if kind.problem is PopulationProblem:
        clients = SIZES["phases"].horizon
        return Population.of(dim=2, arms=6, clients=clients, radius=0.8, spread=0.1)
    if kind.actions == "models":
        return DisjointModels.of(dim=3, arms=3)
    if kind.problem is not ContextFreeProblem:
        return make_environment(link=word, dim=2, arms=5, fewest=3)
    if word == "line":
        return ENVIRONMENTS[word].make()  # type: ignore[no-any-return]
    if kind.actions == "domain":
        return Quadratic.of(domain=Ball(dim=2))
    return (CountedArms if word == "counted" else ChanceArms).of(arms=4, gap=0.4)


def cases(
    registry: Registry[PolicyEntry] = POLICIES, *, words: bool = False
) -> Iterator[PolicyFixture]:
    """Every registered bandit under every trust that it declares.

    With its own noise or, by `words`, with every one that it accepts.
    """
    for name, entry in registry.items():
        for trust in entry.trusts:
            case = PolicyFixture.of(name, entry, trust)
            yield case
            yield from other_words(case) if words else ()


def other_words(case: PolicyFixture) -> Iterator[PolicyFixture]:
    """Yield the case with each other mechanism that its bandit accepts."""
    for mechanism in MECHANISMS_OF[Trust(case.trust)]:
        variant = dataclasses.replace(case, mechanism=mechanism)
        if mechanism not in (BEST, case.mechanism) and accepts(variant):
            yield variant


def accepts(case: PolicyFixture) -> bool:
    """Whether the bandit can be had with this noise; a word is refused, never replaced."""
    return not refused(InvalidValueError, case.arranged)


def asks(case: PolicyFixture) -> bool:
    """Whether the bandit asks any query."""
    return bool(policy_of(case).queries)


def private(case: PolicyFixture) -> bool:
    """Whether the bandit asks queries under a privacy guarantee."""
    return case.trust != Trust.NONE and asks(case)


def by_totals(case: PolicyFixture) -> bool:
    """Whether each user chooses among arms of their own."""
    return case.feedback == "totals"


def by_reports(case: PolicyFixture) -> bool:
    """Whether the learner proposes, asks one user and hears one number."""
    return case.feedback == "reports" and asks(case)


def by_rounds(case: PolicyFixture) -> bool:
    """Whether users come one after another."""
    return case.feedback != "phases"


@lru_cache(maxsize=64)
def policy_of(case: PolicyFixture) -> AnyPolicy:
    """Build the policy of a case, once per case."""
    return case.arranged().policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChargedRun:
    """A run and the ledger that paid for it."""

    run: Run
    ledger: Ledger


def play(
    case: PolicyFixture,
    arranged: ProtectedPolicy | None = None,
    *,
    epsilon: float | None = None,
    ledger: Ledger | None = None,
    **options: Any,
) -> ChargedRun:
    """Simulate the case, or another arrangement of it, with a fresh ledger unless one is given.

    `options` are further arguments of `simulate`.
    """
    bandit, size = arranged or case.arranged(epsilon), case.size
    payer = case.make_ledger(case.promise(epsilon)) if ledger is None else ledger
    run = case.simulate(
        **{
            "policy": bandit.policy,
            "privatizers": bandit.privatizers,
            "environment": case.environment,
            "ledger": payer,
            "horizon": size.horizon,
            "replicates": size.width,
            "seed": SEED,
            "ticks": size.horizon // size.segment,
            **options,
        }
    )
    return ChargedRun(run=run, ledger=payer)


played = lru_cache(maxsize=64)(play)
