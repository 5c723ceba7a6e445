"""A statistic with a promise about it: the noise that `protect` gives it, and nothing computed."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import TypeAlias

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Feedback
from kerchief.core.queries import Regression, UnitBall
from kerchief.core.validate import between
from kerchief.privacy.guarantee import Guarantee
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.protect import Protection, protect
from kerchief.privatizers.registry import BEST
from kerchief.privatizers.schedule import At
from kerchief.privatizers.sums import CohortSums


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ball(UnitBall):
    """The sum over users of a vector in a ball: one user can move it by the diameter.

    >>> Ball(size=2, diameter=4.0).encode(jnp.array([0.0, 3.0])).tolist()
    [0.0, 2.0]
    """

    diameter: float

    def __post_init__(self) -> None:
        """Check the values: privacy rests on them."""
        super().__post_init__()
        between("diameter", self.diameter, 1e-9, 1e9, closed=True)

    @property
    def sensitivity(self) -> float:
        """The diameter, which opposite vectors attain."""
        return self.diameter

    @property
    def radius(self) -> float:
        """The ball's radius."""
        return self.diameter / 2

    def encode(self, record: Array) -> Array:
        """Scale a vector that is too long into the ball."""
        return self.radius * super().encode(record / self.radius)


Query: TypeAlias = Regression | Ball
Sums: TypeAlias = CohortSums | PrefixSums


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Asking:
    """As much of a policy as `protect` looks at."""

    queries: Mapping[str, Query]
    feedback: Feedback = "totals"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """A statistic whose totals are asked for under a promise, for so many rounds."""

    query: Query
    promise: Guarantee
    horizon: int

    def protected(self, word: str = BEST) -> Sums:
        """The privatizer that keeps the promise by the noise of this word."""
        protection = Protection(guarantee=self.promise, mechanism=word)
        asking = _Asking(queries={"statistic": self.query})
        (privatizer,) = protect(asking, protection, horizon=self.horizon).values()
        assert isinstance(privatizer, CohortSums | PrefixSums)
        return privatizer

    def std(self, word: str = BEST) -> float:
        """Standard deviation of the noise on each coordinate of one release."""
        return own_noise(self.protected(word), self.horizon)


def own_noise(privatizer: Sums, horizon: int) -> float:
    """What the noisiest release adds to each coordinate; of prefixes, the worst one's noise.

    Of the tree the worst prefix is the longest whose length is all ones in binary; all other noise
    on prefixes grows with their length.
    """
    if isinstance(privatizer, PrefixSums):
        most = privatizer.schedule.capacity(horizon)
        ones = 2 ** ((most + 1).bit_length() - 1) - 1
        return max(_after(privatizer, horizon, place) for place in (ones, most))
    ends = enumerate(_ends(privatizer) or (1,), start=1)
    totals = (0.0, *(_after(privatizer, end, number) for number, end in ends))
    pairs = itertools.pairwise(totals)
    return max(math.sqrt(now - before) * math.sqrt(now + before) for before, now in pairs)


def last_noise(privatizer: Sums, horizon: int) -> float:
    """Standard deviation of the noise in the last total of a run, on each coordinate."""
    users = max(_ends(privatizer) or (horizon,))
    return _after(privatizer, users, privatizer.schedule.capacity(horizon))


def _ends(privatizer: Sums) -> tuple[int, ...]:
    """Where cohorts end; none where every report is released by itself."""
    return privatizer.schedule.ends if isinstance(privatizer.schedule, At) else ()


def _after(privatizer: Sums, users: int, releases: int) -> float:
    return float(privatizer.noise_after(jnp.int32(users), jnp.int32(releases)))
