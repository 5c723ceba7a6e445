"""Trusts: how a query's answers are protected, by the words of `--trust` and `--continual`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kerchief.core.batches import growing
from kerchief.core.contracts import BoundedLoss, BoundedSum, Query
from kerchief.core.errors import InvalidValue
from kerchief.core.registry import Registry
from kerchief.core.validate import MOST_ROUNDS, whole
from kerchief.mechanisms import blt, toeplitz
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.mechanism import Mechanism
from kerchief.mechanisms.tree import Tree
from kerchief.privacy.calibration import gaussian_noise_multiplier, share
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.epochs import EpochSums
from kerchief.privatizers.fits import Fits
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.randomizers import BEST, RANDOMIZERS, randomize
from kerchief.privatizers.schedule import At, Every
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.shuffled_fits import ShuffledFits
from kerchief.privatizers.sums import CohortSums

__all__ = [
    "BEST",
    "CONTINUALS",
    "RANDOMIZERS",
    "SHUFFLES",
    "TRUSTS",
    "Entry",
    "makers_of",
    "protect",
]

Make = Callable[[BoundedSum, float, int], Privatizer]
Maker = Callable[[float, int], Privatizer]
MakeFits = Callable[[BoundedLoss, float, int], Privatizer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered privatizer.

    Attributes:
        make: builds it for a sum, from the query, the noise multiplier it may afford and the
            horizon.
        summary: one line for listings.
        fit: builds it for a loss, likewise; None where it cannot be.
        unfit: why it cannot be, and the remedy.
        longest: the longest horizon that it can be built for.
        promised: builds it for the one sum of a policy from the whole guarantee, where no noise
            multiplier says what it needs.
    """

    make: Make
    summary: str
    fit: MakeFits | None = None
    unfit: str = "nobody may hold it under this trust; choose joint"
    longest: int = MOST_ROUNDS
    promised: Callable[[BoundedSum, Guarantee, int], Privatizer] | None = None


TRUSTS: Registry[Entry] = Registry("trust")
CONTINUALS: Registry[Entry] = Registry("continual noise")
"""What joint trust may add to prefix totals, by the word of `--continual`."""
SHUFFLES: Registry[Entry] = Registry("shuffle protocol")
"""What devices may add to shuffled reports, by the word of `--shuffling`."""


