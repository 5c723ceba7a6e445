"""The noise that a guarantee needs, and what other ways to keep it would have cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from kerchief.core import validate
from kerchief.core.errors import InvalidValue, KerchiefError
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.queries import Regression
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.experiments.asked import Asked, Ball, Query, Sums, last_noise, own_noise
from kerchief.experiments.ways import (
    Alternative,
    View,
    gaussian_multiplier,
    other_ways,
    tried,
    view_of,
)
from kerchief.mechanisms.binomial import ExactBinomial
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.laplace import ExactLaplace
from kerchief.privacy.events import Binomial, Gaussian
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.billing import pay
from kerchief.privatizers.registry import BEST, MECHANISMS_OF
from kerchief.privatizers.schedule import At


@dataclasses.dataclass(frozen=True, kw_only=True)
class Twin:
    """The exact noise that a deployment adds.

    Attributes:
        grid_bits: the grid, the distance between two values that can be released, is 2**-grid_bits;
            None, like the next two, for what adds no noise in whole steps of a grid.
        scale: of the noise in steps; under joint trust that of each seed vector, under shuffle
            trust of all coins of a cohort.
        std: standard deviation where `Noise.std` is that of the simulated noise.
        epsilon: what it really costs a user, at the guarantee's delta.
        refused: why there is none; then all else is None.
    """

    grid_bits: int | None = None
    grid: float | None = None
    scale: int | None = None
    std: float | None = None
    epsilon: float | None = None
    refused: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """What a guarantee costs.

    Attributes:
        word: the mechanism that is used by default, a word of `MECHANISMS_OF` the trust.
        kind: the class of its noise.
        sensitivity: how far one user can move the statistic, which has `size` numbers.
        noise_multiplier: standard deviation over sensitivity; under joint trust that of one release
            at the price of all prefixes. None for what is no such noise.
        kept: what the sums really promise: more than was asked for where one report's promise is
            the stricter one.
        alone: what one report promises by itself, where that was asked for.
        gaussian_noise_multiplier: that of one Gaussian release that promises what is kept; None
            where delta is 0, which no Gaussian keeps.
        std: standard deviation on each coordinate: of one report, of one cohort's sum (the largest
            cohort's under shuffle trust), or under joint trust of the worst prefix.
        total_std: standard deviation of the noise in the last total of a run.
        alternatives: every mechanism of the trust, the one used marked; then other ways.
        views: under shuffle trust, what each word promises against each onlooker.
    """

    guarantee: Guarantee
    kept: Guarantee
    alone: Guarantee | None
    word: str
    kind: str
    sensitivity: float
    size: int
    noise_multiplier: float | None
    gaussian_noise_multiplier: float | None
    std: float
    releases: int
    total_std: float
    twin: Twin
    alternatives: tuple[Alternative, ...]
    views: tuple[View, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The answer as JSON."""
        facts = dataclasses.asdict(self)
        mechanism = {"word": facts.pop("word"), "noise": facts.pop("kind")}
        discrete = facts.pop("twin")
        return {
            **facts,
            "guarantee": self.guarantee.to_dict(),
            "kept": self.kept.to_dict(),
            "alone": None if self.alone is None else self.alone.to_dict(),
            "mechanism": mechanism,
            "discrete": discrete,
        }


@double_precision
def calibrate(
    *,
    epsilon: float,
    delta: float,
    trust: str = "local",
    env: str = "linear",
    dim: int | None = None,
    radius: float | None = None,
    horizon: int = 10_000,
    sensitivity: float | None = None,
    local: float = math.inf,
) -> Noise:
    """Find the noise for LinUCB's statistic (x xᵀ, y x), or for any statistic of known sensitivity.

    All of it is read off what `protect` builds. Every user is in one release, once, except under
    joint trust, where the noise of all prefixes is paid for once.

    `env`, a word of `ENVIRONMENTS` whose users bring contexts, is the world that bounds x and y;
    its own length of x and norm of the parameter are taken unless they are given. A sensitivity is
    in place of the one of (x xᵀ, y x), for a vector of as many numbers.

    `local` is the most epsilon that one report may tell by itself, under shuffle trust: reports are
    then one bit per number, and both promises are kept.

    >>> answer = calibrate(epsilon=1.0, delta=1e-5)
    >>> answer.word, round(answer.std, 4)
    ('privunit', 3.3755)
    """
    validate.at_least("epsilon", epsilon, 1e-9)
    validate.one_of("trust", trust, ("local", "shuffle", "joint", "central"))
    validate.whole("horizon", horizon, high=validate.MOST_ROUNDS)
    promise = Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust), rounds=horizon)
    query = _query(_problem(env, horizon, dim=dim, radius=radius), sensitivity)
    plain = Asked(query=query, promise=promise, horizon=horizon)
    asked = dataclasses.replace(plain, query=dataclasses.replace(query, local=local))
    used = asked.protected(_usual(asked))
    std, event = own_noise(used, horizon), None if math.isfinite(local) else used.noises[0].event()
    cohort = _one_cohort(asked, used)
    word, words = _words(cohort, std)
    views = tuple(_views(asked, used))
    kept, alone = promise, None
    if math.isfinite(local):
        (view,) = (one for one in views if one.name == word)
        kept = dataclasses.replace(promise, epsilon=view.sums)
        assert view.wire is not None
        alone = Guarantee(epsilon=view.wire, delta=0.0, trust=Trust.LOCAL, rounds=horizon)
    return Noise(
        guarantee=promise,
        kept=kept,
        alone=alone,
        word=word,
        kind=type(used.noises[0]).__name__,
        sensitivity=query.sensitivity,
        size=query.size,
        # After any rounding to a grid.
        noise_multiplier=event.noise_multiplier if isinstance(event, Gaussian | Binomial) else None,
        gaussian_noise_multiplier=gaussian_multiplier(dataclasses.replace(plain, promise=kept)),
        std=std,
        releases=used.schedule.capacity(horizon),
        total_std=last_noise(used, horizon),
        twin=_twin(used, promise, horizon),
        # None of the other ways has a promise for one report.
        alternatives=(*words, *(() if math.isfinite(local) else other_ways(cohort, std))),
        views=views,
    )


