"""Broken bandits without contexts, each of which the very law that it breaks must catch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from kerchief.simulation.context_free import (
    Carry,
    ContextFreeRun,
    Scene,
    advance,
    arrange,
    simulate_context_free,
)

from kerchief.checks import CheckFailed, PlainCase, yield_plain_checks
from kerchief.core.channel import Channel
from kerchief.core.errors import BudgetExceeded
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import Loss, finite
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import ExactOneBit, OneBit
from kerchief.policies.context_free import LOSS, Tsallis, TwoPoint
from kerchief.policies.context_free.tsallis import State
from kerchief.policies.context_free.two_point import State as Place
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.roles.questions import Answerer, Asker

LAWS = dict(yield_plain_checks())


class Loose:
    """No dataclass, and asks nothing."""

    queries: Mapping[str, Loss] = {}


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
        return BoldTwin(**vars(OneBit.exact(self)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoldTwin(ExactOneBit):
    """Leaves a number at the end nearly certain."""

    def add(self, vector: Any, stream: Any = None) -> Any:
        bold = OneBit.of(epsilon=2 * self.event().epsilon, center=self.center, radius=self.radius)
        high = bold.exact().add(vector, stream)[0] > self.center
        return np.array([self.reports[int(high)]])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unclipped(Loss):
    """Trusts its users."""

    def encode(self, record: Array) -> Array:
        return finite(jnp.reshape(record, (1,)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Undefined(Loss):
    """Clips, but lets undefined numbers through."""

    def encode(self, record: Array) -> Array:
        return jnp.clip(jnp.reshape(record, (1,)), self.low, self.high)


@struct
class TrustsUsers(Tsallis):
    """Asks for a loss that nobody clips."""

    @property
    def queries(self) -> Mapping[str, Loss]:
        return {LOSS: Unclipped(low=self.problem.low, high=self.problem.high)}


@struct
class TrustsNumbers(Tsallis):
    """Asks for a loss that may be undefined."""

    @property
    def queries(self) -> Mapping[str, Loss]:
        return {LOSS: Undefined(low=self.problem.low, high=self.problem.high)}


@struct
class Curious(Tsallis):
    """Wants to see the loss."""

    def update(
        self, state: State, action: Array, report: Array, round: Array, loss: Any = None
    ) -> State:
        return Tsallis.update(self, state, action, report, round)


@struct
class OneTooMany(Tsallis):
    """Names an arm that there is not."""

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        return Tsallis.propose(self, state, round, stream) + 1


@struct
class Overboard(TwoPoint):
    """Asks farther out than it stays away from the boundary."""

    def update(self, state: Place, action: Array, report: Array, round: Array) -> Place:
        step = self.domain.rank * report[0] * (action[0] - action[1]) / (2 * self.radius)
        return Place(point=self.domain.project(state.point - step))


def _losses(scene: Scene, carry: Carry, round: Array) -> Array:
    def one(carry: Carry) -> Array:
        at = Stream.of(seed=scene.seed, replicate=carry.replicate)
        return scene.environment.losses(carry.world, jnp.int32(0), round, at)[0]

    return jax.vmap(one)(carry)


@partial(jax.jit, static_argnames="length")
def _peeking(scene: Scene, carry: Carry, start: Array, *, length: int) -> Carry:
    """The learner is told the loss itself."""
    told = _losses(scene, carry, start)[:, None]
    after: Carry = advance(scene, carry, start, length=length)
    state: Any = after.state
    moved = dataclasses.replace(state, losses=state.losses + 0.1 * told)
    return dataclasses.replace(after, state=moved)


@partial(jax.jit, static_argnames="length")
def _choosy(scene: Scene, carry: Carry, start: Array, *, length: int) -> Carry:
    """Whoever lost much is not counted as asked."""
    lost = _losses(scene, carry, start) > 1
    after: Carry = advance(scene, carry, start, length=length)
    return dataclasses.replace(after, asked=after.asked - lost)


@partial(jax.jit, static_argnames="length")
def _tireless(scene: Scene, carry: Carry, start: Array, *, length: int) -> Carry:
    """Whoever has stopped is still played."""
    after: Carry = advance(scene, carry, start, length=length)
    return dataclasses.replace(after, regret=after.regret + 0.1)


def _off_the_books(**named: Any) -> ContextFreeRun:
    """Pays from another pocket."""
    promise: Guarantee = named["ledger"].budget
    return simulate_context_free(**{**named, "ledger": MemoryLedger(promise)})


def _hasty(**named: Any) -> ContextFreeRun:
    """Plays before it pays."""
    if named["ledger"].budget.epsilon < 2:
        named["progress"]("playing", 0)
    return simulate_context_free(**named)


def _in_company(**named: Any) -> ContextFreeRun:
    """A replicate's regret is measured from that of the others."""
    run = simulate_context_free(**named)
    return dataclasses.replace(run, regret=run.regret - run.regret.mean(1, keepdims=True))


class Bold(Asker):
    """Goes on though nothing was paid."""

    def __init__(self, **named: Any) -> None:
        try:
            super().__init__(**named)
        except BudgetExceeded:
            self.round = 0


class Deaf(Asker):
    """Hears half of a report."""

    def learn(self, report: Any) -> None:
        super().learn(np.asarray(report) / 2)


class Forgetful(Answerer):
    """Answers a question anew whenever it is asked."""

    def answer(self, round: int, action: Any, losses: Any) -> Any:
        self._said = None
        return super().answer(round, action, losses)


