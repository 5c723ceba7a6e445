"""Run a simulation: charge the ledger, play, record regret at ticks, settle."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.contracts import Environment, Policy
from kerchief.core.errors import InvalidValue
from kerchief.core.precision import double_precision
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import Ledger
from kerchief.privatizers.billing import pay, settle
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation.loop import Carry, Scene, advance, begin
from kerchief.simulation.machine import compiled

__all__ = ["Progress", "Run", "check_sizes", "simulate"]

Progress = Callable[[str, int], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What a simulation recorded.

    Attributes:
        rounds: the ticks: after how many rounds regret was read.
        regret: cumulative regret, a row a tick and a column a replicate.
        releases: for each query, how often it was released in each replicate.
        spent: the guarantee that was really spent, from the ledger.
        seconds: time played, without compilation.
        compile_seconds: time spent compiling.
        device: the kind of device it ran on.
    """

    rounds: NDArray[np.int64]
    regret: NDArray[np.float64]
    releases: Mapping[str, NDArray[np.int64]]
    spent: Guarantee
    seconds: float
    compile_seconds: float
    device: str

    @property
    def microseconds(self) -> float:
        """Time a decision, in microseconds."""
        decisions: int = int(self.rounds[-1]) * self.regret.shape[1]
        return 1e6 * self.seconds / decisions


def check_sizes(
    *, horizon: int, replicates: int, ticks: int, first_replicate: int, seed: int
) -> None:
    """Refuse sizes that no simulation can have, before anything is charged.

    Raises:
        InvalidValue: a value is out of its bound.
    """
    validate.whole("horizon", horizon)
    validate.whole("replicates", replicates)
    validate.whole("ticks", ticks)
    validate.whole("first replicate", first_replicate, low=0, high=2**32 - replicates)
    validate.whole("seed", seed, low=0, high=2**32 - 1)


@double_precision
def simulate(
    *,
    policy: Policy,
    privatizers: Mapping[str, Privatizer],
    environment: Environment,
    ledger: Ledger,
    horizon: int,
    replicates: int,
    seed: int,
    first_replicate: int = 0,
    ticks: int = 100,
    progress: Progress | None = None,
) -> Run:
    """Play one policy under one protection in one world, many times over.

    The ledger is charged for the whole run before anything is drawn and settled for what was really
    used. Replicates are parallel universes of one deployment, so they share one bill. A replicate's
    randomness depends on the seed and its own number alone: policies at one seed meet the same
    worlds, and a run may be cut into chunks of replicates.

    Args:
        policy: the bandit.
        privatizers: one a query, from `privatizers.protect`.
        environment: the world.
        ledger: pays, or refuses with BudgetExceeded before anything is played.
        horizon: number of rounds.
        replicates: how many independent runs.
        seed: of everything random here; 0 to 2**32 - 1.
        first_replicate: number of the first replicate.
        ticks: how often regret is read.
        progress: called with "compiling" or "playing" and the rounds done so far.

    Returns:
        The recorded run.

    >>> from kerchief.environments import make_environment
    >>> from kerchief.policies import POLICIES
    >>> from kerchief.privacy import Guarantee, MemoryLedger, Trust
    >>> free = MemoryLedger(Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE))
    >>> world = make_environment(dim=2, arms=3)
    >>> run = simulate(policy=POLICIES["uniform"].make(world.problem(50), "tuned"), privatizers={},
    ...                environment=world, ledger=free, horizon=50, replicates=4, seed=1, ticks=5)
    >>> run.regret.shape, bool((run.regret[-1] > 0).all())
    ((5, 4), True)
    """
    check_sizes(
        horizon=horizon,
        replicates=replicates,
        ticks=ticks,
        first_replicate=first_replicate,
        seed=seed,
    )
    _check_simulated(privatizers)
    report = progress or (lambda stage, done: None)
    receipts = pay(privatizers, ledger, horizon=horizon)
    scene = Scene(
        policy=policy,
        privatizers=dict(privatizers),
        environment=environment,
        seed=jnp.uint32(seed),
    )
    numbers = jnp.arange(first_replicate, first_replicate + replicates, dtype=jnp.uint32)
    carry = begin(scene, numbers)
    recorder = _Recorder(scene=scene, report=report)
    carry = recorder.play(carry, horizon=horizon, length=max(1, horizon // ticks))
    releases = {name: np.asarray(used, np.int64) for name, used in carry.used.items()}
    covered = {name: int(last.max()) + 1 for name, last in carry.last.items()}
    most = {name: int(used.max()) for name, used in releases.items()}
    settle(privatizers, ledger, receipts, users=horizon, covered=covered, releases=most)
    return Run(
        rounds=np.asarray(recorder.rounds, np.int64),
        regret=np.stack(recorder.regret),
        releases=releases,
        spent=ledger.spent(),
        seconds=recorder.seconds,
        compile_seconds=recorder.compile_seconds,
        device=jax.devices()[0].platform,
    )


def _check_simulated(privatizers: Mapping[str, Privatizer]) -> None:
    """Refuse exact noise, which cannot be drawn in compiled code, before anything is charged."""
    for name, privatizer in privatizers.items():
        if privatizer.outlook.noisy and not privatizer.idealized:
            raise InvalidValue(
                f"the noise of {name!r} is exact; simulate with idealized noise, or use roles.drive"
            )


@dataclasses.dataclass(kw_only=True)
class _Recorder:
    """Plays in segments of equal length and reads the regret after each."""

    scene: Scene
    report: Progress
    rounds: list[int] = dataclasses.field(default_factory=list)
    regret: list[NDArray[np.float64]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    compile_seconds: float = 0.0

    def play(self, carry: Carry, *, horizon: int, length: int) -> Carry:
        """Play the whole horizon; a last, shorter segment takes what does not divide."""
        done = 0
        while done < horizon:
            step = min(length, horizon - done)
            segment = self._compiled(carry, step)
            start = time.perf_counter()
            carry = segment(self.scene, carry, jnp.int32(done))
            carry.regret.block_until_ready()
            self.seconds += time.perf_counter() - start
            done += step
            self.rounds.append(done)
            self.regret.append(np.array(carry.regret))
            self.report("playing", done)
        return carry

    def _compiled(self, carry: Carry, length: int) -> Segment:
        """The segment's machine code, compiled once for one structure."""
        done = self.rounds[-1] if self.rounds else 0
        code, seconds = compiled(
            advance,
            *(self.scene, carry, jnp.int32(0)),
            about=lambda: self.report("compiling", done),
            length=length,
        )
        self.compile_seconds += seconds
        return code


Segment = Callable[[Scene, Carry, Any], Carry]
