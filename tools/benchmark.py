"""Time of a decision, beside a plain NumPy LinUCB timed in the same run.

Cases and baselines are timed in turns, several times over. The best time of each counts, so that
all of them see the same machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from tools.baseline import time_numpy
from tools.interactive import interactive_timer

from kerchief.comparison.chunks import Chunk
from kerchief.comparison.players import Cell, player
from kerchief.comparison.versions import machine, versions
from kerchief.core import validate
from kerchief.core.phases import PhasePolicy
from kerchief.core.precision import double_precision
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments.worlds import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.billing import pay
from kerchief.privatizers.protect import Protection
from kerchief.simulation.loop import Replicate, Scene, advance, begin
from kerchief.simulation.machine import compiled
from kerchief.simulation.run import AnyEnvironment

_PLAYERS = (
    ("uniform", "none"),
    ("greedy", "none"),
    ("linucb", "none"),
    ("linucb", "local"),
    ("linucb", "joint"),
    ("linucb", "central"),
    ("glm", "none"),
    ("glm", "joint"),
    ("sampling", "none"),
    ("sampling", "local"),
    ("sampling", "joint"),
    ("sampling", "shuffle"),
)
_EPSILON, _DELTA = 1.0, 1e-5
_DIM = 5
_HORIZON = 10_000
# From here on a model is posted about as often as on average over the horizon.
_START = 1500
_DECISIONS = 32_000
INTERACTIVE_ARMS = 20

_wait_for: Callable[[Replicate], Replicate] = jax.block_until_ready

Watch: TypeAlias = Callable[[str, float], None]
Timer: TypeAlias = Callable[[], float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Timed case: a policy under a trust model, with its arms and replicates."""

    policy: str
    trust: str
    arms: int
    replicates: int

    @property
    def rounds(self) -> int:
        """Number of rounds of one timing; fewer for many replicates."""
        return max(60, min(_HORIZON - _START, _DECISIONS // self.replicates))

    def guarantee(self) -> Guarantee:
        """Build a usual guarantee, or none; the noise level does not change the time."""
        trust = Trust(self.trust)
        epsilon, delta = (math.inf, 0.0) if trust is Trust.NONE else (_EPSILON, _DELTA)
        return Guarantee(epsilon=epsilon, delta=delta, trust=trust, rounds=_HORIZON)


Key: TypeAlias = int | str | Case


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Microseconds per decision, without compilation.

    Attributes:
        yardstick: of the NumPy LinUCB, for each number of arms.
        cases: of each case, drawing the arms included.
        interactive: of one LinUCB in a `Bandit`, with exact noise, for each trust.
        pinned: the processor core that everything ran on, or None where it could not be pinned.
    """

    yardstick: Mapping[int, float]
    cases: Mapping[Case, float]
    interactive: Mapping[str, float]
    pinned: int | None

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON; a ratio is to the baseline with as many arms."""
        rows = [
            dataclasses.asdict(case) | self._describe_time(value, case.arms)
            for case, value in self.cases.items()
        ]
        interactive = [
            {"policy": "linucb", "trust": trust, "noise": "exact"}
            | self._describe_time(value, INTERACTIVE_ARMS)
            for trust, value in self.interactive.items()
        ]
        return {
            "yardstick_microseconds": self.yardstick[INTERACTIVE_ARMS],
            "yardsticks": {str(arms): value for arms, value in self.yardstick.items()},
            "rows": rows,
            "interactive": {**interactive[0], "arms": INTERACTIVE_ARMS, "rows": interactive},
            "machine": {**machine(), "pinned_to_core": self.pinned},
            "versions": versions(),
        }

    def _describe_time(self, value: float, arms: int) -> dict[str, object]:
        return {"microseconds": value, "ratio": value / self.yardstick[arms]}


@double_precision
def bench(
    *,
    arms: Sequence[int] = (20, 100),
    replicates: Sequence[int] = (1, 64, 1000),
    repeats: int = 5,
    pinned: int | None = None,
    watch: Watch | None = None,
) -> Benchmark:
    """Time every case, the baselines and interactive use; keep the best repeat.

    `pinned` is the core that `one_core` pinned this process to, for the record. `watch` is called
    with what is being done and the finished share.

    Raises:
        KerchiefError: a value is out of its bound.
    """
    for name, values in (("arms", arms), ("replicates", replicates)):
        for value in values:
            validate.whole(name, value, high=10**5)
    timers = _prepare_timers(arms, replicates)
    best = _find_best(
        timers, validate.whole("repeats", repeats), watch or (lambda stage, share: None)
    )
    return Benchmark(
        yardstick={key: value for key, value in best.items() if isinstance(key, int)},
        cases={key: value for key, value in best.items() if isinstance(key, Case)},
        interactive={key: value for key, value in best.items() if isinstance(key, str)},
        pinned=pinned,
    )


@double_precision
def time_run(
    policy: str, trust: str, environment: AnyEnvironment, *, horizon: int, replicates: int
) -> float:
    """Return microseconds per decision of one run, without compilation."""
    private = Trust(trust) is not Trust.NONE
    configuration = player(policy, trust=trust, epsilon=_EPSILON) if private else player(policy)
    cell = Cell(player=configuration, world="benchmark", delta=_DELTA, horizon=horizon)
    part = Chunk(cell=cell, environment=environment, seed=0, first=0, last=replicates, ticks=1)
    return part.play().run.microseconds


@contextlib.contextmanager
def one_core() -> Iterator[int | None]:
    """Pin the process to one core where possible; call it before JAX starts."""
    if not hasattr(os, "sched_setaffinity"):
        yield None
        return
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


def _prepare_timers(
    arms: Sequence[int], replicates: Sequence[int]
) -> dict[Key, Callable[[], Timer]]:
    """Map each timed case to a function that prepares its timer."""
    preparations: dict[Key, Callable[[], Timer]] = {}
    for count in dict.fromkeys((*arms, INTERACTIVE_ARMS)):
        preparations[count] = partial(_build_numpy_timer, count)
    for count, width, (policy, trust) in itertools.product(arms, replicates, _PLAYERS):
        case = Case(policy=policy, trust=trust, arms=count, replicates=width)
        preparations[case] = partial(_build_loop_timer, case)
    for trust in POLICIES["linucb"].trusts:
        preparations[trust] = partial(_build_interactive_timer, trust)
    return preparations


def _find_best(
    preparations: Mapping[Key, Callable[[], Timer]], repeats: int, watch: Watch
) -> dict[Key, float]:
    """Compile every timer, then time them in turns; return each best time."""
    steps, step_numbers = len(preparations) * (repeats + 1), itertools.count(1)
    timers: dict[Key, Timer] = {}
    for key, prepare in preparations.items():
        watch("compiling", next(step_numbers) / steps)
        timers[key] = prepare()
    best = dict.fromkeys(timers, math.inf)
    for _ in range(repeats):
        for key, timer in timers.items():
            watch("timing", next(step_numbers) / steps)
            best[key] = min(best[key], timer())
    return best


def _build_numpy_timer(arms: int) -> Timer:
    return partial(time_numpy, arms=arms, dim=_DIM)


def _build_interactive_timer(trust: str) -> Timer:
    case = Case(policy="linucb", trust=trust, arms=INTERACTIVE_ARMS, replicates=1)
    problem = make_environment(dim=_DIM, arms=case.arms).problem(_HORIZON)
    return interactive_timer(case.policy, problem, case.guarantee())


def _build_loop_timer(case: Case) -> Timer:
    """Compile the loop of one case, whose releases are charged first."""
    scene = scene_of(case)
    carry = begin(scene, jnp.arange(case.replicates, dtype=jnp.uint32))
    start = jnp.int32(_START)
    play, _ = compiled(advance, scene, carry, start, length=case.rounds)

    def timer() -> float:
        nonlocal carry
        began = time.perf_counter()
        carry = _wait_for(play(scene, carry, start))
        return 1e6 * (time.perf_counter() - began) / (case.rounds * case.replicates)

    return timer


def scene_of(case: Case) -> Scene:
    """Build the bandits of a case, with their whole run charged to a ledger."""
    entry, guarantee = POLICIES[case.policy], case.guarantee()
    environment = make_environment(
        link=entry.default_environment or "linear", dim=_DIM, arms=case.arms
    )
    bandit = build_protected(
        case.policy, environment.problem(_HORIZON), Protection(guarantee=guarantee)
    )
    pay(bandit.privatizers, MemoryLedger(guarantee), horizon=_HORIZON)
    assert not isinstance(bandit.policy, PhasePolicy)
    return Scene(
        policy=bandit.policy,
        privatizers=dict(bandit.privatizers),
        environment=environment,
        seed=jnp.uint32(0),
    )
