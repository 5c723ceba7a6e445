"""When a privatizer releases: at its schedule's times, and never more often than was paid for."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.errors import expect, law
from kerchief.checks.protocol import PrivatizerCase, clock_at
from kerchief.core.contracts import (
    Arms,
    Clock,
    Example,
    Outlook,
    Policy,
    Query,
    Released,
    Start,
    Tree,
)
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.environments import make_environment
from kerchief.privacy import MemoryLedger
from kerchief.privatizers import At, Every, OnDemand
from kerchief.simulation.run import simulate

_LIMIT, _ROUNDS = 3, 20


@law(cheap=True)
def releases_fall_on_schedule(protocol: PrivatizerCase) -> None:
    """Batches end exactly where their schedule says; whoever a release speaks about is charged."""
    privatizer, horizon = protocol.build(), protocol.horizon
    schedule, last = privatizer.schedule, horizon
    if isinstance(schedule, At):
        ready = [r + 1 for r in range(horizon) if bool(schedule.ready(clock_at(r)))]
        wanted = [end for end in schedule.ends if end <= horizon]
        expect(ready == wanted, seen=f"ready after {ready}", expected=f"after {wanted}")
        last = max(wanted)
    charged = max(charge.cohort.last for charge in privatizer.charges(horizon))
    expect(charged >= last, seen=f"charges up to {charged}", expected=f"up to {last}")
    capacity = schedule.capacity(horizon)
    right = capacity == horizon if isinstance(schedule, Every) else capacity <= horizon
    expect(right, seen=f"a capacity of {capacity}", expected=f"one release a round, {horizon}")


@law()
def capacity_is_enforced(protocol: PrivatizerCase) -> None:
    """A learner that always asks is served on demand as often as was paid for, and no more."""
    privatizer = protocol.build()
    if not isinstance(privatizer.schedule, OnDemand):
        privatizer = privatizer.with_schedule(OnDemand(limit=_LIMIT))
    run = simulate(
        policy=_Asker(query=protocol.query, start=protocol.start),
        privatizers={"asked": privatizer},
        environment=make_environment(dim=protocol.query.dim, arms=3),
        ledger=MemoryLedger(protocol.guarantee),
        horizon=_ROUNDS,
        replicates=2,
        seed=1,
        ticks=1,
    )
    served, limit = run.releases["asked"], privatizer.schedule.capacity(_ROUNDS)
    right = np.array_equal(served, np.full_like(served, limit))
    expect(right, seen=f"{served.tolist()} releases", expected=f"{limit}, the limit")


@struct
class _Asker(Policy):
    """The least policy that asks after every round: it learns nothing from the answers."""

    query: Query = static()
    start: Start | None

    @property
    def queries(self) -> Mapping[str, Query]:
        return {"asked": self.query}

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        return ()

    def request(self, state: Tree, name: str) -> Start | None:
        return self.start

    def update(self, state: Tree, name: str, release: Released) -> Tree:
        return state

    def refreshes(self, clock: Clock) -> Array | bool:
        return False

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        return jnp.argmax(arms.allowed)

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        return {"asked": Example(features=arms.features[action], reward=reward)}
