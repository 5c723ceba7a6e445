"""What a device may do to its report under local trust, by the names of `--mechanism`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerchief.core.contracts import BoundedSum
from kerchief.core.errors import InvalidValueError
from kerchief.core.registry import Registry
from kerchief.core.residual_moments import ResidualMoments
from kerchief.mechanisms.compass import Compass
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.mechanism import Mechanism
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.privacy.calibration import gaussian_noise_multiplier, share
from kerchief.privacy.guarantee import Guarantee

BEST = "best"
"""The word for a trust's default noise."""

# Shares of epsilon add up to no more than all of it, in floating point too.
_GUARD = 1e-13


@dataclasses.dataclass(frozen=True, kw_only=True)
class Randomizer:
    """A registered randomizer of reports.

    Attributes:
        pure: builds it from a query and the epsilon that it may cost, whatever delta is; None where
            a noise multiplier is what it needs.
        single: whether it is for a single number alone.
        kind: the queries that it is for; None for those of any kind.
        words: which others it chooses among.
    """

    summary: str
    pure: Callable[[BoundedSum, float], Mechanism] | None = None
    single: bool = False
    kind: type | None = None
    words: tuple[str, ...] = ()

    def suits(self, query: BoundedSum) -> bool:
        """Whether it can randomize this query's statistics."""
        fits = self.kind is None or isinstance(query, self.kind)
        return fits and (query.size == 1 or not self.single)


RANDOMIZERS: Registry[Randomizer] = Registry("randomizer")
"""What devices may do under local trust, by the name of `--mechanism`."""


def _laplace(query: BoundedSum, epsilon: float) -> Laplace:
    euclidean = math.sqrt(query.size) * query.sensitivity
    taxicab = getattr(query, "taxicab", euclidean)
    return Laplace.of(epsilon=epsilon, taxicab=taxicab, dimension=query.size)


def _in_ball(make: Callable[..., Mechanism]) -> Callable[[BoundedSum, float], Mechanism]:
    return lambda query, epsilon: make(
        epsilon=epsilon, center=query.center, radius=query.radius, size=query.size
    )


def _compass(query: BoundedSum, epsilon: float) -> Compass:
    assert isinstance(query, ResidualMoments)
    return Compass.of(epsilon=epsilon, query=query)


def _one_bit(query: BoundedSum, epsilon: float) -> OneBit:
    center = np.asarray(query.center).item()
    return OneBit.of(epsilon=epsilon, center=center, radius=query.radius)


def _enter(name: str, summary: str, **facts: Any) -> None:
    RANDOMIZERS.add(name, Randomizer(summary=summary, **facts))


_enter(
    BEST,
    "the one with the least noise that keeps the guarantee",
    words=("gaussian", "laplace", "privunit", "compass", "one-bit"),
)
_enter("gaussian", "normal noise on every coordinate: the classical choice")
_enter("laplace", "Laplace noise on every coordinate, for any delta", pure=_laplace)
_enter(
    "privunit",
    "a normal vector on the statistic's side, for any delta",
    pure=_in_ball(PrivUnitG.of),
)
_enter(
    "shortlist",
    "one of many candidates: the deployed twin of privunit, for any delta",
    pure=_in_ball(Shortlist.of),
)
_enter(
    "compass",
    "one of many directions, read as a vector and as a matrix: for surprises, for any delta",
    pure=_compass,
    kind=ResidualMoments,
)
_enter("one-bit", "a coin for a single number, for any delta", pure=_one_bit, single=True)


def randomize(
    queries: Mapping[str, BoundedSum], promise: Guarantee, *, words: Sequence[str]
) -> Mapping[str, Mechanism]:
    """What a device does to each of its reports: the least noise that these words offer.

    A device answers all queries, and all its reports together keep the promise. Normal noises share
    one joint budget; pure ones share epsilon, as the queries' importance says. Each query then gets
    the pure one of least deviation; between all normal and all pure, the product of the deviations
    decides, so that no query's units count.

    Raises:
        InvalidValueError: no word suits a query.
    """
    weights = [query.importance for query in queries.values()]
    alternatives: list[list[Mechanism]] = []
    if any(RANDOMIZERS[name].pure is None for name in words) and promise.delta > 0:
        parts = share(gaussian_noise_multiplier(promise.epsilon, promise.delta), weights)
        pairs = zip(queries.values(), parts, strict=True)
        alternatives.append(
            [Gaussian.of(noise_multiplier=m, sensitivity=q.sensitivity) for q, m in pairs]
        )
    if any(RANDOMIZERS[name].pure is not None for name in words) and promise.epsilon > 0:
        parts = tuple(promise.epsilon * w / math.fsum(weights) * (1 - _GUARD) for w in weights)
        alternatives.append(
            [_quietest(q, e, words) for q, e in zip(queries.values(), parts, strict=True)]
        )
    if not alternatives:
        raise InvalidValueError(
            f"epsilon is {promise.epsilon}, delta is {promise.delta}, and {', '.join(words)} needs "
            f"the other one to be above 0; choose {BEST!r}"
        )
    best = min(
        alternatives, key=lambda noises: math.fsum(math.log(float(noise.std)) for noise in noises)
    )
    return dict(zip(queries, best, strict=True))


def _quietest(query: BoundedSum, epsilon: float, names: Sequence[str]) -> Mechanism:
    """The pure randomizer of least deviation among those that suit the query."""
    makers = [e.pure for e in map(RANDOMIZERS.__getitem__, names) if e.pure and e.suits(query)]
    if not makers:
        raise InvalidValueError(
            f"{', '.join(names)} does not fit what this bandit asks at this epsilon, a "
            f"{type(query).__name__} of {query.size} numbers; choose {BEST!r} as the noise"
        )
    return min((make(query, epsilon) for make in makers), key=lambda noise: float(noise.std))
