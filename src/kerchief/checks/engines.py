"""What a simulation must do: hand the learner releases and nothing else, round by round.

The engine's steps are held against the reference player's, which knows the contract alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.domains import Cube, farthest
from kerchief.checks.errors import expect, law
from kerchief.checks.learning import most_moved, summed
from kerchief.checks.policy_fixture import SEED, PolicyFixture, asks
from kerchief.checks.reference_runner import ReferenceRunner, hand_of
from kerchief.checks.statistics import Floats
from kerchief.core.contracts import Stops
from kerchief.core.phases import Phase, PhasePolicy, learn
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.deployment.protected_policy import ProtectedPolicy
from kerchief.environments.population import Population, PopulationTruth
from kerchief.simulation import loop, phases
from kerchief.simulation.machine import compiled
from kerchief.simulation.phases import PhaseReplicate, PhaseScene, phases_of

# How many rounds are looked at one by one.
_ROUNDS = 4
# Among how many clients the two who differ most are searched for.
_CLIENTS = 128


@law(when=asks)
def the_learner_sees_releases_alone(case: PolicyFixture) -> None:
    """What the learner knows after a round, or a phase, is what its releases make of its state.

    The real engine is watched from one round to the next: state, regret and the number of releases
    are those to which the functions of the contract lead by hand, but for rounding. What has
    stopped is looked at too: nothing moves any more.
    """
    if case.feedback == "phases":
        _expect_states_of_phases(case)
        return
    hand = hand_of(case, seed=SEED)
    scene = case.scene(ProtectedPolicy(policy=hand.policy, privatizers=hand.privatizers))
    carry = jax.tree.map(np.array, loop.begin(scene, jnp.arange(1, dtype=jnp.uint32)))
    for round in range(_ROUNDS):
        carry = _expect_by_hand(case, scene, hand, carry, round)
    if isinstance(hand.policy, Stops):
        last = case.size.horizon - 2
        rest = _advance(case, scene, carry, _ROUNDS, last - _ROUNDS)
        _expect_by_hand(case, scene, hand, rest, last)


def _expect_by_hand(
    case: PolicyFixture, scene: Any, hand: ReferenceRunner, carry: Any, round: int
) -> Any:
    after = _advance(case, scene, carry, round, 1)
    _copy_replicate(hand, carry)
    turn = hand.turn(round)
    pairs = zip(jax.tree.leaves(hand.state), jax.tree.leaves(after.state), strict=True)
    close = all(np.allclose(a, np.asarray(b)[0], rtol=1e-4, atol=1e-4) for a, b in pairs)
    expect(close, seen=f"another state after round {round}", expected="that of its releases")
    gap = abs(float(after.regret[0] - carry.regret[0]) - turn.lost)
    expect(gap <= 1e-4, seen=f"regret {gap} beside what was played", expected="what was played")
    counts = {name: int(count[0]) for name, count in after.used.items()}
    expect(counts == hand.used, seen=f"{counts} releases", expected=f"{hand.used} by hand")
    return after


def _advance(case: PolicyFixture, scene: Any, carry: Any, round: int, length: int) -> Any:
    step, _ = compiled(case.advance, scene, carry, jnp.int32(0), length=length)
    # The engine takes its input's memory over, so it is given a copy.
    after = step(scene, jax.tree.map(np.array, carry), jnp.int32(round))
    return jax.tree.map(np.array, after)


def _copy_replicate(hand: ReferenceRunner, carry: Any) -> None:
    """Copy the state of the engine's only replicate into the hand."""
    replicate = jax.tree.map(lambda leaf: leaf[0], carry)
    hand.state, hand.model, hand.world = replicate.state, replicate.model, replicate.world
    hand.memory, hand.tally = dict(replicate.memory), dict(replicate.tally)
    hand.last = {name: int(round) for name, round in replicate.last.items()}
    hand.used = {name: int(count) for name, count in replicate.used.items()}


def phase_scene(case: PolicyFixture, made: ProtectedPolicy, world: Any = None) -> PhaseScene:
    """Build what the engine plays phase by phase."""
    policy: Any = made.policy
    population: Any = world or case.environment
    return PhaseScene.of(policy, made.privatizers, population, SEED)


def phase_after(case: PolicyFixture, scene: PhaseScene, carry: Any, phase: Phase) -> Any:
    """Play one more phase of all replicates."""
    return case.play_phase(scene, carry, jax.tree.map(jnp.int32, phase))


def begun(scene: PhaseScene, copies: int) -> Any:
    """Begin replicates before the first phase."""
    return phases.begin(scene, jnp.arange(copies, dtype=jnp.uint32))


