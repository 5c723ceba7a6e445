"""Broken policies, each of which the very law that it breaks must catch."""

from __future__ import annotations

import dataclasses
import random
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.checks import BANDIT_LAWS, CheckFailedError, PolicyFixture, check_registry
from kerchief.checks.reference_runner import hand_of
from kerchief.checks.worst import arrivals, worst_users
from kerchief.core.contracts import Arms, Clock, Example, Release, Start, Tree
from kerchief.core.errors import BudgetExceededError
from kerchief.core.linalg import svec
from kerchief.core.losses import GLMLoss
from kerchief.core.queries import GramMatrix, RegressionMoments
from kerchief.core.random import Stream
from kerchief.core.registry import Registry
from kerchief.core.struct import struct
from kerchief.deployment.protected_policy import ProtectedPolicy, build_protected
from kerchief.policies import POLICIES, PolicyEntry
from kerchief.policies.ellipsoid import Model, State
from kerchief.policies.glm.rare_switching import RarelySwitching
from kerchief.policies.linear.linucb import LinUCB
from kerchief.privacy import MemoryLedger, Receipt
from kerchief.privacy.receipts import Charge
from kerchief.privatizers import CohortSums, OnDemand, PrefixSums
from kerchief.privatizers.fits import Fits
from kerchief.simulation.loop import Replicate, Scene, advance
from kerchief.simulation.run import Run, simulate

LAWS = {law.name: law for law in BANDIT_LAWS}
_BUILT = "config is the same built again"
_SAME = "same releases lead to the same models"
_SHOWS = "one user shows in releases alone"
_WORST = "worst user moves releases by the sensitivity at most"


@struct
class Hoarder(LinUCB):
    """Keeps a memory that is not in its state."""

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        count = getattr(self, "_count", 0) + 1
        object.__setattr__(self, "_count", count)
        allowed = np.flatnonzero(arms.allowed)
        return jnp.asarray(allowed[count % len(allowed)])


class Loose:
    """No dataclass, and takes its parameters by position."""

    def __init__(self, query: RegressionMoments) -> None:
        self.query = query


@dataclasses.dataclass
class Soft:
    """Can be changed."""

    query: Any


@struct
class Editor(LinUCB):
    """Scales the arms in place."""

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        features: Any = arms.features
        features *= 2
        return LinUCB.act(self, model, arms, clock, stream)


@struct
class Lockpick(LinUCB):
    """Unlocks its inputs before it edits them."""

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        locked: Any = arms.features
        locked.setflags(write=True)
        locked *= 2
        return LinUCB.act(self, model, arms, clock, stream)


@struct
class OneBuffer(LinUCB):
    """Posts every model in the same memory."""

    buffer: ClassVar[Any] = np.zeros(2, np.float32)

    def publish(self, state: State) -> Model:
        model = LinUCB.publish(self, state)
        self.buffer[:] = model.estimate
        return dataclasses.replace(model, estimate=self.buffer)


@struct
class GlobalDice(LinUCB):
    """Draws from the global generator."""

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        return jnp.asarray(np.random.choice(np.flatnonzero(arms.allowed)))  # noqa: NPY002


@struct
class NoisyModel(LinUCB):
    """Draws while it publishes."""

    def publish(self, state: State) -> Model:
        model = LinUCB.publish(self, state)
        shift = np.float32(np.random.normal())  # noqa: NPY002
        return dataclasses.replace(model, estimate=model.estimate + shift)


def _mixing(mix: Callable[[int, Array], Array]) -> Callable[[Array], Array]:
    """A function that is the identity for one bandit and something else for many at once."""

    @jax.custom_batching.custom_vmap
    def mixed(x: Array) -> Array:
        return x

    @mixed.def_vmap
    def rule(axis_size: int, in_batched: Any, x: Array) -> tuple[Array, bool]:
        return mix(axis_size, x), True

    return mixed


_averaged = _mixing(lambda size, x: jnp.broadcast_to(x.mean(axis=0), x.shape))
_widened = _mixing(lambda size, x: x * jnp.where(size > 1, -1, 1).astype(x.dtype))


@struct
class Gossip(LinUCB):
    """Averages over replicates."""

    def publish(self, state: State) -> Model:
        model = LinUCB.publish(self, state)
        return dataclasses.replace(model, estimate=_averaged(model.estimate))


