"""Faults that papers and public code really have, planted here, each caught by name.

`docs/faults.md` says where each was seen. The sound twin of every one passes the
same law in `tests/checks`.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import pytest
from jax import Array

from kerchief.checks import (
    BANDIT_LAWS,
    LEDGER_LAWS,
    PRIVATIZER_LAWS,
    CheckFailedError,
    Ledgers,
    PolicyFixture,
    PrivatizerCase,
    privatizer_cases,
)
from kerchief.core.contracts import Arms, BoundedSum, Clock, Example, FitRelease, Tree
from kerchief.core.errors import KerchiefError
from kerchief.core.linalg import svec
from kerchief.core.losses import GLMLoss
from kerchief.core.phases import Phase
from kerchief.core.queries import GramMatrix, RegressionMoments, clip_features
from kerchief.core.random import DEVICE, Stream
from kerchief.core.struct import struct
from kerchief.deployment import Bandit
from kerchief.deployment.protected_policy import ProtectedPolicy, build_protected
from kerchief.environments import make_environment
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.tree import Tree as BinaryTree
from kerchief.policies import POLICIES
from kerchief.policies.glm.rare_switching import RarelySwitching
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.phased.elimination import Elimination
from kerchief.privacy import Cohort, Guarantee, MemoryLedger, Trust
from kerchief.privacy import events as what
from kerchief.privatizers import TRUSTS, CohortSums, PrefixSums, Protection, protect
from kerchief.privatizers.fits import Fits, History
from kerchief.privatizers.registry import PrivatizerEntry

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
FAULTS: dict[str, Callable[[], str]] = {}
"""Each fault by its name: plants it, and returns by what it was caught."""


def fault(name: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Give a planted fault its name."""

    def add(plant: Callable[[], str]) -> Callable[[], str]:
        FAULTS[name] = plant
        return plant

    return add


def by_law(laws: Mapping[str, Any], law: str, subject: Any) -> str:
    """The law that the subject breaks; nothing if it does not."""
    try:
        laws[law](subject)
    except CheckFailedError as caught:
        return caught.failures[0].law
    return "nothing"


def by_refusal(call: Callable[[], object], kind: type[Exception] = KerchiefError) -> str:
    """The error that the call meets; nothing if it is let through."""
    try:
        call()
    except kind as caught:
        return type(caught).__name__
    return "nothing"


