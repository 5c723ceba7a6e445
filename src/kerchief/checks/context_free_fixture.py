"""Where bandits without contexts are put to the test: the real engine, round by round.

A few dozen replicates are played at once, with every state kept. Users may be given other losses,
and the learner other reports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.fixture import DELTA, SEED
from kerchief.core.context_free import ContextFreeEnvironment
from kerchief.core.contracts import Clock, Tree
from kerchief.core.convex import Ball
from kerchief.core.errors import InvalidValue
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import DEVICE, POLICY, REWARD, Stream
from kerchief.core.struct import struct
from kerchief.environments.context_free import ChanceArms
from kerchief.environments.context_free_convex import Quadratic
from kerchief.policies.context_free import ContextFreePolicy
from kerchief.policies.registry import Mode
from kerchief.privacy import Guarantee, Ledger, MemoryLedger, Trust
from kerchief.privatizers import CohortSums
from kerchief.roles.questions import Answerer, Asker
from kerchief.simulation.context_free import (
    Carry,
    ContextFreeRun,
    Scene,
    advance,
    arrange,
    begin,
    simulate_context_free,
)
from kerchief.simulation.machine import compiled

__all__ = [
    "EPSILON",
    "EVERYONE",
    "HORIZON",
    "NOBODY",
    "WIDTH",
    "PlainCase",
    "Round",
    "by_hand",
    "plain_cases",
    "play",
    "played",
    "promised",
    "proposed",
    "scripted",
    "stopped",
    "walk",
]

# Halving four arms ends before the last round. At this epsilon few bits tell it from 3/2 of it.
HORIZON, WIDTH, EPSILON = 52, 32, 2.5
NOBODY, EVERYONE = -1, -2

Arranged = tuple[Any, Mapping[str, CohortSums]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainCase:
    """A bandit without contexts under one trust, and the rooms around it.

    Attributes:
        name: how reports call it.
        entry: builds the policy and states its facts.
        trust: a word of `--trust`.
        environment: the world, small.
        randomizer: what devices do under local trust.
        arrange: gives it its channel and its privatizer.
        advance: plays rounds of all replicates; made by `jax.jit`.
        simulate: plays, pays and records.
        asker: the server of a deployment.
        answerer: the device of a deployment.
        make_ledger: opens a ledger on a budget.
    """

    name: str
    entry: Entry
    trust: str
    environment: ContextFreeEnvironment
    randomizer: str = "one-bit"
    arrange: Callable[..., Arranged] = arrange
    advance: Any = advance
    simulate: Callable[..., ContextFreeRun] = simulate_context_free
    asker: type[Asker] = Asker
    answerer: type[Answerer] = Answerer
    make_ledger: Callable[[Guarantee], Ledger] = MemoryLedger

    @classmethod
    def of(cls, name: str, entry: Entry, trust: str, **rooms: Any) -> Self:
        """A case in a small world: four arms, or a quadratic loss on a disc."""
        arms: ContextFreeEnvironment = ChanceArms.of(arms=4, gap=0.4)
        disc: ContextFreeEnvironment = Quadratic.of(domain=Ball(dim=2))
        home = arms if entry.actions == "arms" else disc
        return cls(name=name, entry=entry, trust=trust, environment=home, **rooms)

    def __str__(self) -> str:
        """The name, the trust and what devices do."""
        how = f" with {self.randomizer}" if self.trust == Trust.LOCAL else ""
        return f"{self.name} under {self.trust}{how}"

    @property
    def problem(self) -> ContextFreeProblem:
        """The public facts."""
        return self.environment.problem(HORIZON)

    def arranged(self, mode: Mode = "tuned", *, trust: str | None = None) -> Arranged:
        """A fresh copy, built from public facts alone, and its protection."""
        make = partial(self.entry.make, self.problem, mode)
        budget = promised(self) if trust is None else promised(self, trust=trust)
        return self.arrange(make, budget, horizon=HORIZON, randomizer=self.randomizer)

    def policy(self, mode: Mode = "tuned") -> Any:
        """The bandit alone."""
        return self.arranged(mode)[0]


def promised(case: PlainCase, epsilon: float = EPSILON, *, trust: str | None = None) -> Guarantee:
    """What a run is promised to cost; pure, but for normal noise."""
    if (trust or case.trust) == Trust.NONE:
        return Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE)
    delta = DELTA if case.randomizer == "gaussian" else 0.0
    return Guarantee(epsilon=epsilon, delta=delta, trust=Trust.LOCAL)


def plain_cases() -> Iterator[PlainCase]:
    """Every registered bandit under each of its trusts, with every randomizer that suits it."""
    for name, entry in CONTEXT_FREE.items():
        for trust in entry.trusts:
            words = ("one-bit", "gaussian", "laplace") if trust == Trust.LOCAL else ("one-bit",)
            for word in words:
                case = PlainCase.of(name, entry, trust, randomizer=word)
                if _suits(case):
                    yield case


def _suits(case: PlainCase) -> bool:
    """Whether the bandit can learn from such reports: some need bounds."""
    try:
        case.arranged()
    except InvalidValue:
        return False
    return True


@struct
class _Altered:
    """A world in which one user, or everyone, loses something else, with a sign a question."""

    environment: ContextFreeEnvironment
    user: Array
    loss: Array

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts, which are the same."""
        return self.environment.problem(horizon)

    def init(self, stream: Stream) -> Tree:
        """The same truth."""
        return self.environment.init(stream)

    def losses(self, world: Tree, action: Array, round: Array, stream: Stream) -> Array:
        """The usual losses, or the others."""
        usual = self.environment.losses(world, action, round, stream)
        signs = (-1.0) ** jnp.arange(usual.shape[0])
        altered = (round == self.user) | (self.user == EVERYONE)
        return jnp.where(altered, (signs * self.loss).astype(usual.dtype), usual)

    def regret(self, world: Tree, action: Array, round: Array) -> Array:
        """The same: it shows which action was played."""
        return self.environment.regret(world, action, round)

    def right(self, world: Tree, action: Array) -> Array:
        """The same."""
        return self.environment.right(world, action)


