"""Totals over disjoint cohorts: each user enters one sum, once.

One protocol serves three trusts; what differs is where noise is added:

======= ===================== ======================= ==============================
trust   device                aggregator              analyzer
======= ===================== ======================= ==============================
none    statistic             adds up                 adds the cohort to the total
local   randomized statistic  adds up                 adds the cohort to the total
central statistic             adds up, plus noise     adds the cohort to the total
======= ===================== ======================= ==============================

Proof note: `sums.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import BoundedSum, Clock, NoiseInfo, Release, Separate, Start
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.mechanisms.mechanism import Mechanism, Vector, exact_twin
from kerchief.privacy.events import Event, NonPrivate
from kerchief.privacy.receipts import Charge, Cohort
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import At, Schedule


@struct
class Tally:
    """Reports of the present cohort, already added up (for sums, order carries nothing)."""

    total: Array = dataclasses.field(repr=False)


@struct
class Memory:
    """What was released so far: the running total, and in how many releases."""

    total: Array
    releases: Array


@struct
class CohortSums(Privatizer):
    """Noisy totals for a bounded-sum query; clearing the tally keeps cohorts disjoint.

    Attributes:
        running: whether a release is the total over everyone so far, or the last user's report.
        device: noise on every report.
        aggregator: noise on every cohort's total.
    """

    query: BoundedSum = static()
    schedule: Schedule = static()
    running: bool = static(default=True)
    device: Mechanism | None
    aggregator: Mechanism | None

    @property
    def outlook(self) -> NoiseInfo:
        """Whether there is noise, and that each cohort, or each user, has their own."""
        if not self.noises:
            return NoiseInfo(noisy=False)
        own: Separate = "cohorts" if isinstance(self.schedule, At) else "users"
        return NoiseInfo(noisy=True, separate=own)

    @property
    def noises(self) -> tuple[Mechanism, ...]:
        """The device's noise and the aggregator's, as far as there is any."""
        return tuple(noise for noise in (self.device, self.aggregator) if noise is not None)

    @property
    def noisy_device(self) -> bool:
        """Whether a device adds noise, so that its user has taken part by reporting."""
        return self.device is not None

    @property
    def noisy_aggregator(self) -> bool:
        """Whether the aggregator adds noise."""
        return self.aggregator is not None

    @property
    def drawn(self) -> Mechanism | None:
        """The noise that a cohort's total gets: no less than what it is charged for."""
        return self.aggregator

    def exact(self) -> CohortSums:
        """The twin for deployment: the same protocol with the exact twin of every noise."""
        return self.with_noise(lambda noise: exact_twin(noise, self.query.size))

    def with_noise(self, change: Callable[[Any], Any]) -> Self:
        """Replace every source of noise of this protocol."""
        device, aggregator = (n if n is None else change(n) for n in (self.device, self.aggregator))
        return dataclasses.replace(self, device=device, aggregator=aggregator)

    def charges(self, horizon: int) -> tuple[Charge, ...]:
        """What a run of this length costs, before it begins (host only).

        A user enters one cohort, once, so a device's noise is paid for once over all users. Fixed
        batches are disjoint cohorts, each paid for by its own users. When the learner may ask at
        any time, everyone pays, but only once each.
        """
        cohorts: tuple[Cohort, ...] = (Cohort(first=0, last=horizon),)
        if isinstance(self.schedule, At) and self.device is None:
            cohorts = self.schedule.cohorts(horizon)
        return tuple(Charge(event=self._event(), cohort=cohort) for cohort in cohorts)

    def took_part(self, cohort: Cohort, *, users: int, covered: int, releases: int) -> int:
        """Once: by reporting, with noise of their own; else in the release about them."""
        return int(cohort.first < (covered if self.device is None else users))

    def open(self) -> tuple[Memory, Tally]:
        """Nothing released, nothing collected."""
        zero = jnp.zeros(self.query.size, jnp.float64)
        return Memory(total=zero, releases=jnp.int32(0)), Tally(total=zero)

    def report(self, statistic: Vector, clock: Clock, stream: Stream | None) -> Vector:
        """Device: its own noise, if it has any; else the statistic as the aggregator wants it."""
        if self.device is not None:
            return self.device.add(statistic, stream)
        return statistic if self.aggregator is None else self.aggregator.prepare(statistic, stream)

    def collect(self, tally: Tally, report: Vector) -> Tally:
        """Aggregator: add one report to the cohort."""
        return Tally(total=tally.total + report)

    def release(
        self,
        memory: Memory,
        tally: Tally,
        request: Start | None,
        clock: Clock,
        stream: Stream | None,
    ) -> tuple[Release, Memory]:
        """Aggregator: add noise, if it has any; analyzer: add the cohort to the running total."""
        cohort = self._noisy(tally, clock, stream)
        now = Memory(total=memory.total + cohort, releases=memory.releases + 1)
        # Cohorts partition the past, so a release always speaks about everyone who has arrived.
        users = clock.round + 1
        if not self.running:
            single = jnp.ones_like(users)
            return Release(total=cohort, count=users, noise=self.noise_after(single, single)), now
        noise = self.noise_after(users, now.releases)
        return Release(total=now.total, count=users, noise=noise), now

    def _noisy(self, tally: Tally, clock: Clock, stream: Stream | None) -> Vector:
        """The cohort's total, with the aggregator's noise."""
        return tally.total if self.drawn is None else self.drawn.add(tally.total, stream)

    def clear(self, tally: Tally) -> Tally:
        """Begin the next cohort."""
        return Tally(total=0 * tally.total)

    def noise_after(self, users: Array, releases: Array) -> Array:
        """Standard deviation of the noise in the total, after that many users and releases."""
        device = 0.0 if self.device is None else self.device.std
        aggregator = 0.0 if self.aggregator is None else self.aggregator.std
        # Plain operators: they stay in NumPy on the host, where a call of JAX costs far more.
        variance = device**2 * users.astype(np.float64) + aggregator**2 * releases.astype(
            np.float64
        )
        return variance**0.5

    def _event(self) -> Event:
        """What one user's part in one release costs, read off the noise that is really added."""
        noise = self.aggregator if self.device is None else self.device
        return NonPrivate() if noise is None else noise.event()
