"""The compiled loop: `deployment.round` mapped over replicates and scanned over time.

On an accelerator rounds go in blocks: until a model is posted, users act at the same time.
Branches on public time stay branches, since the round is not mapped. Releases that each learner
wants at a time of its own are served afterwards, a few replicates at a time, so that only those
that are due cost anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import (
    AdaptiveAdversary,
    Arms,
    Clock,
    Environment,
    HasBestAction,
    HasBestArm,
    OmniscientAdversary,
    Oracle,
    Policy,
    Recommends,
    Release,
    Stops,
    Tree,
    does_newest_count,
)
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.deployment.round import Carry, Round
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import Every, OnDemand
from kerchief.simulation.devices import on_all_devices

# How many replicates an accelerator serves at once, if no more than few are waiting, and else: fits
# wait for the slowest among them, and lanes without work take as long as those with it.
_FEW_LANES, _MANY_LANES = 16, 128
# How many numbers arms and statistics of a block may have: larger ones keep an accelerator busy.
_MOST_NUMBERS = 2**23
# Runs of fewer rounds are played one by one: 10 000 rounds take 0.3 s longer, or a second where
# other processes play, and their code is there 2 to 7 s earlier.
_WORTH_A_BLOCK = 20_000


@struct
class Scene:
    """What plays: its structure is compiled, its numbers are arguments."""

    policy: Policy
    privatizers: Mapping[str, Privatizer]
    environment: Environment
    seed: Array

    @property
    def bandit(self) -> Round:
        """The round of one bandit."""
        return Round(policy=self.policy, privatizers=self.privatizers)

    def root(self, carry: Replicate) -> Stream:
        """Where a replicate's randomness begins."""
        return Stream.of(seed=self.seed, replicate=carry.replicate)


@struct
class Replicate(Carry):
    """A bandit, its world, what it has lost and what it has earned.

    Where users answer with losses, nothing is earned.
    """

    replicate: Array
    world: Tree
    regret: Array
    earned: Array | None


Taken: TypeAlias = tuple[Replicate, Mapping[str, Release]]
"""All replicates, and what was released to learners that have not heard of it yet."""


@jax.jit
def begin(scene: Scene, replicates: Array) -> Replicate:
    """All replicates before their first round."""
    return on_all_devices(_begin, scene, replicates)


def _begin(scene: Scene, replicates: Array) -> Replicate:
    def begin_one(replicate: Array) -> Replicate:
        at = Stream.of(seed=scene.seed, replicate=replicate).at(WORLD)
        return begin_in(scene, replicate, scene.environment.init(at))

    return jax.vmap(begin_one)(replicates)


def begin_in(scene: Scene, replicate: Array, world: Tree) -> Replicate:
    """One replicate before its first round, in its world."""
    fields = dict(vars(scene.bandit.begin()))
    if isinstance(scene.policy, Oracle) and isinstance(scene.environment, HasBestArm):
        fields["model"] = scene.policy.play_only(scene.environment.single(world))
    earned = jnp.float64(0) if scene.policy.feedback == "totals" else None
    return Replicate(
        replicate=replicate, world=world, regret=jnp.float64(0), earned=earned, **fields
    )


@partial(jax.jit, static_argnames="length", donate_argnames="carry")
def advance(scene: Scene, carry: Replicate, start: Array, *, length: int) -> Replicate:
    """Play `length` rounds from round `start` on, one by one, in every replicate."""
    return on_all_devices(play_rounds, scene, carry, start, jnp.int32(length))


@partial(jax.jit, static_argnames=("segments", "longest"), donate_argnames="carry")
def play_segments(
    scene: Scene, carry: Replicate, start: Array, length: Array, *, segments: int, longest: int
) -> tuple[Replicate, Array]:
    """Play segments of `length` rounds from round `start` on, and read regrets after each.

    Compiled code serves every length, in blocks of at most `longest` rounds.

    Returns:
        All replicates, and their regrets: one row per replicate, one column per segment.
    """
    starts = start + length * jnp.arange(segments, dtype=jnp.int32)
    play = partial(_play_segments, longest=longest)
    return on_all_devices(play, scene, carry, starts, length)


