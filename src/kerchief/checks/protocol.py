"""A privatizer by hand: many copies of one short protocol, to look at its noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.audits.canaries import Telltale
from kerchief.checks.statistics import Floats
from kerchief.core.contracts import BoundedLoss, Clock, Example, Released, Start, Tree
from kerchief.core.losses import GLMLoss
from kerchief.core.queries import RegressionMoments
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.mechanisms.binomial import Binomial
from kerchief.privacy import Guarantee, Trust, gaussian_noise_multiplier
from kerchief.privatizers import At, Privatizer
from kerchief.privatizers.registry import PrivatizerEntry

COPIES = 30_000
# As many releases as the privatizer is built for, so that all that was paid for is used.
ENDS = (1, 2, 3, 4, 5, 6, 8)
_SEED = 20260602

SUM = RegressionMoments(dim=2, norm=1.0, low=-1.0, high=1.0)
LOSS = GLMLoss(
    link="logistic",
    dim=2,
    norm=1.0,
    low=0.0,
    high=1.0,
    clip=0.5,
    fits=len(ENDS),
    minimizer=Telltale(steps=2),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivatizerCase:
    """A registered privatizer with a small query and a promise.

    Attributes:
        make: builds the privatizer from a query, a noise multiplier and a horizon.
        query: what it answers: a sum, or a loss with a minimizer that tells all.
    """

    name: str
    make: Callable[[Any, float, int], Privatizer]
    guarantee: Guarantee
    query: Any = SUM
    horizon: int = 120

    @classmethod
    def of(cls, trust: str, entry: PrivatizerEntry, *, epsilon: float = 4.0) -> PrivatizerCase:
        """The privatizer of a trust, at a promise where an audit has teeth."""
        private = trust != Trust.NONE
        return cls(
            name=f"the privatizer of {trust}",
            make=entry.make,
            guarantee=Guarantee(
                epsilon=epsilon if private else float("inf"),
                delta=1e-5 if private else 0.0,
                trust=Trust(trust),
            ),
        )

    def __str__(self) -> str:
        """The name."""
        return self.name

    @property
    def private(self) -> bool:
        """Whether the privatizer has a privacy guarantee."""
        return self.guarantee.trust is not Trust.NONE

    @property
    def fits(self) -> bool:
        """Whether the privatizer answers a loss instead of a sum."""
        return isinstance(self.query, BoundedLoss)

    @property
    def cohorts(self) -> bool:
        """Whether a fit speaks about the users since the last one, not about everyone so far."""
        return self.fits and isinstance(self.build().schedule, At)

    @property
    def width(self) -> int:
        """Length of a sum that is told."""
        return int(self.query.dim if self.fits else self.query.size)

    @property
    def rounding(self) -> float:
        """How far exact numbers may be off: histories are simulated in float32."""
        return 1e-5 if self.fits else 1e-12

    @property
    def start(self) -> Start | None:
        """What a fit begins with: where the loss's two worst gradients are."""
        if not self.fits:
            return None
        dim = self.query.dim
        return Start(point=jnp.zeros(dim), metric=jnp.eye(dim), ridge=jnp.float64(1), radius=1e6)

    def build(self, horizon: int | None = None) -> Privatizer:
        """A fresh privatizer, calibrated for the promise."""
        promise, multiplier = self.guarantee, 0.0
        if self.private:
            multiplier = gaussian_noise_multiplier(promise.epsilon, promise.delta)
        return self.make(self.query, multiplier, horizon or self.horizon)

    def brief(self) -> Privatizer:
        """Build a privatizer for the releases at `ENDS` and no others."""
        brief = self.build(ENDS[-1] if self.fits else len(ENDS))
        return brief.with_schedule(At(ends=ENDS)) if isinstance(brief.schedule, At) else brief

    @property
    def step(self) -> float:
        """How far rounding at random moves a coordinate of one report: none where there is none."""
        coins = [noise for noise in self.build().noises if isinstance(noise, Binomial)]
        return max((float(noise.step) for noise in coins), default=0.0)