class Frank(Answerer):
    """Charges after it has answered, and answers all the same."""

    def answer(self, round: int, action: Any, losses: Any) -> Any:
        try:
            return super().answer(round, action, losses)
        except BudgetExceeded:
            self._ledger = None
            return super().answer(round, action, losses)


def _case(
    kind: Any = None,
    trust: str = "local",
    *,
    of: str = "tsallis",
    make: Any = None,
    noise: Any = None,
    facts: Mapping[str, Any] | None = None,
    **rooms: Any,
) -> PlainCase:
    """A case with one thing changed: the class, the values, the noise, or a room."""
    entry = CONTEXT_FREE[of]

    def made(problem: ContextFreeProblem, mode: Any, channel: Channel) -> Any:
        plain: Any = entry.make(problem, mode, channel)
        changed = make(plain) if make else plain
        return kind(**vars(changed)) if kind else changed

    def arranged(*given: Any, **named: Any) -> Any:
        policy, privatizers = arrange(*given, **named)
        if noise is None:
            return policy, privatizers
        changed = {n: p.with_noise(lambda old: noise(**vars(old))) for n, p in privatizers.items()}
        return policy, changed

    changed = dataclasses.replace(entry, make=made, kind=kind or entry.kind, **(facts or {}))
    return PlainCase.of(f"{of}[planted]", changed, trust, **{"arrange": arranged, **rooms})


def _frugal(make: Any, guarantee: Guarantee, **named: Any) -> Any:
    """More noise than was asked for."""
    less = 0.9 * guarantee.epsilon if guarantee.trust is Trust.LOCAL else guarantee.epsilon
    return arrange(make, dataclasses.replace(guarantee, epsilon=less), **named)


def _random_rate(policy: Any) -> Any:
    return dataclasses.replace(policy, rate=float(np.random.uniform(1, 9)))  # noqa: NPY002


def _with(**values: Any) -> Callable[[Any], Any]:
    return lambda policy: dataclasses.replace(policy, **values)


_CHARGED, _ALONE = "noise is what was charged", "the learner sees reports alone"
_CODEC, _TWINS = "config and state survive the codec", "deployed parties agree with the simulation"

FAULTS: list[tuple[str, str, Callable[[], PlainCase]]] = [
    ("keyword only and frozen", "plain class", lambda: _case(make=lambda policy: Loose())),
    ("documented", "unnamed source", lambda: _case(facts={"source": "Nobody et al. 1999"})),
    (_CHARGED, "a bolder coin", lambda: _case(noise=Certain)),
    (_CHARGED, "a coin with a bias", lambda: _case(noise=Lopsided)),
    (
        _CHARGED,
        "two thirds of normal noise",
        lambda: _case(of="ucb", noise=Weak, randomizer="gaussian"),
    ),
    (
        _CHARGED,
        "two thirds of Laplace noise",
        lambda: _case(of="ucb", noise=Faint, randomizer="laplace"),
    ),
    (_ALONE, "takes a loss", lambda: _case(Curious)),
    (_ALONE, "is told the loss", lambda: _case(advance=_peeking)),
    ("stopping is public", "counts by losses", lambda: _case(advance=_choosy)),
    ("stopping is public", "plays on", lambda: _case(of="halving", advance=_tireless)),
    ("losses are clipped", "unclipped", lambda: _case(TrustsUsers)),
    ("losses are clipped", "undefined", lambda: _case(TrustsNumbers)),
    ("proposals stay inside", "one arm too many", lambda: _case(OneTooMany)),
    ("proposals stay inside", "over the edge", lambda: _case(Overboard, of="two-point")),
    ("each user pays once", "unpaid", lambda: _case(simulate=_off_the_books)),
    ("each user pays once", "pays twice", lambda: _case(answerer=Forgetful)),
    ("spent is what was promised", "too much noise", lambda: _case(arrange=_frugal)),
    ("refusal leaves no trace", "plays first", lambda: _case(simulate=_hasty)),
    ("refusal leaves no trace", "asks unpaid", lambda: _case(asker=Bold)),
    ("refusal leaves no trace", "answers unpaid", lambda: _case(answerer=Frank)),
    ("without noise it is the parent", "other rate", lambda: _case(make=_with(rate=3.0))),
    (_CODEC, "foreign class", lambda: _case(OneTooMany)),
    (_CODEC, "nan", lambda: _case(make=_with(floor=float("nan")))),
    ("same seed same run", "global generator", lambda: _case(make=_random_rate)),
    ("one replicate is a slice of many", "company", lambda: _case(simulate=_in_company)),
    (_TWINS, "answers anew", lambda: _case(answerer=Forgetful)),
    (_TWINS, "a bolder twin", lambda: _case(noise=ThinTwin)),
    (_TWINS, "hears half", lambda: _case(asker=Deaf)),
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
}


def _when(id: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if id in DAILY else (pytest.mark.nightly,)


@pytest.mark.parametrize(
    ("name", "make"),
    [pytest.param(law, make, id=f"{law}-{id}", marks=_when(id)) for law, id, make in FAULTS],
)
def test_the_law_catches_its_fault(name: str, make: Callable[[], PlainCase]) -> None:
    with pytest.raises(CheckFailed) as caught:
        LAWS[name](make())
    assert [failure.law for failure in caught.value.failures] == [name]
    assert caught.value.failures[0].expected != "no error" or "CodecError" in str(caught.value)


def test_every_law_has_a_planted_fault() -> None:
    assert {law for law, _, _ in FAULTS} == set(LAWS)
