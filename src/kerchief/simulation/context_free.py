"""Play a bandit without contexts: propose, answer with one protected number, learn, many times.

Round by round, as in Algorithm 1 of Zheng, Cai, Huang, Li and Wang (2020): the server proposes, the
device clips and randomizes, the learner takes in the report. Replicates are mapped over, rounds are
scanned. A replicate whose learner has stopped asks nobody and loses nothing.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.context_free import ContextFreeEnvironment
from kerchief.core.contracts import Clock, Tree
from kerchief.core.errors import InvalidValue
from kerchief.core.precision import double_precision
from kerchief.core.random import DEVICE, POLICY, REWARD, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.policies.context_free.contract import LOSS, Channel, ContextFreePolicy
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import Ledger
from kerchief.privatizers.billing import pay, settle
from kerchief.privatizers.registry import protect
from kerchief.privatizers.sums import CohortSums
from kerchief.simulation.machine import compiled
from kerchief.simulation.run import Progress, Run, check_sizes

__all__ = ["ContextFreeRun", "arrange", "channel_of", "simulate_context_free"]

P = TypeVar("P", bound=ContextFreePolicy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextFreeRun(Run):
    """What a simulation without contexts recorded.

    Attributes:
        pulls: how many users were asked, in each replicate.
        right: 1 where the arm that was named at the end is the best, else 0, in each replicate.
    """

    pulls: NDArray[np.int64]
    right: NDArray[np.float64]


def channel_of(privatizer: CohortSums) -> Channel:
    """What is public about the reports of one number: their bounds, and how far they spread.

    The spread holds for every law of losses within the query's bounds: half the interval for what
    the loss itself does (Hoeffding), and beside it what the device's noise does.

    Raises:
        InvalidValue: the noise is not on the device, or not one that is known here.

    >>> from kerchief.policies.context_free import Loss
    >>> from kerchief.privatizers.schedule import Every
    >>> noise = Gaussian.of(noise_multiplier=2.0, sensitivity=1.0)
    >>> query = Loss(low=0.0, high=1.0)
    >>> sums = CohortSums(query=query, schedule=Every(), device=noise, aggregator=None)
    >>> channel_of(sums).spread ** 2
    4.25
    """
    if privatizer.aggregator is not None:
        raise InvalidValue(
            "the aggregator adds noise to sums, and this bandit learns from single reports; choose "
            "trust 'local' or 'none'"
        )
    device, query = privatizer.device, privatizer.query
    half = query.sensitivity / 2
    if device is None or float(device.std) == 0:
        center = np.asarray(query.center).item()
        return Channel.clear(low=center - half, high=center + half)
    match device:
        case OneBit():
            low, high = device.reports
            return Channel(low=low, high=high, spread=device.subgaussian)
        case Gaussian():
            return Channel(low=None, high=None, spread=(half**2 + device.std**2) ** 0.5)
        case Laplace():
            spread = (half**2 + device.std**2) ** 0.5
            return Channel(low=None, high=None, spread=spread, heavy=True)
    raise InvalidValue(
        f"nothing is known here about reports with noise of kind {type(device).__name__}; choose "
        "randomizer 'one-bit', 'gaussian' or 'laplace', and idealized noise"
    )


def arrange(
    make: Callable[[Channel], P],
    guarantee: Guarantee,
    *,
    horizon: int,
    randomizer: str = "one-bit",
) -> tuple[P, Mapping[str, CohortSums]]:
    """Build a bandit for the reports that the guarantee's trust will give it.

    What a bandit asks does not depend on the channel, and the channel depends on what it asks: so
    it is built for clear reports, protected, and built again.

    Args:
        make: builds the bandit from a channel, such as
            `partial(CONTEXT_FREE["ucb"].make, problem, "tuned")`.
        guarantee: what is promised.
        horizon: number of rounds.
        randomizer: what devices do under local trust: a word of `privatizers.RANDOMIZERS`. One bit
            is the least noisy for losses that spread over their interval, and the only one whose
            reports have bounds.

    Raises:
        InvalidValue: the trust gives it no single reports, or it cannot learn from them.

    >>> from kerchief.core.context_free import ContextFreeProblem
    >>> from kerchief.policies.context_free import CONTEXT_FREE
    >>> problem = ContextFreeProblem(horizon=100, low=0.0, high=1.0, arms=3)
    >>> promise = Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL)
    >>> make = partial(CONTEXT_FREE["ucb"].make, problem, "tuned")
    >>> policy, _ = arrange(make, promise, horizon=100)
    >>> round(policy.channel.spread, 3)
    1.082
    """
    if guarantee.trust not in (Trust.NONE, Trust.LOCAL):
        raise InvalidValue(
            f"trust is {guarantee.trust.value!r}, and this bandit learns from single reports; "
            "choose 'local' or 'none'"
        )
    asked = make(Channel.clear(low=0.0, high=1.0))
    made = protect(asked, guarantee, horizon=horizon, randomizer=randomizer)
    privatizers = {name: one for name, one in made.items() if isinstance(one, CohortSums)}
    if not privatizers:
        return asked, {}
    return make(channel_of(privatizers[LOSS])), privatizers


@struct
class Scene:
    """What plays: its structure is compiled, its numbers are arguments."""

    policy: ContextFreePolicy
    privatizers: Mapping[str, CohortSums]
    environment: ContextFreeEnvironment
    seed: Array


@struct
class Carry:
    """A bandit, its world, what it has lost and how many users it has asked."""

    replicate: Array
    world: Tree
    state: Tree
    regret: Array
    asked: Array


@double_precision
def simulate_context_free(
    *,
    policy: ContextFreePolicy,
    privatizers: Mapping[str, CohortSums],
    environment: ContextFreeEnvironment,
    ledger: Ledger,
    horizon: int,
    replicates: int,
    seed: int,
    first_replicate: int = 0,
    ticks: int = 100,
    progress: Progress | None = None,
) -> ContextFreeRun:
    """Play one bandit without contexts under one protection in one world, many times over.

    The ledger is charged for the whole run before anything is drawn and settled for the users who
    really reported. Replicates are parallel universes of one deployment, so they share one bill.

    Args:
        policy: the bandit; `arrange` builds it for the reports that it will get.
        privatizers: one a query.
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

    Raises:
        BudgetExceeded: the ledger refuses; nothing was played.
        InvalidValue: the reports are not protected on the device, or the horizons differ.
    """
    check_sizes(
        horizon=horizon,
        replicates=replicates,
        ticks=ticks,
        first_replicate=first_replicate,
        seed=seed,
    )
    _check(policy, privatizers, horizon)
    receipts = pay(privatizers, ledger, horizon=horizon)
    scene = Scene(
        policy=policy,
        privatizers=dict(privatizers),
        environment=environment,
        seed=jnp.uint32(seed),
    )
    numbers = jnp.arange(first_replicate, first_replicate + replicates, dtype=jnp.uint32)
    recorder = _Recorder(scene=scene, report=progress or (lambda stage, done: None))
    carry = recorder.play(begin(scene, numbers), horizon=horizon, length=max(1, horizon // ticks))
    pulls = np.asarray(carry.asked, np.int64)
    most = dict.fromkeys(privatizers, int(pulls.max()))
    settle(privatizers, ledger, receipts, users=int(pulls.max()), covered=most, releases=most)
    return ContextFreeRun(
        rounds=np.asarray(recorder.rounds, np.int64),
        regret=np.stack(recorder.regret),
        releases=dict.fromkeys(privatizers, pulls),
        spent=ledger.spent(),
        seconds=recorder.seconds,
        compile_seconds=recorder.compile_seconds,
        device=jax.devices()[0].platform,
        pulls=pulls,
        right=np.asarray(judge(scene, carry), np.float64),
    )


def _check(policy: ContextFreePolicy, privatizers: Mapping[str, CohortSums], horizon: int) -> None:
    """Refuse, before anything is charged, what the loop below cannot play."""
    if policy.problem.horizon != horizon:
        raise InvalidValue(
            f"the bandit was built for {policy.problem.horizon} rounds and the run has {horizon}; "
            f"build it from the problem of {horizon} rounds"
        )
    if set(privatizers) != set(policy.queries):
        raise InvalidValue(
            f"the bandit asks for {list(policy.queries)} and {list(privatizers)} are protected; "
            "use the privatizers that `arrange` returns with it"
        )
    for privatizer in privatizers.values():
        channel_of(privatizer)


@jax.jit
def begin(scene: Scene, replicates: Array) -> Carry:
    """All replicates before their first round."""

    def begin_one(replicate: Array) -> Carry:
        outlook = {name: privatizer.outlook for name, privatizer in scene.privatizers.items()}
        at = Stream.of(seed=scene.seed, replicate=replicate).at(WORLD)
        return Carry(
            replicate=replicate,
            world=scene.environment.init(at),
            state=scene.policy.init(outlook),
            regret=jnp.float64(0),
            asked=jnp.int32(0),
        )

    return jax.vmap(begin_one)(replicates)


@partial(jax.jit, static_argnames="length", donate_argnames="carry")
def advance(scene: Scene, carry: Carry, start: Array, *, length: int) -> Carry:
    """Play `length` rounds from round `start` on, in every replicate."""

    def play_round(carry: Carry, round: Array) -> tuple[Carry, None]:
        return jax.vmap(partial(_play, scene), in_axes=(0, None))(carry, round), None

    rounds = start + jnp.arange(length, dtype=jnp.int32)
    return jax.lax.scan(play_round, carry, rounds)[0]


@jax.jit
def judge(scene: Scene, carry: Carry) -> Array:
    """Whether each replicate names the best arm."""

    def judge_one(carry: Carry) -> Array:
        return scene.environment.right(carry.world, scene.policy.recommend(carry.state))

    return jax.vmap(judge_one)(carry)


def _play(scene: Scene, carry: Carry, round: Array) -> Carry:
    """One round of one replicate; nothing changes once the learner has stopped."""
    policy, world = scene.policy, scene.environment
    at = partial(Stream.of(seed=scene.seed, replicate=carry.replicate).at, round=round)
    going = ~policy.stopped(carry.state)
    action = policy.propose(carry.state, round, at(POLICY))
    state = carry.state
    for privatizer in scene.privatizers.values():
        losses = world.losses(carry.world, action, round, at(REWARD))
        record = policy.answer(action, losses)
        report = privatizer.randomize(record, Clock(round=round, since={}), at(DEVICE))
        learned = policy.update(state, action, report, round)
        state = jax.tree.map(partial(jnp.where, going), learned, state)
    lost = world.regret(carry.world, action, round)
    return Carry(
        replicate=carry.replicate,
        world=carry.world,
        state=state,
        regret=carry.regret + jnp.where(going, lost, 0),
        asked=carry.asked + (going & bool(scene.privatizers)),
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
        """Play the whole horizon, or until every replicate has stopped asking."""
        done, quiet = 0, False
        while done < horizon:
            step = min(length, horizon - done)
            carry = carry if quiet else self._segment(carry, done, step)
            done += step
            quiet = bool(self.scene.privatizers) and int(carry.asked.max()) < done
            self.rounds.append(done)
            self.regret.append(np.array(carry.regret))
            self.report("playing", done)
        return carry

    def _segment(self, carry: Carry, done: int, length: int) -> Carry:
        """Some rounds, compiled once for one structure, and timed."""
        segment, seconds = compiled(
            advance,
            *(self.scene, carry, jnp.int32(0)),
            about=lambda: self.report("compiling", done),
            length=length,
        )
        self.compile_seconds += seconds
        start = time.perf_counter()
        played: Carry = segment(self.scene, carry, jnp.int32(done))
        played.regret.block_until_ready()
        self.seconds += time.perf_counter() - start
        return played