def privatizer_cases(trust: str, entry: PrivatizerEntry) -> Iterator[PrivatizerCase]:
    """All that a trust's entry builds: the privatizer of sums and, if there is one, of fits."""
    sums = PrivatizerCase.of(trust, entry)
    yield sums
    if entry.fit is not None:
        name = f"the fits of {trust}"
        yield dataclasses.replace(sums, name=name, make=entry.fit, query=LOSS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """What was added to one sum of a release: one row per copy, and the stated deviation."""

    draws: Floats
    stated: float


def records(query: Any, count: int) -> list[Example]:
    """Records of so many users, well inside the domain."""
    rng = np.random.default_rng(4)
    features = rng.uniform(-0.4, 0.4, size=(count, query.dim))
    return [Example(features=jnp.asarray(x), reward=jnp.asarray(x.sum())) for x in features]


def statistics(query: Any, users: list[Example]) -> Floats:
    """Encode users' records into statistics, one row per user."""
    return np.stack([np.asarray(query.encode(user)) for user in users])


def clock_at(round: int | Array) -> Clock:
    """Public time in this round."""
    return Clock(round=jnp.asarray(round, jnp.int32), since={})


def told(protocol: PrivatizerCase, release: Released) -> Any:
    """Read the sums of a release: its total, or all gradient sums of its fit."""
    total = release.point if protocol.fits else release.total
    return total.reshape(*total.shape[:-1], -1, protocol.width)


def noises_of(
    protocol: PrivatizerCase, encoded: Floats, end: int, release: Released
) -> list[Noise]:
    """What was added to each sum of a release after `end` users: leaves have one row per copy.

    A fit without noise is the minimizer, where what is left of the slope must be nothing.
    """
    first = end - int(np.ravel(release.count)[0]) if protocol.fits else 0
    query, start, rows = protocol.query, protocol.start, jnp.asarray(encoded[first:end])
    if start is None:
        errors = told(protocol, release) - encoded[:end].sum(0)
    elif protocol.private:
        errors = told(protocol, release) - query.gradients(rows, start.point).sum(0)
    else:
        gradients = jax.vmap(query.gradients, in_axes=(None, 0))(rows, jnp.asarray(release.point))
        errors = (gradients.sum(1) + start.ridge * release.point)[:, None, :]
    draws, stated = np.asarray(errors), float(np.ravel(release.noise)[0])
    return [Noise(draws=draws[:, i], stated=stated) for i in range(draws.shape[1])]


def released(
    protocol: PrivatizerCase,
    privatizer: Privatizer,
    encoded: Floats,
    ends: tuple[int, ...],
    source: Any,
) -> list[Released]:
    """Run the protocol by hand over encoded users, a row each, and release at these ends.

    `source` is the root of a simulation's randomness, or a source of bytes for an exact twin.
    """
    memory, tally = privatizer.open()
    if not isinstance(source, Stream):
        memory, tally = jax.tree.map(np.asarray, (memory, tally))
    releases = []
    for round, statistic in enumerate(encoded):
        report = privatizer.report(
            statistic, clock_at(round), _select_stream(source, DEVICE, round)
        )
        tally = privatizer.collect(tally, report)
        if round + 1 in ends:
            at, clock = _select_stream(source, AGGREGATOR, round), clock_at(round)
            release, memory = privatizer.release(memory, tally, protocol.start, clock, at)
            releases.append(release)
            tally = privatizer.clear(tally)
    return releases


def transcript(protocol: PrivatizerCase, privatizer: Privatizer, users: list[Example]) -> Array:
    """Everything that a run of one copy tells, one row per sum, always with the same noise.

    Records are encoded by the privatizer itself: whether it clips them is the question.
    """
    root = Stream.of(seed=1, replicate=0)
    memory, tally = privatizer.open()
    totals = []
    for round, user in enumerate(users):
        report = privatizer.randomize(user, clock_at(round), root.at(DEVICE, round=round))
        tally = privatizer.collect(tally, report)
        if round + 1 in ENDS:
            at, clock = root.at(AGGREGATOR, round=round), clock_at(round)
            release, memory = privatizer.release(memory, tally, protocol.start, clock, at)
            totals.append(told(protocol, release))
            tally = privatizer.clear(tally)
    return jnp.concatenate(totals)


def _select_stream(source: Any, place: int, round: int) -> Any:
    return source.at(place, round=round) if isinstance(source, Stream) else source


def released_by_many(
    protocol: PrivatizerCase, privatizer: Privatizer, users: list[Example], *, seed: int
) -> list[Released]:
    """Run many independent copies of the protocol over the users and release at `ENDS`.

    Leaves of a release have one row per copy. A round is compiled once per kind of privatizer.
    """
    copies, root = jnp.arange(COPIES, dtype=jnp.uint32), jnp.uint32(seed)
    memory, tally = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (COPIES, *jnp.shape(leaf))), privatizer.open()
    )
    releases = []
    for round, user in enumerate(users):
        now = jnp.int32(round)
        tally = _collect_copies(privatizer, tally, user, root, copies, now)
        if round + 1 in ENDS:
            start = protocol.start
            release, memory, tally = _release_copies(
                privatizer, memory, tally, start, root, copies, now
            )
            releases.append(release)
    return releases


@jax.jit
def _collect_copies(
    privatizer: Privatizer, tallies: Tree, user: Example, seed: Array, copies: Array, round: Array
) -> Tree:
    def collect_one(tally: Tree, copy: Array) -> Tree:
        at = Stream.of(seed=seed, replicate=copy).at(DEVICE, round=round)
        return privatizer.collect(tally, privatizer.randomize(user, clock_at(round), at))

    return jax.vmap(collect_one)(tallies, copies)


@jax.jit
def _release_copies(
    privatizer: Privatizer,
    memories: Tree,
    tallies: Tree,
    start: Start | None,
    seed: Array,
    copies: Array,
    round: Array,
) -> tuple[Released, Tree, Tree]:
    def release_one(memory: Tree, tally: Tree, copy: Array) -> tuple[Released, Tree, Tree]:
        at = Stream.of(seed=seed, replicate=copy).at(AGGREGATOR, round=round)
        release, now = privatizer.release(memory, tally, start, clock_at(round), at)
        return release, now, privatizer.clear(tally)

    return jax.vmap(release_one)(memories, tallies, copies)


@lru_cache(maxsize=32)
def drawn_noise(protocol: PrivatizerCase) -> tuple[Noise, ...]:
    """The noise of each sum that is told, in many independent copies of the protocol."""
    users = records(protocol.query, ENDS[-1])
    encoded = statistics(protocol.query, users)
    releases = released_by_many(protocol, protocol.brief(), users, seed=_SEED)
    noises_by_release = [
        noises_of(protocol, encoded, end, release)
        for end, release in zip(ENDS, releases, strict=True)
    ]
    return tuple(noise for noises in noises_by_release for noise in noises)
