"""Play a bandit that goes by phases: a design, fresh clients, a release, the next design.

The actions of a phase are public and the same for everyone, so nothing happens round by round: a
run of a million rounds is some twenty phases, in each of which the clients that are asked are
simulated one by one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from kerchief.core.contracts import Clock, Release, Tree
from kerchief.core.precision import double_precision
from kerchief.core.random import AGGREGATOR, DEVICE, REWARD, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.environments.population import Population, World
from kerchief.policies.phased.contract import ANSWERS, Asked, Asking, Phase, Phased
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import Ledger
from kerchief.privatizers.billing import pay, settle
from kerchief.privatizers.registry import TRUSTS
from kerchief.privatizers.schedule import At, Every
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.sums import CohortSums
from kerchief.simulation.machine import compiled
from kerchief.simulation.run import Progress, Run, check_sizes

__all__ = [
    "Carry",
    "PhasedRun",
    "Protocol",
    "Scene",
    "arrange",
    "begin",
    "learn",
    "play",
    "simulate_phases",
]

# Clients that are simulated at once, in each replicate.
_BLOCK = 256
# What a plain number costs on the wire.
_BITS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasedRun(Run):
    """What a simulation by phases recorded.

    Attributes:
        communication: for "reals" and "bits", how many of them clients sent in each replicate.
    """

    communication: Mapping[str, NDArray[np.float64]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """Who is asked when, and how answers are protected; settled before the first client.

    Attributes:
        phases: all phases that may be played, with the clients of each.
        privatizer: protects the answers; None where nothing is asked.
    """

    phases: tuple[Phase, ...]
    privatizer: CohortSums | None

    @property
    def privatizers(self) -> Mapping[str, CohortSums]:
        """The privatizer under its query's name."""
        return {} if self.privatizer is None else {ANSWERS: self.privatizer}

    @property
    def untimed(self) -> CohortSums | None:
        """The privatizer as compiled code wants it: one program serves all schedules."""
        return None if self.privatizer is None else self.privatizer.with_schedule(Every())

    @property
    def clients(self) -> int:
        """How many clients may be asked in all."""
        return sum(int(phase.clients) for phase in self.phases)

    def bits(self, users: int) -> int:
        """What one number of an answer costs on the wire, in a group of so many clients."""
        if isinstance(self.privatizer, ShuffledSums):
            return self.privatizer.coins.width(users)
        return _BITS


def arrange(policy: Phased, guarantee: Guarantee) -> Protocol:
    """Give a policy the phases and the privatizer that the guarantee's trust asks for.

    The clients of a phase are one cohort, and clients are numbered in the order in which they are
    asked: nobody is asked twice, so phases compose in parallel.

    Raises:
        InvalidValue: the population is too small to ask everyone once.
        UnknownName: no privatizer for this trust.

    >>> from kerchief.policies.phased import PHASED
    >>> problem = Population.of(dim=2, arms=5, clients=1000).problem(1000)
    >>> promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.CENTRAL)
    >>> policy = PHASED["dpe@paper"].make(problem, "tuned")
    >>> [phase.clients for phase in arrange(policy, promise).phases]
    [2, 4, 6, 10, 16, 28, 49, 85]
    """
    if not policy.queries:
        return Protocol(phases=policy.phases(lambda clients: 0.0), privatizer=None)
    private = guarantee.trust is not Trust.NONE
    multiplier = gaussian_noise_multiplier(guarantee.epsilon, guarantee.delta) if private else 0.0
    make = TRUSTS[guarantee.trust].make
    privatizer = make(policy.queries[ANSWERS], multiplier, policy.problem.clients)
    assert isinstance(privatizer, CohortSums)
    phases = policy.phases(partial(_noise, privatizer))
    ends = tuple(itertools.accumulate(int(phase.clients) for phase in phases))
    if not ends:
        return Protocol(phases=(), privatizer=None)
    return Protocol(phases=phases, privatizer=privatizer.with_schedule(At(ends=ends)))


def _noise(privatizer: CohortSums, clients: int) -> float:
    """Standard deviation of the noise on the mean of so many answers, without rounding."""
    device, aggregator = (
        0.0 if noise is None else float(noise.std)
        for noise in (privatizer.device, privatizer.aggregator)
    )
    return math.hypot(device * math.sqrt(clients), aggregator) / clients


