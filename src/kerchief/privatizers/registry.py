"""Trusts: how a query's answers are protected, and which words each has for its noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from kerchief.core.batches import grow_batches
from kerchief.core.contracts import BoundedLoss, BoundedSum, Query
from kerchief.core.registry import Registry
from kerchief.core.validate import MOST_ROUNDS
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.factor import Factor
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.mechanism import Mechanism
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.fits import Fits
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.randomizers import BEST, RANDOMIZERS
from kerchief.privatizers.schedule import At, Every
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.shuffled_fits import ShuffledFits
from kerchief.privatizers.sums import CohortSums

__all__ = [
    "BEST",
    "CONTINUALS",
    "CURATORS",
    "MECHANISMS_OF",
    "RANDOMIZERS",
    "SHUFFLES",
    "TRUSTS",
    "PrivatizerEntry",
    "cohorts",
    "reports",
]

Make = Callable[[BoundedSum, float, int], Privatizer]
MakeFits = Callable[[BoundedLoss, float, int], Privatizer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivatizerEntry:
    """A registered privatizer.

    Attributes:
        make: builds it for a sum, from the query, the noise multiplier it may afford and the
            horizon.
        fit: builds it for a loss, likewise; None where it cannot be.
        unfit: why it cannot be, and the remedy.
        longest: the longest horizon that it can be built for.
        build_for_guarantee: builds it for the only sum of a policy from the whole guarantee, where
            no noise multiplier says what it needs.
        words: which others it chooses among, where noise is a curator's on batches.
    """

    make: Make
    summary: str
    fit: MakeFits | None = None
    unfit: str = "nobody may hold it under this trust; choose joint"
    longest: int = MOST_ROUNDS
    build_for_guarantee: Callable[[BoundedSum, Guarantee, int], Privatizer] | None = None
    words: tuple[str, ...] = ()


TRUSTS: Registry[PrivatizerEntry] = Registry("trust")
CONTINUALS: Registry[PrivatizerEntry] = Registry("continual noise")
"""What joint trust may add to prefix totals, by the name of `--mechanism`."""
SHUFFLES: Registry[PrivatizerEntry] = Registry("shuffle protocol")
"""What devices may add to shuffled reports, by the name of `--mechanism`."""
CURATORS: Registry[PrivatizerEntry] = Registry("noise on totals of batches")
"""What central trust may add to the total of a batch, by the name of `--mechanism`."""


def _none(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    return CohortSums(query=query, schedule=Every(), device=None, aggregator=None)


def _local(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    noise = Gaussian.of(noise_multiplier=noise_multiplier, sensitivity=query.sensitivity)
    return reports(query, noise)


def reports(query: BoundedSum, noise: Mechanism) -> CohortSums:
    """Totals of reports that every device protects by itself."""
    return CohortSums(query=query, schedule=Every(), device=noise, aggregator=None)


def _prefixes(factor: Callable[..., Factor]) -> Make:
    def make(query: BoundedSum, noise_multiplier: float, horizon: int) -> PrefixSums:
        schedule = At(ends=query.readings) if query.readings else Every()
        noise = ContinualNoise.of(
            factor(horizon=max(1, schedule.capacity(horizon))),
            noise_multiplier=noise_multiplier,
            sensitivity=query.sensitivity,
        )
        return PrefixSums(query=query, schedule=schedule, noise=noise)

    return make


def _central(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    noise = Gaussian.of(noise_multiplier=noise_multiplier, sensitivity=query.sensitivity)
    schedule = cohorts(query, horizon)
    return CohortSums(query=query, schedule=schedule, device=None, aggregator=noise)


def _shuffle(query: BoundedSum, noise_multiplier: float, horizon: int) -> ShuffledSums:
    schedule = cohorts(query, horizon)
    return ShuffledSums.of(query, noise_multiplier=noise_multiplier, schedule=schedule)


def cohorts(query: Query, horizon: int) -> At:
    """The policy's own batches, if it has some; else cohorts that grow.

    The first was chosen on seed 1000: nobody learns before it ends, and fewer cohorts have less
    noise in all.
    """
    first = max(50, min(300, horizon // 60))
    return At(ends=query.batches or grow_batches(horizon, first=first, growth=1.7))


def _fits(query: BoundedLoss, noise_multiplier: float, horizon: int) -> Fits:
    return Fits.of(query, noise_multiplier=noise_multiplier or None, horizon=horizon)


def _plain_fits(query: BoundedLoss, noise_multiplier: float, horizon: int) -> Fits:
    """Exact minimizers: over everyone so far, or over each of the policy's own batches."""
    return (_shuffled_fits if query.batches else _fits)(query, noise_multiplier, horizon)