def _play_segments(
    scene: Scene, carry: Replicate, starts: Array, length: Array, *, longest: int
) -> tuple[Replicate, Array]:
    def segment(carry: Replicate, start: Array) -> tuple[Replicate, Array]:
        carry = _advance(scene, carry, start, length, longest=longest)
        return carry, carry.regret

    carry, regret = jax.lax.scan(segment, carry, starts)
    return carry, regret.T


def _advance(
    scene: Scene, carry: Replicate, start: Array, length: Array, *, longest: int
) -> Replicate:
    """Play round by round, or, where that is faster, from one post to the next."""
    size, last = block_size(scene, carry, longest), start + length - 1
    if size == 1:
        return play_rounds(scene, carry, start, length)

    def play_block(at: tuple[Replicate, Array]) -> tuple[Replicate, Array]:
        carry, now = at
        block = now + jnp.arange(size, dtype=jnp.int32)
        ends = (block == last) | _posts(scene, carry, block)
        count = jnp.where(ends.any(), ends.argmax() + 1, size).astype(jnp.int32)
        return _play_block(scene, carry, block, count), now + count

    return jax.lax.while_loop(lambda at: at[1] <= last, play_block, (carry, start))[0]


def play_rounds(
    scene: Scene,
    carry: Replicate,
    start: Array,
    length: Array,
    handed: Callable[[Array], Tree] | None = None,
) -> Replicate:
    """Play round by round; where something is handed out, it stands for the worlds in a round."""
    last = start + length - 1

    def play_round(at: tuple[Replicate, Array]) -> tuple[Replicate, Array]:
        carry, now = at
        if handed is not None:
            carry = dataclasses.replace(carry, world=handed(now))
        carry, wishes = jax.vmap(partial(_play, scene), in_axes=(0, None))(carry, now)
        if handed is not None:
            carry = dataclasses.replace(carry, world=None)
        for name, due in wishes.items():
            carry = _serve(scene, carry, now, name, due)
        return carry, now + 1

    return jax.lax.while_loop(lambda at: at[1] <= last, play_round, (carry, start))[0]


def longest_block(horizon: int) -> int:
    """How many rounds a block may have in a run of so many: one on a CPU.

    On an accelerator a round takes as long as its kernels take to start, however many play: there
    blocks have 16 rounds, a power of two, as those are between which models are posted ever more
    rarely. To compile them takes two or three times as long, which short runs do not win back.
    """
    return 1 if jax.default_backend() == "cpu" or horizon < _WORTH_A_BLOCK else 16


def block_size(scene: Scene, carry: Replicate, longest: int) -> int:
    """How many rounds make a block: at most the longest, and one where a round needs the last.

    Half as many where noise on a running total takes a step in each of them, so that rounds that
    are left out of a block, once a model is posted, cost most.
    """
    policy, world, bandit, size = scene.policy, scene.environment, scene.bandit, longest
    if (
        size == 1
        or isinstance(world, OmniscientAdversary | AdaptiveAdversary)
        or isinstance(policy, Stops)
    ):
        return 1
    schedules = {name: privatizer.schedule for name, privatizer in scene.privatizers.items()}
    if policy.feedback != "totals" or any(isinstance(s, OnDemand) for s in schedules.values()):
        return 1
    replicate, round = jax.tree.map(lambda leaf: leaf[0], carry), jnp.int32(0)
    clock = bandit.clock(replicate, round)
    due = policy.due(replicate.state, clock)
    always = all(due[name] is True for name, s in schedules.items() if isinstance(s, Every))
    if not always or bandit.posts(clock) is True:
        return 1
    totals = [
        privatizer
        for privatizer in scene.privatizers.values()
        if isinstance(privatizer, PrefixSums)
    ]
    if any(isinstance(privatizer.schedule, Every) for privatizer in totals):
        size //= 2
    arms = jax.eval_shape(
        lambda: world.arms(replicate.world, clock, scene.root(replicate).at(ARMS))
    )
    numbers = sum(leaf.size for leaf in jax.tree.leaves(arms))
    numbers += sum(privatizer.query.size for privatizer in scene.privatizers.values())
    while size > 1 and size * len(carry.replicate) * numbers > _MOST_NUMBERS:
        size //= 2
    return size