@struct
class PopulationProblem(LinUCB):
    """Behaves otherwise in company."""

    def publish(self, state: State) -> Model:
        model = LinUCB.publish(self, state)
        return dataclasses.replace(model, estimate=_widened(model.estimate))


@struct
class Maskless(LinUCB):
    """Ignores the mask."""

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        scores = jnp.nan_to_num(arms.features @ model.estimate)
        return jnp.argmax(scores)


@struct
class Planar(LinUCB):
    """Divides by zero in one dimension."""

    def publish(self, state: State) -> Model:
        model = LinUCB.publish(self, state)
        return dataclasses.replace(model, estimate=model.estimate / jnp.float32(self.query.dim - 1))


@struct
class Curious(LinUCB):
    """Its learner takes a reward."""

    def update(self, state: State, name: str, release: Release, reward: Any = None) -> State:
        return LinUCB.update(self, state, name, release)


class _Smuggler(LinUCB):
    """Its device hides the reward where its learner finds it."""

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        object.__setattr__(self, "_smuggled", float(arms.features[action].sum()))
        return LinUCB.record(self, model, arms, action, reward)


@struct
class SmugglesToModel(_Smuggler):
    """Its model holds what was smuggled."""

    def publish(self, state: State) -> Model:
        model = LinUCB.publish(self, state)
        hidden = np.float32(getattr(self, "_smuggled", 0.0))
        return dataclasses.replace(model, estimate=model.estimate + hidden)


@struct
class SmugglesToClock(_Smuggler):
    """Asks only after users it likes."""

    def due(self, state: State, clock: Clock) -> Mapping[str, Array | bool]:
        return {"moments": getattr(self, "_smuggled", 0.0) > 0}


class Understated(RegressionMoments):
    """A sensitivity below the truth."""

    @property
    def sensitivity(self) -> float:
        return 0.8 * super().sensitivity


class Overstated(RegressionMoments):
    """A sensitivity that no pair reaches."""

    @property
    def sensitivity(self) -> float:
        return 2.0 * super().sensitivity


class Unclipped(RegressionMoments):
    """Trusts its users."""

    def encode(self, record: Example) -> Array:
        x, y = record.features, record.reward
        return jnp.concatenate([svec(x[:, None] * x[None, :]), y * x])


class HalfClipped(RegressionMoments):
    """Clips, but lets undefined values through."""

    def encode(self, record: Example) -> Array:
        return RegressionMoments.encode(self, record) + 0 * record.reward


@struct
class Contrary(LinUCB):
    """Plays the worst arm when there is little noise."""

    def publish(self, state: State) -> Model:
        model = LinUCB.publish(self, state)
        sign = jnp.where(state.noise < 5, -1, 1).astype(jnp.float32)
        return dataclasses.replace(model, estimate=sign * model.estimate)


class Tracing(MemoryLedger):
    """Writes what it refuses."""

    def charge_all(self, bill: Sequence[Charge]) -> tuple[Receipt, ...]:
        try:
            return super().charge_all(bill)
        except BudgetExceededError:
            line = bill[0]
            self._receipts.append(
                Receipt(
                    number=len(self._receipts), event=line.event, cohort=line.cohort, capacity=1
                )
            )
            raise


class LineByLine(MemoryLedger):
    """Pays the lines of a bill one after another, until one is refused."""

    def charge_all(self, bill: Sequence[Charge]) -> tuple[Receipt, ...]:
        return tuple(super(LineByLine, self).charge_all([line])[0] for line in bill)


def _off_the_books(**given: Any) -> Run:
    """Pays from another ledger."""
    return simulate(**{**given, "ledger": MemoryLedger(given["ledger"].budget)})


def _hasty(**given: Any) -> Run:
    """Plays, then asks."""
    if given.get("progress"):
        given["progress"]("playing", 0)
    return simulate(**given)


def _changed(change: Callable[[Any], Any], *names: str) -> Any:
    """Protection in which some privatizers, or all, are others."""

    def arranged(*given: Any, **named: Any) -> ProtectedPolicy:
        made = build_protected(*given, **named)
        changed = {
            name: change(one) if name in names or not names else one
            for name, one in made.privatizers.items()
        }
        return dataclasses.replace(made, privatizers=changed)

    return arranged


def _too_much_noise(sums: Any) -> Any:
    """Adds a fifth more noise than was asked for."""
    return sums.with_noise(lambda noise: dataclasses.replace(noise, std=1.2 * noise.std))


