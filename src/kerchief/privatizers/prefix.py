"""Every prefix total of a stream of users, with noise that is correlated over time.

A trusted curator holds the exact running total and releases it again and again; what leaves it is
the total plus continual noise (`mechanisms.continual`), which is paid for once, for the whole
stream. With LinUCB this is the joint privacy of R. Shariff and O. Sheffet, "Differentially private
contextual linear bandits", NeurIPS 2018, who used the binary tree. Proof note: `prefix.md`; for
noise that needs no horizon (`mechanisms.doubling`), `epochs.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import BoundedSum, Clock, Release, Start
from kerchief.core.errors import CapacityExceededError
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.mechanisms.continual import PrefixNoise
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy.receipts import Charge, Cohort
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import Schedule
from kerchief.privatizers.sums import Tally


@struct
class Prefix:
    """What the curator remembers: the un-noised total and the noise, private and never shown.

    Attributes:
        total: the exact sum over everyone whom a release has spoken about.
        noise: the state of the continual noise; with a release it would give the exact total away.
        releases: how many there were.
    """

    total: Array = dataclasses.field(repr=False)
    noise: Array = dataclasses.field(repr=False)
    releases: Array


@struct
class PrefixSums(Privatizer):
    """Noisy prefix totals for a bounded-sum query; each user enters one release's increment.

    The noise's stream is the sequence of releases: place t holds what arrived between release
    t - 1 and release t. So any schedule will do, and `noise.horizon` is the most releases.
    """

    query: BoundedSum = static()
    schedule: Schedule = static()
    noise: PrefixNoise

    @property
    def noises(self) -> tuple[PrefixNoise, ...]:
        """Mechanisms of this privatizer: one continual-release mechanism of the curator."""
        return (self.noise,)

    def exact(self) -> PrefixSums:
        """The twin for deployment: the same promise, kept by exactly sampled noise on a grid.

        It has the noise of the simulated one, and a little more for rounding.
        """
        if isinstance(self.noise, ExactContinualNoise):
            return self
        return dataclasses.replace(self, noise=self.noise.exact(self.query.size))

    def with_noise(self, change: Callable[[Any], Any]) -> Self:
        """Replace the noise of this protocol."""
        return dataclasses.replace(self, noise=change(self.noise))

    def charges(self, horizon: int) -> tuple[Charge, ...]:
        """All releases together cost each user one event (host only).

        There is one charge for each stretch of the factor, to its own users: one for everyone,
        unless the factor begins anew in epochs, which compose in parallel.

        Raises:
            CapacityExceededError: the noise was not made for that many releases, or that many
                users.
        """
        capacity = self.noise.factor.capacity
        if isinstance(self.noise, ExactContinualNoise) and horizon > capacity:
            raise CapacityExceededError(
                f"{horizon} users; exact sums hold {capacity}: begin several runs"
            )
        releases = self.schedule.capacity(horizon)
        if releases > self.noise.horizon:
            raise CapacityExceededError(
                f"{releases} releases over {horizon} rounds; the noise was made for "
                f"{self.noise.horizon}: make it for the whole horizon"
            )
        places = self.noise.factor.places(min(releases, horizon))
        event, users = self.noise.event(), [*map(self.schedule.covered, accumulate(places))]
        return tuple(
            Charge(event=event, cohort=Cohort(first=start, last=end))
            for start, end in pairwise((0, *users[:-1], horizon))
        )

    def took_part(self, cohort: Cohort, *, users: int, covered: int, releases: int) -> int:
        """Once, if a release spoke about them: exact reports cost nothing before (host only)."""
        return int(cohort.first < covered)

    def open(self) -> tuple[Prefix, Tally]:
        """Nothing released, nothing collected."""
        zero = jnp.zeros(self.query.size, jnp.float64)
        noise = self.noise.open(self.query.size)
        return Prefix(total=zero, noise=noise, releases=jnp.int32(0)), Tally(total=zero)

    def report(self, statistic: Vector, clock: Clock, stream: Stream | None) -> Vector:
        """Device: the statistic as the noise wants it, on a grid if it is exact."""
        return self.noise.prepare(statistic)

    def collect(self, tally: Tally, report: Vector) -> Tally:
        """Curator: add one report; a device that did not round must not spoil the others' grid."""
        return Tally(total=tally.total + self.noise.prepare(report))

    def release(
        self,
        memory: Prefix,
        tally: Tally,
        request: Start | None,
        clock: Clock,
        stream: Stream | None,
    ) -> tuple[Release, Prefix]:
        """Curator: the exact total so far, plus the noise of this place in the stream."""
        total = memory.total + tally.total
        noise, state = self.noise.step(memory.noise, memory.releases, stream)
        now = Prefix(total=total, noise=state, releases=memory.releases + 1)
        users = clock.round + 1
        std = self.noise_after(users, now.releases)
        return Release(total=total + noise, count=users, noise=std), now

    def clear(self, tally: Tally) -> Tally:
        """Begin the next increment."""
        return Tally(total=0 * tally.total)

    def noise_after(self, users: Array, releases: Array) -> Array:
        """Standard deviation of the noise in the total, after that many users and releases."""
        return self.noise.std_at(releases)
