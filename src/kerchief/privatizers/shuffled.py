"""Totals over shuffled cohorts: no one is trusted with a report, and only sums are seen.

A device rounds its vector at random and adds its share of the coins. Mixed bit by bit, the reports
of a cohort would say how many heads there are and nothing else, so a mixer may as well send the
totals: the rounded sum plus one binomial draw per coordinate, which is what a simulation draws.
With LinUCB this is the shuffle model of S. Chowdhury and X. Zhou, "Shuffle private linear
contextual bandits", ICML 2022. Proof note: `shuffled.md`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from typing import Any

import numpy as np
from jax import Array

from kerchief.core.contracts import BoundedSum, Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import between
from kerchief.mechanisms.binomial import Binomial, ExactBinomial, deviation
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy.vector_sum import scalar_sum, vector_sum
from kerchief.privatizers.schedule import At
from kerchief.privatizers.sums import CohortSums


@struct
class ShuffledSums(CohortSums):
    """Noisy totals over cohorts of devices behind a shuffler; `aggregator` is a cohort's coins.

    A simulation draws a cohort's coins at once; the exact twin has every device toss its share.

    Attributes:
        counted: the part of a cohort whose coins are charged for, being honest; the others' coins
            may never be tossed, and those that are add to the noise.
    """

    counted: float = static(default=1.0)

    @classmethod
    def of(cls, query: BoundedSum, *, noise_multiplier: float, schedule: At) -> ShuffledSums:
        """The coins of this multiplier for each cohort."""
        noise = Binomial.of(
            noise_multiplier=noise_multiplier,
            sensitivity=query.sensitivity,
            dimension=query.size,
            users=max(schedule.sizes),
        )
        return cls(query=query, schedule=schedule, device=None, aggregator=noise)

    @classmethod
    def by_theorem(
        cls,
        query: BoundedSum,
        *,
        epsilon: float,
        delta: float,
        schedule: At,
        norm: float | None = None,
    ) -> ShuffledSums:
        """Build the protocol with the published constants, hundreds of times as noisy.

        What the ledger then shows as spent is what these coins really cost, which is far less. All
        cohorts get the coins of the noisiest and the grid of the finest.

        Args:
            query: what is summed.
            epsilon: as the theorem takes it.
            delta: likewise.
            schedule: the cohorts.
            norm: no vector is longer; by default the sensitivity, as a record of zeros is written
                as zeros.

        Raises:
            InvalidValueError: ε or δ is outside the theorem's range, or a cohort is too small for
                it.
        """
        terms: Any = {"epsilon": epsilon, "delta": delta}
        proved = [
            scalar_sum(users=users, **terms)
            if query.size == 1
            else vector_sum(users=users, size=query.size, **terms)
            for users in schedule.sizes
        ]
        longest = between(
            "norm", query.sensitivity if norm is None else norm, 1e-9, 1e9, closed=True
        )
        step = 2.0 ** math.floor(math.log2(2 * longest / max(entry.levels for entry in proved)))
        scale = math.ceil(max(entry.std for entry in proved) * longest / step)
        noise = Binomial(
            std=scale * step, step=step, sensitivity=query.sensitivity, dimension=query.size
        )
        return cls(query=query, schedule=schedule, device=None, aggregator=noise)

    @property
    def drawn(self) -> Binomial | ExactBinomial:
        """All coins, those of users whom nobody relies on included."""
        assert isinstance(self.aggregator, Binomial | ExactBinomial)
        if isinstance(self.aggregator, ExactBinomial) or self.counted == 1.0:
            return self.aggregator
        return dataclasses.replace(self.aggregator, std=self.aggregator.std / self.counted**0.5)

    @property
    def noisy_aggregator(self) -> bool:
        """Only a simulation adds the coins in the aggregator."""
        return self.idealized

    def exact(self) -> CohortSums:
        """The twin for deployment: the same coins, tossed on the devices.

        Raises:
            InvalidValueError: the devices of the smallest cohort would toss too many.
        """
        if isinstance(self.schedule, At) and self.schedule.ends:
            self.coins.check_tosses(min(self.schedule.sizes))
        return super().exact()

    @property
    def ends(self) -> tuple[int, ...]:
        """Where cohorts end: in deployment at fixed times, since a device must know its share."""
        if not isinstance(self.schedule, At):
            raise InvalidValueError(
                f"the schedule is {self.schedule}; cohorts of coins end at times"
            )
        return self.schedule.ends

    @property
    def coins(self) -> ExactBinomial:
        """The coins of a cohort, as devices toss them (host only)."""
        noise = (
            self.aggregator.exact() if isinstance(self.aggregator, Binomial) else self.aggregator
        )
        assert isinstance(noise, ExactBinomial)
        return noise

    def cohort(self, round: int) -> tuple[int, int] | None:
        """The first round of a round's cohort and one past the last, or None if it has none."""
        bounds = itertools.pairwise((0, *self.ends))
        return next((pair for pair in bounds if round < pair[1]), None)

    def report(self, statistic: Vector, clock: Clock, stream: Stream | None) -> Vector:
        """Device: round at random; in deployment, add this device's share of the coins.

        A device whose cohort is never mixed says nothing.
        """
        if not isinstance(self.aggregator, ExactBinomial):
            assert self.aggregator is not None
            return self.aggregator.prepare(statistic, stream)
        cohort = self.cohort(int(clock.round))
        if cohort is None:
            return np.zeros(self.aggregator.dimension)
        return self.aggregator.share(
            np.asarray(statistic),
            place=int(clock.round) - cohort[0],
            users=cohort[1] - cohort[0],
            randomness=stream if callable(stream) else os.urandom,
        )

    def noise_after(self, users: Array, releases: Array) -> Array:
        """The coins of all cohorts, and the most that rounding at random may add."""
        coins, rounded = releases.astype(np.float64), users.astype(np.float64)
        stated: Array = deviation(self.drawn, rounded, coins)
        return stated
