"""What a privatizer does in service: releases as often as was paid for, with noise that is exact.

The exact twin has the same law as the idealized noise, on a grid, within the same budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.errors import expect, law, refused
from kerchief.checks.leakage import bill, expect_noise_as_charged, rounded_sensitivity
from kerchief.checks.protocol import (
    ENDS,
    Noise,
    PrivatizerCase,
    clock_at,
    drawn_noise,
    noises_of,
    records,
    released,
    statistics,
    told,
)
from kerchief.checks.statistics import expect_deviation
from kerchief.core.contracts import (
    Arms,
    Clock,
    Example,
    NoiseInfo,
    Policy,
    Query,
    Released,
    Start,
    Tree,
)
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.environments import make_environment
from kerchief.privacy import MemoryLedger
from kerchief.privatizers import At, Every, OnDemand, Privatizer
from kerchief.simulation.run import simulate

_LIMIT, _ROUNDS = 3, 20


@law(cheap=True)
def releases_fall_on_schedule(protocol: PrivatizerCase) -> None:
    """Batches end exactly where their schedule says; whoever a release speaks about is charged."""
    privatizer, horizon = protocol.build(), protocol.horizon
    schedule, last = privatizer.schedule, horizon
    if isinstance(schedule, At):
        ready = [r + 1 for r in range(horizon) if bool(schedule.ready(clock_at(r)))]
        expected = [end for end in schedule.ends if end <= horizon]
        expect(ready == expected, seen=f"ready after {ready}", expected=f"after {expected}")
        last = max(expected)
    last_charged = max(charge.cohort.last for charge in privatizer.charges(horizon))
    expect(last_charged >= last, seen=f"charges up to {last_charged}", expected=f"up to {last}")
    capacity = schedule.capacity(horizon)
    right = capacity == horizon if isinstance(schedule, Every) else capacity <= horizon
    expect(right, seen=f"a capacity of {capacity}", expected=f"one release per round, {horizon}")


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

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Tree:
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


_COPIES = 160


@law(when=lambda protocol: not refuses(protocol))
def exact_twin_has_the_same_law(protocol: PrivatizerCase) -> None:
    """The twin's noise is normal, as it states, as it charges, and never less than the idealized.

    800 draws a release from a seeded source of bytes; chi-square (2/3 and 3/2 of what is stated
    are rejected), Kolmogorov-Smirnov and Wishart's law, 1e-6 each.
    """
    noises = twin_noise(protocol)
    if not protocol.private:
        largest = max(float(np.abs(noise.draws).max()) for noise in noises)
        expect(largest <= protocol.rounding, seen=f"noise of {largest}", expected="none")
        return
    for noise, ideal in zip(noises, drawn_noise(protocol), strict=True):
        expect_deviation(noise.draws, noise.stated)
        enough = noise.stated >= ideal.stated * (1 - 1e-6)
        expect(enough, seen=f"noise of {noise.stated}", expected=f"at least {ideal.stated}")
    cost = bill(protocol.brief().exact().charges(len(ENDS))[:1])
    expect_noise_as_charged(noises, cost, rounded_sensitivity(protocol), turning=protocol.fits)


@law(when=lambda protocol: not refuses(protocol), cheap=True)
def exact_twin_fits_the_budget(protocol: PrivatizerCase) -> None:
    """The budget that pays for the idealized noise pays for the twin's."""
    exact = protocol.build().exact()
    MemoryLedger(protocol.guarantee).charge_all(exact.charges(protocol.horizon))


@law()
def idealized_is_honest(protocol: PrivatizerCase) -> None:
    """Whatever says that it is not idealized adds exact noise and releases points of its grid."""
    plain = protocol.build()
    if refuses(protocol):
        expect(plain.idealized, seen="noise that is exact", expected="an idealized privatizer")
        return
    twin = plain.exact()
    expect(not twin.idealized, seen="an idealized twin", expected="one fit for deployment")
    sources = Stream.of(seed=1, replicate=0), np.random.default_rng(1).bytes
    for privatizer, source in zip((plain, twin), sources, strict=True):
        floats = any(noise.idealized for noise in privatizer.noises)
        claim = privatizer.idealized
        expect(claim == floats, seen=f"idealized: {claim}", expected=f"{floats}, as its noise is")
        if not floats:
            _expect_points_of_a_grid(protocol, privatizer, source)


def refuses(protocol: PrivatizerCase) -> bool:
    """Whether it cannot be deployed: noisy fits to cohorts ask a device again and again."""
    if not (protocol.cohorts and protocol.private):
        return False
    right = refused(InvalidValueError, protocol.build().exact)
    expect(right, seen="an exact twin", expected="a refusal, as devices report once")
    return True


def _expect_points_of_a_grid(protocol: PrivatizerCase, privatizer: Privatizer, source: Any) -> None:
    encoded = statistics(protocol.query, records(protocol.query, 3))
    for noise in privatizer.noises:
        grid = getattr(noise, "grid", None)
        expect(grid, seen=f"{type(noise).__name__} without a grid", expected="exact noise")
        release = released(protocol, privatizer, encoded, (3,), source)[0]
        steps = np.asarray(told(protocol, release)) / grid
        on_grid = np.array_equal(steps, np.rint(steps))
        expect(on_grid, seen=f"a release of {steps} steps", expected="whole numbers of steps")


@lru_cache(maxsize=32)
def twin_noise(protocol: PrivatizerCase) -> tuple[Noise, ...]:
    """The noise of each sum that the exact twin tells, in some copies of the protocol."""
    twin = protocol.brief().exact()
    encoded = statistics(protocol.query, records(protocol.query, ENDS[-1]))
    source: Any = (
        np.random.default_rng(0).bytes if protocol.private else Stream.of(seed=1, replicate=0)
    )
    count = _COPIES if protocol.private else 1
    copies = [released(protocol, twin, encoded, ENDS, source) for _ in range(count)]
    noises: list[Noise] = []
    for end, *same in zip(ENDS, *copies, strict=True):
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *same)
        noises += noises_of(protocol, encoded, end, stacked)
    return tuple(noises)