def _block_clock(scene: Scene, carry: Replicate, round: Array) -> Clock:
    """Public time in a round of a block that began with this carry."""
    kinds = {name: privatizer.schedule for name, privatizer in scene.privatizers.items()}
    last = {
        name: round - 1 if isinstance(kinds[name], Every) else last
        for name, last in carry.last.items()
    }
    return scene.bandit.clock(dataclasses.replace(carry, last=last), round)


def _posts(scene: Scene, carry: Replicate, block: Array) -> Array:
    """Find the rounds of a block after which a model is posted."""

    def posts(carry: Replicate, round: Array) -> Array:
        return jnp.asarray(scene.bandit.posts(_block_clock(scene, carry, round)))

    return jax.vmap(jax.vmap(posts, in_axes=(0, None)), in_axes=(None, 0))(carry, block).any(1)


def _play_block(scene: Scene, carry: Replicate, block: Array, count: Array) -> Replicate:
    """Play the first rounds of a block, whose users act all at once.

    Only the last of these rounds may post a model. Between two posts users know nothing of each
    other. Only their reports are collected one after the other; every number drawn depends on its
    address alone, so it is the same in a block.
    """
    world, bandit, last = scene.environment, scene.bandit, block[0] + count - 1

    def visit(replicate: Replicate, round: Array) -> tuple[Mapping[str, Array], Array, Array]:
        root, clock = scene.root(replicate), _block_clock(scene, replicate, round)
        arms = world.arms(replicate.world, clock, root.at(ARMS, round=round))
        action = bandit.act(replicate.model, arms, clock, root)
        reward = world.reward(replicate.world, arms, action, clock, root.at(REWARD, round=round))
        reports = bandit.report(replicate.model, arms, action, reward, clock, root)
        return reports, reward, world.regret(replicate.world, arms, action, clock)

    # Where only the newest counts, if any, the learner hears of releases once in a block.
    lazy = not scene.privatizers or does_newest_count(scene.policy)

    def take_one(replicate: Replicate, reports: Mapping[str, Array], round: Array) -> Taken:
        clock, root = bandit.clock(replicate, round), scene.root(replicate)
        if lazy:
            return bandit.collect_releases(replicate, reports, clock, root)
        return bandit.take(replicate, reports, clock, root), {}

    take_all = jax.vmap(take_one, in_axes=(0, 0, None))

    def take(
        before: Taken, visited: tuple[Array, Mapping[str, Array], Array, Array]
    ) -> tuple[Taken, None]:
        round, reports, rewards, regrets = visited
        after, released = take_all(before[0], reports, round)
        outcome = _add_outcome(after, rewards, regrets), released
        return jax.tree.map(
            lambda new, old: jnp.where(round <= last, new, old), outcome, before
        ), None

    def hear(replicate: Replicate, releases: Mapping[str, Release]) -> Replicate:
        # The count is public time, the same for all: so a branch on it stays one.
        counted_releases = {
            name: dataclasses.replace(release, count=last + 1) for name, release in releases.items()
        }
        return bandit.update(replicate, counted_releases)

    def post(replicate: Replicate, since: Mapping[str, Array]) -> Replicate:
        return bandit.post(replicate, Clock(round=last, since=since), scene.root(replicate))

    visits = jax.vmap(jax.vmap(visit, in_axes=(0, None)), in_axes=(None, 0))(carry, block)
    since = jax.vmap(partial(_block_clock, scene), in_axes=(0, None))(carry, last).since
    _, shapes = jax.eval_shape(take_all, carry, jax.tree.map(lambda all: all[0], visits[0]), last)
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    # A learner that hears of every release takes longer than the kernels that it would save.
    carry, newest = jax.lax.scan(take, (carry, nothing), (block, *visits), unroll=lazy or 1)[0]
    return jax.vmap(post)(jax.vmap(hear)(carry, newest), since)


