"""Broken bandits without contexts, each of which the very law that it breaks must catch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.checks import BANDIT_LAWS, CheckFailedError, PolicyFixture
from kerchief.core.contracts import Release, Tree
from kerchief.core.errors import BudgetExceededError
from kerchief.core.queries import BoundedScalar, finite
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.deployment.protected_policy import ProtectedPolicy, build_protected
from kerchief.deployment.questions import Asker
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import ExactOneBit, OneBit
from kerchief.policies import POLICIES
from kerchief.policies.context_free.base import LOSS
from kerchief.policies.context_free.tsallis import State, Tsallis
from kerchief.policies.context_free.two_point import State as Place
from kerchief.policies.context_free.two_point import TwoPoint
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.simulation.loop import Replicate, Scene, advance
from kerchief.simulation.run import Run, simulate
from kerchief_device import Device
from kerchief_protocol.model import Status
from kerchief_protocol.signing import Signed

LAWS = {law.name: law for law in BANDIT_LAWS}


class Loose:
    """No dataclass, and asks nothing."""

    feedback = "reports"
    queries: Mapping[str, BoundedScalar] = {}


@struct
class Certain(OneBit):
    """Tosses the coin of one and a half times the epsilon that it charges for."""

    def add(self, vector: Array, stream: Stream) -> Array:
        bias = jnp.tanh(1.5 * jnp.arctanh(self.radius / self.std))
        bold = OneBit(std=self.radius / bias, center=self.center, radius=self.radius)
        side = jnp.sign(bold.add(vector, stream) - self.center)
        return self.center + self.std * side


@struct
class Lopsided(OneBit):
    """Shows the high side a little more often than the number says."""

    def add(self, vector: Array, stream: Stream) -> Array:
        return OneBit.add(self, vector + 0.2 * self.radius, stream)


@struct
class Weak(Gaussian):
    """Adds two thirds of the noise that it charges for."""

    def add(self, vector: Array, stream: Any) -> Array:
        return Gaussian.add(dataclasses.replace(self, std=self.std * 2 / 3), vector, stream)


@struct
class Faint(Laplace):
    """Adds two thirds of the noise that it charges for."""

    def add(self, vector: Array, stream: Any) -> Array:
        return Laplace.add(dataclasses.replace(self, std=self.std * 2 / 3), vector, stream)


@struct
class ThinTwin(OneBit):
    """Its exact twin is bolder than it says."""

    def exact(self, dimension: int | None = None) -> ExactOneBit:
        epsilon = 2 * OneBit.exact(self).event().epsilon
        bold = OneBit.of(epsilon=epsilon, center=self.center, radius=self.radius)
        return BoldTwin(**vars(bold.exact()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoldTwin(ExactOneBit):
    """Charges for half of the epsilon that it keeps."""

    def event(self) -> Any:
        dear = super().event()
        return dataclasses.replace(dear, epsilon=dear.epsilon / 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unclipped(BoundedScalar):
    """Trusts its users."""

    def encode(self, record: Array) -> Array:
        return finite(jnp.reshape(record, (1,)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Undefined(BoundedScalar):
    """Clips, but lets undefined numbers through."""

    def encode(self, record: Array) -> Array:
        return jnp.clip(jnp.reshape(record, (1,)), self.low, self.high)


@struct
class TrustsUsers(Tsallis):
    """Asks for a loss that nobody clips."""

    @property
    def queries(self) -> Mapping[str, BoundedScalar]:
        return {LOSS: Unclipped(low=self.problem.low, high=self.problem.high)}


@struct
class TrustsNumbers(Tsallis):
    """Asks for a loss that may be undefined."""

    @property
    def queries(self) -> Mapping[str, BoundedScalar]:
        return {LOSS: Undefined(low=self.problem.low, high=self.problem.high)}


@struct
class Curious(Tsallis):
    """Wants to see the loss."""

    def update(self, state: State, name: str, release: Release, loss: Any = None) -> State:
        after: State = Tsallis.update(self, state, name, release)
        return after


@struct
class OneTooMany(Tsallis):
    """Names an arm that there is not."""

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        return Tsallis.propose(self, state, round, stream) + 1


@struct
class Stubborn(Tsallis):
    """Proposes the first arm, whatever it hears."""

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        return 0 * Tsallis.propose(self, state, round, stream)


@struct
class Overboard(TwoPoint):
    """Asks farther out than it stays away from the boundary."""

    def learn(self, state: Place, action: Array, memo: Tree, report: Array, round: Array) -> Place:
        step = self.domain.rank * report[0] * (action[0] - action[1]) / (2 * self.radius)
        return Place(point=self.domain.project(state.point - step))


@partial(jax.jit, static_argnames="length")
def _peeking(scene: Scene, carry: Replicate, start: Array, *, length: int) -> Replicate:
    """The learner is told which arm is the best."""
    after: Replicate = advance(scene, carry, start, length=length)
    told = 0.1 * (1 + carry.world.best)[:, None]
    moved = dataclasses.replace(after.state, losses=after.state.losses + told)
    return dataclasses.replace(after, state=moved)


@partial(jax.jit, static_argnames="length")
def _choosy(scene: Scene, carry: Replicate, start: Array, *, length: int) -> Replicate:
    """Whoever lost much is not counted as asked."""
    after: Replicate = advance(scene, carry, start, length=length)
    lost = (after.regret > carry.regret).astype(jnp.int32)
    return dataclasses.replace(after, used={name: one - lost for name, one in after.used.items()})


@partial(jax.jit, static_argnames="length")
def _tireless(scene: Scene, carry: Replicate, start: Array, *, length: int) -> Replicate:
    """Whoever has stopped is still played."""
    after: Replicate = advance(scene, carry, start, length=length)
    over = (after.used[LOSS] <= start).astype(jnp.float64)
    return dataclasses.replace(after, regret=after.regret + over)


def _off_the_books(**named: Any) -> Run:
    """Pays from another pocket."""
    promise: Guarantee = named["ledger"].budget
    return simulate(**{**named, "ledger": MemoryLedger(promise)})


def _hasty(**named: Any) -> Run:
    """Plays before it pays."""
    if "progress" in named:
        named["progress"]("playing", 0)
    return simulate(**named)


def _in_company(**named: Any) -> Run:
    """A replicate's regret is measured from that of the others."""
    run = simulate(**named)
    return dataclasses.replace(run, regret=run.regret - run.regret.mean(1, keepdims=True))