@double_precision
def simulate_phases(
    *,
    policy: Phased,
    protocol: Protocol,
    population: Population,
    ledger: Ledger,
    horizon: int,
    replicates: int,
    seed: int,
    first_replicate: int = 0,
    ticks: int = 100,
    progress: Progress | None = None,
) -> PhasedRun:
    """Play one policy under one protection in one population, many times over.

    As `simulate`: the ledger is charged for all phases before anything is drawn and settled for
    those that were played; replicates are parallel universes that share one bill.

    The plays of a phase are interleaved, so regret grows evenly within it, up to a play an action.
    The phase that the horizon cuts asks nobody.

    Args:
        policy: the bandit.
        protocol: from `arrange`.
        population: the world.
        ledger: pays, or refuses with BudgetExceeded before anything is played.
        horizon: number of rounds.
        replicates: how many independent runs.
        seed: of everything random here; 0 to 2**32 - 1.
        first_replicate: number of the first replicate.
        ticks: how often regret is read.
        progress: called with "compiling" or "playing" and the rounds done so far.

    >>> from kerchief.policies.phased import PHASED
    >>> from kerchief.privacy import MemoryLedger
    >>> free = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    >>> world = Population.of(dim=2, arms=5, clients=1000)
    >>> policy = PHASED["uniform"].make(world.problem(500), "tuned")
    >>> run = simulate_phases(policy=policy, protocol=arrange(policy, free), population=world,
    ...                       ledger=MemoryLedger(free), horizon=500, replicates=4, seed=1, ticks=5)
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
    privatizers = protocol.privatizers
    receipts = pay(privatizers, ledger, horizon=max(1, protocol.clients))
    scene = Scene(
        policy=policy,
        privatizer=protocol.untimed,
        population=population,
        seed=jnp.uint32(seed),
    )
    numbers = jnp.arange(first_replicate, first_replicate + replicates, dtype=jnp.uint32)
    recorder = _Recorder(protocol=protocol, scene=scene, report=progress or (lambda *news: None))
    carry = recorder.play(begin(scene, numbers))
    releases = np.asarray(carry.releases, np.int64)
    most = int(releases.max())
    covered = sum(int(phase.clients) for phase in protocol.phases[:most])
    settle(
        privatizers,
        ledger,
        receipts,
        users=covered,
        covered={ANSWERS: covered},
        releases={ANSWERS: most},
    )
    rounds = _ticks(horizon, ticks)
    return PhasedRun(
        rounds=rounds,
        regret=recorder.curves(rounds),
        releases={ANSWERS: releases} if privatizers else {},
        spent=ledger.spent(),
        seconds=recorder.seconds,
        compile_seconds=recorder.compile_seconds,
        device=jax.devices()[0].platform,
        communication={name: np.asarray(sent) for name, sent in recorder.sent.items()},
    )


@struct
class Scene:
    """What plays: its structure is compiled, its numbers are arguments."""

    policy: Phased
    privatizer: CohortSums | None
    population: Population
    seed: Array

    @property
    def asking(self) -> tuple[Asking, CohortSums]:
        """The bandit that asks and what protects its answers, where there are phases."""
        assert isinstance(self.policy, Asking)
        assert self.privatizer is not None
        return self.policy, self.privatizer


@struct
class Carry:
    """A bandit between two phases, its world and what it has lost.

    Attributes:
        replicate: its number.
        world: the truth.
        state: what the learner knows.
        last: what was released last, a total a group of clients.
        rounds: how many rounds were played.
        regret: what they lost.
        done: whether no further phase is played.
        releases: how many phases were played to the end.
        reals: how many numbers each client of the last phase sent; 0 if nobody was asked.
    """

    replicate: Array
    world: World
    state: Tree
    last: Release
    rounds: Array
    regret: Array
    done: Array
    releases: Array
    reals: Array


@jax.jit
def begin(scene: Scene, replicates: Array) -> Carry:
    """All replicates before their first phase."""

    def begin_one(replicate: Array) -> Carry:
        zero = jnp.float64(0)
        return Carry(
            replicate=replicate,
            world=scene.population.init(Stream.of(seed=scene.seed, replicate=replicate).at(WORLD)),
            state=scene.policy.init(),
            last=_nothing(scene),
            rounds=zero,
            regret=zero,
            done=jnp.bool_(False),
            releases=jnp.int32(0),
            reals=jnp.int32(0),
        )

    return jax.vmap(begin_one)(replicates)


@jax.jit
def play(scene: Scene, carry: Carry, phase: Phase) -> Carry:
    """One phase of every replicate that is not done."""
    one = partial(_play, scene, phase)
    if jax.default_backend() == "cpu":
        # One after another: those that are done then cost nothing.
        played: Carry = jax.lax.map(one, carry)
        return played
    return jax.vmap(one)(carry)


@jax.jit
def finish(scene: Scene, carry: Carry) -> Array:
    """The regret after all rounds; about those that no whole phase fits into, nobody is asked."""

    def finish_one(carry: Carry) -> Array:
        weights = scene.policy.finish(carry.world.features, carry.state)
        losses: Array = scene.population.losses(carry.world)
        left = scene.policy.problem.horizon - carry.rounds
        return carry.regret + left * (weights * losses).sum()

    return jax.vmap(finish_one)(carry)


def _nothing(scene: Scene) -> Release:
    """What was released before the first phase: as many totals as there will be, of nobody."""
    groups = size = 0
    if scene.privatizer is not None:
        policy, privatizer = scene.asking
        groups, size = policy.groups, privatizer.query.size
    return Release(
        total=jnp.zeros((groups, size), jnp.float64),
        count=jnp.zeros(groups, jnp.int32),
        noise=jnp.zeros(groups, jnp.float64),
    )


def _play(scene: Scene, phase: Phase, carry: Carry) -> Carry:
    """One phase of one replicate, if it still fits before the horizon."""
    policy, privatizer = scene.asking
    features = carry.world.features
    asked = policy.ask(features, carry.state, phase, noisy=privatizer.outlook.noisy)
    fits = ~carry.done & (carry.rounds + asked.rounds <= policy.problem.horizon)

    def go(carry: Carry) -> Carry:
        release = _release(scene, phase, carry, asked)
        state = learn(policy, features, carry.state, asked, phase, release)
        losses = scene.population.losses(carry.world)[asked.atoms]
        return dataclasses.replace(
            carry,
            state=state,
            last=release,
            rounds=carry.rounds + asked.rounds,
            regret=carry.regret + (asked.plays * losses).sum(),
            done=policy.settled(state),
            releases=carry.releases + 1,
            reals=asked.reals.astype(jnp.int32),
        )

    def stop(carry: Carry) -> Carry:
        return dataclasses.replace(carry, done=jnp.bool_(True), reals=jnp.int32(0))

    after: Carry = jax.lax.cond(fits, go, stop, carry)
    return after


def learn(
    policy: Asking, features: Array, state: Tree, asked: Asked, phase: Phase, release: Release
) -> Tree:
    """Learner: turn the totals of all groups into means, and take them in."""
    users = jnp.maximum(release.count, 1)
    mean = release.total / users[:, None]
    noise = jnp.broadcast_to((release.noise / users)[:, None], mean.shape)
    return policy.update(features, state, asked, phase, mean.ravel(), noise.ravel())


def _release(scene: Scene, phase: Phase, carry: Carry, asked: Asked) -> Release:
    """Ask the clients of a phase, in blocks, and release the total of each group's answers."""
    policy, privatizer = scene.asking
    world, groups = carry.world, policy.groups
    root = Stream.of(seed=scene.seed, replicate=carry.replicate)
    ends = jnp.cumsum(asked.users)

    def answer(place: Array, group: Array) -> Array:
        """Device: what one client sends."""
        client = phase.first + place
        # One group is not looked up: all clients then share its arrays.
        own = 0 if groups == 1 else group
        at, clock = partial(root.at, round=client), Clock(round=client, since={})
        features, pulls = world.features[asked.atoms[own]], asked.pulls[own]
        averages = scene.population.averages(world, features, pulls, at(REWARD))
        record = policy.answer(asked, own, averages)
        sent: Array = privatizer.randomize(record, clock, at(DEVICE))
        return sent

    def block(number: Array, tally: Tree) -> Tree:
        place = number * _BLOCK + jnp.arange(_BLOCK, dtype=jnp.int32)
        # Whoever comes after the last group is a member of none.
        group = jnp.searchsorted(ends, place, side="right")
        members = (jnp.arange(groups)[:, None] == group).astype(jnp.float64)
        sums = members @ jax.vmap(answer)(place, group).astype(jnp.float64)
        return jax.vmap(privatizer.collect)(tally, sums)

    def release(tally: Tree, users: Array, group: Array) -> Release:
        """Every group is a cohort of its own: its total begins with nobody."""
        clock, stream = Clock(round=users - 1, since={}), root.at(AGGREGATOR, round=phase.number)
        memory, _ = privatizer.open()
        return privatizer.release(memory, tally, None, clock, stream.split(group))[0]

    blocks = -(-ends[-1] // _BLOCK)
    empty = jax.vmap(lambda group: privatizer.open()[1])(jnp.arange(groups))
    tally = jax.lax.fori_loop(0, blocks, block, empty)
    return jax.vmap(release)(tally, asked.users, jnp.arange(groups, dtype=jnp.uint32))


@dataclasses.dataclass(kw_only=True)
class _Recorder:
    """Plays phase by phase and keeps where each replicate stood after each."""

    protocol: Protocol
    scene: Scene
    report: Progress
    rounds: list[NDArray[np.float64]] = dataclasses.field(default_factory=list)
    regret: list[NDArray[np.float64]] = dataclasses.field(default_factory=list)
    sent: dict[str, NDArray[np.float64]] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    compile_seconds: float = 0.0

    def play(self, carry: Carry) -> Carry:
        """All phases until every replicate is done, then the rounds that are left."""
        horizon, count = self.scene.policy.problem.horizon, carry.replicate.shape[0]
        self.sent = {"reals": np.zeros(count), "bits": np.zeros(count)}
        self._keep(np.zeros(count), np.zeros(count))
        for phase in self.protocol.phases:
            carry = self._timed(play, carry, jax.tree.map(jnp.int32, phase))
            self._keep(carry.rounds, carry.regret)
            self._count(np.asarray(carry.reals), np.asarray(carry.last.count))
            self.report("playing", int(self.rounds[-1].min()))
            if bool(carry.done.all()):
                break
        self._keep(np.full(count, horizon), self._timed(finish, carry))
        self.report("playing", horizon)
        return carry

    def curves(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cumulative regret after these rounds, a row each, with a column a replicate."""
        ends, regret = np.stack(self.rounds), np.stack(self.regret)
        columns = [np.interp(rounds, ends[:, one], regret[:, one]) for one in range(ends.shape[1])]
        return np.stack(columns, axis=1)

    def _count(self, reals: NDArray[np.int32], users: NDArray[np.int32]) -> None:
        """Add what the clients of a phase sent: so many numbers each, in groups of these sizes."""
        bits = {int(one): self.protocol.bits(int(one)) for one in np.unique(users) if one}
        width = np.vectorize(lambda one: bits.get(int(one), 0), otypes=[np.float64])(users)
        self.sent["reals"] += reals * users.sum(1, dtype=np.float64)
        self.sent["bits"] += reals * (width * users).sum(1)

    def _keep(self, rounds: ArrayLike, regret: ArrayLike) -> None:
        self.rounds.append(np.asarray(rounds, np.float64))
        self.regret.append(np.asarray(regret, np.float64))

    def _timed(self, function: object, *arguments: object) -> Tree:
        done = int(self.rounds[-1].min())
        code, seconds = compiled(
            function, self.scene, *arguments, about=lambda: self.report("compiling", done)
        )
        self.compile_seconds += seconds
        start = time.perf_counter()
        result = code(self.scene, *arguments)
        for leaf in jax.tree.leaves(result):
            leaf.block_until_ready()
        self.seconds += time.perf_counter() - start
        return result


def _ticks(horizon: int, ticks: int) -> NDArray[np.int64]:
    """The rounds after which regret is read: equal segments, and a shorter last one."""
    length = max(1, horizon // ticks)
    return np.append(np.arange(length, horizon, length), horizon).astype(np.int64)