def _usual(asked: Asked) -> str:
    """The word that is used: bits, where one report is to have a promise of its own."""
    coded = asked.promise.trust is Trust.SHUFFLE and math.isfinite(asked.query.local)
    return "bit" if coded else BEST


def _views(asked: Asked, used: Sums) -> Iterator[View]:
    """What the words of shuffle trust promise against each onlooker, in the worst cohort.

    The largest tells most by one report. Where reports have a promise of their own, the sums of the
    smallest tell most; else those of all tell as much as was asked for.
    """
    if asked.promise.trust is not Trust.SHUFFLE:
        return
    assert isinstance(used.schedule, At)
    least, most = min(used.schedule.sizes), max(used.schedule.sizes)
    ends = (least, least + most) if math.isfinite(asked.query.local) else (most,)
    cohorts = dataclasses.replace(asked.query, batches=ends)
    shown = dataclasses.replace(asked, query=cohorts, horizon=ends[-1])
    found = (view_of(word, shown) for word in MECHANISMS_OF[Trust.SHUFFLE])
    yield from (one for one in found if one is not None)


def worlds() -> tuple[str, ...]:
    """The words of `ENVIRONMENTS` whose users bring contexts."""
    return tuple(name for name, entry in ENVIRONMENTS.items() if entry.problem is Problem)


def _problem(env: str, horizon: int, **options: Any) -> Problem:
    """The public facts of a world whose users bring contexts."""
    if ENVIRONMENTS[env].problem is not Problem:
        known = ", ".join(worlds())
        raise InvalidValue(f"env is {env!r}, whose users bring no contexts; choose one of {known}")
    problem = ENVIRONMENTS[env].make(**options).problem(horizon)
    assert isinstance(problem, Problem)
    return problem


def _query(problem: Problem, sensitivity: float | None) -> Query:
    """LinUCB's statistic, or a vector of the same length that a user can move so far."""
    query = Regression.of(problem)
    if sensitivity is None:
        return query
    validate.between("sensitivity", sensitivity, 1e-9, 1e9, closed=True)
    return Ball(size=query.size, diameter=sensitivity)


def _one_cohort(asked: Asked, used: Sums) -> Asked:
    """Under shuffle trust the largest cohort alone: it is the noisiest, and all are slow to price.

    Elsewhere noise does not depend on the size of a cohort.
    """
    if asked.promise.trust is not Trust.SHUFFLE:
        return asked
    assert isinstance(used.schedule, At)
    largest = max(used.schedule.sizes)
    query = dataclasses.replace(asked.query, batches=(largest,))
    return dataclasses.replace(asked, query=query, horizon=largest)


def _words(asked: Asked, used: float) -> tuple[str, tuple[Alternative, ...]]:
    """Which word the default stands for, and a row for every word."""
    rows = {
        word: tried(word, partial(asked.std, word), used, note=entry.summary)
        for word, entry in MECHANISMS_OF[asked.promise.trust].items()
    }
    found = next((word for word in rows if word != BEST and rows[word].std == used), _usual(asked))
    if found != BEST:
        del rows[BEST]
    marked = (dataclasses.replace(row, used=word == found) for word, row in rows.items())
    return found, tuple(marked)


def _twin(used: Sums, promise: Guarantee, horizon: int) -> Twin:
    """What a deployment adds, and what a ledger with the promise as its budget charges for it."""
    ledger = MemoryLedger(promise)
    try:
        exact = used.exact()
        pay({"statistic": exact}, ledger, horizon=horizon)
    except KerchiefError as refusal:
        return Twin(refused=str(refusal))
    twin = Twin(std=own_noise(exact, horizon), epsilon=ledger.spent().epsilon)
    (noise,) = exact.noises
    own = noise.seeds[0] if isinstance(noise, ExactContinualNoise) else noise
    if not isinstance(own, ExactGaussian | ExactLaplace | ExactBinomial):
        return twin
    return dataclasses.replace(twin, grid_bits=own.grid_bits, grid=own.grid, scale=own.scale)
