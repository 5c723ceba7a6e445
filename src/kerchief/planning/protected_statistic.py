"""Statistic with a privacy guarantee, and the noise that `protect` gives it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import TypeAlias

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Feedback
from kerchief.core.queries import RegressionMoments, UnitBallVector
from kerchief.core.validate import between
from kerchief.privacy.guarantee import Guarantee
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.protect import Protection, protect
from kerchief.privatizers.registry import BEST
from kerchief.privatizers.schedule import At
from kerchief.privatizers.sums import CohortSums


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ball(UnitBallVector):
    """Sum over users of a vector in a ball, which one user moves by the diameter.

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


Query: TypeAlias = RegressionMoments | Ball
Sums: TypeAlias = CohortSums | PrefixSums


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SingleStatistic:
    """Policy with one statistic, reduced to what `protect` reads."""

    queries: Mapping[str, Query]
    feedback: Feedback = "totals"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProtectedStatistic:
    """Statistic whose totals are released under a guarantee over a horizon."""

    query: Query
    promise: Guarantee
    horizon: int

    def protected(self, word: str = BEST) -> Sums:
        """Build the privatizer that keeps the guarantee with this mechanism."""
        protection = Protection(guarantee=self.promise, mechanism=word)
        policy = _SingleStatistic(queries={"statistic": self.query})
        (privatizer,) = protect(policy, protection, horizon=self.horizon).values()
        assert isinstance(privatizer, CohortSums | PrefixSums)
        return privatizer

    def std(self, word: str = BEST) -> float:
        """Return the noise's standard deviation per coordinate of one release."""
        return own_noise(self.protected(word), self.horizon)


def own_noise(privatizer: Sums, horizon: int) -> float:
    """Return the noise deviation per coordinate of the noisiest release.

    Under continual release this is the noise of the worst prefix. For the tree that is the longest
    prefix whose length is all ones in binary; all other noise on prefixes grows with their length.
    """
    if isinstance(privatizer, PrefixSums):
        last_release = privatizer.schedule.capacity(horizon)
        all_ones = 2 ** ((last_release + 1).bit_length() - 1) - 1
        return max(
            _compute_noise(privatizer, horizon, release) for release in (all_ones, last_release)
        )
    ends = enumerate(_get_cohort_ends(privatizer) or (1,), start=1)
    totals = (0.0, *(_compute_noise(privatizer, end, number) for number, end in ends))
    pairs = itertools.pairwise(totals)
    return max(math.sqrt(now - before) * math.sqrt(now + before) for before, now in pairs)


def last_noise(privatizer: Sums, horizon: int) -> float:
    """Return the noise deviation per coordinate in the last total of a run."""
    users = max(_get_cohort_ends(privatizer) or (horizon,))
    return _compute_noise(privatizer, users, privatizer.schedule.capacity(horizon))


def _get_cohort_ends(privatizer: Sums) -> tuple[int, ...]:
    """Return where cohorts end; empty if every report is released by itself."""
    return privatizer.schedule.ends if isinstance(privatizer.schedule, At) else ()


def _compute_noise(privatizer: Sums, users: int, releases: int) -> float:
    return float(privatizer.noise_after(jnp.int32(users), jnp.int32(releases)))
