"""Broken privatizers, each of which the very law that it breaks must catch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import pytest
from jax import Array

from kerchief.checks import PRIVATIZER_LAWS, CheckFailedError, PrivatizerCase, privatizer_cases
from kerchief.core.contracts import BoundedSum, Clock, FitRelease, Release, Tree
from kerchief.core.losses import GLMLoss
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.tree import Tree as BinaryTree
from kerchief.privacy.receipts import Charge
from kerchief.privatizers import TRUSTS, At, CohortSums, OnDemand, PrefixSums
from kerchief.privatizers.fits import Fits, History
from kerchief.privatizers.registry import PrivatizerEntry
from kerchief.privatizers.sums import Memory, Tally

LAWS = {law.name: law for law in PRIVATIZER_LAWS}
_MOVES = "one user moves a release by the sensitivity at most"
_FRESH = "successive releases differ by fresh noise"


@struct
class Biased(CohortSums):
    """Shifts what it releases."""

    def release(
        self, memory: Memory, tally: Tally, request: Any, clock: Clock, stream: Any
    ) -> tuple[Release, Memory]:
        release, now = CohortSums.release(self, memory, tally, request, clock, stream)
        return dataclasses.replace(release, total=release.total + 0.3 * release.noise), now


@struct
class Boastful(CohortSums):
    """States half as much noise again as it adds."""

    def noise_after(self, users: Array, releases: Array) -> Array:
        return 1.5 * CohortSums.noise_after(self, users, releases)


@struct
class Modest(CohortSums):
    """States two thirds of the noise that it adds."""

    def noise_after(self, users: Array, releases: Array) -> Array:
        return CohortSums.noise_after(self, users, releases) / 1.5


@struct
class Chatty(CohortSums):
    """Adds noise though it promises nothing."""

    def randomize(self, record: Tree, clock: Clock, stream: Any) -> Any:
        return CohortSums.randomize(self, record, clock, stream) + 0.01 * stream.normal(
            self.query.size
        )


@struct
class Flat(Gaussian):
    """Uniform noise of the right deviation."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return vector + self.std * math.sqrt(3) * (2 * stream.uniform(vector.shape[0]) - 1)


@struct
class Lopsided(Gaussian):
    """Noise that is independent for each entry of the matrix, as if it were not symmetric."""

    def add(self, vector: Array, stream: Stream) -> Array:
        scale = jnp.ones(vector.shape[0]).at[1].set(math.sqrt(2))
        return vector + self.std * scale * stream.normal(vector.shape[0])


@struct
class Weak(Gaussian):
    """A third of the noise that it charges for."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return vector + self.std / 3 * stream.normal(vector.shape[0])


@struct
class Fading(CohortSums):
    """Weighs late reports more."""

    def collect(self, tally: Tally, report: Array) -> Tally:
        return Tally(total=0.5 * tally.total + report)


@struct
class Forgetful(CohortSums):
    """Drops the first report, in any order that it comes."""

    def collect(self, tally: Tally, report: Array) -> Tally:
        return CohortSums.collect(self, tally, jnp.where((tally.total == 0).all(), 1e-9, report))


@struct
class Trusting(CohortSums):
    """Adds something that was not clipped."""

    def randomize(self, record: Any, clock: Clock, stream: Any) -> Any:
        return (
            CohortSums.randomize(self, record, clock, stream) + jnp.nan_to_num(record.reward) * 1e-3
        )


@struct
class Doubling(CohortSums):
    """Forgets to clear the tally, so that early users are counted twice."""

    def clear(self, tally: Tally) -> Tally:
        return tally


@dataclasses.dataclass(frozen=True, kw_only=True)
class Impatient(At):
    """Ends a batch after every round."""

    def ready(self, clock: Clock) -> Array:
        return jnp.asarray(True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generous(OnDemand):
    """Serves more than it charges for."""

    def room(self, used: Array) -> Array:
        return used < 10**6


@struct
class ThinTwin(CohortSums):
    """Its twin adds half of the noise."""

    def exact(self) -> CohortSums:
        return _scaled_twin(self, 0.5)


@struct
class DearTwin(CohortSums):
    """Its twin costs a little more than was promised."""

    def exact(self) -> CohortSums:
        return _scaled_twin(self, 0.98)


@struct
class Gilded(Gaussian):
    """Float noise that calls itself exact."""

    idealized: ClassVar[bool] = False


@struct
class Pretender(CohortSums):
    """Calls its float noise fit for deployment."""

    @property
    def idealized(self) -> bool:
        return False


def _scaled_twin(sums: CohortSums, factor: float) -> CohortSums:
    twin: Any = CohortSums.exact(sums)
    device = dataclasses.replace(twin.device, scale=round(twin.device.scale * factor))
    changed: CohortSums = dataclasses.replace(twin, device=device)
    return changed


def _made(
    trust: str = "local",
    *,
    kind: type[CohortSums] = CohortSums,
    noise: type[Gaussian] = Gaussian,
    multiplier: float = 1.0,
    sensitivity: float = 1.0,
    schedule: Any = None,
) -> PrivatizerCase:
    """The privatizer of a trust with one thing changed."""

    def rebuilt(old: Any, query: BoundedSum) -> Gaussian | None:
        if old is None:
            return None
        bound = sensitivity * query.sensitivity
        return noise(std=old.std * multiplier * sensitivity, sensitivity=bound)

    def make(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
        plain: Any = TRUSTS[trust].make(query, noise_multiplier, horizon)
        return kind(
            query=query,
            schedule=schedule or plain.schedule,
            device=rebuilt(plain.device, query),
            aggregator=rebuilt(plain.aggregator, query),
        )

    return PrivatizerCase.of(trust, PrivatizerEntry(make=make, summary="a planted fault"))


@struct
class FaintSeeds(ContinualNoise):
    """Two thirds of the seed noise that it charges for."""

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        return ContinualNoise.step(
            dataclasses.replace(self, std=self.std * 2 / 3), state, round, stream
        )


@struct
class Unconnected(ContinualNoise):
    """The stated deviation at every step, drawn afresh, though all but the drift was paid for."""

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        return self.std_at(round + 1) * stream.normal(state.shape[1]), state


@struct
class Narrow(ContinualNoise):
    """Forgets that one user enters every later release."""

    @property
    def column_norm(self) -> float:
        return 1.0


@struct
class Redrawn(ContinualNoise):
    """Draws a block's noise again at every use."""

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        return self.std_at(round + 1) * stream.normal(state.shape[1]), state


