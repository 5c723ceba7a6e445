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

from kerchief.core.contracts import Clock, Example
from kerchief.core.queries import Regression
from kerchief.core.random import DEVICE, MIDDLE, Stream
from kerchief.privacy import Guarantee, Trust, gaussian_noise_multiplier
from kerchief.privatizers import CohortSums
from kerchief.privatizers.registry import Entry

__all__ = ["Noise", "Protocol", "clock_at", "drawn_noise", "records", "released", "statistics"]

Floats = NDArray[np.float64]

COPIES = 3000
# The first release hides one user alone, so that its noise is what that user is charged for.
ENDS = (1, 3)
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
    make: Callable[[Any, float, int], CohortSums]
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

    def build(self) -> CohortSums:
        """A fresh privatizer, calibrated for the promise."""
        promise, multiplier = self.guarantee, 0.0
        if self.private:
            multiplier = gaussian_noise_multiplier(promise.epsilon, promise.delta)
        return self.make(self.query, multiplier, self.horizon)


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


def clock_at(round: int) -> Clock:
    """Public time in this round."""
    return Clock(round=jnp.int32(round), since={})


def released(
    privatizer: CohortSums, users: list[Example], ends: tuple[int, ...], stream: Any
) -> list[Any]:
    """Run the protocol over the users and release at these ends.

    `stream` is the root of a simulation's randomness, or a source of bytes for an exact twin.
    """
    memory, tally = privatizer.open()
    releases = []
    for round, user in enumerate(users):
        report = privatizer.randomize(user, _at(stream, DEVICE, round))
        tally = privatizer.collect(tally, report)
        if round + 1 in ends:
            at = _at(stream, MIDDLE, round)
            release, memory = privatizer.release(memory, tally, clock_at(round), at)
            releases.append(release)
            tally = privatizer.clear(tally)
    return releases


def _at(stream: Any, place: int, round: int) -> Any:
    return stream.at(place, round=round) if isinstance(stream, Stream) else stream


@lru_cache(maxsize=32)
def drawn_noise(protocol: Protocol, *, copies: int = COPIES) -> tuple[Noise, ...]:
    """The noise of each release, in many independent copies of the protocol."""
    privatizer, users = protocol.build(), records(protocol.query, ENDS[-1])
    totals = statistics(protocol.query, users).cumsum(axis=0)

    def one(copy: Array) -> list[Any]:
        return released(privatizer, users, ENDS, Stream.of(seed=_SEED, replicate=copy))

    many = jax.jit(jax.vmap(one))(jnp.arange(copies, dtype=jnp.uint32))
    return tuple(
        Noise(draws=np.asarray(release.total) - totals[end - 1], stated=float(release.noise[0]))
        for release, end in zip(many, ENDS, strict=True)
    )
