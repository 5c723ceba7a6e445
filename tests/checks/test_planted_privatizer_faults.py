"""Broken privatizers, each of which the very law that it breaks must catch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import pytest
from jax import Array

from kerchief.checks import CheckFailed, Protocol, yield_privatizer_checks
from kerchief.core.contracts import BoundedSum, Clock, Release, Tree
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.discrete_tree import DiscreteTree
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.tree import Tree as BinaryTree
from kerchief.privatizers import TRUSTS, At, CohortSums, OnDemand, PrefixSums
from kerchief.privatizers.registry import Entry
from kerchief.privatizers.sums import Memory, Tally

LAWS = dict(yield_privatizer_checks())


@struct
class Biased(CohortSums):
    """Shifts what it releases."""

    def release(
        self, memory: Memory, tally: Tally, clock: Clock, stream: Any
    ) -> tuple[Release, Memory]:
        release, now = CohortSums.release(self, memory, tally, clock, stream)
        return dataclasses.replace(release, total=release.total + 0.3 * release.noise), now


@struct
class Boastful(CohortSums):
    """States half as much noise again as it adds."""

    def _noise(self, users: Array, releases: Array) -> Array:
        return 1.5 * CohortSums._noise(self, users, releases)


@struct
class Modest(CohortSums):
    """States two thirds of the noise that it adds."""

    def _noise(self, users: Array, releases: Array) -> Array:
        return CohortSums._noise(self, users, releases) / 1.5


@struct
class Chatty(CohortSums):
    """Adds noise though it promises nothing."""

    def randomize(self, record: Tree, stream: Any) -> Any:
        return CohortSums.randomize(self, record, stream) + 0.01 * stream.normal(self.query.size)


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

    def randomize(self, record: Any, stream: Any) -> Any:
        return CohortSums.randomize(self, record, stream) + jnp.nan_to_num(record.reward) * 1e-3


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
) -> Protocol:
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
            middle=rebuilt(plain.middle, query),
        )

    return Protocol.of(trust, Entry(make=make, summary="a planted fault"))


@struct
class FaintSeeds(BLT):
    """Two thirds of the seed noise that it charges for."""

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        return BLT.step(dataclasses.replace(self, std=self.std * 2 / 3), state, round, stream)


@struct
class Unconnected(BLT):
    """The stated deviation at every step, drawn afresh, though all but the drift was paid for."""

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        return self.std_at(round + 1) * stream.normal(state.shape[1]), state


@struct
class Narrow(BLT):
    """Forgets that one user enters every later release."""

    @property
    def column_norm(self) -> float:
        return 1.0


@struct
class Redrawn(BinaryTree):
    """Draws a block's noise again at every use."""

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        return self.std_at(round + 1) * stream.normal(state.shape[1]), state


@dataclasses.dataclass(frozen=True, kw_only=True)
class RedrawnTwin(DiscreteTree):
    """Draws a block's exact noise again at every use."""

    def step(self, state: Any, round: Any, stream: Any) -> Any:
        blocks = (int(round) + 1).bit_count()
        draws = [self.node.add(jnp.zeros(state.shape[1]), stream) for _ in range(blocks)]
        return sum(draws), state


@struct
class CarelessTwin(PrefixSums):
    """Its twin's tree is not one."""

    def exact(self) -> PrefixSums:
        twin: Any = PrefixSums.exact(self).noise
        tree = RedrawnTwin(node=twin.node, horizon=twin.horizon)
        return PrefixSums(query=self.query, schedule=self.schedule, noise=tree)


def _joint(noise: type[BLT | BinaryTree], kind: type[PrefixSums] = PrefixSums) -> Protocol:
    """The privatizer of joint trust with other noise."""

    def make(query: BoundedSum, noise_multiplier: float, horizon: int) -> PrefixSums:
        plain: Any = (BinaryTree if noise is Redrawn else BLT).of(
            noise_multiplier=noise_multiplier, sensitivity=query.sensitivity, horizon=horizon
        )
        changed: Any = {"std": plain.std / plain.column_norm} if noise is Narrow else {}
        made: ContinualNoise = noise(**{**vars(plain), **changed})
        return kind(query=query, schedule=TRUSTS["joint"].make(query, 1.0, 1).schedule, noise=made)

    return Protocol.of("joint", Entry(make=make, summary="a planted fault"))


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
    ("charges compose to the guarantee", "too little noise", _made(multiplier=0.99)),
    ("charges compose to the guarantee", "too much noise", _made("central", multiplier=1.01)),
    ("matrix noise is isometric", "every entry alike", _made(noise=Lopsided)),
    ("order carries nothing", "late ones weigh more", _made(kind=Fading)),
    ("order carries nothing", "first one dropped", _made(kind=Forgetful)),
    ("clips before noise", "not clipped", _made(kind=Trusting)),
    ("noise off gives prefix totals", "counted twice", _made(kind=Doubling)),
    (
        "releases fall on schedule",
        "after every round",
        _made("central", schedule=Impatient(ends=(50, 120))),
    ),
    ("capacity is enforced", "no limit", _made("central", schedule=Generous(limit=3))),
    ("exact twin has the same law", "half the noise", _made(kind=ThinTwin)),
    ("exact twin has the same law", "blocks drawn again", _joint(BLT, CarelessTwin)),
    ("exact twin fits the budget", "a little less noise", _made(kind=DearTwin)),
    ("idealized is honest", "false word", _made(kind=Pretender)),
    ("idealized is honest", "float noise", _made(noise=Gilded)),
    ("audit finds no more than promised", "a third of the noise", _made(noise=Weak)),
]


@pytest.mark.parametrize(
    ("name", "protocol"), [pytest.param(law, p, id=f"{law}-{id}") for law, id, p in FAULTS]
)
def test_the_law_catches_its_fault(name: str, protocol: Protocol) -> None:
    with pytest.raises(CheckFailed) as caught:
        LAWS[name](protocol)
    assert [failure.law for failure in caught.value.failures] == [name]
    assert caught.value.failures[0].expected != "no error" or "BudgetExceeded" in str(caught.value)


def test_every_law_has_a_planted_fault() -> None:
    assert {law for law, _, _ in FAULTS} == set(LAWS)
