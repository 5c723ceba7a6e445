"""Faults of each kind are named by each kind of audit that says it sees them.

The table of `bounds.md` says which audit sees which fault; here is a planted fault for every "yes"
in it, and a sound twin for every kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

import kerchief.audits
from kerchief.audits import Audit, look
from kerchief.audits.canaries import Telltale, count_canaries
from kerchief.audits.neighbours import Losers, Population, neighbours
from kerchief.audits.specimens import SPECIMENS
from kerchief.audits.views import Clients, phased_views, round_views
from kerchief.core.contracts import Clock, Example, NoiseInfo
from kerchief.core.losses import GLMLoss
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import BoundedScalar, RegressionMoments, UnitBallVector
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.core.struct import struct
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import Population as Crowd
from kerchief.environments.worlds import make_environment
from kerchief.policies import POLICIES
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.phased.elimination import Elimination
from kerchief.privacy import Guarantee, Trust, gaussian_noise_multiplier
from kerchief.privatizers import Protection
from kerchief.privatizers.fits import Fits
from kerchief.privatizers.protect import protect
from kerchief.privatizers.sums import CohortSums

Floats: TypeAlias = NDArray[np.float64]
Planted: TypeAlias = Callable[[], Audit]

FAULTS: dict[tuple[str, str], Planted] = {}
SOUND: dict[str, Planted] = {}

HALVED, QUARTER = "half of the noise", "a quarter of the noise"
REUSED = "noise reused from one release to the next"
CLIP, TRIGGER = "a clip removed", "a trigger that reads exact data"
MESSAGES = "two messages, each paid for as if it were alone"
ADJACENCY = "noise for removal in place of replacement"


def planted(kind: str, fault: str) -> Callable[[Planted], Planted]:
    """Enter a fault that this kind of audit sees."""

    def enter(function: Planted) -> Planted:
        FAULTS[kind, fault] = function
        return function

    return enter


def promise(trust: str, epsilon: float) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=1e-5, trust=Trust(trust))


def less(share: float) -> Callable[[Any], Any]:
    """Every noise of a privatizer, or a mechanism, with so much of its deviation."""

    def change(noisy: Any) -> Any:
        if hasattr(noisy, "with_noise"):
            return noisy.with_noise(change)
        return dataclasses.replace(noisy, std=share * noisy.std)

    return change


def as_kind(kind: type, value: Any) -> Any:
    """The same fields in another class."""
    return kind(**{field.name: getattr(value, field.name) for field in dataclasses.fields(value)})


# ------------------------------------------------------------------ bandits with contexts

FACTS = make_environment(dim=2, arms=2).problem(8)


def linucb(**numbers: Any) -> Any:
    made: Any = POLICIES["linucb"].build(FACTS, "tuned")
    return dataclasses.replace(made, **numbers)


def contextual(
    trust: str,
    epsilon: float,
    change: Callable[[Any], Any] = lambda one: one,
    policy: Any = None,
    facts: Any = FACTS,
    randomizer: str = "best",
    runs: int = 16_000,
) -> Audit:
    """Audit LinUCB in a short run, with its protection changed."""
    policy, claim = policy or linucb(), promise(trust, epsilon)
    made = protect(policy, Protection(guarantee=claim, mechanism=randomizer), horizon=FACTS.horizon)
    privatizers = {name: change(one) for name, one in made.items()}
    views = round_views(policy=policy, privatizers=privatizers, facts=facts, runs=runs, seed=0)
    return look(name="linucb", claim=claim, views=views, failure=1e-3)


SOUND["contextual"] = partial(contextual, "central", 4.0)


@planted("contextual", HALVED)
def _() -> Audit:
    return contextual("central", 2.0, less(1 / 2), runs=40_000)


@planted("contextual", QUARTER)
def _() -> Audit:
    return contextual("central", 2.0, less(1 / 4))


@struct
class Reused:
    """Noise that every round draws at the same address."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def add(self, vector: Array, stream: Stream) -> Array:
        noisy: Array = self.inner.add(vector, stream.at(DEVICE, round=0))
        return noisy


def reusing(privatizer: Any) -> Any:
    return privatizer.with_noise(lambda noise: Reused(inner=noise))


@planted("contextual", REUSED)
def _() -> Audit:
    return contextual("local", 4.0, reusing, randomizer="gaussian")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unclipped(RegressionMoments):
    """A query that forgot to clip rewards."""

    def encode(self, record: Any) -> Array:
        return RegressionMoments.encode(dataclasses.replace(self, low=-1e6, high=1e6), record)


