"""Totals of randomized bits, batch by batch: locally private reports behind a shuffler.

Every device writes its statistic as bits and randomizes each of them, so a report has a promise of
its own; the shuffler passes on the sums of a batch, which promise far more. This is the protocol of
E. Garcelon, K. Chaudhuri, V. Perchet, M. Pirotta, "Privacy amplification via shuffling for linear
contextual bandits", ALT 2022, with batches that compose in parallel, a certificate in place of
their condition on the batch's length, and as many bits as are useful. Proof note: `bits.md`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import BoundedSum, Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.mechanisms.mechanism import Vector
from kerchief.mechanisms.randomized_bits import ExactResponse, Response
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.randomized_bits import (
    KEEP_UNIT,
    RandomizedBits,
    bits_epsilon,
    bits_keep,
    bits_tail,
    local_epsilon,
    local_keep,
)
from kerchief.privacy.receipts import Charge
from kerchief.privatizers.schedule import At, Schedule
from kerchief.privatizers.sums import CohortSums, Tally


@dataclass(frozen=True, kw_only=True)
class _Deployed:
    """The responses of all batches, randomized on the devices."""

    batches: tuple[ExactResponse, ...]

    idealized: ClassVar[bool] = False

    @property
    def std(self) -> float:
        """Of the noisiest batch."""
        return max(response.std for response in self.batches)

    @property
    def sensitivity(self) -> float:
        """How far one user can move the vector."""
        return self.batches[0].sensitivity

    def prepare(self, vector: Vector, stream: object) -> Vector:
        """Refuse: what a device sends depends on its batch."""
        raise InvalidValueError("a device must know its batch; call the privatizer's report")

    def add(self, vector: Vector, stream: object) -> Vector:
        """Refuse: what the sums mean depends on their batch."""
        raise InvalidValueError("sums belong to a batch; call the privatizer's release")

    def event(self) -> RandomizedBits:
        """Of the first batch."""
        return self.batches[0].event()


@struct
class BitSums(CohortSums):
    """Noisy totals from randomized bits; `aggregator` holds the responses of all batches.

    Attributes:
        counted: of each batch, how many users' bits are charged for, being honest.
    """

    counted: tuple[int, ...] = static()

    @classmethod
    def of(cls, query: BoundedSum, *, promise: Guarantee, schedule: At, bits: int) -> BitSums:
        """Find the least noise by which each batch, of so many bits per number, keeps the promise.

        It is about whoever sees the shuffler's output; only the bits of its honest part count.
        What one report may tell by itself is kept as well, where the query says (`local`).

        Raises:
            InvalidValueError: no response keeps the promise.
        """
        sizes, box = schedule.sizes, _box(query)
        keep_limit = _bound_keep(query, bits)
        responses = {
            users: _response(promise, keep_limit, users=users, **_describe_batch(query, bits))
            for users in {promise.counted(size) for size in sizes}
        }
        batches = [responses[promise.counted(size)] for size in sizes]
        noise = Response(
            keep=jnp.asarray([batch.keep for batch in batches]),
            tail=batches[0].tail,
            users=jnp.asarray(sizes),
            bits=bits,
            bound=box,
            sensitivity=query.sensitivity,
            dimension=query.size,
        )
        return cls(
            query=query,
            schedule=schedule,
            device=None,
            aggregator=noise,
            counted=tuple(promise.counted(size) for size in sizes),
        )

    @property
    def noisy_aggregator(self) -> bool:
        """Only a simulation draws the bits in the aggregator."""
        return self.idealized

    @property
    def ends(self) -> tuple[int, ...]:
        """Where batches end."""
        assert isinstance(self.schedule, At)
        return self.schedule.ends

    def with_schedule(self, schedule: Schedule) -> Self:
        """Check the schedule: batches of other sizes would have other certificates."""
        if schedule != self.schedule:
            raise InvalidValueError(
                f"the schedule is {schedule}; responses were calibrated for {self.schedule}: "
                "build the privatizer anew"
            )
        return self

    def with_equal_noise(self, batches: int) -> BitSums:
        """Use the least keep parameter of the first batches in every batch.

        Then a report has the same noise whatever batch it is made for. Keeping a bit less often is
        post-processing of keeping it more often, so these batches keep their promise (`bits.md`).
        """
        least = min(response.keep for response in self.batches[:batches])
        noise = _Deployed(
            batches=tuple(dataclasses.replace(response, keep=least) for response in self.batches)
        )
        return self.with_noise(lambda _: noise)

    @property
    def batches(self) -> tuple[ExactResponse, ...]:
        """The exact response of every batch (host only)."""
        if isinstance(self.aggregator, _Deployed):
            return self.aggregator.batches
        assert isinstance(self.aggregator, Response)
        return tuple(
            self.aggregator.batch(j).exact() for j in range(len(np.asarray(self.aggregator.users)))
        )

    def exact(self) -> BitSums:
        """The twin for deployment: every device randomizes its own bits."""
        return self.with_noise(lambda noise: _Deployed(batches=self.batches))

    def charges(self, horizon: int) -> tuple[Charge, ...]:
        """One line for each batch, for its own users: batches compose in parallel (host only)."""
        assert isinstance(self.schedule, At)
        cohorts = self.schedule.cohorts(horizon)
        return tuple(
            Charge(event=event, cohort=cohort)
            for event, cohort in zip(self._events, cohorts, strict=False)
        )

    @property
    def _events(self) -> tuple[RandomizedBits, ...]:
        """What the sums of each batch cost, by the bits of its honest part."""
        pairs = zip(self.batches, self.counted, strict=True)
        return tuple(
            dataclasses.replace(response.event(), users=users) for response, users in pairs
        )

    @property
    def alone(self) -> Guarantee:
        """What one report promises by itself to whoever reads it on its way, in any batch."""
        keep = max(response.keep for response in self.batches)
        epsilon = local_epsilon(keep, **_describe_report(self.query, self.batches[0].bits))
        return Guarantee(epsilon=epsilon, delta=0.0, trust=Trust.LOCAL)

    def views(self, delta: float) -> Mapping[str, Guarantee]:
        """What is promised to a user against each of three onlookers, in the worst batch.

        The device's wire: a local promise, from its own bits alone. The shuffler's output, and
        the models made from it: the promise of the sums of a batch.
        """
        together = max(bits_epsilon(event, delta) for event in self._events)
        return {
            "device wire": self.alone,
            "shuffler output": Guarantee(epsilon=together, delta=delta, trust=Trust.SHUFFLE),
            "published model": Guarantee(epsilon=together, delta=delta, trust=Trust.JOINT),
        }

    def report(self, statistic: Vector, clock: Clock, stream: Stream | None) -> Vector:
        """Device: how many of its bits are ones; in deployment, after each was randomized."""
        if not isinstance(self.aggregator, _Deployed):
            return super().report(statistic, clock, stream)
        place = int(np.searchsorted(self.ends, int(clock.round), side="right"))
        if place == len(self.aggregator.batches):
            return np.zeros(self.query.size)
        return self.aggregator.batches[place].prepare(np.asarray(statistic), stream)

    def _noisy(self, tally: Tally, clock: Clock, stream: Stream | None) -> Vector:
        """Analyzer: the batch's estimate."""
        if isinstance(self.aggregator, _Deployed):
            place = int(np.searchsorted(self.ends, int(clock.round), side="right"))
            return self.aggregator.batches[place].add(np.asarray(tally.total))
        assert isinstance(self.aggregator, Response)
        assert stream is not None
        number = jnp.searchsorted(jnp.asarray(self.ends), clock.round, side="right")
        return self.aggregator.batch(number).add(tally.total, stream)

    def noise_after(self, users: Array, releases: Array) -> Array:
        """The bits of all batches so far, rounding included."""
        if isinstance(self.aggregator, _Deployed):
            stds = np.asarray([response.std for response in self.aggregator.batches])
            return np.sqrt((stds**2).cumsum()[releases - 1])  # type: ignore[no-any-return]
        assert isinstance(self.aggregator, Response)
        return jnp.sqrt(jnp.cumsum(jnp.asarray(self.aggregator.std) ** 2)[releases - 1])