class Bold(Asker):
    """Goes on though nothing was paid."""

    def __init__(self, *given: Any, **named: Any) -> None:
        with contextlib.suppress(BudgetExceededError):
            super().__init__(*given, **named)


class Deaf(Asker):
    """Hears half of all reports."""

    def _take_reports(self, at: Any, row: Any, read: Any, clients: Any) -> Any:
        _, after = super()._take_reports(at, row, read[::2], clients[::2])
        return (None,) * len(read), after


class Amnesiac(Asker):
    """Takes every answer for one to the latest question."""

    def _follow(self, at: Any, row: Any) -> None:
        learn = self._learner.learn

        def forgot(answer: Any) -> None:
            present = self._learner.propose(self._learner.count)
            assert present is not None
            learn(dataclasses.replace(answer, memo=present[1]))

        self._learner.learn = forgot  # type: ignore[method-assign]
        super()._follow(at, row)
        self._learner.learn = learn  # type: ignore[method-assign]


class Forgetful(Device):
    """Answers a question anew whenever it is asked."""

    def report(self, id: str, status: Status | Signed) -> bytes:
        name = bytes.fromhex(id)
        row = self._pending.row(name, self.task.id)
        return self._make_report(row, self._verified_status(status), name)


class Loud(Device):
    """Tosses coins of twice the bias."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        plain = self._source
        self._source = lambda count: bytes(
            (one // 2 + 64) if place % 4 == 3 else one for place, one in enumerate(plain(count))
        )


class Frank(Device):
    """Answers whatever it costs."""

    def report(self, id: str, status: Status | Signed) -> bytes:
        self._bill = None
        return super().report(id, status)


def _case(
    kind: Any = None,
    trust: str = "local",
    *,
    of: str = "tsallis",
    make: Any = None,
    noise: Any = None,
    facts: Mapping[str, Any] | None = None,
    **rooms: Any,
) -> PolicyFixture:
    """A case with one thing changed: the class, the values, the noise, or a room."""
    entry = POLICIES[of]

    def made(problem: Any, mode: Any, terms: Any = None) -> Any:
        plain: Any = entry.build(problem, mode, terms)
        changed = make(plain) if make else plain
        return kind(**vars(changed)) if kind else changed

    def arranged(*given: Any, **named: Any) -> ProtectedPolicy:
        plain = build_protected(*given, **named)
        if noise is None:
            return plain
        changed = {
            name: one.with_noise(lambda old: noise(**vars(old)))
            for name, one in plain.privatizers.items()
        }
        return dataclasses.replace(plain, privatizers=changed)

    kinds = (kind,) if kind else entry.kinds
    changed = dataclasses.replace(
        entry, factory=made, build_with_budget=made, kinds=kinds, **(facts or {})
    )
    return PolicyFixture.of(
        f"{of}[planted]", changed, trust, **{"build_protected": arranged, **rooms}
    )


def _frugal(entry: Any, problem: Any, protection: Protection, **named: Any) -> ProtectedPolicy:
    """More noise than was asked for."""
    guarantee = protection.guarantee
    less = 0.9 * guarantee.epsilon if guarantee.trust is Trust.LOCAL else guarantee.epsilon
    cheaper = dataclasses.replace(guarantee, epsilon=less)
    return build_protected(
        entry, problem, dataclasses.replace(protection, guarantee=cheaper), **named
    )


def _one_bit_for_all(
    entry: Any, problem: Any, protection: Protection, **named: Any
) -> ProtectedPolicy:
    """Whatever the word, devices toss a coin."""
    told = "best" if protection.trust is Trust.NONE else "one-bit"
    return build_protected(entry, problem, dataclasses.replace(protection, mechanism=told), **named)


def _random_rate(policy: Any) -> Any:
    return dataclasses.replace(policy, rate=float(np.random.uniform(1, 9)))  # noqa: NPY002


def _with(**values: Any) -> Callable[[Any], Any]:
    return lambda policy: dataclasses.replace(policy, **values)


_DRAWN, _ALONE = "noise drawn is the word printed", "the learner sees releases alone"
_BUILT, _TWINS = "config is the same built again", "deployed parties agree with the simulation"
_REFUSAL = "refusal leaves no trace"

FAULTS: list[tuple[str, str, Callable[[], PolicyFixture]]] = [
    ("keyword only and frozen", "plain class", lambda: _case(make=lambda policy: Loose())),
    ("documented", "unnamed source", lambda: _case(facts={"source": "Nobody et al. 1999"})),
    (_DRAWN, "a bolder coin", lambda: _case(noise=Certain)),
    (_DRAWN, "a coin with a bias", lambda: _case(noise=Lopsided)),
    (
        _DRAWN,
        "two thirds of normal noise",
        lambda: _case(of="ucb", noise=Weak, mechanism="gaussian"),
    ),
    (
        _DRAWN,
        "two thirds of Laplace noise",
        lambda: _case(of="ucb", noise=Faint, mechanism="laplace"),
    ),
    (
        "noise is of the word printed",
        "one bit for every word",
        lambda: _case(of="ucb", build_protected=_one_bit_for_all),
    ),
    ("learner is blind", "takes a loss", lambda: _case(Curious)),
    (_ALONE, "is told the best arm", lambda: _case(advance=_peeking)),
    (_ALONE, "counts by losses", lambda: _case(advance=_choosy)),
    (_ALONE, "plays on", lambda: _case(of="halving", advance=_tireless)),
    ("clipping holds beyond the domain", "unclipped", lambda: _case(TrustsUsers)),
    ("clipping holds beyond the domain", "undefined", lambda: _case(TrustsNumbers)),
    ("actions are allowed", "one arm too many", lambda: _case(OneTooMany)),
    ("actions are allowed", "over the edge", lambda: _case(Overboard, of="two-point")),
    ("each user pays once", "unpaid", lambda: _case(simulate=_off_the_books)),
    ("charged is what was promised", "too much noise", lambda: _case(build_protected=_frugal)),
    ("spent is no more than promised", "too much noise", lambda: _case(build_protected=_frugal)),
    (_REFUSAL, "plays first", lambda: _case(simulate=_hasty)),
    ("without noise it is its parent", "other rate", lambda: _case(make=_with(rate=3.0))),
    (_BUILT, "another one each time", lambda: _case(make=_random_rate)),
    (_BUILT, "nan", lambda: _case(make=_with(floor=float("nan")))),
    ("same seed same run", "global generator", lambda: _case(make=_random_rate)),
    ("one replicate is a slice of many", "company", lambda: _case(simulate=_in_company)),
    ("replicates are isolated", "company", lambda: _case(simulate=_in_company)),
    ("beats uniform play", "stubborn", lambda: _case(Stubborn)),
    (_TWINS, "asks unpaid", lambda: _case(asker=Bold)),
    (_TWINS, "answers unpaid", lambda: _case(device=Frank)),
    (_TWINS, "answers anew", lambda: _case(device=Forgetful)),
    (_TWINS, "a bolder device", lambda: _case(device=Loud)),
    (_TWINS, "a bolder twin", lambda: _case(noise=ThinTwin)),
    (_TWINS, "hears half", lambda: _case(asker=Deaf)),
    (_TWINS, "forgets what it asked", lambda: _case(asker=Amnesiac)),
]

# By day the faults that need no machine code of their own; the others by night.
DAILY = {
    "plain class",
    "unnamed source",
    "a bolder coin",
    "takes a loss",
    "unclipped",
    "too much noise",
    "asks unpaid",
    "answers anew",
    "one bit for every word",
}


def _when(id: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if id in DAILY else (pytest.mark.nightly,)


@pytest.mark.parametrize(
    ("name", "make"),
    [pytest.param(law, make, id=f"{law}-{id}", marks=_when(id)) for law, id, make in FAULTS],
)
def test_the_law_catches_its_fault(name: str, make: Callable[[], PolicyFixture]) -> None:
    with pytest.raises(CheckFailedError) as caught:
        LAWS[name](make())
    assert [failure.law for failure in caught.value.failures] == [name]
    assert caught.value.failures[0].expected != "no error"


def test_the_laws_of_reports_alone_have_a_planted_fault() -> None:
    contextual, context_free = PolicyFixture.of("linucb", POLICIES["linucb"], "local"), _case()
    own = {law.name for law in BANDIT_LAWS if law.when(context_free) and not law.when(contextual)}
    assert own == {_TWINS}
    assert own <= {law for law, _, _ in FAULTS}