@planted("contextual", CLIP)
def _() -> Audit:
    wide = dataclasses.replace(FACTS, low=-20.0, high=20.0)
    policy = linucb(query=as_kind(Unclipped, linucb().query))
    return contextual("central", 4.0, policy=policy, facts=wide)


@planted("contextual", TRIGGER)
def _() -> Audit:
    """An aggregator that shifts a release when a total is above what the first user decides."""
    policy = linucb()
    model = policy.publish(policy.init({"moments": NoiseInfo(noisy=True)}))
    ends = neighbours(policy, FACTS, model)
    first, second = (one.told(policy, model) for one in ends if isinstance(one, Population))
    place = int(np.abs(first - second).argmax())
    others = Example(features=jnp.full(2, 0.5 / 2**0.5), reward=jnp.asarray(0.0))
    rest = (FACTS.horizon - 1) * float(policy.query.encode(others)[place])
    between = rest + policy.query.sensitivity * float(first[place] + second[place]) / 2

    @struct
    class Leaking(CohortSums):
        def release(self, memory: Any, tally: Any, *rest: Any) -> Any:
            release, now = CohortSums.release(self, memory, tally, *rest)
            shift = jnp.where(tally.total[place] > between, 100 * release.noise, 0.0)
            return dataclasses.replace(release, total=release.total + shift), now

    return contextual("central", 1.0, partial(as_kind, Leaking))