@struct
class _Scripted(CohortSums):
    """Sends what a script says in place of a report: a row a round, a column a replicate."""

    script: Array

    def randomize(self, record: Tree, clock: Clock, stream: Any) -> Array:
        """Whatever the record is."""
        return self.script[clock.round, stream.replicate % self.script.shape[1]][None]


def scripted(case: PlainCase, script: Any) -> Mapping[str, CohortSums]:
    """The case's protection, with these reports in place of all others."""
    reports = jnp.broadcast_to(jnp.asarray(script, jnp.float64), (HORIZON, WIDTH))
    return {
        name: _Scripted(**vars(one), script=reports) for name, one in case.arranged()[1].items()
    }


def walk(
    case: PlainCase,
    privatizers: Mapping[str, CohortSums] | None = None,
    *,
    user: int = NOBODY,
    loss: float = 0.0,
    start: Carry | None = None,
    rounds: range = range(HORIZON),
) -> list[Carry]:
    """What the engine keeps before the first round and after each of these.

    Args:
        case: who plays.
        privatizers: of the reports; by default those of the case.
        user: who loses something else: a round, `NOBODY` or `EVERYONE`.
        loss: what that user loses.
        start: where to begin; by default before the first round.
        rounds: which rounds are played.
    """
    scene = _scene(case, privatizers, user, loss)
    first = begin(scene, jnp.arange(WIDTH, dtype=jnp.uint32)) if start is None else start
    kept = [_copied(first)]
    step, _ = compiled(case.advance, scene, kept[0], jnp.int32(0), length=1)
    for round in rounds:
        # The engine takes its input's memory over, so it is given a copy.
        kept.append(_copied(step(scene, _copied(kept[-1]), jnp.int32(round))))
    return kept