def _expect_states_of_phases(case: PolicyFixture) -> None:
    bandit: Any = case.arranged()
    scene = phase_scene(case, bandit)
    carry = begun(scene, case.size.width)
    for phase in phases_of(bandit.policy, bandit.privatizers)[:2]:
        after = phase_after(case, scene, carry, phase)
        learned = _learn_from_release(
            bandit.policy, carry, after, phase, scene.protection.outlook.noisy
        )
        is_played = np.asarray(after.releases > carry.releases)
        pairs = zip(jax.tree.leaves(learned), jax.tree.leaves(after.state), strict=True)
        differ = any((np.asarray(a)[is_played] != np.asarray(b)[is_played]).any() for a, b in pairs)
        where = f"phase {int(phase.number)}"
        expect(not differ, seen=f"another state after {where}", expected="that of its release")
        carry = after


@partial(jax.jit, static_argnames="noisy")
def _learn_from_release(
    policy: PhasePolicy, carry: Any, after: Any, phase: Phase, noisy: bool
) -> Any:
    def learn_one(carry: PhaseReplicate, after: PhaseReplicate) -> Any:
        features = carry.world.features
        design = policy.ask(features, carry.state, phase, noisy=noisy)
        return learn(policy, features, carry.state, design, phase, after.last)

    return jax.lax.map(lambda pair: learn_one(*pair), (carry, after))


@law(when=lambda case: case.feedback == "phases" and asks(case))
def one_client_moves_one_release(case: PolicyFixture) -> None:
    """A client with other rewards moves the release of its phase by the sensitivity, and no other.

    The two clients are those whose answers lie farthest apart, of many who saw the best, the worst
    or nothing on each action, or what nobody can see. All else is the same, noise included, but for
    noise that replaces an answer, which is off. The phases before are the same; so are those after,
    once the learner is given the same release.
    """
    bandit: Any = case.arranged()
    first, second, third = phases_of(bandit.policy, bandit.privatizers)[:3]
    privatizers = {name: summed(privatizer) for name, privatizer in bandit.privatizers.items()}
    bandit = ProtectedPolicy(policy=bandit.policy, privatizers=privatizers)
    usual = phase_scene(case, bandit)
    start = begun(usual, case.size.width)
    after_first = phase_after(case, usual, start, first)
    # A bandit that settles after one phase asks in that one alone.
    is_settled = bool(after_first.done.all())
    now, later = (first, second) if is_settled else (second, third)
    observations = _farthest_clients(usual, start if is_settled else after_first, now)
    fields: Any = {**vars(case.environment), "client": jnp.uint32(now.first + 1)}
    scenes = [
        phase_scene(case, bandit, _OneOther(**fields, saw=jnp.asarray(observation)))
        for observation in observations
    ]
    early = [begun(scene, case.size.width) for scene in scenes]
    if not is_settled:
        pairs = zip(scenes, early, strict=True)
        early = [phase_after(case, scene, carry, first) for scene, carry in pairs]
    _expect_same(early, "the phase before a client is asked")
    carries = [phase_after(case, scene, early[0], now) for scene in scenes]
    distances = np.sqrt(((carries[0].last.total - carries[1].last.total) ** 2).sum((1, 2)))
    bound = most_moved(usual.protection, rounding=1e-6)
    observed = f"a release that moves by {float(distances.max()):.4g}"
    expect(distances.max() <= bound, seen=observed, expected=f"{bound:.4g} at most")
    expect(distances.max() > 0, seen=observed, expected="more than nothing, as the client is asked")
    _expect_same([phase_after(case, scene, carries[0], later) for scene in scenes], "a later phase")


def _farthest_clients(scene: PhaseScene, carry: Any, phase: Phase) -> Floats:
    """What two clients saw on each action whose answers, in the first replicate, differ most."""
    policy, query = scene.policy, scene.protection.query
    replicate: PhaseReplicate = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], carry)
    phase, noisy = jax.tree.map(jnp.int32, phase), scene.protection.outlook.noisy
    design = policy.ask(replicate.world.features, replicate.state, phase, noisy=noisy)
    domain = Cube(size=design.atoms.shape[1], low=-1.0, high=1.0)
    rows = domain.first(np.random.default_rng(0), _CLIENTS)
    observations = np.concatenate([rows, domain.wild()[:_CLIENTS]])
    answers = jax.vmap(lambda row: query.encode(policy.answer(design, 0, row)))(
        jnp.asarray(observations)
    )
    return observations[farthest(np.asarray(answers))[1]]


@struct
class _OneOther(Population):
    """A population in which one client saw something else."""

    client: Array
    saw: Array

    def averages(
        self, world: PopulationTruth, features: Array, pulls: Array, stream: Stream
    ) -> Array:
        """What one client saw."""
        usual = Population.averages(self, world, features, pulls, stream)
        replacement = jnp.where(pulls > 0, self.saw.astype(usual.dtype), 0)
        return jnp.where(stream.round == self.client, replacement, usual)


def _expect_same(carries: list[Any], where: str) -> None:
    first, second = (np.asarray(carry.last.total) for carry in carries)
    same = np.array_equal(first, second)
    expect(same, seen=f"another release in {where}", expected="the same, whatever one client saw")