@planted("contextual", MESSAGES)
def _() -> Audit:
    """Everyone's report is sent twice, each time with noise that pays for one."""

    @struct
    class Twice(LinUCB):
        @property
        def queries(self) -> Mapping[str, Any]:
            return {"again": self.query, "moments": self.query}

        def due(self, state: Any, clock: Clock) -> Mapping[str, Any]:
            due = LinUCB.due(self, state, clock)["moments"]
            return {"again": due, "moments": due}

        def record(self, *facts: Any) -> Mapping[str, Any]:
            record = LinUCB.record(self, *facts)["moments"]
            return {"again": record, "moments": record}

        def update(self, state: Any, name: str, release: Any) -> Any:
            return state if name == "again" else LinUCB.update(self, state, name, release)

    (alone,) = protect(
        linucb(), Protection(guarantee=promise("local", 4.0)), horizon=FACTS.horizon
    ).values()
    return contextual("local", 4.0, lambda one: alone, policy=as_kind(Twice, linucb()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Removal(RegressionMoments):
    """A query whose sensitivity is the length of a statistic, not the distance of two."""

    @property
    def sensitivity(self) -> float:
        return RegressionMoments(**dataclasses.asdict(self)).sensitivity / 2


@planted("contextual", ADJACENCY)
def _() -> Audit:
    policy = linucb(query=as_kind(Removal, linucb().query))
    return contextual("central", 2.0, policy=policy, runs=40_000)


# ------------------------------------------------------------------ bandits by phases

CROWD = Crowd.of(dim=2, arms=4, clients=1000).problem(64)


def elimination() -> Any:
    """The version whose clients always send averages, which reach the whole sensitivity."""
    return POLICIES["dpe@paper"].build(CROWD, "tuned")


def phased(
    change: Callable[[Any], Any] = lambda one: one,
    policy: Any = None,
    epsilon: float = 4.0,
    populations: tuple[Clients, Clients] | None = None,
    runs: int = 8000,
) -> Audit:
    """Audit phased elimination in a short run, with its protection changed."""
    policy, claim = policy or elimination(), promise("central", epsilon)
    made = protect(policy, Protection(guarantee=claim), horizon=CROWD.horizon)
    views = phased_views(
        policy=policy,
        privatizers={name: change(one) for name, one in made.items()},
        populations=populations,
        runs=runs,
        seed=0,
    )
    return look(name="dpe", claim=claim, views=views, failure=1e-3)


SOUND["phased"] = phased


@planted("phased", HALVED)
def _() -> Audit:
    return phased(less(1 / 2), epsilon=2.0, runs=40_000)


@planted("phased", QUARTER)
def _() -> Audit:
    return phased(less(1 / 4), epsilon=2.0)


@planted("phased", REUSED)
def _() -> Audit:
    """The same noise in every phase: a difference of two releases shows the first client."""
    return phased(reusing)


@planted("phased", CLIP)
def _() -> Audit:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Open(UnitBallVector):
        def encode(self, record: Array) -> Array:
            return record

    @struct
    class Trusting(Elimination):
        def answer(self, asked: Any, group: Any, averages: Array) -> Array:
            sent: Array = asked.encoder[group].astype(averages.dtype) @ averages
            return sent

    policy = elimination()
    policy = dataclasses.replace(policy, query=as_kind(Open, policy.query))
    wide = Clients.around(CROWD, 20.0), Clients.around(CROWD, -20.0)
    return phased(policy=as_kind(Trusting, policy), populations=wide)


@struct
class Telling(CohortSums):
    """An aggregator that shifts a release when an exact total is above zero."""

    def release(self, memory: Any, tally: Any, *rest: Any) -> Any:
        release, now = CohortSums.release(self, memory, tally, *rest)
        shift = jnp.where(tally.total[0] > 0, 100 * release.noise, 0.0)
        return dataclasses.replace(release, total=release.total + shift), now


@planted("phased", TRIGGER)
def _() -> Audit:
    return phased(partial(as_kind, Telling), epsilon=1.0)


@planted("phased", MESSAGES)
def _() -> Audit:
    """The first two clients of a phase are one person."""

    @struct
    class Twins(Clients):
        def averages(self, world: Any, features: Array, pulls: Array, stream: Stream) -> Array:
            round = jnp.where(stream.round == 1, 0, stream.round)
            as_first = dataclasses.replace(stream, round=round)
            return Clients.averages(self, world, features, pulls, as_first)

    twins = Twins.around(CROWD, 1.0), Twins.around(CROWD, -1.0)
    return phased(populations=twins, epsilon=2.0, runs=40_000)


@planted("phased", ADJACENCY)
def _() -> Audit:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Alone(UnitBallVector):
        @property
        def sensitivity(self) -> float:
            return 1.0

    policy = elimination()
    policy = dataclasses.replace(policy, query=as_kind(Alone, policy.query))
    return phased(policy=policy, epsilon=2.0, runs=40_000)


# ------------------------------------------------------------------ bandits without contexts

GAME = ContextFreeProblem(horizon=8, low=0.0, high=1.0, arms=2)


def plainly(
    change: Callable[[Any], Any] = lambda one: one,
    *,
    randomizer: str = "one-bit",
    epsilon: float = 4.0,
    half_width: float = 0.5,
    runs: int = 16_000,
) -> Audit:
    """Audit UCB in a short run, with its protection changed."""
    claim = promise("local", epsilon)
    made: Any = build_protected("ucb", GAME, Protection(guarantee=claim, mechanism=randomizer))
    one, other = (
        dataclasses.replace(Losers.of(GAME, sign), half_width=jnp.float32(half_width))
        for sign in (1.0, -1.0)
    )
    views = round_views(
        policy=made.policy,
        privatizers={name: change(one) for name, one in made.privatizers.items()},
        facts=GAME,
        worlds=(one, other),
        runs=runs,
        seed=0,
    )
    return look(name="ucb", claim=claim, views=views, failure=1e-3)


SOUND["plain"] = plainly


@planted("plain", HALVED)
def _() -> Audit:
    return plainly(less(1 / 2), randomizer="gaussian", epsilon=2.0, runs=40_000)


@planted("plain", QUARTER)
def _() -> Audit:
    return plainly(less(1 / 4), randomizer="gaussian", epsilon=2.0)


@planted("plain", REUSED)
def _() -> Audit:
    """The same coin in every round."""
    return plainly(reusing)


@planted("plain", CLIP)
def _() -> Audit:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Anything(BoundedScalar):
        def encode(self, record: Array) -> Array:
            return jnp.reshape(record, (1,))

    def change(one: Any) -> Any:
        return dataclasses.replace(one, query=as_kind(Anything, one.query))

    return plainly(change, randomizer="gaussian", half_width=20.0)


@planted("plain", TRIGGER)
def _() -> Audit:
    """A device that answers nothing where there was no loss."""

    @struct
    class Silent(CohortSums):
        def randomize(self, record: Any, clock: Clock, stream: Any) -> Any:
            report = CohortSums.randomize(self, record, clock, stream)
            return jnp.where(self.query.encode(record) > 0.25, report, 0.0)

    return plainly(partial(as_kind, Silent))


@planted("plain", MESSAGES)
def _() -> Audit:
    """A report that is the sum of two, each paid for as if it were alone."""

    @struct
    class Twice(Reused):
        def add(self, vector: Array, stream: Stream) -> Array:
            noisy: Array = self.inner.add(vector, stream) + self.inner.add(vector, stream.split(1))
            return noisy

    return plainly(lambda one: one.with_noise(lambda noise: Twice(inner=noise)))


@planted("plain", ADJACENCY)
def _() -> Audit:
    """Noise for the distance from the aggregator."""

    def change(one: Any) -> Any:
        std = gaussian_noise_multiplier(2.0, 1e-5) * one.query.radius
        return one.with_noise(lambda noise: dataclasses.replace(noise, std=std))

    return plainly(change, randomizer="gaussian", epsilon=2.0, runs=40_000)


# ------------------------------------------------------------------ mechanisms


def mechanism(
    name: str,
    change: Callable[[Any], Any] = lambda noise: noise,
    epsilon: float = 4.0,
    messages: int = 1,
    runs: int = 16_000,
) -> Audit:
    """Audit a mechanism that was changed, or several messages of it beside each other."""
    specimen, claim = SPECIMENS[name], promise("central", epsilon)
    noise = change(specimen.make(claim.epsilon, claim.delta))
    one, other = (
        np.concatenate(
            [specimen.draw(noise, sign, runs, seed + message) for message in range(messages)],
            axis=2,
        )
        for sign, seed in ((1, 0), (-1, 100))
    )
    return look(name=name, claim=claim, views=(one, other), failure=1e-3)


SOUND["mechanism"] = partial(mechanism, "gaussian")


@planted("mechanism", HALVED)
def _() -> Audit:
    return mechanism("gaussian", less(1 / 2), epsilon=2.0, runs=40_000)


@planted("mechanism", QUARTER)
def _() -> Audit:
    return mechanism("gaussian", less(1 / 4), epsilon=2.0)


@planted("mechanism", REUSED)
def _() -> Audit:
    """One seed vector for all places of a stream."""

    @struct
    class Again(Reused):
        def step(self, state: Array, round: Array, stream: Stream) -> Any:
            return self.inner.step(state, round, stream.at(AGGREGATOR, round=0))

    return mechanism("tree", lambda noise: Again(inner=noise))


@planted("mechanism", MESSAGES)
def _() -> Audit:
    return mechanism("one-bit", messages=2)


@planted("mechanism", ADJACENCY)
def _() -> Audit:
    """Laplace noise for the distance from zero."""
    return mechanism("laplace", less(1 / 2))


# ------------------------------------------------------------------ canaries


def canaries(
    change: Callable[[Any], Any] = lambda one: one,
    kind: type[GLMLoss] = GLMLoss,
    epsilon: float = 1.0,
    count: int = 1000,
) -> Audit:
    """Count the canaries of a fit that was changed."""
    query = kind(
        link="logistic",
        dim=count,
        norm=1.0,
        low=0.0,
        high=1.0,
        clip=0.5,
        fits=1,
        minimizer=Telltale(steps=2),
    )
    multiplier = gaussian_noise_multiplier(epsilon, 1e-5)
    fits = Fits.of(query, noise_multiplier=multiplier, horizon=count)
    return count_canaries(
        name="fits", fits=change(fits), claim=promise("joint", epsilon), failure=1e-3
    )


SOUND["canaries"] = canaries


@planted("canaries", QUARTER)
def _() -> Audit:
    return canaries(less(1 / 4))


@planted("canaries", CLIP)
def _() -> Audit:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Unbounded(GLMLoss):
        def gradients(self, rows: Array, point: Array) -> Array:
            return 8 * GLMLoss.gradients(dataclasses.replace(self, clip=1e9), rows, point)

    return canaries(kind=Unbounded)


# ------------------------------------------------------------------ the table


def by_day(kind: str) -> list[Any]:
    """What compiles a whole bandit or a fit is for the night."""
    return [] if kind == "mechanism" else [pytest.mark.nightly]


@pytest.mark.parametrize(
    ("kind", "fault"),
    [pytest.param(kind, fault, marks=by_day(kind)) for kind, fault in FAULTS],
)
def test_a_planted_fault_is_named(kind: str, fault: str) -> None:
    """A sound one would be named with a chance of 1e-3 at most; seeds are fixed."""
    assert not FAULTS[kind, fault]().kept


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=by_day(kind)) for kind in SOUND])
def test_the_sound_twin_is_passed(kind: str) -> None:
    """What is not at fault keeps its claim, and something is seen of it."""
    found = SOUND[kind]()
    assert found.kept
    assert found.epsilon_lower > 0 or kind == "canaries"


def test_table_of_bounds_note_matches_planted_faults() -> None:
    """Every "yes" of the table has a planted fault here, and every fault a "yes" there."""
    note = Path(kerchief.audits.__file__).with_name("bounds.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in note.splitlines()
        if line.startswith("|")
    ]
    kinds = rows[0][1:]
    said = {
        (kind, row[0])
        for row in rows[2:]
        for kind, cell in zip(kinds, row[1:], strict=True)
        if cell.startswith("yes")
    }
    assert said == set(FAULTS)
    assert set(kinds) == set(SOUND)