@struct
class OneForAll(Gaussian):
    """Adds the same noise to every cohort."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return Gaussian.add(self, vector, dataclasses.replace(stream, round=jnp.uint32(0)))


@struct
class Stale(ContinualNoise):
    """Draws once, and gives every prefix that noise."""

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        first = dataclasses.replace(stream, round=jnp.uint32(0))
        return ContinualNoise.step(self, state, jnp.int32(0), first)[0], state


@struct
class EveryOther(ContinualNoise):
    """Draws a seed for every second prefix, and uses it twice."""

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        return ContinualNoise.step(
            self, state, round, dataclasses.replace(stream, round=stream.round // 2)
        )


class Frozen:
    """Exact noise that is drawn at the first prefix of a stream and used ever after."""

    def __init__(self, noise: Any) -> None:
        self.noise = noise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.noise, name)

    def step(self, state: Any, round: Any, stream: Any) -> Any:
        if int(round) == 0:
            self.first, _ = self.noise.step(state, round, stream)
        return self.first, state


@struct
class StaleTwin(PrefixSums):
    """Its twin draws once."""

    def exact(self) -> PrefixSums:
        return PrefixSums.exact(self).with_noise(Frozen)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RedrawnTwin(ExactContinualNoise):
    """Draws the earlier seeds' share again at every use."""

    def step(self, state: Any, round: Any, stream: Any) -> Any:
        seed = self.seeds[0].add(jnp.zeros(state.shape[1]), stream)
        others = self.seeds[0].add(jnp.zeros(state.shape[1]), stream) / self.grid
        share = jnp.sqrt((self.std_at(int(round) + 1) / self.std) ** 2 - 1)
        return seed + jnp.rint(share * others) * self.grid, state


@struct
class CarelessTwin(PrefixSums):
    """Its twin's noise has no memory."""

    def exact(self) -> PrefixSums:
        twin: Any = PrefixSums.exact(self).noise
        redrawn = RedrawnTwin(**vars(twin))
        return PrefixSums(query=self.query, schedule=self.schedule, noise=redrawn)


def _joint(noise: type[ContinualNoise], kind: type[PrefixSums] = PrefixSums) -> PrivatizerCase:
    """The privatizer of joint trust with other noise."""

    def make(query: BoundedSum, noise_multiplier: float, horizon: int) -> PrefixSums:
        factor = (BinaryTree if noise is Redrawn else BLT.of)(horizon=horizon)
        plain: Any = ContinualNoise.of(
            factor, noise_multiplier=noise_multiplier, sensitivity=query.sensitivity
        )
        changed: Any = {"std": plain.std / plain.column_norm} if noise is Narrow else {}
        made = noise(**{**vars(plain), **changed})
        return kind(query=query, schedule=TRUSTS["joint"].make(query, 1.0, 1).schedule, noise=made)

    return PrivatizerCase.of("joint", PrivatizerEntry(make=make, summary="a planted fault"))


@struct
class BiasedFits(Fits):
    """Shifts what it fits."""

    def release(self, *given: Any) -> tuple[FitRelease, Tree]:
        fitted, memory = Fits.release(self, *given)
        return dataclasses.replace(fitted, point=fitted.point + 0.3 * fitted.noise), memory


