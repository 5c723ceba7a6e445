"""Play a bandit that goes by phases: a design, fresh clients, a release, the next design.

Actions are public and the same for everyone, so nothing happens round by round: a million rounds
are some twenty phases, in each of which the clients that are asked are simulated one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Clock, NoiseInfo, Release, Tree
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy, PhaseQuery, learn
from kerchief.core.random import AGGREGATOR, DEVICE, REWARD, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.environments.population import Population, PopulationTruth
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.protect import mean_noise
from kerchief.privatizers.schedule import Every
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.sums import CohortSums
from kerchief.simulation.devices import on_all_devices
from kerchief.simulation.recorder import Recorder, UnsettledRun

Floats = NDArray[np.float64]

# Clients that are simulated at once, in each replicate.
_BLOCK = 256
# What a plain number costs on the wire.
_BITS = 64


def phases_of(policy: PhasePolicy, privatizers: Mapping[str, Privatizer]) -> tuple[Phase, ...]:
    """All phases that may be played, with the clients of each; settled before the first client."""
    if ANSWERS not in privatizers:
        return ()
    return policy.phases(partial(mean_noise, privatizers[ANSWERS]))


@struct
class PhaseScene:
    """What plays: the structure is compiled, the numbers are arguments."""

    policy: PhasePolicy
    privatizer: CohortSums | None
    environment: Population
    seed: Array

    @classmethod
    def of(
        cls,
        policy: PhasePolicy,
        privatizers: Mapping[str, Privatizer],
        environment: Population,
        seed: int,
    ) -> Self:
        """Build a scene without the schedule, which compiled code does not need."""
        privatizer = privatizers.get(ANSWERS)
        if privatizer is not None:
            privatizer = privatizer.with_schedule(Every())
            assert isinstance(privatizer, CohortSums)
        return cls(
            policy=policy, privatizer=privatizer, environment=environment, seed=jnp.uint32(seed)
        )

    @property
    def protection(self) -> CohortSums:
        """What protects the answers, where there are phases."""
        assert self.privatizer is not None
        return self.privatizer


@struct
class PhaseReplicate:
    """A bandit between two phases, its world and what it has lost.

    Attributes:
        last: what was released last, one total per group of clients.
        releases: how many phases were played to the end.
        reals: how many numbers each client of the last phase sent; 0 if nobody was asked.
    """

    replicate: Array
    world: PopulationTruth
    state: Tree
    last: Release
    rounds: Array
    regret: Array
    done: Array
    releases: Array
    reals: Array


@jax.jit
def begin(scene: PhaseScene, replicates: Array) -> PhaseReplicate:
    """All replicates before their first phase."""
    return on_all_devices(_begin, scene, replicates)


def _begin(scene: PhaseScene, replicates: Array) -> PhaseReplicate:
    noisy = scene.privatizer is not None and scene.privatizer.outlook.noisy
    outlook = {name: NoiseInfo(noisy=noisy) for name in scene.policy.queries}

    def begin_one(replicate: Array) -> PhaseReplicate:
        zero = jnp.float64(0)
        return PhaseReplicate(
            replicate=replicate,
            world=scene.environment.init(Stream.of(seed=scene.seed, replicate=replicate).at(WORLD)),
            state=scene.policy.init(outlook),
            last=_make_empty_release(scene),
            rounds=zero,
            regret=zero,
            done=jnp.bool_(False),
            releases=jnp.int32(0),
            reals=jnp.int32(0),
        )

    return jax.vmap(begin_one)(replicates)


@jax.jit
def play(scene: PhaseScene, carry: PhaseReplicate, phase: Phase) -> PhaseReplicate:
    """Play one phase of every replicate that is not done."""
    return on_all_devices(_play_all, scene, carry, phase)


def _play_all(scene: PhaseScene, carry: PhaseReplicate, phase: Phase) -> PhaseReplicate:
    play_one = partial(_play, scene, phase)
    if jax.default_backend() == "cpu":
        # One after another: those that are done then cost nothing.
        after: PhaseReplicate = jax.lax.map(play_one, carry)
        return after
    return jax.vmap(play_one)(carry)


@jax.jit
def finish(scene: PhaseScene, carry: PhaseReplicate) -> Array:
    """The regret after all rounds; about those that no whole phase fits into, nobody is asked."""

    def finish_one(carry: PhaseReplicate) -> Array:
        weights = scene.policy.finish(carry.world.features, carry.state)
        losses: Array = scene.environment.losses(carry.world)
        rounds_left = scene.policy.problem.horizon - carry.rounds
        return carry.regret + rounds_left * (weights * losses).sum()

    return jax.vmap(finish_one)(carry)


def _make_empty_release(scene: PhaseScene) -> Release:
    """Make the release before the first phase: an empty total for each group."""
    privatizer = scene.privatizer
    groups, size = (scene.policy.groups, privatizer.query.size) if privatizer else (0, 0)
    return Release(
        total=jnp.zeros((groups, size), jnp.float64),
        count=jnp.zeros(groups, jnp.int32),
        noise=jnp.zeros(groups, jnp.float64),
    )


def _play(scene: PhaseScene, phase: Phase, carry: PhaseReplicate) -> PhaseReplicate:
    """Play one phase of one replicate, if it still fits before the horizon."""
    policy, privatizer = scene.policy, scene.protection
    features = carry.world.features
    design = policy.ask(features, carry.state, phase, noisy=privatizer.outlook.noisy)
    fits = ~carry.done & (carry.rounds + design.rounds <= policy.problem.horizon)

    def go(carry: PhaseReplicate) -> PhaseReplicate:
        release = _release(scene, phase, carry, design)
        state = learn(policy, features, carry.state, design, phase, release)
        losses = scene.environment.losses(carry.world)[design.atoms]
        return dataclasses.replace(
            carry,
            state=state,
            last=release,
            rounds=carry.rounds + design.rounds,
            regret=carry.regret + (design.plays * losses).sum(),
            done=policy.is_settled(state),
            releases=carry.releases + 1,
            reals=design.reals.astype(jnp.int32),
        )

    def stop(carry: PhaseReplicate) -> PhaseReplicate:
        return dataclasses.replace(carry, done=jnp.bool_(True), reals=jnp.int32(0))

    after: PhaseReplicate = jax.lax.cond(fits, go, stop, carry)
    return after


def _release(scene: PhaseScene, phase: Phase, carry: PhaseReplicate, design: PhaseQuery) -> Release:
    """Ask the clients of a phase, in blocks, and release the total of each group's answers."""
    policy, privatizer = scene.policy, scene.protection
    world, groups = carry.world, policy.groups
    root = Stream.of(seed=scene.seed, replicate=carry.replicate)
    ends = jnp.cumsum(design.users)

    def answer(place: Array, group: Array) -> Array:
        """Device: what one client sends."""
        client = phase.first + place
        # One group is not looked up: all clients then share its arrays.
        own = 0 if groups == 1 else group
        at, clock = partial(root.at, round=client), Clock(round=client, since={})
        features, pulls = world.features[design.atoms[own]], design.pulls[own]
        averages = scene.environment.averages(world, features, pulls, at(REWARD))
        record = policy.answer(design, own, averages)
        report: Array = privatizer.randomize(record, clock, at(DEVICE))
        return report

    def block(number: Array, tally: Tree) -> Tree:
        place = number * _BLOCK + jnp.arange(_BLOCK, dtype=jnp.int32)
        # Whoever comes after the last group is a member of none.
        group = jnp.searchsorted(ends, place, side="right")
        members = (jnp.arange(groups)[:, None] == group).astype(jnp.float64)
        sums = members @ jax.vmap(answer)(place, group).astype(jnp.float64)
        return jax.vmap(privatizer.collect)(tally, sums)

    def release(tally: Tree, users: Array, group: Array) -> Release:
        """Release the total of one group, which is a cohort of its own."""
        clock, stream = Clock(round=users - 1, since={}), root.at(AGGREGATOR, round=phase.number)
        memory, _ = privatizer.open()
        return privatizer.release(memory, tally, None, clock, stream.split(group))[0]

    blocks = -(-ends[-1] // _BLOCK)
    empty = jax.vmap(lambda group: privatizer.open()[1])(jnp.arange(groups))
    tally = jax.lax.fori_loop(0, blocks, block, empty)
    return jax.vmap(release)(tally, design.users, jnp.arange(groups, dtype=jnp.uint32))


def play_phases(
    policy: PhasePolicy,
    privatizers: Mapping[str, Privatizer],
    environment: Population,
    *,
    replicates: Array,
    seed: int,
    rounds: NDArray[np.int64],
    recorder: Recorder,
) -> UnsettledRun:
    """Play all phases until every replicate is done, then the rounds that are left.

    The plays of a phase are interleaved, so regret grows evenly within it, up to one play per
    action. The phase that the horizon cuts asks nobody.
    """
    scene = PhaseScene.of(policy, privatizers, environment, seed)
    phases, nothing = phases_of(policy, privatizers), np.zeros(len(replicates))
    ends, regret = [nothing], [nothing]
    communication = {name: np.zeros(len(replicates)) for name in ("reals", "bits")}
    carry: PhaseReplicate = recorder.run(begin, scene, replicates)
    for phase in phases:
        number = jax.tree.map(jnp.int32, phase)
        carry = recorder.run(play, scene, carry, number)
        ends.append(np.asarray(carry.rounds))
        regret.append(np.asarray(carry.regret))
        for name, numbers_sent in _count_sent(
            privatizers[ANSWERS], np.asarray(carry.last.count)
        ).items():
            communication[name] += np.asarray(carry.reals) * numbers_sent
        recorder.tick(int(np.asarray(carry.rounds).min()))
        if bool(carry.done.all()):
            break
    horizon = policy.problem.horizon
    ends.append(np.full(len(replicates), horizon))
    regret.append(np.asarray(recorder.run(finish, scene, carry)))
    recorder.tick(horizon)
    releases = np.asarray(carry.releases, np.int64)
    covered = sum(int(phase.clients) for phase in phases[: int(releases.max())])
    return UnsettledRun(
        regret=_interpolate_regret(np.stack(ends), np.stack(regret), rounds),
        releases=dict.fromkeys(privatizers, releases),
        users=covered,
        covered=dict.fromkeys(privatizers, covered),
        communication=communication,
    )


def _interpolate_regret(ends: Floats, regret: Floats, rounds: NDArray[np.int64]) -> Floats:
    """Cumulative regret after these rounds, from what each replicate had after each phase."""
    pairs = zip(ends.T, regret.T, strict=True)
    return np.stack([np.interp(rounds, *pair) for pair in pairs], axis=1)


def _count_sent(privatizer: Privatizer, users: NDArray[np.int32]) -> dict[str, Floats]:
    """Count what clients send in each replicate, per number of an answer."""
    sizes, where = np.unique(users, return_inverse=True)
    bits = np.array([_count_bits(privatizer, int(size)) for size in sizes], np.float64)[where]
    return {
        "reals": users.sum(1, dtype=np.float64),
        "bits": (bits.reshape(users.shape) * users).sum(1),
    }


def _count_bits(privatizer: Privatizer, users: int) -> int:
    """What one number of an answer costs on the wire, in a group of so many clients."""
    if users and isinstance(privatizer, ShuffledSums) and mean_noise(privatizer, 1) > 0:
        return privatizer.coins.width(users)
    return _BITS