def sums(
    trust: str, build: Callable[[Gaussian, BoundedSum], Gaussian], *, epsilon: float = 4.0
) -> PrivatizerCase:
    """Sums under a trust, with noise that is built otherwise."""

    def make(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
        plain: Any = TRUSTS[trust].make(query, noise_multiplier, horizon)
        return plain.with_noise(lambda noise: build(noise, query))  # type: ignore[no-any-return]

    return PrivatizerCase.of(
        trust, PrivatizerEntry(make=make, summary="a planted fault"), epsilon=epsilon
    )


def fits(kind: type[Fits]) -> PrivatizerCase:
    """Fits under joint trust, by another privatizer."""

    def make(loss: Any, noise_multiplier: float, horizon: int) -> Fits:
        return kind(**vars(Fits.of(loss, noise_multiplier=noise_multiplier, horizon=horizon)))

    return list(privatizer_cases("joint", dataclasses.replace(TRUSTS["joint"], fit=make)))[1]


def linucb(query: type[RegressionMoments]) -> PolicyFixture:
    """LinUCB that asks another question."""

    def make(problem: Any, mode: Any) -> LinUCB:
        return dataclasses.replace(LinUCB.of(problem, mode=mode), query=query.of(problem))

    entry = dataclasses.replace(POLICIES["linucb"], factory=make)
    return PolicyFixture.of("linucb", entry, "none")


def rare(kind: type[RarelySwitching], **changed: type) -> PolicyFixture:
    """The rarely switching bandit, or one with another class in the place of a part."""
    entry = POLICIES["glm-rare-explore"]

    def make(problem: Any, mode: Any) -> RarelySwitching:
        plain: Any = entry.factory(problem, mode)
        parts = {name: part(**vars(getattr(plain, name))) for name, part in changed.items()}
        return kind(**{**vars(plain), **parts, "threshold": 0.05, "damping": 0.8})

    return PolicyFixture.of(
        "glm-rare-explore", dataclasses.replace(entry, factory=make, kinds=(kind,)), "joint"
    )


POLICY, PRIVATIZER, LEDGER = (
    {law.name: law for law in laws} for laws in (BANDIT_LAWS, PRIVATIZER_LAWS, LEDGER_LAWS)
)
CHARGED, MOVES = "noise is what was charged", "one user moves a release by the sensitivity at most"
BOUND, CLIP = "statistics obey their bound", "clipping holds beyond the domain"
SHOWS, COMPOSE = "one user shows in releases alone", "charges compose to the guarantee"


@fault("half of the noise that replacement needs")
def _half_of_it() -> str:
    """Noise for one gradient's bound, where replacing a user moves the sum by two."""

    class Half(GLMLoss):
        @property
        def sensitivity(self) -> float:
            return self.clip

    return by_law(POLICY, BOUND, rare(RarelySwitching, loss=Half))


@fault("the classical formula beyond its range")
def _classical() -> str:
    """√(2 ln(1.25/δ))/ε at ε = 20, as if it were proved there."""

    def build(noise: Gaussian, query: BoundedSum) -> Gaussian:
        multiplier = math.sqrt(2 * math.log(1.25 / 1e-5)) / 20
        return Gaussian.of(noise_multiplier=multiplier, sensitivity=query.sensitivity)

    return by_law(PRIVATIZER, COMPOSE, sums("local", build, epsilon=20.0))


@fault("noise without a sensitivity")
def _without_sensitivity() -> str:
    """√(ln(2.5/δ))/ε for whatever is released."""

    def build(noise: Gaussian, query: BoundedSum) -> Gaussian:
        return Gaussian(std=math.sqrt(math.log(2.5 / 1e-5)) / 4.0, sensitivity=1.0)

    return by_law(PRIVATIZER, CHARGED, sums("local", build))


@fault("a pair released as if each half were alone")
def _a_pair() -> str:
    """Noise for the matrix or for the vector, whichever moves more, on both at once."""

    class Halves(RegressionMoments):
        @property
        def sensitivity(self) -> float:
            return max(math.sqrt(2) * self.norm**2, 2 * self.norm * self._largest_reward)

    return by_law(POLICY, BOUND, linucb(Halves))


@fault("a spectral norm for a Frobenius norm")
def _spectral() -> str:
    """Two matrices x xᵀ are 1 apart in the one and √2 in the other, and noise is on entries."""

    class Spectral(GramMatrix):
        @property
        def sensitivity(self) -> float:
            return self.norm**2

    return by_law(POLICY, BOUND, rare(RarelySwitching, curvature=Spectral))


@fault("a gradient that is longer than its bound")
def _long_gradient() -> str:
    """|g(xᵀθ) − y| is taken for C where it can be 2C + 1."""

    class Long(GLMLoss):
        def gradients(self, rows: Array, point: Array) -> Array:
            return GLMLoss(**{**vars(self), "clip": 3 * self.clip}).gradients(rows, point)

    return by_law(POLICY, BOUND, rare(RarelySwitching, loss=Long))


@fault("one noise for hundreds of rounds")
def _one_noise() -> str:
    """Every report carries the first one's noise."""

    @struct
    class Once(Gaussian):
        def add(self, vector: Array, stream: Stream) -> Array:
            return Gaussian.add(self, vector, stream.at(DEVICE, round=0))

    protocol = sums("local", lambda noise, query: Once(**vars(noise)))
    return by_law(PRIVATIZER, CHARGED, protocol)


@fault("a node of the tree drawn again")
def _redrawn() -> str:
    """Each prefix gets fresh noise, and is paid for as if blocks were shared."""

    @struct
    class Redrawn(ContinualNoise):
        def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
            return self.std_at(round + 1) * stream.normal(state.shape[1]), state

    def make(query: BoundedSum, noise_multiplier: float, horizon: int) -> PrefixSums:
        tree = ContinualNoise.of(
            BinaryTree(horizon=horizon),
            noise_multiplier=noise_multiplier,
            sensitivity=query.sensitivity,
        )
        plain = TRUSTS["joint"].make(query, noise_multiplier, horizon)
        return PrefixSums(query=query, schedule=plain.schedule, noise=Redrawn(**vars(tree)))

    protocol = PrivatizerCase.of("joint", PrivatizerEntry(make=make, summary="a planted fault"))
    return by_law(PRIVATIZER, CHARGED, protocol)


@fault("a refit the moment a user explores")
def _refit_at_once() -> str:
    """The billboard changes right after a user who explored, and not after another."""

    @struct
    class AtOnce(RarelySwitching):
        def record(
            self, model: Any, arms: Arms, action: Array, reward: Array
        ) -> Mapping[str, Tree]:
            sent = RarelySwitching.record(self, model, arms, action, reward)
            object.__setattr__(self, "_explored", bool((sent["warm"].features != 0).any()))
            return sent

        def due(self, state: Any, clock: Clock) -> Mapping[str, Array | bool]:
            wanted = RarelySwitching.due(self, state, clock)
            return {**wanted, "warm": getattr(self, "_explored", False)}

    return by_law(POLICY, SHOWS, rare(AtOnce))


@fault("an average over those who took part")
def _own_membership() -> str:
    """The gradient sum is scaled by how many users explored, which each of them changes."""

    @struct
    class Averaged(Fits):
        def release(
            self, memory: Tree, tally: History, request: Any, clock: Clock, stream: Any
        ) -> tuple[FitRelease, Tree]:
            fitted, now = Fits.release(self, memory, tally, request, clock, stream)
            explored = (tally.rows[:, : self.query.dim] != 0).any(axis=1).sum()
            return dataclasses.replace(fitted, point=12 * fitted.point / explored), now

    return by_law(PRIVATIZER, MOVES, fits(Averaged))


@fault("weights that are bounded on a good event alone")
def _good_event() -> str:
    """A weight is as large as the estimate makes it."""

    class Hopeful(GramMatrix):
        def encode(self, record: Example) -> Array:
            x = clip_features(record.features, self.norm)
            weights = jnp.nan_to_num(jnp.atleast_1d(record.weight)).astype(x.dtype)
            return (weights[:, None] * svec(x[:, None] * x[None, :])[None, :]).ravel()

    return by_law(POLICY, CLIP, rare(RarelySwitching, curvature=Hopeful))


@fault("a reward that is bounded only with high probability")
def _unbounded_reward() -> str:
    """Sub-Gaussian rewards that nobody clips."""

    class Trusting(RegressionMoments):
        def encode(self, record: Example) -> Array:
            wide = dataclasses.replace(self, low=-1e8, high=1e8)
            return RegressionMoments.encode(wide, record)

    return by_law(POLICY, CLIP, linucb(Trusting))


@fault("a client in two phases")
def _two_phases() -> str:
    """Clients are drawn anew in every phase, and phases are composed in parallel."""

    @struct
    class Again(Elimination):
        def phases(self, noise: Callable[[int], float]) -> tuple[Phase, ...]:
            first, second, third, *rest = Elimination.phases(self, noise)
            return first, second, dataclasses.replace(third, first=second.first), *rest

    def drawn_again(*given: Any, **named: Any) -> ProtectedPolicy:
        made = build_protected(*given, **named)
        return dataclasses.replace(made, policy=Again(**vars(made.policy)))

    case = PolicyFixture.of("pe", POLICIES["pe"], "central", build_protected=drawn_again)
    return by_law(POLICY, "one client moves one release", case)


@fault("floating-point noise called exact")
def _floats() -> str:
    """Low bits of the sum tell which record was noised."""

    @struct
    class Gilded(Gaussian):
        idealized: ClassVar[bool] = False

    protocol = sums("local", lambda noise, query: Gilded(**vars(noise)))
    return by_law(PRIVATIZER, "idealized is honest", protocol)


@fault("overlapping cohorts taken for disjoint ones")
def _parallel() -> str:
    """Every user is charged for the dearest release alone."""

    class Parallel(MemoryLedger):
        def spent(self) -> Guarantee:
            whole = super().spent()
            costs = []
            for receipt in self.receipts:
                alone = MemoryLedger(self.budget)
                alone.charge(receipt.event, cohort=Cohort(first=0, last=1))
                costs.append(alone.spent())
            return max(costs, key=lambda cost: cost.epsilon) if costs else whole

    law = "overlapping cohorts add up"
    return by_law(LEDGER, law, Ledgers(open=Parallel))


@fault("constants of a theorem outside its range")
def _outside() -> str:
    """The shuffle theorem is proved for ε below 15."""
    policy = POLICIES["linucb"].build(make_environment(dim=2, arms=2).problem(4000), "tuned")
    promise = Guarantee(epsilon=16.0, delta=1e-5, trust=Trust.SHUFFLE)
    return by_refusal(
        lambda: protect(policy, Protection(guarantee=promise, mechanism="theorem"), horizon=4000)
    )


@fault("a seed in deployment")
def _seeded() -> str:
    """Whoever knows the seed subtracts the noise."""
    facts = make_environment(dim=2, arms=2).problem(100)
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    seeded: Any = {"policy": "linucb", "problem": facts, "guarantee": promise, "seed": 7}
    return by_refusal(lambda: Bandit(**seeded), TypeError)


@fault("a second release that nobody paid for")
def _unpaid() -> str:
    """The budget is spent, and one more release is asked for."""
    ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.CENTRAL))
    ledger.charge(what.Gaussian(noise_multiplier=4.0), cohort=Cohort(first=0, last=9))
    again = what.Gaussian(noise_multiplier=4.0)
    return by_refusal(lambda: ledger.charge(again, cohort=Cohort(first=8, last=20)))