@struct
class BoastfulFits(Fits):
    """States half as much noise again as it adds."""

    def release(self, *given: Any) -> tuple[FitRelease, Tree]:
        fitted, memory = Fits.release(self, *given)
        return dataclasses.replace(fitted, noise=1.5 * fitted.noise), memory


@struct
class LooseFits(Fits):
    """Without noise, stops short of the minimizer."""

    def release(self, *given: Any) -> tuple[FitRelease, Tree]:
        fitted, memory = Fits.release(self, *given)
        return dataclasses.replace(fitted, point=0.9 * fitted.point), memory


@struct
class FadingFits(Fits):
    """Weighs late rows more."""

    def collect(self, tally: History, report: Array) -> History:
        return Fits.collect(self, tally, report * (1 + tally.count) / 12)


@struct
class LatestFits(Fits):
    """Fits to those alone who came since the last fit."""

    def clear(self, tally: History) -> History:
        return dataclasses.replace(tally, rows=0 * tally.rows)


@struct
class PeekingFits(Fits):
    """Fits anew only when the newest user has sent features: the paper's refit at once."""

    def open(self) -> tuple[Tree, History]:
        return jnp.zeros(self.query.dim * self.query.minimizer.steps), Fits.open(self)[1]

    def release(
        self, memory: Tree, tally: History, request: Any, clock: Clock, stream: Any
    ) -> tuple[FitRelease, Tree]:
        fitted, _ = Fits.release(self, (), tally, request, clock, stream)
        explored = (tally.rows[tally.count - 1, : self.query.dim] != 0).any()
        point = jnp.where(explored, fitted.point, memory)
        return dataclasses.replace(fitted, point=point), point


@struct
class OneFitFits(Fits):
    """Charges for one fit, however many there are."""

    def charges(self, horizon: int) -> tuple[Charge, ...]:
        (whole,) = Fits.charges(self, horizon)
        return (dataclasses.replace(whole, capacity=self.query.minimizer.steps),)


@struct
class ThinTwinFits(Fits):
    """Its twin adds half of the noise."""

    def exact(self) -> Fits:
        return _scaled_fits(self, 0.5)


@struct
class DearTwinFits(Fits):
    """Its twin costs a little more than was promised."""

    def exact(self) -> Fits:
        return _scaled_fits(self, 0.98)


def _scaled_fits(fits: Fits, factor: float) -> Fits:
    twin = Fits.exact(fits)
    return Fits.with_noise(
        twin, lambda noise: dataclasses.replace(noise, scale=round(noise.scale * factor))
    )


@struct
class OneDraw(Gaussian):
    """Adds the same noise in every step of a fit."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return Gaussian.add(self, vector, stream.split(0))


@struct
class Faint(Gaussian):
    """Two thirds of the noise that it charges for."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return vector + self.std * 2 / 3 * stream.normal(vector.shape[0])


class Unclipped(GLMLoss):
    """Trusts its users, and that gradients are short."""

    def encode(self, record: Any) -> Array:
        return jnp.nan_to_num(jnp.append(record.features, record.reward))

    def gradients(self, rows: Array, point: Array) -> Array:
        return GLMLoss(**{**vars(self), "clip": 1e9}).gradients(rows, point)


def _fitting(
    trust: str = "joint",
    *,
    kind: type[Fits] = Fits,
    noise: type[Gaussian] = Gaussian,
    asked: type[GLMLoss] = GLMLoss,
    sensitivity: float = 1.0,
    schedule: Any = None,
) -> PrivatizerCase:
    """The fits of a trust with one thing changed."""

    def make(query: Any, noise_multiplier: float, horizon: int) -> Fits:
        plain: Any = Fits.of(query, noise_multiplier=noise_multiplier or None, horizon=horizon)
        changed = None if plain.noise is None else _rebuilt(plain.noise)
        when = schedule or plain.schedule
        return kind(query=asked(**vars(query)), schedule=when, horizon=horizon, noise=changed)

    def _rebuilt(old: Any) -> Gaussian:
        return noise(std=old.std * sensitivity, sensitivity=old.sensitivity * sensitivity)

    entry = dataclasses.replace(TRUSTS[trust], fit=make)
    return list(privatizer_cases(trust, entry))[1]


