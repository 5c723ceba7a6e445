"""A privatizer by hand: many copies of one short protocol, to look at its noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Clock, Example, Release, Tree
from kerchief.core.queries import Regression
from kerchief.core.random import DEVICE, MIDDLE, Stream
from kerchief.privacy import Guarantee, Trust, gaussian_noise_multiplier
from kerchief.privatizers import Privatizer
from kerchief.privatizers.registry import Entry

__all__ = [
    "ENDS",
    "Noise",
    "Protocol",
    "clock_at",
    "drawn_noise",
    "records",
    "released",
    "released_by_many",
    "statistics",
]

Floats = NDArray[np.float64]

COPIES = 30_000
# As many releases as the privatizer is built for, so that all that was paid for is used.
ENDS = (1, 2, 3, 4, 5, 6, 8)
_SEED = 20260602

QUERY = Regression(dim=2, norm=1.0, low=-1.0, high=1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """A registered privatizer with a small query and a promise.

    Attributes:
        name: how reports call it.
        make: builds the privatizer from a query, a noise multiplier and a horizon.
        guarantee: what it must keep.
        query: what it answers.
        horizon: for how many rounds it is built.
    """

    name: str
    make: Callable[[Any, float, int], Privatizer]
    guarantee: Guarantee
    query: Regression = QUERY
    horizon: int = 120

    @classmethod
    def of(cls, trust: str, entry: Entry, *, epsilon: float = 4.0) -> Protocol:
        """The privatizer of a trust, at a promise where an audit has teeth."""
        private = trust != Trust.NONE
        return cls(
            name=trust,
            make=entry.make,
            guarantee=Guarantee(
                epsilon=epsilon if private else float("inf"),
                delta=1e-5 if private else 0.0,
                trust=Trust(trust),
            ),
        )

    def __str__(self) -> str:
        """The name."""
        return f"the privatizer of {self.name}"

    @property
    def private(self) -> bool:
        """Whether it promises anything."""
        return self.guarantee.trust is not Trust.NONE

    def build(self, horizon: int | None = None) -> Privatizer:
        """A fresh privatizer, calibrated for the promise."""
        promise, multiplier = self.guarantee, 0.0
        if self.private:
            multiplier = gaussian_noise_multiplier(promise.epsilon, promise.delta)
        return self.make(self.query, multiplier, horizon or self.horizon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """What was added to the total of one release: a row a copy, and the deviation it states."""

    draws: Floats
    stated: float


def records(query: Regression, count: int) -> list[Example]:
    """Records of so many users, well inside the domain."""
    rng = np.random.default_rng(4)
    features = rng.uniform(-0.4, 0.4, size=(count, query.dim))
    return [Example(features=jnp.asarray(x), reward=jnp.asarray(x.sum())) for x in features]


def statistics(query: Regression, users: list[Example]) -> Floats:
    """Their statistics, a row a user."""
    return np.stack([np.asarray(query.encode(user)) for user in users])


def clock_at(round: int | Array) -> Clock:
    """Public time in this round."""
    return Clock(round=jnp.asarray(round, jnp.int32), since={})


def released(
    privatizer: Privatizer, statistics: Floats, ends: tuple[int, ...], source: Any
) -> list[Release]:
    """Run the protocol by hand over encoded users, a row each, and release at these ends.

    `source` is the root of a simulation's randomness, or a source of bytes for an exact twin.
    """
    memory, tally = jax.tree.map(np.asarray, privatizer.open())
    releases = []
    for round, statistic in enumerate(statistics):
        report = privatizer.report(statistic, _at(source, DEVICE, round))
        tally = privatizer.collect(tally, report)
        if round + 1 in ends:
            at = _at(source, MIDDLE, round)
            release, memory = privatizer.release(memory, tally, clock_at(round), at)
            releases.append(release)
            tally = privatizer.clear(tally)
    return releases


def _at(source: Any, place: int, round: int) -> Any:
    return source.at(place, round=round) if isinstance(source, Stream) else source


def released_by_many(privatizer: Privatizer, users: list[Example], *, seed: int) -> list[Release]:
    """Run many independent copies of the protocol over the users and release at `ENDS`.

    Each leaf of a release has a row a copy. A round is compiled once for each kind of privatizer.
    """
    copies, root = jnp.arange(COPIES, dtype=jnp.uint32), jnp.uint32(seed)
    memory, tally = jax.tree.map(_copied, privatizer.open())
    releases = []
    for round, user in enumerate(users):
        now = jnp.int32(round)
        tally = _collected(privatizer, tally, user, root, copies, now)
        if round + 1 in ENDS:
            release, memory, tally = _released(privatizer, memory, tally, root, copies, now)
            releases.append(release)
    return releases


def _copied(leaf: Array) -> Array:
    return jnp.broadcast_to(leaf, (COPIES, *jnp.shape(leaf)))


@jax.jit
def _collected(
    privatizer: Privatizer, tallies: Tree, user: Example, seed: Array, copies: Array, round: Array
) -> Tree:
    def one(tally: Tree, copy: Array) -> Tree:
        at = Stream.of(seed=seed, replicate=copy).at(DEVICE, round=round)
        return privatizer.collect(tally, privatizer.randomize(user, at))

    return jax.vmap(one)(tallies, copies)


@jax.jit
def _released(
    privatizer: Privatizer, memories: Tree, tallies: Tree, seed: Array, copies: Array, round: Array
) -> tuple[Release, Tree, Tree]:
    def one(memory: Tree, tally: Tree, copy: Array) -> tuple[Release, Tree, Tree]:
        at = Stream.of(seed=seed, replicate=copy).at(MIDDLE, round=round)
        release, now = privatizer.release(memory, tally, clock_at(round), at)
        return release, now, privatizer.clear(tally)

    return jax.vmap(one)(memories, tallies, copies)


@lru_cache(maxsize=32)
def drawn_noise(protocol: Protocol) -> tuple[Noise, ...]:
    """The noise of each release, in many independent copies of the protocol."""
    privatizer, users = protocol.build(len(ENDS)), records(protocol.query, ENDS[-1])
    totals = statistics(protocol.query, users).cumsum(axis=0)
    return tuple(
        Noise(draws=np.asarray(release.total) - totals[end - 1], stated=float(release.noise[0]))
        for release, end in zip(released_by_many(privatizer, users, seed=_SEED), ENDS, strict=True)
    )