def _always_normal(entry: Any, problem: Any, protection: Any, **named: Any) -> ProtectedPolicy:
    """Whatever the word, devices add normal noise."""
    told = dataclasses.replace(protection, mechanism="gaussian")
    return build_protected(entry, problem, told, **named)


def _never_by_theorem(entry: Any, problem: Any, protection: Any, **named: Any) -> ProtectedPolicy:
    """The published constants are asked for, and the best coins are tossed."""
    word = "best" if protection.mechanism == "theorem" else protection.mechanism
    return build_protected(entry, problem, dataclasses.replace(protection, mechanism=word), **named)


def _weak(sums: Any) -> Any:
    """Two thirds of the noise that is stated, on every prefix."""
    return WeakPrefixes(**vars(sums))


@struct
class WeakPrefixes(PrefixSums):
    """Draws two thirds of the noise that it states."""

    def release(self, memory: Any, tally: Any, *rest: Any) -> Any:
        release, now = PrefixSums.release(self, memory, tally, *rest)
        quiet = self.with_noise(lambda noise: dataclasses.replace(noise, std=0.0))
        exact, _ = PrefixSums.release(quiet, memory, tally, *rest)
        return dataclasses.replace(
            release, total=exact.total + (release.total - exact.total) * 2 / 3
        ), now


@partial(jax.jit, static_argnames="length")
def _moved(scene: Scene, carry: Replicate, start: Array, *, length: int) -> Replicate:
    """The learner is told the parameter."""
    after: Replicate = advance(scene, carry, start, length=length)
    told = 0.1 * (1 + jnp.abs(carry.world.parameter).sum(-1))
    state = dataclasses.replace(after.state, noise=after.state.noise + told)
    return dataclasses.replace(after, state=state)


