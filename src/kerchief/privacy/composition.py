"""What several events on the same user cost together (`composition.md`).

`epsilon_at` prices events that were fixed in advance, by the least of what four accountants say:

* Gaussians (discrete ones and sums of coins too, with their slack) compose exactly: the squares of
  the inverse noise multipliers add.
* All but sums of coins is zCDP, so ρ adds, followed by the tight conversion.
* Pure mechanisms add their ε, or, at δ > 0, compose as privacy loss distributions; one alone has
  a formula.
* Rényi profiles add: for randomized bits, and for coins beside what is known by its zCDP alone.

`filter_epsilon` prices events that were chosen by earlier releases: pure ε add up, or zCDP does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

from kerchief.core.errors import UnsupportedEventError
from kerchief.core.validate import at_least, between
from kerchief.privacy import curves
from kerchief.privacy import events as kinds
from kerchief.privacy.binomial import binomial_renyi, binomial_slack
from kerchief.privacy.calibration import pure_rho
from kerchief.privacy.curves import Curve, Renyi
from kerchief.privacy.discrete_slack import Slack, slack
from kerchief.privacy.events import Event
from kerchief.privacy.external import LossDistribution, dp_events, loss_distributions
from kerchief.privacy.randomized_bits import RandomizedBits, bits_renyi

Counts = frozenset[tuple[Event, int]]

_GAUSSIANS = (kinds.Gaussian, kinds.DiscreteGaussian, kinds.Binomial)
_PURE = (kinds.Laplace, kinds.RandomizedResponse)
_PRICED = (*_GAUSSIANS, *_PURE, kinds.NonPrivate, kinds.Zcdp, RandomizedBits)

_GRID = 1e-4
_MOST_POINTS = 1e6
_MOST_PURE = 30.0
_MOST_COMPOSED = 2**20


def epsilon_at(events: Iterable[Event], delta: float) -> float:
    """Return the least ε ≥ 0 we can prove for all events on one user's data, or infinity.

    >>> round(epsilon_at([kinds.Gaussian(noise_multiplier=3.7306)], 1e-5), 4)
    1.0
    >>> epsilon_at([kinds.Laplace(noise_multiplier=2.0), kinds.Laplace(noise_multiplier=1.0)], 0.0)
    1.5
    """
    if at_least("delta", delta, 0.0) > 0:
        between("delta", delta, 0.0, 1.0)
    return _epsilon(frozenset(leaves(events).items()), float(delta))


def delta_at(events: Iterable[Event], epsilon: float) -> float:
    """Return the least δ we can prove for all the events together at this ε."""
    epsilon = at_least("epsilon", epsilon, 0.0)
    valid = _curves(frozenset(leaves(events).items()))
    return min((curve.delta(epsilon) for curve in valid), default=1.0)


@dataclass(frozen=True, kw_only=True)
class FilterSums:
    """What a privacy filter adds up; infinite where an event has no such price.

    Attributes:
        epsilon: the sum of pure ε.
        rho: the sum of the ρ of zero-concentrated privacy.
    """

    epsilon: float
    rho: float

    @classmethod
    def of(cls, events: Iterable[Event]) -> FilterSums:
        """Add up what the events cost.

        >>> FilterSums.of([kinds.RandomizedResponse(epsilon=0.5), kinds.Zcdp(rho=0.1)]).epsilon
        inf
        """
        counts = leaves(events).items()
        return cls(
            epsilon=math.fsum(_pure_cost(event) * n for event, n in counts),
            rho=math.fsum(_rho(event) * n for event, n in counts),
        )


def filter_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return the least ε whose privacy filter admits events that were chosen adaptively.

    It is the sum of all pure ε, or what the sum of ρ implies at this δ, whichever is less; and
    infinity where neither is defined. The proof is in `composition.md`.

    >>> filter_epsilon([kinds.RandomizedResponse(epsilon=1.0)] * 2, 1e-6)
    2.0
    >>> round(filter_epsilon([kinds.Gaussian(noise_multiplier=10.0)] * 4, 1e-6), 3)
    0.9
    """
    sums = FilterSums.of(events)
    zcdp = curves.ZcdpCurve(rho=sums.rho).epsilon(delta) if math.isfinite(sums.rho) else math.inf
    return min(sums.epsilon, zcdp)


def leaves(events: Iterable[Event]) -> Counter[Event]:
    """Count the simple events inside repeated and composed ones."""
    counts: Counter[Event] = Counter()
    for event in events:
        match event:
            case kinds.Repeated():
                inner = leaves([event.event])
                counts += Counter({part: event.count * times for part, times in inner.items()})
            case kinds.Composed():
                counts += leaves(event.events)
            case kinds.Nothing():
                pass
            case _ if type(event) in _PRICED:
                counts[event] += 1
            case _:
                raise UnsupportedEventError(f"no accountant can price {event!r}")
    return counts


def to_dp_event(event: Event) -> Any:
    """Translate to dp_accounting's language, so that its accountants can check ours.

    Read the result under its REPLACE_SPECIAL relation: our sensitivities are replacement
    distances already. Discrete Gaussians and pure mechanisms have no exact word there and become
    the zCDP that they satisfy: an upper bound. Sums of coins have no word at all, and are refused.
    """
    module = dp_events()
    match event:
        case kinds.Nothing():
            return module.NoOpDpEvent()
        case kinds.NonPrivate():
            return module.NonPrivateDpEvent()
        case kinds.Gaussian():
            return module.GaussianDpEvent(event.noise_multiplier)
        case kinds.Laplace():
            return module.LaplaceDpEvent(event.noise_multiplier)
        case kinds.DiscreteGaussian() | kinds.RandomizedResponse() | kinds.Zcdp():
            return module.ZCDpEvent(_rho(event))
        case kinds.Repeated():
            return module.SelfComposedDpEvent(to_dp_event(event.event), event.count)
        case kinds.Composed():
            return module.ComposedDpEvent([to_dp_event(part) for part in event.events])
    raise UnsupportedEventError(f"no translation for {event!r}")