FAULTS = [
    ("noise has mean zero", "shifted", _made(kind=Biased)),
    ("noise has the stated deviation", "states 3/2", _made(kind=Boastful)),
    ("noise has the stated deviation", "states 2/3", _made(kind=Modest)),
    ("noise has the stated deviation", "noise for nothing", _made("none", kind=Chatty)),
    ("noise is normal", "uniform noise", _made(noise=Flat)),
    ("noise is what was charged", "understated sensitivity", _made(sensitivity=2 / 3)),
    ("noise is what was charged", "less than charged", _made("central", noise=Weak)),
    ("noise is what was charged", "two thirds of the seeds", _joint(FaintSeeds)),
    ("noise is what was charged", "drawn afresh at every step", _joint(Unconnected)),
    ("noise is what was charged", "without the column norm", _joint(Narrow)),
    ("noise is what was charged", "blocks drawn again", _joint(Redrawn)),
    (_FRESH, "one noise for all cohorts", _made("central", noise=OneForAll)),
    (_FRESH, "one noise for all prefixes", _joint(Stale)),
    (_FRESH, "seeds used twice", _joint(EveryOther)),
    (_FRESH, "a twin that draws once", _joint(ContinualNoise, StaleTwin)),
    ("charges compose to the guarantee", "too little noise", _made(multiplier=0.99)),
    ("charges compose to the guarantee", "too much noise", _made("central", multiplier=1.01)),
    ("matrix noise is isometric", "every entry alike", _made(noise=Lopsided)),
    ("order carries nothing", "late ones weigh more", _made(kind=Fading)),
    ("order carries nothing", "first one dropped", _made(kind=Forgetful)),
    (_MOVES, "not clipped", _made(kind=Trusting)),
    ("noise off gives the truth", "counted twice", _made(kind=Doubling)),
    (
        "releases fall on schedule",
        "after every round",
        _made("central", schedule=Impatient(ends=(50, 120))),
    ),
    ("capacity is enforced", "no limit", _made("central", schedule=Generous(limit=3))),
    ("exact twin has the same law", "half the noise", _made(kind=ThinTwin)),
    ("exact twin has the same law", "seeds drawn again", _joint(ContinualNoise, CarelessTwin)),
    ("exact twin fits the budget", "a little less noise", _made(kind=DearTwin)),
    ("idealized is honest", "false word", _made(kind=Pretender)),
    ("idealized is honest", "float noise", _made(noise=Gilded)),
    ("audit finds no more than promised", "a third of the noise", _made(noise=Weak)),
    ("noise has mean zero", "shifted fits", _fitting(kind=BiasedFits)),
    ("noise has the stated deviation", "fits state 3/2", _fitting(kind=BoastfulFits)),
    ("noise has the stated deviation", "loose fits", _fitting("none", kind=LooseFits)),
    ("noise is normal", "uniform noise on gradients", _fitting(noise=Flat)),
    ("noise is what was charged", "noise for half the sensitivity", _fitting(sensitivity=0.5)),
    ("noise is what was charged", "gradients with two thirds", _fitting(noise=Faint)),
    ("noise is what was charged", "one draw for all steps", _fitting(noise=OneDraw)),
    (_FRESH, "one draw for all steps", _fitting(noise=OneDraw)),
    ("charges compose to the guarantee", "one fit of all", _fitting(kind=OneFitFits)),
    ("order carries nothing", "late rows weigh more", _fitting(kind=FadingFits)),
    (_MOVES, "gradients not clipped", _fitting(asked=Unclipped)),
    (_MOVES, "fitted when someone explores", _fitting(kind=PeekingFits)),
    ("noise off gives the truth", "fits to newcomers", _fitting(kind=LatestFits)),
    ("capacity is enforced", "endless fits", _fitting(schedule=Generous(limit=7))),
    ("exact twin has the same law", "half of it on gradients", _fitting(kind=ThinTwinFits)),
    ("exact twin fits the budget", "a little less on gradients", _fitting(kind=DearTwinFits)),
    ("idealized is honest", "float noise on gradients", _fitting(noise=Gilded)),
    ("audit finds no more than promised", "a third on gradients", _fitting(noise=Weak)),
]


# By day one fault of each of these laws; the others by night.
FIRST = {law: id for law, id, _ in reversed(FAULTS)}
DAILY = (
    "noise has the stated deviation",
    "noise is what was charged",
    _FRESH,
    "charges compose to the guarantee",
    "releases fall on schedule",
    "exact twin fits the budget",
    "idealized is honest",
)


def _when(law: str, id: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if FIRST[law] == id and law in DAILY else (pytest.mark.nightly,)


@pytest.mark.parametrize(
    ("name", "protocol"),
    [pytest.param(law, p, id=f"{law}-{id}", marks=_when(law, id)) for law, id, p in FAULTS],
)
def test_the_law_catches_its_fault(name: str, protocol: PrivatizerCase) -> None:
    with pytest.raises(CheckFailedError) as caught:
        LAWS[name](protocol)
    assert [failure.law for failure in caught.value.failures] == [name]
    assert caught.value.failures[0].expected != "no error" or "Exceeded" in str(caught.value)


def test_every_law_has_a_planted_fault() -> None:
    assert {law for law, _, _ in FAULTS} == set(LAWS)