# Those that take seconds are planted by night.
_SLOW = {
    "half of the noise that replacement needs",
    "a pair released as if each half were alone",
    "a spectral norm for a Frobenius norm",
    "a gradient that is longer than its bound",
    "a refit the moment a user explores",
    "a client in two phases",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.nightly] if n in _SLOW else []) for n in FAULTS],
)
def test_a_published_fault_is_caught_by_name(name: str) -> None:
    """By the law, or with the refusal, that the page names."""
    assert FAULTS[name]() == _page()[name]


SOUND: list[tuple[Mapping[str, Any], str, Callable[[], Any]]] = [
    (PRIVATIZER, CHARGED, lambda: sums("local", lambda noise, query: noise)),
    (PRIVATIZER, COMPOSE, lambda: sums("local", lambda noise, query: noise, epsilon=20.0)),
    (PRIVATIZER, MOVES, lambda: fits(Fits)),
    (POLICY, BOUND, lambda: linucb(RegressionMoments)),
    (POLICY, CLIP, lambda: linucb(RegressionMoments)),
    (POLICY, BOUND, lambda: rare(RarelySwitching, curvature=GramMatrix, loss=GLMLoss)),
    (POLICY, CLIP, lambda: rare(RarelySwitching, curvature=GramMatrix)),
    (POLICY, SHOWS, lambda: rare(RarelySwitching)),
    (
        POLICY,
        "one client moves one release",
        lambda: PolicyFixture.of("pe", POLICIES["pe"], "central"),
    ),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("laws", "law", "make"), SOUND)