def _play(scene: Scene, carry: Replicate, round: Array) -> tuple[Replicate, Mapping[str, Array]]:
    """Play one round of one replicate; return the releases wanted on demand, too."""
    world, root, bandit = scene.environment, scene.root(carry), scene.bandit
    clock, going = bandit.clock(carry, round), bandit.going(carry)
    arms = _arms(scene, carry, round)
    action = bandit.act(carry.model, arms, clock, root)
    reward = world.reward(carry.world, arms, action, clock, root.at(REWARD, round=round))
    regret = world.regret(carry.world, arms, action, clock)
    carry = bandit.learn(carry, arms, action, reward, round, root)
    if isinstance(world, AdaptiveAdversary):
        reacted = world.reacted(carry.world, action, clock)
        carry = dataclasses.replace(carry, world=reacted)
    if going is not True:
        regret, reward = jnp.where(going, regret, 0), jnp.where(going, reward, 0)
    return _add_outcome(carry, reward, regret), bandit.wishes(carry, round)


def _add_outcome(carry: Replicate, reward: Array, regret: Array) -> Replicate:
    earned = None if carry.earned is None else carry.earned + reward
    return dataclasses.replace(carry, regret=carry.regret + regret, earned=earned)


def _arms(scene: Scene, carry: Replicate, round: Array) -> Arms:
    """What this round's user may choose from; an adversary foresees the choice, coins and all."""
    world, root, bandit = scene.environment, scene.root(carry), scene.bandit
    clock, at = bandit.clock(carry, round), root.at(ARMS, round=round)
    if not isinstance(world, OmniscientAdversary):
        return world.arms(carry.world, clock, at)
    return world.opposed(
        carry.world, clock, at, lambda arms: bandit.act(carry.model, arms, clock, root)
    )


@jax.jit
def judge(scene: Scene, carry: Replicate) -> Array | None:
    """Whether each replicate names the best action; None where nobody names one."""
    policy, world = scene.policy, scene.environment
    if not (isinstance(policy, Recommends) and isinstance(world, HasBestAction)):
        return None
    return jax.vmap(
        lambda replicate: world.right(replicate.world, policy.recommend(replicate.state))
    )(carry)


def _serve(scene: Scene, carry: Replicate, round: Array, name: str, due: Array) -> Replicate:
    """Serve those that are due, a few at a time: one on a CPU, where a second one is not free."""

    def serve_one(before: Replicate) -> list[Array | None]:
        """What serving changed: a leaf that passed through, such as a long history, is None."""
        after = scene.bandit.serve(before, name, round, scene.root(before))
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        return [None if new is old else new for old, new in pairs]

    def serve_some(lanes: int, queue: tuple[Replicate, Array]) -> tuple[Replicate, Array]:
        carry, due = queue
        # Lanes without work get a number that no replicate has: read anywhere, written nowhere.
        (indices,) = jnp.nonzero(due, size=lanes, fill_value=due.shape[0])
        replicates = jax.tree.map(lambda leaf: leaf.at[indices].get(mode="clip"), carry)
        leaves, structure = jax.tree.flatten(carry)
        changed = zip(leaves, jax.vmap(serve_one)(replicates), strict=True)
        carry = jax.tree.unflatten(
            structure,
            [old if new is None else old.at[indices].set(new, mode="drop") for old, new in changed],
        )
        return carry, due.at[indices].set(False, mode="drop")

    def serve_next(queue: tuple[Replicate, Array]) -> tuple[Replicate, Array]:
        if jax.default_backend() == "cpu":
            return serve_some(1, queue)
        few_lanes, many_lanes = (min(lanes, due.shape[0]) for lanes in (_FEW_LANES, _MANY_LANES))
        if few_lanes == many_lanes:
            return serve_some(few_lanes, queue)
        several = queue[1].sum() > few_lanes
        served: tuple[Replicate, Array] = jax.lax.cond(
            several, partial(serve_some, many_lanes), partial(serve_some, few_lanes), queue
        )
        return served

    return jax.lax.while_loop(lambda queue: queue[1].any(), serve_next, (carry, due))[0]
