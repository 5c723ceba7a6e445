"""Play a whole run one user at a time, with every message through the codec."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock, Environment, Policy, Released, Tree
from kerchief.core.errors import InvalidValue
from kerchief.core.precision import double_precision
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import Ledger
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.roles.curator import Curator
from kerchief.roles.device import Device
from kerchief.roles.learner import Learner
from kerchief.roles.messages import Post, Read, Tick
from kerchief.roles.shuffler import Mixer, Shuffler
from kerchief.roles.transport import InProcess

__all__ = ["Played", "drive"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
    """What a driven run recorded, as only a simulation may.

    Attributes:
        regret: what each round lost.
        actions: the arm played in each round.
        model: what is posted at the end.
        released: each query's last release.
        releases: how often each query was released.
        spent: what the ledger says was spent.
        messages: how many messages were carried.
        bytes: how long they were, together.
    """

    regret: NDArray[np.float64]
    actions: NDArray[np.int64]
    model: Tree
    released: Mapping[str, Released]
    releases: Mapping[str, int]
    spent: Guarantee
    messages: int
    bytes: int


@double_precision
def drive(
    *,
    policy: Policy,
    privatizers: Mapping[str, Privatizer],
    environment: Environment,
    ledger: Ledger,
    horizon: int,
    seed: int,
    replicate: int = 0,
    batch: int | None = None,
    transport: InProcess | None = None,
) -> Played:
    """Play one bandit with all roles apart: devices, the aggregator, the learner and a transport.

    Randomness has the same addresses as in `simulation.simulate`, so that the same seed and
    replicate give the same run up to rounding. Privatizers may be in their exact form, whose noise
    comes from the operating system and is different every time.

    Args:
        policy: the bandit.
        privatizers: one per query, from `privatizers.protect`, or their exact twins.
        environment: the world.
        ledger: pays for the whole run, or refuses before anything is played.
        horizon: number of rounds.
        seed: of everything random here but exact noise; 0 to 2**32 - 1.
        replicate: number of the replicate.
        batch: send whole reports through a shuffler with batches of this size. Shuffled sums go
            through a mixer, cohort by cohort.
        transport: carries the messages; a fresh one if None.

    Returns:
        The recorded run.

    Raises:
        BudgetExceeded: the ledger refuses.

    >>> from kerchief.environments import make_environment
    >>> from kerchief.policies import POLICIES
    >>> from kerchief.privacy import Guarantee, MemoryLedger, Trust
    >>> free = MemoryLedger(Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE))
    >>> world = make_environment(dim=2, arms=3)
    >>> played = drive(policy=POLICIES["uniform"].build(world.problem(5), "tuned"), privatizers={},
    ...                environment=world, ledger=free, horizon=5, seed=1)
    >>> played.actions.shape, played.messages
    ((5,), 30)
    """
    validate.whole("horizon", horizon)
    validate.whole("seed", seed, low=0, high=2**32 - 1)
    validate.whole("replicate", replicate, low=0, high=2**32 - 1)
    root = Stream.of(seed=seed, replicate=replicate)
    carrier = InProcess() if transport is None else transport
    curator = Curator(privatizers=privatizers, ledger=ledger, horizon=horizon, stream=root)
    curator.open()
    learner = Learner.over(carrier, policy=policy, privatizers=privatizers, curator="curator")
    carrier.register("learner", learner)
    carrier.register("curator", curator)
    aggregator = "curator"
    ends = _mixed(privatizers)
    if ends is not None:
        aggregator = "mixer"
        carrier.register(aggregator, Mixer(ends=ends, transport=carrier, to="curator"))
    elif batch is not None:
        aggregator = "shuffler"
        carrier.register(aggregator, Shuffler(size=batch, transport=carrier, to="curator"))
    stage = _Stage(environment=environment, world=_world(environment, root.at(WORLD)), root=root)
    device = Device(policy=policy, privatizers=privatizers)
    rounds = [stage.play(device, carrier, aggregator) for _ in range(horizon)]
    curator.settle()
    return Played(
        regret=np.array([lost for lost, _ in rounds]),
        actions=np.array([action for _, action in rounds]),
        model=learner.model,
        released=dict(learner.released),
        releases=curator.releases,
        spent=ledger.spent(),
        messages=carrier.messages,
        bytes=carrier.bytes,
    )


def _mixed(privatizers: Mapping[str, Privatizer]) -> tuple[int, ...] | None:
    """Where the cohorts end that a mixer must mix, or None if there is nothing to mix."""
    cohorts = {p.ends for p in privatizers.values() if isinstance(p, ShuffledSums | BitSums)}
    if not cohorts:
        return None
    others = [n for n, p in privatizers.items() if not isinstance(p, ShuffledSums | BitSums)]
    if others or len(cohorts) > 1:
        raise InvalidValue(
            f"a mixer mixes sums over the same cohorts; {others or sorted(cohorts)} cannot go "
            "through it: simulate such a policy instead"
        )
    return cohorts.pop()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Stage:
    """The world, and the one place where it meets a device."""

    environment: Environment
    world: Tree
    root: Stream

    def play(self, device: Device, transport: InProcess, aggregator: str) -> tuple[float, int]:
        """One user's round: the regret and the action, for the recorder."""
        post = transport.send("learner", Read())
        if not isinstance(post, Post):
            raise InvalidValue(f"the learner replied with a {type(post).__name__}, not a Post")
        clock = post.clock
        arms = _arms(self.environment, self.world, clock, self.root.at(ARMS, round=clock.round))
        action = device.act(post, arms, self.root)
        at = self.root.at(REWARD, round=clock.round)
        reward, lost = _outcome(self.environment, self.world, arms, action, clock, at)
        transport.send(aggregator, device.reports(reward, self.root))
        transport.send("learner", Tick())
        return float(lost), action


@jax.jit
def _world(environment: Environment, stream: Stream) -> Tree:
    return environment.init(stream)


@jax.jit
def _arms(environment: Environment, world: Tree, clock: Clock, stream: Stream) -> Arms:
    return environment.arms(world, clock, stream)


@jax.jit
def _outcome(
    environment: Environment, world: Tree, arms: Arms, action: Any, clock: Clock, stream: Stream
) -> tuple[Array, Array]:
    """The reward of an action, and what it loses in expectation."""
    reward = environment.reward(world, arms, action, clock, stream)
    return reward, environment.regret(world, arms, action, clock)