def test_host_of_a_planted_fault_is_sound(
    laws: Mapping[str, Any], law: str, make: Callable[[], Any]
) -> None:
    """It is the fault that is caught, and not what surrounds it."""
    laws[law](make())


def test_rejected_calls_pass_without_their_fault() -> None:
    """The same calls without it are let through."""
    facts = make_environment(dim=2, arms=2).problem(4000)
    promise = Guarantee(epsilon=14.0, delta=1e-5, trust=Trust.SHUFFLE)
    protect(
        POLICIES["linucb"].build(facts, "tuned"),
        Protection(guarantee=promise, mechanism="theorem"),
        horizon=4000,
    )
    Bandit(
        policy="linucb",
        problem=facts,
        guarantee=dataclasses.replace(promise, trust=Trust.LOCAL),
        window_s=0,
    )
    ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.CENTRAL))
    for first in (0, 9):
        event = what.Gaussian(noise_multiplier=4.0)
        ledger.charge(event, cohort=Cohort(first=first, last=first + 9))


def test_the_page_names_every_fault() -> None:
    """And no other; there are more than a dozen."""
    assert list(_page()) == list(FAULTS)
    assert len(FAULTS) >= 12


def _page() -> dict[str, str]:
    """What the page says catches each fault."""
    rows = re.findall(r"^\| ([^|]+?) \| [^|]+ \| `?([^|`]+?)`? \|$", PAGE.read_text(), re.M)
    return dict(rows[1:])
