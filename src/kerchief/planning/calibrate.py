"""Noise that a guarantee needs, and the cost of the alternatives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.mechanisms.binomial import ExactBinomial
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.laplace import ExactLaplace
from kerchief.planning.alternatives import (
    Alternative,
    View,
    build_view,
    gaussian_multiplier,
    list_alternatives,
    measure_alternative,
)
from kerchief.planning.protected_statistic import (
    Ball,
    ProtectedStatistic,
    Query,
    Sums,
    last_noise,
    own_noise,
)
from kerchief.privacy.events import Binomial, Gaussian
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.billing import pay
from kerchief.privatizers.registry import BEST, MECHANISMS_OF
from kerchief.privatizers.schedule import At


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactNoise:
    """Exact noise that a deployment adds.

    Attributes:
        grid_bits: the grid, the distance between two values that can be released, is 2**-grid_bits;
            None, like the next two, for what adds no noise in whole steps of a grid.
        scale: of the noise in steps; under joint trust that of each seed vector, under shuffle
            trust of all coins of a cohort.
        std: standard deviation of the exact noise, where `CalibratedNoise.std` is that of simulated
            noise.
        epsilon: privacy cost to a user, at the guarantee's delta.
        refused: reason why there is no exact noise; then all else is None.
    """

    grid_bits: int | None = None
    grid: float | None = None
    scale: int | None = None
    std: float | None = None
    epsilon: float | None = None
    refused: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibratedNoise:
    """Noise that keeps a guarantee, with its alternatives.

    Attributes:
        word: the default mechanism, a name in `MECHANISMS_OF` the trust model.
        kind: the class of its noise.
        sensitivity: how far one user can move the statistic, which has `size` numbers.
        noise_multiplier: standard deviation over sensitivity; under joint trust that of one release
            at the price of all prefixes. None for what is no such noise.
        kept: guarantee of the sums, which is stricter than requested if the guarantee of one
            report implies more.
        alone: guarantee of one report by itself, if `local` was given.
        gaussian_noise_multiplier: that of one Gaussian release with the guarantee `kept`; None
            where delta is 0, which no Gaussian keeps.
        std: standard deviation on each coordinate: of one report, of one cohort's sum (the largest
            cohort's under shuffle trust), or under joint trust of the worst prefix.
        total_std: standard deviation of the noise in the last total of a run.
        alternatives: every mechanism of the trust model, with the default marked; then other ways.
        views: under shuffle DP, the guarantees of each mechanism against each observer.
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
    twin: ExactNoise
    alternatives: tuple[Alternative, ...]
    views: tuple[View, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the answer as JSON."""
        facts = dataclasses.asdict(self)
        mechanism = {"word": facts.pop("word"), "noise": facts.pop("kind")}
        discrete = facts.pop("twin")
        return {
            **facts,
            "guarantee": self.guarantee.to_dict(),
            "kept": self.kept.to_dict(),
            "per_report": None if self.alone is None else self.alone.to_dict(),
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
) -> CalibratedNoise:
    """Find the noise for LinUCB's statistic, or for any of known sensitivity.

    LinUCB's statistic is the sum of (x xᵀ, y x) over users. All figures are those of the privatizer
    that `protect` builds. Every user is in one release, once, except under joint DP, where the
    noise of all prefixes is charged once.

    `env`, a name in `ENVIRONMENTS` whose users bring contexts, is the environment that bounds x and
    y; `dim` and `radius` are its own unless they are given. `sensitivity` replaces that of
    (x xᵀ, y x), for a vector of the same size.

    `local` is the largest epsilon of one report by itself, under shuffle DP: reports are then one
    bit per number, and both guarantees hold.

    >>> answer = calibrate(epsilon=1.0, delta=1e-5)
    >>> answer.word, round(answer.std, 4)
    ('privunit', 3.3755)
    """
    validate.at_least("epsilon", epsilon, 1e-9)
    validate.one_of("trust", trust, ("local", "shuffle", "joint", "central"))
    validate.whole("horizon", horizon, high=validate.MOST_ROUNDS)
    guarantee = Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust), rounds=horizon)
    query = _build_query(_build_problem(env, horizon, dim=dim, radius=radius), sensitivity)
    plain = ProtectedStatistic(query=query, promise=guarantee, horizon=horizon)
    statistic = dataclasses.replace(plain, query=dataclasses.replace(query, local=local))
    privatizer = statistic.protected(_choose_default(statistic))
    std, event = (
        own_noise(privatizer, horizon),
        None if math.isfinite(local) else privatizer.noises[0].event(),
    )
    cohort = _select_largest_cohort(statistic, privatizer)
    mechanism, alternatives = _compare_mechanisms(cohort, std)
    views = tuple(_build_views(statistic, privatizer))
    total_guarantee, report_guarantee = guarantee, None
    if math.isfinite(local):
        (view,) = (view for view in views if view.name == mechanism)
        total_guarantee = dataclasses.replace(guarantee, epsilon=view.sums)
        assert view.wire is not None
        report_guarantee = Guarantee(
            epsilon=view.wire, delta=0.0, trust=Trust.LOCAL, rounds=horizon
        )
    return CalibratedNoise(
        guarantee=guarantee,
        kept=total_guarantee,
        alone=report_guarantee,
        word=mechanism,
        kind=type(privatizer.noises[0]).__name__,
        sensitivity=query.sensitivity,
        size=query.size,
        # After any rounding to a grid.
        noise_multiplier=event.noise_multiplier if isinstance(event, Gaussian | Binomial) else None,
        gaussian_noise_multiplier=gaussian_multiplier(
            dataclasses.replace(plain, promise=total_guarantee)
        ),
        std=std,
        releases=privatizer.schedule.capacity(horizon),
        total_std=last_noise(privatizer, horizon),
        twin=_measure_exact_noise(privatizer, guarantee, horizon),
        # None of the other ways has a promise for one report.
        alternatives=(
            *alternatives,
            *(() if math.isfinite(local) else list_alternatives(cohort, std)),
        ),
        views=views,
    )


def _choose_default(statistic: ProtectedStatistic) -> str:
    """Return the default mechanism: bits where each report has a guarantee."""
    is_coded = statistic.promise.trust is Trust.SHUFFLE and math.isfinite(statistic.query.local)
    return "bit" if is_coded else BEST


def _build_views(statistic: ProtectedStatistic, privatizer: Sums) -> Iterator[View]:
    """Yield the guarantees of each shuffle mechanism against each observer.

    One report reveals most in the largest cohort. If reports have a guarantee of their own, the
    sums of the smallest cohort reveal most; else the sums of every cohort have the requested one.
    """
    if statistic.promise.trust is not Trust.SHUFFLE:
        return
    assert isinstance(privatizer.schedule, At)
    smallest, largest = min(privatizer.schedule.sizes), max(privatizer.schedule.sizes)
    ends = (smallest, smallest + largest) if math.isfinite(statistic.query.local) else (largest,)
    cohorts = dataclasses.replace(statistic.query, batches=ends)
    worst_case = dataclasses.replace(statistic, query=cohorts, horizon=ends[-1])
    views = (build_view(mechanism, worst_case) for mechanism in MECHANISMS_OF[Trust.SHUFFLE])
    yield from (view for view in views if view is not None)


def worlds() -> tuple[str, ...]:
    """Return the names in `ENVIRONMENTS` whose users bring contexts."""
    return tuple(name for name, entry in ENVIRONMENTS.items() if entry.problem is Problem)


def _build_problem(env: str, horizon: int, **options: Any) -> Problem:
    """Build the problem of an environment whose users bring contexts."""
    if ENVIRONMENTS[env].problem is not Problem:
        names = ", ".join(worlds())
        raise InvalidValueError(
            f"env is {env!r}, whose users bring no contexts; choose one of {names}"
        )
    problem = ENVIRONMENTS[env].make(**options).problem(horizon)
    assert isinstance(problem, Problem)
    return problem


def _build_query(problem: Problem, sensitivity: float | None) -> Query:
    """Build LinUCB's statistic, or a ball of its size with this sensitivity."""
    query = RegressionMoments.of(problem)
    if sensitivity is None:
        return query
    validate.between("sensitivity", sensitivity, 1e-9, 1e9, closed=True)
    return Ball(size=query.size, diameter=sensitivity)


def _select_largest_cohort(statistic: ProtectedStatistic, privatizer: Sums) -> ProtectedStatistic:
    """Keep only the largest cohort under shuffle DP, which is the noisiest.

    Pricing every cohort is slow. Under other trust models the noise does not depend on the size of
    a cohort.
    """
    if statistic.promise.trust is not Trust.SHUFFLE:
        return statistic
    assert isinstance(privatizer.schedule, At)
    largest = max(privatizer.schedule.sizes)
    query = dataclasses.replace(statistic.query, batches=(largest,))
    return dataclasses.replace(statistic, query=query, horizon=largest)


def _compare_mechanisms(
    statistic: ProtectedStatistic, default_std: float
) -> tuple[str, tuple[Alternative, ...]]:
    """Return the mechanism that `best` stands for, and a row for each."""
    rows = {
        mechanism: measure_alternative(
            mechanism, partial(statistic.std, mechanism), default_std, note=entry.summary
        )
        for mechanism, entry in MECHANISMS_OF[statistic.promise.trust].items()
    }
    default = next(
        (
            mechanism
            for mechanism in rows
            if mechanism != BEST and rows[mechanism].std == default_std
        ),
        _choose_default(statistic),
    )
    if default != BEST:
        del rows[BEST]
    marked = (
        dataclasses.replace(row, used=mechanism == default) for mechanism, row in rows.items()
    )
    return default, tuple(marked)


def _measure_exact_noise(privatizer: Sums, guarantee: Guarantee, horizon: int) -> ExactNoise:
    """Measure the exact noise of a deployment and its charge to a ledger."""
    ledger = MemoryLedger(guarantee)
    try:
        exact = privatizer.exact()
        pay({"statistic": exact}, ledger, horizon=horizon)
    except KerchiefError as refusal:
        return ExactNoise(refused=str(refusal))
    twin = ExactNoise(std=own_noise(exact, horizon), epsilon=ledger.spent().epsilon)
    (noise,) = exact.noises
    source = noise.seeds[0] if isinstance(noise, ExactContinualNoise) else noise
    if not isinstance(source, ExactGaussian | ExactLaplace | ExactBinomial):
        return twin
    return dataclasses.replace(
        twin, grid_bits=source.grid_bits, grid=source.grid, scale=source.scale
    )
