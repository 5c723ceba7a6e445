"""Fits to shuffled cohorts: a convex optimizer in several rounds, each of them a shuffled sum.

When a cohort is full, the loss's minimizer asks for J gradient sums, one after the other. For each
of them the learner posts a point; every device of the cohort, still online, computes its clipped
gradient there, rounds it at random, adds its share of the coins, and its bits are mixed with those
of all others (`shuffled.py`). So a user takes part in J vector sums, in one cohort. This is the
optimizer of Sarmasarkar 2026, Algorithm 7, after A. Cheu, M. Joseph, J. Mao, B. Peng, "Shuffle
private stochastic convex optimization", ICLR 2022, for any `Minimizer`, with an accountant in place
of the theorem's constants.

A simulation keeps the cohort's rows in one place and draws a sum's coins at once. There is no
deployment: the devices of our roles report once and leave. Proof note: `shuffled_fits.md`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import BoundedLoss, Clock, FitRelease, Start, Tree
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.mechanisms.binomial import Binomial, Grid, deviation
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy.events import NonPrivate
from kerchief.privacy.receipts import Charge, Cohort
from kerchief.privatizers.fits import Fits, History
from kerchief.privatizers.schedule import At, Schedule


@struct
class ShuffledFits(Fits):
    """Approximate minimizers of a bounded loss, each over the users since the last one.

    `horizon` is the number of users of the largest cohort; `noise` is the coins of one sum, None
    for exact minimizers.
    """

    @classmethod
    def of(
        cls,
        query: BoundedLoss,
        *,
        noise_multiplier: float | None,
        horizon: int,
        schedule: At | None = None,
    ) -> ShuffledFits:
        """The coins of one sum, where all sums of a cohort's fit together may cost this multiplier.

        Without a schedule there is one cohort.
        """
        schedule = At(ends=(horizon,)) if schedule is None else schedule
        largest, noise = max(schedule.sizes), None
        if noise_multiplier is not None:
            # All sums of a fit, side by side, are one vector, whose length and sensitivity count.
            sums = query.minimizer.steps
            grid = Grid.of(
                noise_multiplier=noise_multiplier,
                sensitivity=query.sensitivity * math.sqrt(sums),
                dimension=query.dim * sums,
                users=largest,
            )
            noise = Binomial(
                std=grid.scale * grid.step,
                step=grid.step,
                sensitivity=query.sensitivity,
                dimension=query.dim,
            )
        return cls(query=query, schedule=schedule, horizon=largest, noise=noise)

    def exact(self) -> ShuffledFits:
        """Refuse if there is noise: a device would have to stay online for all sums of a fit.

        Raises:
            InvalidValueError: whenever there is noise.
        """
        if self.noise is None:
            return self
        raise InvalidValueError(
            f"a shuffled fit asks every device {self.query.minimizer.steps} times, and the devices "
            f"of a deployment answer once; choose a policy that asks for sums alone, such as "
            f"'glm-batched-sums'"
        )

    def with_schedule(self, schedule: Schedule) -> Self:
        """Replace the times of releases; the number of kept rows follows the cohorts."""
        room = max(schedule.sizes) if isinstance(schedule, At) else self.horizon
        return dataclasses.replace(self, schedule=schedule, horizon=room)

    def charges(self, horizon: int) -> tuple[Charge, ...]:
        """Every step of one fit for each user: cohorts are disjoint (host only).

        When the learner may ask at any time, everyone pays, but for one fit each.
        """
        if self.noise is None:
            return (Charge(event=NonPrivate(), cohort=Cohort(first=0, last=horizon)),)
        schedule = self.schedule if isinstance(self.schedule, At) else At(ends=(horizon,))
        cohorts = schedule.cohorts(horizon)
        event, sums = self.noise.event(), self.query.minimizer.steps
        return tuple(Charge(event=event, cohort=cohort, capacity=sums) for cohort in cohorts)

    def took_part(self, cohort: Cohort, *, users: int, covered: int, releases: int) -> int:
        """In every step of the one fit that spoke about them (host only)."""
        sums = 1 if self.noise is None else self.query.minimizer.steps
        return sums if cohort.first < covered else 0

    def collect(self, tally: History, report: Vector) -> History:
        """Keep one row (in a simulation), in place of the oldest if there is no room."""
        row = jnp.asarray(report).astype(tally.rows.dtype)
        rows = jax.lax.dynamic_update_index_in_dim(tally.rows, row, tally.count % self.horizon, 0)
        return History(rows=rows, count=tally.count + 1)

    def release(
        self,
        memory: Tree,
        tally: History,
        request: Start | None,
        clock: Clock,
        stream: Stream | None,
    ) -> tuple[FitRelease, Tree]:
        """Fit to the present cohort, from where the learner asks to begin."""
        if request is None:
            raise TypeError("a fit needs a start; the policy's request gave none")
        users = jnp.minimum(tally.count, self.horizon)
        # Rows beyond these are of an earlier cohort: they must count for nothing.
        if self.noise is None:
            point = self.query.minimum(tally.rows, request, count=users)
            return FitRelease(point=point, count=users, noise=jnp.float64(0)), memory
        present = (jnp.arange(self.horizon) < users)[:, None]
        rows = jnp.where(present, tally.rows, 0)
        noise, minimizer = self.noise, self.query.minimizer
        assert isinstance(noise, Binomial)
        assert stream is not None

        def gradient(point: Array, step: Array | int) -> Array:
            gradients = self.query.gradients(rows, point)
            reports = _rounded(noise, gradients, stream.split(minimizer.steps + step))
            return noise.add(jnp.where(present, reports, 0).sum(0), stream.split(step))

        std = deviation(noise, users.astype(jnp.float64))
        point = minimizer.descend(gradient, request, users=users, noise=std)
        return FitRelease(point=point, count=users, noise=std), memory

    def clear(self, tally: History) -> History:
        """Begin the next cohort: `release` looks at no row that was there before."""
        return History(rows=tally.rows, count=0 * tally.count)


def _rounded(noise: Binomial, gradients: Array, stream: Stream) -> Array:
    """Every device's gradient on the grid, each coordinate rounded at random by itself."""
    flat = dataclasses.replace(noise, dimension=gradients.size)
    return flat.prepare(gradients.ravel(), stream).reshape(gradients.shape)