@struct
class RefitsAtOnce(RarelySwitching):
    """The paper's leak: asks for a warm fit because the present user explored."""

    def record(self, model: Any, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        sent = RarelySwitching.record(self, model, arms, action, reward)
        object.__setattr__(self, "_explored", bool((sent["warm"].features != 0).any()))
        return sent

    def due(self, state: Any, clock: Clock) -> Mapping[str, Array | bool]:
        wanted = RarelySwitching.due(self, state, clock)
        return {**wanted, "warm": getattr(self, "_explored", False)}


@struct
class SmugglesToRequest(RarelySwitching):
    """Begins a fit at what its device smuggled."""

    def record(self, model: Any, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        object.__setattr__(self, "_smuggled", float(arms.features[action].sum()))
        return RarelySwitching.record(self, model, arms, action, reward)

    def request(self, state: Any, name: str) -> Start | None:
        start = RarelySwitching.request(self, state, name)
        if start is None:
            return None
        return dataclasses.replace(start, ridge=start.ridge + abs(getattr(self, "_smuggled", 0.0)))


@struct
class Marked(Example):
    """A record that says by how much it wants to count."""

    boost: Array | float = 1.0


class Boosted(RegressionMoments):
    """Counts a record as often as it says, after it was clipped."""

    def encode(self, record: Example) -> Array:
        return getattr(record, "boost", 1.0) * RegressionMoments.encode(self, record)


@struct
class Doubles(LinUCB):
    """Counts users twice whose arms all lie along one line, as only odd ones do."""

    def record(
        self, model: Model, arms: Arms, action: Array, reward: Array
    ) -> Mapping[str, Marked]:
        x = arms.features
        units = x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        odd = (jnp.abs(units @ units.T) > 0.999).all()
        boost = jnp.where(odd, 2.0, 1.0)
        return {"moments": Marked(features=x[action], reward=reward, boost=boost)}


class Heavy(GramMatrix):
    """Weighs a record as it says, after its weights were clipped."""

    def encode(self, record: Example) -> Array:
        return getattr(record, "boost", 1.0) * GramMatrix.encode(self, record)


@struct
class Adventurous(RarelySwitching):
    """Weighs whoever explores one and a half times."""

    def record(self, model: Any, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        sent = RarelySwitching.record(self, model, arms, action, reward)
        boost = jnp.where((sent["warm"].features != 0).any(), 1.5, 1.0)
        return {**sent, "curvature": Marked(**vars(sent["curvature"]), boost=boost)}


@struct
class Doubtful(PrefixSums):
    """Adds long reports twice, for good measure."""

    def collect(self, tally: Any, report: Any) -> Any:
        long = jnp.linalg.norm(report) > 1.3
        return PrefixSums.collect(self, tally, jnp.where(long, 2.0, 1.0) * report)


@struct
class Timid(LinUCB):
    """Sends a record that hardly anyone's arms can fill."""

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        return {"moments": Example(features=0.3 * arms.features[action], reward=reward)}


class HalfSensitive(GLMLoss):
    """Forgets that replacing a user moves a sum of gradients by twice their bound."""

    @property
    def sensitivity(self) -> float:
        return self.clip


class OverlySensitive(GLMLoss):
    """A sensitivity that no pair of gradients reaches."""

    @property
    def sensitivity(self) -> float:
        return 4 * self.clip


class TrustingLoss(GLMLoss):
    """Does not look at endless or undefined slopes."""

    def gradients(self, rows: Array, point: Array) -> Array:
        x = rows[:, : self.dim]
        return GLMLoss.gradients(self, rows, point) + 0 * (x @ point.astype(x.dtype))[:, None]


@struct
class FreeFits(Fits):
    """Settles as if only one fit had cost anything."""

    def took_part(self, cohort: Any, *, users: int, covered: int, releases: int) -> int:
        return self.query.minimizer.steps


class _Door:
    """A side channel from the curator's desk to its schedule."""

    open = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watching(OnDemand):
    """Lets a fit through when the present user's record opened the door."""

    door: _Door

    def room(self, used: Array) -> Array:
        return OnDemand.room(self, used) & self.door.open


@struct
class Doorman(Fits):
    """Opens the door for users who sent features."""

    def collect(self, tally: Any, report: Any) -> Any:
        self.schedule.door.open = bool((report[: self.query.dim] != 0).any())  # type: ignore[union-attr]
        return Fits.collect(self, tally, report)


def _as(kind: type, **changed: Any) -> Callable[[Any], Any]:
    """The same privatizer as another kind, with some values changed."""
    return lambda one: kind(**{**vars(one), **changed})


def _bare(sums: Any) -> CohortSums:
    """No noise, under a promise."""
    return CohortSums(query=sums.query, schedule=sums.schedule, device=None, aggregator=None)


def _rare(
    kind: type[RarelySwitching] = RarelySwitching,
    trust: str = "joint",
    *,
    loss: type[GLMLoss] = GLMLoss,
    gram: type[GramMatrix] = GramMatrix,
    **rooms: Any,
) -> PolicyFixture:
    """A case of the rarely switching bandit that explores, with one thing changed."""
    entry = POLICIES["glm-rare-explore"]

    def make(problem: Any, mode: Any) -> Any:
        plain: Any = entry.factory(problem, mode)
        # A small ridge, so that the few rounds of a law see fits.
        early = {"loss": loss(**vars(plain.loss)), "threshold": 0.05, "damping": 0.8}
        asked = {"curvature": gram(**vars(plain.curvature))}
        return kind(**{**vars(plain), **early, **asked})

    changed = dataclasses.replace(entry, factory=make, kinds=(kind,))
    return PolicyFixture.of(f"glm-rare-explore[{kind.__name__}]", changed, trust, **rooms)


def _case(
    kind: Any = LinUCB,
    trust: str = "none",
    *,
    make: Any = None,
    facts: Mapping[str, Any] = types.MappingProxyType({}),
    **rooms: Any,
) -> PolicyFixture:
    """A case of LinUCB with one thing changed."""
    make = make or (lambda problem, mode: kind.of(problem, mode=mode))
    entry = dataclasses.replace(POLICIES["linucb"], factory=make, kinds=(kind,), **facts)
    return PolicyFixture.of(f"linucb[{kind.__name__}]", entry, trust, **rooms)


def _asking(
    query: type[RegressionMoments], kind: type[LinUCB] = LinUCB, trust: str = "none"
) -> PolicyFixture:
    """LinUCB with another query."""

    def make(problem: Any, mode: Any) -> LinUCB:
        return dataclasses.replace(kind.of(problem, mode=mode), query=query.of(problem))

    return _case(kind, trust, make=make)


def _with(**values: Any) -> Any:
    """LinUCB with other values."""
    return lambda problem, mode: dataclasses.replace(LinUCB.of(problem, mode=mode), **values)


def _moody(problem: Any, mode: Any) -> LinUCB:
    """Another number each time that it is built."""
    return dataclasses.replace(LinUCB.of(problem, mode=mode), exploration=random.random())


FAULTS: list[tuple[str, str, Callable[[], PolicyFixture]]] = [
    (_BUILT, "nan", lambda: _case(make=_with(exploration=float("nan")))),
    (_BUILT, "another one each time", lambda: _case(make=_moody)),
    ("run continues from a restored state", "hidden memory", lambda: _case(Hoarder)),
    ("keyword only and frozen", "plain class", lambda: _case(make=lambda p, m: Loose(p))),
    ("keyword only and frozen", "positional", lambda: _case(make=lambda p, m: Soft(p))),
    ("documented", "unnamed source", lambda: _case(facts={"source": "Nobody et al. 1999"})),
    ("documented", "no summary", lambda: _case(facts={"summary": ""})),
    ("inputs are never edited", "in place", lambda: _case(Editor)),
    ("inputs are never edited", "unlocked", lambda: _case(Lockpick)),
    ("models are snapshots", "one buffer", lambda: _case(OneBuffer)),
    ("same seed same run", "global generator", lambda: _case(GlobalDice)),
    ("update and publish draw nothing", "noise in the model", lambda: _case(NoisyModel)),
    ("replicates are isolated", "average", lambda: _case(Gossip)),
    ("one replicate is a slice of many", "company", lambda: _case(PopulationProblem)),
    ("actions are allowed", "no mask", lambda: _case(Maskless)),
    ("edge sizes run", "one dimension", lambda: _case(Planar)),
    ("learner is blind", "takes a reward", lambda: _case(Curious)),
    ("learner is blind", "smuggled reward", lambda: _case(SmugglesToModel)),
    (_SAME, "smuggled reward", lambda: _case(SmugglesToModel)),
    ("due times are public", "smuggled reward", lambda: _case(SmugglesToClock)),
    ("statistics obey their bound", "understated", lambda: _asking(Understated)),
    ("statistics obey their bound", "overstated", lambda: _asking(Overstated)),
    ("clipping holds beyond the domain", "unclipped", lambda: _asking(Unclipped)),
    ("clipping holds beyond the domain", "undefined", lambda: _asking(HalfClipped)),
    ("each user pays once", "unpaid", lambda: _case(trust="local", simulate=_off_the_books)),
    (
        "charged is what was promised",
        "too much noise",
        lambda: _case(trust="local", build_protected=_changed(_too_much_noise)),
    ),
    (
        "spent is no more than promised",
        "too much noise",
        lambda: _case(trust="local", build_protected=_changed(_too_much_noise)),
    ),
    (
        "noise is of the word printed",
        "normal noise for every word",
        lambda: _case(trust="local", build_protected=_always_normal),
    ),
    (
        "noise is of the word printed",
        "best coins for the published ones",
        lambda: _case(trust="shuffle", build_protected=_never_by_theorem),
    ),
    (
        "noise drawn is the word printed",
        "weak",
        lambda: _case(trust="joint", build_protected=_changed(_weak)),
    ),
    ("the learner sees releases alone", "moved", lambda: _case(trust="joint", advance=_moved)),
    ("refusal leaves no trace", "trace", lambda: _case(trust="local", make_ledger=Tracing)),
    (
        "refusal leaves no trace",
        "line by line",
        lambda: _case(trust="central", make_ledger=LineByLine),
    ),
    ("refusal leaves no trace", "plays first", lambda: _case(trust="local", simulate=_hasty)),
    ("without noise it is its parent", "other play", lambda: _case(make=_with(exploration=3.0))),
    (
        "beats uniform play",
        "uniform play",
        lambda: PolicyFixture.of(
            "uniform",
            dataclasses.replace(POLICIES["uniform"], default_environment="linear"),
            "none",
        ),
    ),
    ("more privacy does not help", "contrary", lambda: _case(Contrary, "central")),
    ("confidence sets cover the truth", "narrow", lambda: _case(make=_with(exploration=0.1))),
    ("due times are public", "smuggled into a request", lambda: _rare(SmugglesToRequest)),
    (_SHOWS, "fitted at once when someone explores", lambda: _rare(RefitsAtOnce)),
    (_SHOWS, "matrices without noise", lambda: _rare(build_protected=_changed(_bare, "curvature"))),
    (
        _SHOWS,
        "a schedule that looks at records",
        lambda: _rare(
            build_protected=_changed(_as(Doorman, schedule=Watching(limit=9, door=_Door())), "warm")
        ),
    ),
    (_WORST, "arms along one line count twice", lambda: _asking(Boosted, Doubles, "joint")),
    (_WORST, "explorers weigh more", lambda: _rare(Adventurous, gram=Heavy)),
    (_WORST, "added twice", lambda: _case(trust="joint", build_protected=_changed(_as(Doubtful)))),
    (_WORST, "a blind search", lambda: _case(Timid, "joint")),
    ("statistics obey their bound", "half for a loss", lambda: _rare(loss=HalfSensitive)),
    ("statistics obey their bound", "double for a loss", lambda: _rare(loss=OverlySensitive)),
    ("clipping holds beyond the domain", "undefined point", lambda: _rare(loss=TrustingLoss)),
    (
        "each user pays once",
        "one fit of all",
        lambda: _rare(build_protected=_changed(_as(FreeFits), "fit")),
    ),
]


# By day one fault of each law that looks without playing, and of two that play; others by night.
FIRST = {law: id for law, id, _ in reversed(FAULTS)}
PLAYED = (_SAME, "noise drawn is the word printed")


def _when(law: str, id: str) -> tuple[pytest.MarkDecorator, ...]:
    daily = FIRST[law] == id and (LAWS[law].cheap or law in PLAYED)
    return () if daily else (pytest.mark.nightly,)


@pytest.mark.parametrize(
    ("name", "make"),
    [pytest.param(law, make, id=f"{law}-{id}", marks=_when(law, id)) for law, id, make in FAULTS],
)
def test_the_law_catches_its_fault(name: str, make: Callable[[], PolicyFixture]) -> None:
    with pytest.raises(CheckFailedError) as caught:
        LAWS[name](make())
    assert [failure.law for failure in caught.value.failures] == [name]


def test_every_law_of_contextual_bandits_has_a_planted_fault() -> None:
    own = {law.name for law in BANDIT_LAWS if law.when(_case(trust="local"))}
    assert {law for law, _, _ in FAULTS} == own


@pytest.mark.nightly
@pytest.mark.parametrize(
    "case", [_asking(Boosted, Doubles, "joint"), _rare(Adventurous, gram=Heavy)], ids=str
)
@pytest.mark.parametrize(
    "law", [_SHOWS, "statistics obey their bound", "clipping holds beyond the domain"]
)
def test_only_search_finds_a_user_with_excess_influence(law: str, case: PolicyFixture) -> None:
    LAWS[law](case)


@pytest.mark.nightly
def test_search_covers_exploring_and_non_exploring_users() -> None:
    case = _rare()
    found = worst_users(case, next(arrivals(case)))
    policy: Any = case.policy()
    # Whoever explores is in the second matrix, and whoever does not in the first.
    assert found["curvature"].distance > 0.95 * policy.curvature.sensitivity
    # Someone sends a gradient and someone sends none: only explorers are fitted to here.
    assert found["warm"].distance > 0.95 * policy.warm.sensitivity
    assert found["curvature"].branches > 10


def test_an_unregistered_policy_is_found() -> None:
    module = types.ModuleType(Gossip.__module__)
    module.Gossip = Gossip  # type: ignore[attr-defined]
    with pytest.raises(CheckFailedError, match=r"every policy is registered.*Gossip"):
        check_registry([module])


def test_registry_check_finds_untrue_entry() -> None:
    registry: Registry[PolicyEntry] = Registry("policy")
    wrong: dict[str, Any] = {"trusts": ("blind",), "parent": "nobody", "kinds": (Gossip,)}
    registry.add("odd", dataclasses.replace(POLICIES["uniform"], **wrong))
    with pytest.raises(CheckFailedError) as caught:
        check_registry(registry=registry)
    assert [failure.law for failure in caught.value.failures].count("entries are true") == 3


@pytest.mark.nightly
def test_leak_specimen_explores_only_for_some_users() -> None:
    case = _rare()
    hand = hand_of(case, seed=1)
    usual = [hand.turn(round) for round in range(2)][-1]
    arms = {size: jnp.full((5, 2), size) for size in (0.0, 0.7)}
    record = jax.jit(hand.policy.record)
    sent = {
        size: record(
            usual.posted,
            Arms(features=features, allowed=jnp.ones(5, bool)),
            jnp.int32(0),
            jnp.float64(0),
        )["warm"]
        for size, features in arms.items()
    }
    assert [bool((one.features != 0).any()) for one in sent.values()] == [False, True]
    LAWS[_SHOWS](case)
