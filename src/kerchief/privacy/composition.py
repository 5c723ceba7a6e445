"""What several events on the same user cost together.

Four accountants, each a proof of its own, and the least of what they say:

* Gaussians (discrete ones and sums of coins too, with their slack) compose exactly: the squares of
  the inverse noise multipliers add.
* All but sums of coins is zCDP, so ρ adds, followed by the tight conversion.
* Pure mechanisms add their ε, or, at δ > 0, compose as privacy loss distributions.
* Rényi profiles add: for sums of randomized bits, and for sums of coins that come together with
  what is known by its zCDP alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import Any

from kerchief.core.errors import UnsupportedEvent
from kerchief.core.validate import at_least, between, whole
from kerchief.privacy.binomial import binomial_renyi, binomial_slack
from kerchief.privacy.calibration import pure_rho
from kerchief.privacy.curves import (
    Curve,
    GaussianCurve,
    LossCurve,
    PureCurve,
    Renyi,
    RenyiCurve,
    SlackCurve,
    ZcdpCurve,
    renyi_of_rho,
    renyi_sum,
)
from kerchief.privacy.discrete_slack import Slack, slack
from kerchief.privacy.events import (
    MOST_SCALE,
    Binomial,
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    Nothing,
    RandomizedResponse,
    Repeated,
    Zcdp,
)
from kerchief.privacy.external import LossDistribution, dp_events, loss_distributions
from kerchief.privacy.randomized_bits import RandomizedBits, bits_renyi
from kerchief.privacy.search import least

__all__ = [
    "delta_at",
    "discrete_gaussian_noise_multiplier",
    "epsilon_at",
    "leaves",
    "to_dp_event",
]

Counts = frozenset[tuple[Event, int]]

_PRICED = (
    NonPrivate,
    Gaussian,
    DiscreteGaussian,
    Binomial,
    RandomizedBits,
    Laplace,
    RandomizedResponse,
    Zcdp,
)

_GRID = 1e-4
_MOST_POINTS = 1e6
_MOST_PURE = 30.0
_MOST_COMPOSED = 2**20


def epsilon_at(events: Iterable[Event], delta: float) -> float:
    """Return the least ε ≥ 0 we can prove for all events on one user's data, or infinity.

    >>> round(epsilon_at([Gaussian(noise_multiplier=3.7306)], 1e-5), 4)
    1.0
    >>> epsilon_at([Laplace(noise_multiplier=2.0), RandomizedResponse(epsilon=1.0)], 0.0)
    1.5
    """
    if at_least("delta", delta, 0.0) > 0:
        between("delta", delta, 0.0, 1.0)
    return _epsilon(frozenset(leaves(events).items()), float(delta))


def delta_at(events: Iterable[Event], epsilon: float) -> float:
    """Return the least δ we can prove for all the events together at this ε.

    >>> f"{delta_at([Gaussian(noise_multiplier=3.7306)], 1.0):.3e}"
    '1.000e-05'
    """
    epsilon = at_least("epsilon", epsilon, 0.0)
    curves = _curves(frozenset(leaves(events).items()))
    return min((curve.delta(epsilon) for curve in curves), default=1.0)


def leaves(events: Iterable[Event]) -> Counter[Event]:
    """Count the simple events inside repeated and composed ones.

    >>> pair = Composed(events=(Zcdp(rho=0.1), Zcdp(rho=0.1)))
    >>> leaves([Repeated(event=pair, count=3)])
    Counter({Zcdp(rho=0.1): 6})
    """
    counts: Counter[Event] = Counter()
    for event in events:
        _count(event, 1, counts)
    return counts


def discrete_gaussian_noise_multiplier(
    epsilon: float, delta: float, *, scale: int, dimension: int, count: int = 1
) -> float:
    """Return the least scale / sensitivity for `count` discrete Gaussian releases, slack included.

    The scale is that of the noise, in grid units, and the dimension that of one release.

    >>> round(discrete_gaussian_noise_multiplier(1.0, 1e-5, scale=2**20, dimension=10), 4)
    3.7306
    """
    epsilon = at_least("epsilon", epsilon, 0.0)
    delta = between("delta", delta, 0.0, 1.0)
    scale = whole("scale", scale, high=MOST_SCALE)
    dimension = whole("dimension", dimension, high=MOST_SCALE)
    count = whole("count", count, high=MOST_SCALE)

    def fits(m: float) -> bool:
        event = DiscreteGaussian(sensitivity=scale / m, scale=scale, dimension=dimension)
        return delta_at([Repeated(event=event, count=count)], epsilon) <= delta

    return least(fits)


def to_dp_event(event: Event) -> Any:
    """Translate to dp_accounting's language, so that its accountants can check ours.

    Read the result under its REPLACE_SPECIAL relation: our sensitivities are replacement
    distances already, and REPLACE_ONE would double a Gaussian's. Discrete Gaussians and pure
    mechanisms have no exact word there and become the zCDP that they satisfy (so an accountant
    of privacy loss distributions refuses them and a Rényi accountant reads an upper bound). Sums of
    coins are not zCDP and have no word at all.

    >>> to_dp_event(Gaussian(noise_multiplier=2.0))
    GaussianDpEvent(noise_multiplier=2.0)
    """
    words = dp_events()
    match event:
        case Nothing():
            return words.NoOpDpEvent()
        case NonPrivate():
            return words.NonPrivateDpEvent()
        case Gaussian():
            return words.GaussianDpEvent(event.noise_multiplier)
        case Laplace():
            return words.LaplaceDpEvent(event.noise_multiplier)
        case DiscreteGaussian() | RandomizedResponse() | Zcdp():
            return words.ZCDpEvent(_rho(event))
        case Repeated():
            return words.SelfComposedDpEvent(to_dp_event(event.event), event.count)
        case Composed():
            return words.ComposedDpEvent([to_dp_event(part) for part in event.events])
    raise UnsupportedEvent(f"no translation for {event!r}")


def _count(event: Event, times: int, counts: Counter[Event]) -> None:
    match event:
        case Repeated():
            _count(event.event, times * event.count, counts)
        case Composed():
            for part in event.events:
                _count(part, times, counts)
        case Nothing():
            pass
        case _ if type(event) in _PRICED:
            if times:
                counts[event] += times
        case _:
            raise UnsupportedEvent(f"no accountant can price {event!r}")


@lru_cache(maxsize=4096)
def _epsilon(counts: Counts, delta: float) -> float:
    return min((curve.epsilon(delta) for curve in _curves(counts)), default=math.inf)


@lru_cache(maxsize=256)
def _curves(counts: Counts) -> tuple[Curve, ...]:
    if not counts:
        return (PureCurve(total=0.0),)
    if any(isinstance(event, NonPrivate) for event, _ in counts):
        return ()
    total = _slack(counts)
    if any(isinstance(event, Binomial | RandomizedBits) for event, _ in counts):
        scanned = any(isinstance(event, Zcdp | RandomizedBits) for event, _ in counts)
        if scanned or math.isinf(total.shift):
            return (RenyiCurve(profile=renyi_sum((_profile(event), n) for event, n in counts)),)
        zcdp: tuple[Curve, ...] = ()
    else:
        rho = math.fsum(_rho(event) * n for event, n in counts)
        if math.isinf(rho):
            return ()
        zcdp = (ZcdpCurve(rho=rho),)
        if any(isinstance(event, Zcdp) for event, _ in counts):
            return zcdp
    precision = math.fsum(_precision(event) * n for event, n in counts)
    pure = math.fsum(_pure(event) * n for event, n in counts)
    exact = _continuous(counts, precision, pure)
    if any(total):
        exact = tuple(SlackCurve(continuous=curve, slack=total) for curve in exact)
    elif not pure:
        return exact
    return (*exact, *zcdp) if precision else (*exact, *zcdp, PureCurve(total=pure))


def _profile(event: Event) -> Renyi:
    if isinstance(event, RandomizedBits):
        return bits_renyi(event)
    return binomial_renyi(event) if isinstance(event, Binomial) else renyi_of_rho(_rho(event))


def _slack(counts: Counts) -> Slack:
    """What discrete noise costs beyond the continuous noise that it stands for."""
    parts = [slack(event, n) for event, n in counts if isinstance(event, DiscreteGaussian)]
    parts += [binomial_slack(event, n) for event, n in counts if isinstance(event, Binomial)]
    stretch, shift, tail, outside = (math.fsum(part[i] for part in parts) for i in range(4))
    # The weights of coins come before the tails of all discrete Gaussians (`binomial.md`).
    tail *= math.exp(min(stretch, 700.0))
    return Slack(stretch=stretch, shift=shift, tail=tail, outside=outside)


def _continuous(counts: Counts, precision: float, pure: float) -> tuple[Curve, ...]:
    if not pure:
        return (GaussianCurve(precision=precision),)
    if any(_pure(event) > _MOST_PURE or n > _MOST_COMPOSED for event, n in counts):
        return ()
    span = pure + precision / 2 + 10 * math.sqrt(precision)
    grid = max(_GRID, span / _MOST_POINTS)
    parts = [_losses(event, grid).self_compose(n) for event, n in counts if _pure(event)]
    if precision:
        parts.append(_losses(Gaussian(noise_multiplier=precision**-0.5), grid))
    return (LossCurve(losses=reduce(lambda whole, part: whole.compose(part), parts)),)


def _losses(event: Event, grid: float) -> LossDistribution:
    module, step = loss_distributions(), {"value_discretization_interval": grid}
    losses: LossDistribution
    if isinstance(event, Gaussian):
        losses = module.from_gaussian_mechanism(event.noise_multiplier, **step)
    elif isinstance(event, Laplace):
        losses = module.from_laplace_mechanism(1 / _pure(event), **step)
    else:
        odds = math.exp(-_pure(event))
        losses = module.from_randomized_response(2.0 * odds / (1.0 + odds), 2, **step)
    return losses


def _precision(event: Event) -> float:
    if isinstance(event, Gaussian | DiscreteGaussian | Binomial):
        return 1.0 / event.noise_multiplier / event.noise_multiplier
    return 0.0


def _pure(event: Event) -> float:
    if isinstance(event, Laplace):
        return 1.0 / event.noise_multiplier
    return event.epsilon if isinstance(event, RandomizedResponse) else 0.0


def _rho(event: Event) -> float:
    match event:
        case NonPrivate():
            return math.inf
        case Zcdp():
            return event.rho
        case Gaussian() | DiscreteGaussian():
            return _precision(event) / 2
        case _:
            epsilon = _pure(event)
            return pure_rho(epsilon) if math.isfinite(epsilon) else math.inf
