"""Totals of randomized bits, batch by batch: locally private reports behind a shuffler.

Every device writes its statistic as bits and randomizes each of them, so a report has a promise of
its own; the shuffler passes on the sums of a batch, which promise far more. This is the protocol of
E. Garcelon, K. Chaudhuri, V. Perchet, M. Pirotta, "Privacy amplification via shuffling for linear
contextual bandits", ALT 2022, with batches that compose in parallel, a certificate in place of
their condition on the batch's length, and as many bits as are good. Proof note: `bits.md`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from kerchief.core.contracts import BoundedSum
from kerchief.core.errors import InvalidValue
from kerchief.core.struct import struct
from kerchief.mechanisms.response import Bits, Response
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.randomized_bits import (
    RandomizedBits,
    bits_epsilon,
    bits_keep,
    local_epsilon,
)
from kerchief.privatizers.schedule import At
from kerchief.privatizers.sums import CohortSums

__all__ = ["BitSums"]


@struct
class BitSums(CohortSums):
    """Noisy totals from randomized bits; `middle` is the response of one batch."""

    @classmethod
    def of(
        cls, query: BoundedSum, *, epsilon: float, delta: float, schedule: At, bits: int
    ) -> BitSums:
        """The least noise with which the sums of a batch keep the promise.

        Args:
            query: the sum.
            epsilon: ε of whoever sees the shuffler's output.
            delta: δ of the same.
            schedule: where batches end; all of them are as long as the first.
            bits: bits a coordinate.

        Raises:
            InvalidValue: batches differ in length, or no response keeps the promise.
        """
        sizes = {end - start for start, end in itertools.pairwise((0, *schedule.ends))}
        if len(sizes) != 1:
            raise InvalidValue(
                f"batches have {sorted(sizes)} users; randomized bits need batches of one length"
            )
        event = bits_keep(
            epsilon,
            delta,
            users=sizes.pop(),
            bits=bits,
            sensitivity=1.0,
            dimension=query.size,
        )
        noise = Response.of(event, bound=query.sensitivity)
        return cls(query=query, schedule=schedule, device=None, middle=noise)

    @property
    def noisy_middle(self) -> bool:
        """Only a simulation draws the bits in the middle."""
        return self.idealized

    @property
    def response(self) -> Response | Bits:
        """The response of one batch."""
        assert isinstance(self.middle, Response | Bits)
        return self.middle

    def exact(self) -> BitSums:
        """The twin for deployment: every device randomizes its own bits."""
        return self.with_noise(lambda noise: noise.exact() if noise.idealized else noise)

    def views(self, delta: float) -> Mapping[str, Guarantee]:
        """What is promised to a user against each of three onlookers.

        The device's wire: a local promise, from its own bits alone. The shuffler's output, and
        the models made from it: the promise of the sums of a batch.
        """
        noise = self.response
        event = noise.event()
        assert isinstance(event, RandomizedBits)
        # A statistic of norm at most the bound has a sum of absolute values within its root.
        reach = math.sqrt(noise.dimension)
        alone = local_epsilon(
            float(noise.keep), bits=noise.bits, dimension=noise.dimension, reach=reach
        )
        epsilon = bits_epsilon(event, delta)
        return {
            "device wire": Guarantee(epsilon=alone, delta=0.0, trust=Trust.LOCAL),
            "shuffler output": Guarantee(epsilon=epsilon, delta=delta, trust=Trust.SHUFFLE),
            "published model": Guarantee(epsilon=epsilon, delta=delta, trust=Trust.JOINT),
        }