def _box(query: BoundedSum) -> float:
    """No number of a statistic is larger in absolute value: all are coded in one box.

    Boxes of a size of their own would stretch the diameter by what they shrink: see `bits.md`.
    """
    farthest = float(np.abs(np.asarray(query.center)).max()) + query.radius
    return float(getattr(query, "largest", farthest))


def _describe_batch(query: BoundedSum, bits: int) -> dict[str, Any]:
    """What the certificate of a batch is about, in units of the box."""
    return {
        "bits": bits,
        "sensitivity": query.sensitivity / _box(query),
        "dimension": query.size,
    }


def _describe_report(query: BoundedSum, bits: int) -> dict[str, Any]:
    """What the promise of one report is about: the largest sum of absolute values, in boxes."""
    center = np.broadcast_to(np.asarray(query.center, np.float64), query.size)
    longest = float(np.linalg.norm(center)) + query.radius
    absolute = float(getattr(query, "absolute", math.sqrt(query.size) * longest))
    return {"bits": bits, "dimension": query.size, "taxicab": absolute / _box(query)}


def _bound_keep(query: BoundedSum, bits: int) -> float:
    """The largest keep parameter that the query's own wishes allow."""
    keep, local = float(getattr(query, "keep", 1.0)), float(getattr(query, "local", math.inf))
    units = math.floor(keep / KEEP_UNIT) * KEEP_UNIT
    return (
        units
        if math.isinf(local)
        else min(units, local_keep(local, **_describe_report(query, bits)))
    )


def _response(promise: Guarantee, keep_limit: float, *, users: int, **coded: Any) -> RandomizedBits:
    """The least noise that keeps the promise, with a keep parameter of at most so much."""
    if keep_limit < 1:
        event = RandomizedBits(users=users, keep=keep_limit, tail=bits_tail(promise.delta), **coded)
        if bits_epsilon(event, promise.delta) <= promise.epsilon:
            return event
    least_noise = bits_keep(promise.epsilon, promise.delta, users=users, **coded)
    return dataclasses.replace(least_noise, keep=min(least_noise.keep, keep_limit))
