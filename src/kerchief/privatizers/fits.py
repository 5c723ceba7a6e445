"""Fits to the history of all users, by gradient sums that carry noise.

A trusted curator keeps one row per user. When the learner asks, it runs the loss's minimizer, which
sees only sums of clipped gradients of the rows, each with fresh Gaussian noise: a fit of J steps
costs every user J Gaussian releases (Sarmasarkar 2026, Lemma U.4, with the sensitivity of
replacement and no average over a private count). How many fits there may be is public and paid for
beforehand. Without noise the fit is the exact minimizer. Proof note: `fits.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import BoundedLoss, Clock, FitRelease, Start, Tree
from kerchief.core.errors import CapacityExceededError
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import MOST_ROUNDS, positive, whole
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.mechanism import Mechanism, Vector, exact_twin
from kerchief.privacy.events import NonPrivate
from kerchief.privacy.receipts import Charge, Cohort
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import OnDemand, Schedule


@struct
class History:
    """The rows of all users so far, private and never shown; rows of later users are zeros."""

    rows: Array = dataclasses.field(repr=False)
    count: Array


@struct
class Fits(Privatizer):
    """Approximate minimizers of a bounded loss over everyone so far.

    Attributes:
        query: the loss; it says how a fit is made and how many there may be.
        horizon: number of users that the history has room for.
        noise: on each gradient sum; None for exact fits.
    """

    query: BoundedLoss = static()
    schedule: Schedule = static()
    horizon: int = static()
    noise: Mechanism | None

    @classmethod
    def of(cls, query: BoundedLoss, *, noise_multiplier: float | None, horizon: int) -> Fits:
        """The noise of one step, where all steps of all fits together may cost this multiplier.

        It is that of one Gaussian release, or None for fits without noise.
        """
        noise = None
        horizon = whole("horizon", horizon, high=MOST_ROUNDS)
        if noise_multiplier is not None:
            sums = query.fits * query.minimizer.steps
            noise = Gaussian.of(
                noise_multiplier=positive("noise_multiplier", noise_multiplier)
                * sums**0.5
                * (1 + 4 * np.finfo(float).eps),
                sensitivity=query.sensitivity,
            )
        return cls(query=query, schedule=OnDemand(limit=query.fits), horizon=horizon, noise=noise)

    @property
    def noises(self) -> tuple[Mechanism, ...]:
        """Mechanisms of this privatizer: the curator's noise, if there is any."""
        return () if self.noise is None else (self.noise,)

    def exact(self) -> Fits:
        """The twin for deployment: discrete noise at the same multiplier."""
        if not self.idealized:
            return self
        return self.with_noise(lambda noise: exact_twin(noise, self.query.dim))

    def with_noise(self, change: Callable[[Any], Any]) -> Self:
        """Replace the noise of this protocol."""
        return self if self.noise is None else dataclasses.replace(self, noise=change(self.noise))

    def charges(self, horizon: int) -> tuple[Charge, ...]:
        """Every step of every fit, for everyone: the first user is in all of them (host only).

        Raises:
            CapacityExceededError: the history has no room for that many users.
        """
        if horizon > self.horizon:
            raise CapacityExceededError(
                f"{horizon} rounds; the history has room for {self.horizon} users: make it for the "
                f"whole horizon"
            )
        everyone = Cohort(first=0, last=horizon)
        if self.noise is None:
            return (Charge(event=NonPrivate(), cohort=everyone),)
        sums = self.schedule.capacity(horizon) * self.query.minimizer.steps
        return (Charge(event=self.noise.event(), cohort=everyone, capacity=sums),)

    def took_part(self, cohort: Cohort, *, users: int, covered: int, releases: int) -> int:
        """In every step of every fit that there might have been (host only).

        How many there were depends on the users, through releases: a promise about one user cannot
        be better than for the most that was allowed. Exact rows cost nothing before a fit.
        """
        if self.noise is None:
            return int(releases > 0)
        fit_count = self.schedule.capacity(users) if cohort.first < users else 0
        return fit_count * self.query.minimizer.steps

    def open(self) -> tuple[Tree, History]:
        """No rows yet."""
        rows = jnp.zeros((self.horizon, self.query.size), self._precision())
        return (), History(rows=rows, count=jnp.int32(0))

    def report(self, statistic: Vector, clock: Clock, stream: Stream | None) -> Vector:
        """Device: the row itself, for a curator that its user trusts."""
        return statistic

    def collect(self, tally: History, report: Vector) -> History:
        """Curator: keep one row."""
        row = jnp.asarray(report).astype(self._precision())
        rows = jax.lax.dynamic_update_index_in_dim(tally.rows, row, tally.count, 0)
        return History(rows=rows, count=tally.count + 1)

    def release(
        self,
        memory: Tree,
        tally: History,
        request: Start | None,
        clock: Clock,
        stream: Stream | None,
    ) -> tuple[FitRelease, Tree]:
        """Curator: fit to everyone so far, from where the learner asks to begin."""
        if request is None:
            raise TypeError("a fit needs a start; the policy's request gave none")
        users = clock.round + 1
        if self.noise is None:
            point = self.query.minimum(tally.rows, request, count=tally.count)
            return FitRelease(point=point, count=users, noise=jnp.float64(0)), memory
        noise = self.noise

        def gradient(point: Array, step: Array | int) -> Array:
            # Exact noise takes nothing, or in tests one source of bytes for all steps.
            at = stream.split(step) if isinstance(stream, Stream) else stream
            noisy: Array = noise.add(self._summed(tally.rows, point), at)
            return noisy

        std = jnp.asarray(noise.std, jnp.float64)
        point = self.query.minimizer.descend(gradient, request, users=users, noise=std)
        return FitRelease(point=point, count=users, noise=std), memory

    def clear(self, tally: History) -> History:
        """Keep every row: the next fit is to everyone again."""
        return tally

    def _summed(self, rows: Array, point: Array) -> Vector:
        """The sum of clipped gradients, each on the noise's grid where that is exact."""
        gradients = self.query.gradients(rows, point)
        if self.noise is None or self.noise.idealized:
            return gradients.sum(0, dtype=jnp.float64)
        prepared: Vector = self.noise.prepare(np.asarray(gradients), None)
        return prepared.sum(0)

    def _precision(self) -> Any:
        """Rows for exact noise are float64, as its proof asks; simulation holds many histories."""
        return jnp.float32 if self.noise is None or self.idealized else jnp.float64