def _scene(
    case: PlainCase,
    privatizers: Mapping[str, CohortSums] | None = None,
    user: int = NOBODY,
    loss: float = 0.0,
) -> Scene:
    policy, protected = _arranged(case)
    return Scene(
        policy=policy,
        privatizers=dict(protected if privatizers is None else privatizers),
        environment=_altered(case, user, loss),
        seed=jnp.uint32(SEED),
    )


def _altered(case: PlainCase, user: int, loss: float) -> _Altered:
    return _Altered(environment=case.environment, user=jnp.int32(user), loss=jnp.float64(loss))


_arranged = lru_cache(maxsize=64)(PlainCase.arranged)


def _copied(carry: Carry) -> Carry:
    copied: Carry = jax.tree.map(np.array, carry)
    return copied


@struct
class Round:
    """One round of all replicates by hand: a row each.

    Attributes:
        action: what was proposed.
        report: what left the device.
        state: what the learner made of it.
        going: whether it had not stopped before.
    """

    action: Array
    report: Array
    state: Tree
    going: Array


def by_hand(
    case: PlainCase, carry: Carry, round: int, *, user: int = NOBODY, loss: float = 0.0
) -> Round:
    """What a round makes of a state, from the contract alone: propose, answer, report, update."""
    played: Round = _by_hand(_scene(case, None, user, loss), carry, jnp.int32(round))
    return played


@jax.jit
def _by_hand(scene: Scene, carry: Carry, round: Array) -> Round:
    (privatizer,) = scene.privatizers.values()

    def one(carry: Carry) -> Round:
        at = partial(Stream.of(seed=scene.seed, replicate=carry.replicate).at, round=round)
        action = scene.policy.propose(carry.state, round, at(POLICY))
        losses = scene.environment.losses(carry.world, action, round, at(REWARD))
        record = scene.policy.answer(action, losses)
        report = privatizer.randomize(record, Clock(round=round, since={}), at(DEVICE))
        return Round(
            action=action,
            report=report,
            state=scene.policy.update(carry.state, action, report, round),
            going=~scene.policy.stopped(carry.state),
        )

    return jax.vmap(one)(carry)


@jax.jit
def _proposed(policy: ContextFreePolicy, carry: Carry, round: Array) -> tuple[Array, Array, Array]:
    def one(carry: Carry) -> tuple[Array, Array, Array]:
        at = Stream.of(seed=SEED, replicate=carry.replicate).at(POLICY, round=round)
        named = policy.recommend(carry.state)
        return policy.propose(carry.state, round, at), named, policy.stopped(carry.state)

    return jax.vmap(one)(carry)


def proposed(case: PlainCase, carry: Carry, round: int) -> tuple[Any, Any]:
    """What every replicate proposes in a round, and what it would name."""
    action, named, _ = _proposed(_arranged(case)[0], carry, jnp.int32(round))
    return np.asarray(action), np.asarray(named)


def stopped(case: PlainCase, carry: Carry) -> Any:
    """Which replicates ask nobody any more."""
    return np.asarray(_proposed(_arranged(case)[0], carry, jnp.int32(0))[2])


def play(
    case: PlainCase,
    arranged: Arranged | None = None,
    *,
    replicates: int = WIDTH,
    first_replicate: int = 0,
    ledger: Ledger | None = None,
    **named: Any,
) -> ContextFreeRun:
    """Simulate the case, with a ledger of its own unless one is given."""
    policy, privatizers = arranged or case.arranged()
    return case.simulate(
        policy=policy,
        privatizers=privatizers,
        environment=_altered(case, NOBODY, 0.0),
        ledger=case.make_ledger(promised(case)) if ledger is None else ledger,
        horizon=HORIZON,
        replicates=replicates,
        seed=SEED,
        first_replicate=first_replicate,
        ticks=HORIZON,
        **named,
    )


played = lru_cache(maxsize=64)(play)
