"""Every prefix total of a stream of users that may end at any time: epochs that double.

As `prefix.PrefixSums`, with noise that needs no horizon (`mechanisms.doubling`). An epoch's users
are nobody else's, so epochs compose in parallel: everyone pays for one. What finished epochs have
released is added to the present one's release, and no total is thrown away. Proof note:
`epochs.md`.
"""

from __future__ import annotations

import itertools

from kerchief.core.struct import struct
from kerchief.privacy.receipts import Charge, Cohort
from kerchief.privatizers.prefix import PrefixSums

__all__ = ["EpochSums"]


@struct
class EpochSums(PrefixSums):
    """Noisy prefix totals, released for as long as the run goes on.

    The horizon says how many epochs are billed beforehand and nothing more: releases are the same
    for every horizon, and epochs that no release reached are not paid for in the end.
    """

    def charges(self, horizon: int) -> tuple[Charge, ...]:
        """One charge for each epoch, to its own users; all cost the same (host only).

        Raises:
            CapacityExceeded: the noise was not made for as many releases as there may be.
        """
        (whole,) = super().charges(horizon)
        borders = (0, *itertools.accumulate(self.noise.factor.places(horizon)))
        return tuple(
            Charge(event=whole.event, cohort=Cohort(first=start, last=end))
            for start, end in itertools.pairwise(borders)
        )