def _none(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    return CohortSums(query=query, schedule=Every(), device=None, aggregator=None)


def _local(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    noise = Gaussian.of(noise_multiplier=noise_multiplier, sensitivity=query.sensitivity)
    return _reports(query, noise)


def _reports(query: BoundedSum, noise: Mechanism) -> CohortSums:
    return CohortSums(query=query, schedule=Every(), device=noise, aggregator=None)


def _prefixes(noise: Callable[..., ContinualNoise]) -> Make:
    def make(query: BoundedSum, noise_multiplier: float, horizon: int) -> PrefixSums:
        made = noise(
            noise_multiplier=noise_multiplier, sensitivity=query.sensitivity, horizon=horizon
        )
        return PrefixSums(query=query, schedule=Every(), noise=made)

    return make


def _epochs(query: BoundedSum, noise_multiplier: float, horizon: int) -> EpochSums:
    noise = Doubling.of(
        noise_multiplier=noise_multiplier, sensitivity=query.sensitivity, horizon=horizon
    )
    return EpochSums(query=query, schedule=Every(), noise=noise)


def _central(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    noise = Gaussian.of(noise_multiplier=noise_multiplier, sensitivity=query.sensitivity)
    schedule = _cohorts(query, horizon)
    return CohortSums(query=query, schedule=schedule, device=None, aggregator=noise)


def _shuffle(query: BoundedSum, noise_multiplier: float, horizon: int) -> ShuffledSums:
    schedule = _cohorts(query, horizon)
    return ShuffledSums.of(query, noise_multiplier=noise_multiplier, schedule=schedule)


def _cohorts(query: Query, horizon: int) -> At:
    """The policy's own batches, if it has some; else cohorts that grow.

    The first was chosen on seed 1000: nobody learns before it ends, and fewer cohorts have less
    noise in all.
    """
    first = max(50, min(300, horizon // 60))
    return At(ends=query.batches or growing(horizon, first=first, growth=1.7))


def _fits(query: BoundedLoss, noise_multiplier: float, horizon: int) -> Fits:
    return Fits.of(query, noise_multiplier=noise_multiplier or None, horizon=horizon)


def _plain_fits(query: BoundedLoss, noise_multiplier: float, horizon: int) -> Fits:
    """Exact minimizers: over everyone so far, or over each of the policy's own batches."""
    return (_shuffled_fits if query.batches else _fits)(query, noise_multiplier, horizon)


def _shuffled_fits(query: BoundedLoss, noise_multiplier: float, horizon: int) -> ShuffledFits:
    schedule = _cohorts(query, horizon)
    multiplier = noise_multiplier or None
    return ShuffledFits.of(query, noise_multiplier=multiplier, horizon=horizon, schedule=schedule)


TRUSTS.add(
    "none",
    Entry(make=_none, summary="no protection: exact sums after every round", fit=_plain_fits),
)
TRUSTS.add(
    "local",
    Entry(make=_local, summary="each device randomizes its own report; no one is trusted"),
)
TRUSTS.add(
    "shuffle",
    Entry(
        make=_shuffle,
        summary="devices add coins to their reports; a shuffler mixes each batch of them",
        fit=_shuffled_fits,
    ),
)
TRUSTS.add(
    "joint",
    Entry(
        make=_prefixes(blt.best_continual),
        summary="a trusted curator releases every prefix total with noise correlated over time",
        fit=_fits,
        longest=blt.MAX_HORIZON,
    ),
)
TRUSTS.add(
    "central",
    Entry(
        make=_central,
        summary="a trusted curator adds Gaussian noise once to the sum of each batch of users",
    ),
)


CONTINUALS.add(BEST, TRUSTS[Trust.JOINT])
CONTINUALS.add(
    "blt",
    Entry(
        make=_prefixes(blt.BLT.of),
        summary="buffered linear Toeplitz noise: near-optimal, in constant memory",
        fit=_fits,
        longest=blt.MAX_HORIZON,
    ),
)
CONTINUALS.add(
    "tree",
    Entry(
        make=_prefixes(Tree.of),
        summary="the binary tree: the classical choice, for comparison",
        fit=_fits,
    ),
)
CONTINUALS.add(
    "toeplitz",
    Entry(
        make=_prefixes(toeplitz.SqrtToeplitz.of),
        summary="the square root of prefix summation: near-optimal, for short streams",
        fit=_fits,
        longest=toeplitz.MAX_HORIZON,
    ),
)
CONTINUALS.add(
    "doubling",
    Entry(
        make=_epochs,
        summary="epochs that double, each with noise of its own: no horizon is needed",
        unfit="a run without a horizon has no bound on it; choose other continual noise",
        longest=blt.MAX_HORIZON,
    ),
)


def _theorem(query: BoundedSum, promise: Guarantee, horizon: int) -> ShuffledSums:
    return ShuffledSums.by_theorem(
        query, epsilon=promise.epsilon, delta=promise.delta, schedule=_cohorts(query, horizon)
    )


def _bits(bits: int) -> Callable[[BoundedSum, Guarantee, int], BitSums]:
    def promised(query: BoundedSum, promise: Guarantee, horizon: int) -> BitSums:
        return BitSums.of(
            query,
            epsilon=promise.epsilon,
            delta=promise.delta,
            schedule=_cohorts(query, horizon),
            bits=bits,
        )

    return promised


SHUFFLES.add(BEST, TRUSTS[Trust.SHUFFLE])
SHUFFLES.add(
    "theorem",
    Entry(
        make=_shuffle,
        promised=_theorem,
        summary="coins by the published constants: hundreds of times as noisy",
        unfit="its theorem is about sums",
    ),
)
SHUFFLES.add(
    "bits",
    Entry(
        make=_shuffle,
        promised=_bits(64),
        summary="randomized response on 64 bits a coordinate",
        unfit="its certificate is about sums",
    ),
)
SHUFFLES.add(
    "byte",
    Entry(
        make=_shuffle,
        promised=_bits(8),
        summary="randomized response on 8 bits a coordinate",
        unfit="its certificate is about sums",
    ),
)
SHUFFLES.add(
    "bit",
    Entry(
        make=_shuffle,
        promised=_bits(1),
        summary="randomized response on one bit a coordinate",
        unfit="its certificate is about sums",
    ),
)


class Asking(Protocol):
    """Whatever poses queries: a bandit of any kind."""

    @property
    def queries(self) -> Mapping[str, Query]:
        """The questions."""


def protect(
    policy: Asking,
    guarantee: Guarantee,
    *,
    horizon: int,
    continual: str = BEST,
    shuffling: str = BEST,
    randomizer: str = BEST,
) -> Mapping[str, Privatizer]:
    """Give each of a policy's queries the privatizer that the guarantee's trust asks for.

    All queries share one joint budget: their Gaussians together cost exactly the guarantee, which
    is tighter than splitting epsilon by hand.

    Args:
        policy: the bandit.
        guarantee: what is promised.
        horizon: number of rounds.
        continual: the noise on prefix totals, a word of `CONTINUALS`. Other trusts than joint
            release no such totals and do without it.
        shuffling: what devices add under shuffle trust, a word of `SHUFFLES`.
        randomizer: what devices do to their reports under local trust, a word of `RANDOMIZERS`.

    Raises:
        InvalidValue: a query cannot be answered so.
        UnknownName: no privatizer for this trust, or no such noise.

    >>> from kerchief import POLICIES, make_environment
    >>> bandit = POLICIES["linucb"].make(make_environment(dim=2).problem(100), "tuned")
    >>> promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.JOINT)
    >>> list(protect(bandit, promise, horizon=100))
    ['moments']
    """
    whole("horizon", horizon, high=MOST_ROUNDS)
    chosen = RANDOMIZERS[randomizer]
    promised = SHUFFLES[shuffling].promised
    if guarantee.trust is Trust.SHUFFLE and promised is not None:
        name, query = _only_sum(policy, shuffling)
        return {name: promised(query, guarantee, horizon)}
    makers = makers_of(policy, guarantee.trust, continual=continual)
    if not makers:
        return {}
    if guarantee.trust is Trust.LOCAL:
        queries: Mapping[str, Any] = policy.queries
        noises = randomize(queries, guarantee, words=chosen.words or (randomizer,))
        return {name: _reports(queries[name], noise) for name, noise in noises.items()}
    if guarantee.trust is Trust.NONE:
        multipliers = tuple(0.0 for _ in makers)
    else:
        total = gaussian_noise_multiplier(guarantee.epsilon, guarantee.delta)
        multipliers = share(total, [query.importance for query in policy.queries.values()])
    return {
        name: make(multiplier, horizon)
        for (name, make), multiplier in zip(makers.items(), multipliers, strict=True)
    }


def _only_sum(policy: Asking, word: str) -> tuple[str, BoundedSum]:
    """The one sum that a policy asks for, for a protocol that takes the whole guarantee."""
    (name, query), *others = policy.queries.items()
    if others or isinstance(query, BoundedLoss):
        raise InvalidValue(
            f"shuffling {word!r} answers one sum, and the policy asks for {list(policy.queries)}; "
            f"leave shuffling at {BEST!r}"
        )
    return name, query


def makers_of(policy: Asking, trust: Trust, *, continual: str = BEST) -> Mapping[str, Maker]:
    """What builds the privatizer of each query, from a noise multiplier and a horizon.

    Raises:
        InvalidValue: a query cannot be answered so.
        UnknownName: no privatizer for this trust, or no such continual noise.
    """
    chosen = CONTINUALS[continual]
    entry = chosen if trust is Trust.JOINT else TRUSTS[trust]
    return {name: _maker(entry, name, query) for name, query in policy.queries.items()}


def _maker(entry: Entry, name: str, query: Query) -> Maker:
    if not isinstance(query, BoundedLoss):
        return functools.partial(entry.make, query)
    if entry.fit is None:
        raise InvalidValue(
            f"{name!r} is a fit to the history of all users: {entry.unfit}, or a policy that asks "
            f"for sums alone"
        )
    return functools.partial(entry.fit, query)