@lru_cache(maxsize=4096)
def _epsilon(counts: Counts, delta: float) -> float:
    return min((curve.epsilon(delta) for curve in _curves(counts)), default=math.inf)


@lru_cache(maxsize=256)
def _curves(counts: Counts) -> tuple[Curve, ...]:
    if not counts:
        return (curves.PureCurve(total=0.0),)
    if any(isinstance(event, kinds.NonPrivate) for event, _ in counts):
        return ()
    total = _slack(counts)
    if any(isinstance(event, kinds.Binomial | RandomizedBits) for event, _ in counts):
        scanned = any(isinstance(event, kinds.Zcdp | RandomizedBits) for event, _ in counts)
        if scanned or math.isinf(total.shift):
            profile = curves.renyi_sum((_profile(event), n) for event, n in counts)
            return (curves.RenyiCurve(profile=profile),)
        zcdp: tuple[Curve, ...] = ()
    else:
        rho = math.fsum(_rho(event) * n for event, n in counts)
        if math.isinf(rho):
            return ()
        zcdp = (curves.ZcdpCurve(rho=rho),)
        if any(isinstance(event, kinds.Zcdp) for event, _ in counts):
            return zcdp
    precision = math.fsum(_precision(event) * n for event, n in counts)
    pure = math.fsum(_pure(event) * n for event, n in counts)
    exact = _continuous(counts, precision, pure)
    if any(total):
        exact = tuple(curves.SlackCurve(continuous=curve, slack=total) for curve in exact)
    elif not pure:
        return exact
    return (*exact, *zcdp) if precision else (*exact, *zcdp, curves.PureCurve(total=pure))


def _profile(event: Event) -> Renyi:
    if isinstance(event, RandomizedBits):
        return bits_renyi(event)
    if isinstance(event, kinds.Binomial):
        return binomial_renyi(event)
    return curves.renyi_of_rho(_rho(event))


def _slack(counts: Counts) -> Slack:
    """Return what discrete noise costs beyond the continuous noise that it stands for."""
    parts = [slack(event, n) for event, n in counts if isinstance(event, kinds.DiscreteGaussian)]
    parts += [binomial_slack(event, n) for event, n in counts if isinstance(event, kinds.Binomial)]
    stretch, shift, tail, outside = (math.fsum(part[i] for part in parts) for i in range(4))
    # The weights of coins come before the tails of all discrete Gaussians (`binomial.md`).
    tail *= math.exp(min(stretch, 700.0))
    return Slack(stretch=stretch, shift=shift, tail=tail, outside=outside)


def _continuous(counts: Counts, precision: float, pure: float) -> tuple[Curve, ...]:
    if not pure:
        return (curves.GaussianCurve(precision=precision),)
    if not precision and sum(n for _, n in counts) == 1:
        # Of randomized response the curve of its ε alone is exact.
        laplace = any(isinstance(event, kinds.Laplace) for event, _ in counts)
        return (curves.LaplaceCurve(total=pure),) if laplace else ()
    if any(_pure(event) > _MOST_PURE or n > _MOST_COMPOSED for event, n in counts):
        return ()
    span = pure + precision / 2 + 10 * math.sqrt(precision)
    grid = max(_GRID, span / _MOST_POINTS)
    parts = [_losses(event, grid).self_compose(n) for event, n in counts if _pure(event)]
    if precision:
        parts.append(_losses(kinds.Gaussian(noise_multiplier=precision**-0.5), grid))
    return (curves.LossCurve(losses=reduce(lambda total, part: total.compose(part), parts)),)


# One report and two of them are made of the same losses, which take a second to write down.
@lru_cache(maxsize=8)
def _losses(event: Event, grid: float) -> LossDistribution:
    module, step = loss_distributions(), {"value_discretization_interval": grid}
    losses: LossDistribution
    if isinstance(event, kinds.Gaussian):
        losses = module.from_gaussian_mechanism(event.noise_multiplier, **step)
    elif isinstance(event, kinds.Laplace):
        losses = module.from_laplace_mechanism(1 / _pure(event), **step)
    else:
        odds = math.exp(-_pure(event))
        losses = module.from_randomized_response(2.0 * odds / (1.0 + odds), 2, **step)
    return losses


def _precision(event: Event) -> float:
    if isinstance(event, _GAUSSIANS):
        return 1.0 / event.noise_multiplier / event.noise_multiplier
    return 0.0


def _pure(event: Event) -> float:
    if isinstance(event, kinds.Laplace):
        return 1.0 / event.noise_multiplier
    return event.epsilon if isinstance(event, kinds.RandomizedResponse) else 0.0


def _pure_cost(event: Event) -> float:
    return _pure(event) if isinstance(event, _PURE) else math.inf


def _rho(event: Event) -> float:
    match event:
        case kinds.Zcdp():
            return event.rho
        case kinds.Gaussian() | kinds.DiscreteGaussian():
            return _precision(event) / 2
        case kinds.Laplace() | kinds.RandomizedResponse():
            epsilon = _pure(event)
            return pure_rho(epsilon) if math.isfinite(epsilon) else math.inf
        case _:
            return math.inf