def _shuffled_fits(query: BoundedLoss, noise_multiplier: float, horizon: int) -> ShuffledFits:
    schedule = cohorts(query, horizon)
    multiplier = noise_multiplier or None
    return ShuffledFits.of(query, noise_multiplier=multiplier, horizon=horizon, schedule=schedule)


def _enter(
    registry: Registry[PrivatizerEntry], name: str, make: Make, summary: str, **facts: Any
) -> None:
    registry.add(name, PrivatizerEntry(make=make, summary=summary, **facts))


_enter(TRUSTS, "none", _none, "no protection: exact sums after every round", fit=_plain_fits)
_enter(TRUSTS, "local", _local, "each device randomizes its own report; no one is trusted")
_enter(
    TRUSTS,
    "shuffle",
    _shuffle,
    "devices add coins to their reports; a shuffler mixes each batch of them",
    fit=_shuffled_fits,
)
_enter(
    TRUSTS,
    "joint",
    _prefixes(BLT.of),
    "a trusted curator releases every prefix total with noise correlated over time",
    fit=_fits,
    longest=BLT.longest,
)
_enter(
    TRUSTS,
    "central",
    _central,
    "a trusted curator adds noise once to the sum of each batch of users",
)


CONTINUALS.add(BEST, TRUSTS[Trust.JOINT])
_enter(
    CONTINUALS,
    "blt",
    _prefixes(BLT.of),
    "buffered linear Toeplitz noise: near-optimal, in constant memory",
    fit=_fits,
    longest=BLT.longest,
)
_enter(
    CONTINUALS,
    "tree",
    _prefixes(Tree),
    "the binary tree: the classical choice, for comparison",
    fit=_fits,
)
_enter(
    CONTINUALS,
    "toeplitz",
    _prefixes(SqrtToeplitz),
    "the square root of prefix summation: near-optimal, for short streams",
    fit=_fits,
    longest=SqrtToeplitz.longest,
)
_enter(
    CONTINUALS,
    "doubling",
    _prefixes(Doubling),
    "epochs that double, each with noise of its own: no horizon is needed",
    unfit="a run without a horizon has no bound on it; choose other continual noise",
    longest=BLT.longest,
)


def _theorem(query: BoundedSum, promise: Guarantee, horizon: int) -> ShuffledSums:
    return ShuffledSums.by_theorem(
        query, epsilon=promise.epsilon, delta=promise.delta, schedule=cohorts(query, horizon)
    )


def _bits(bits: int) -> Callable[[BoundedSum, Guarantee, int], BitSums]:
    def build(query: BoundedSum, promise: Guarantee, horizon: int) -> BitSums:
        return BitSums.of(query, promise=promise, schedule=cohorts(query, horizon), bits=bits)

    return build


SHUFFLES.add(BEST, TRUSTS[Trust.SHUFFLE])
_enter(
    SHUFFLES,
    "theorem",
    _shuffle,
    "coins by the published constants: hundreds of times as noisy",
    build_for_guarantee=_theorem,
    unfit="its theorem is about sums",
)
for _mechanism, _bits_each, _amount in (
    ("bits", 64, "64 bits"),
    ("byte", 8, "8 bits"),
    ("bit", 1, "one bit"),
):
    _enter(
        SHUFFLES,
        _mechanism,
        _shuffle,
        f"randomized response on {_amount} per coordinate",
        build_for_guarantee=_bits(_bits_each),
        unfit="its certificate is about sums",
    )


def _pure(query: BoundedSum, promise: Guarantee, horizon: int) -> CohortSums:
    """Laplace noise once on the total of each batch: pure, whatever delta is."""
    make = RANDOMIZERS["laplace"].pure
    assert make is not None
    noise = make(query, promise.epsilon)
    schedule = cohorts(query, horizon)
    return CohortSums(query=query, schedule=schedule, device=None, aggregator=noise)


_enter(
    CURATORS,
    BEST,
    _central,
    "the less noisy of the two for a single sum; for several, normal noise",
    words=("gaussian", "laplace"),
)
_enter(CURATORS, "gaussian", _central, "normal noise once on the sum of each batch of users")
_enter(
    CURATORS,
    "laplace",
    _central,
    "Laplace noise once on the sum of each batch of users, for any delta",
    build_for_guarantee=_pure,
    unfit="its noise is for sums",
)

MECHANISMS_OF: Mapping[Trust, Registry[Any]] = {
    Trust.NONE: Registry("noise without protection"),
    Trust.LOCAL: RANDOMIZERS,
    Trust.SHUFFLE: SHUFFLES,
    Trust.JOINT: CONTINUALS,
    Trust.CENTRAL: CURATORS,
}
"""Which words a trust has for its noise, each with its own flag on the command line."""

MECHANISMS_OF[Trust.NONE].add(BEST, TRUSTS[Trust.NONE])
