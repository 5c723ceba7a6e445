"""The noise that a guarantee needs, and what the alternatives would have cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from kerchief.core import validate
from kerchief.core.errors import InvalidValue
from kerchief.core.queries import Regression
from kerchief.environments.worlds import make_environment
from kerchief.mechanisms.discrete import DiscreteGaussian
from kerchief.privacy.calibration import (
    bun_steinke_rho,
    classical_gaussian_noise_multiplier,
    gaussian_noise_multiplier,
    zcdp_rho,
)
from kerchief.privacy.composition import epsilon_at
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.registry import TRUSTS

__all__ = ["Alternative", "Noise", "calibrate"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another way to keep the same promise.

    Attributes:
        name: the way.
        std: standard deviation of its noise; None where it is refused.
        factor: the standard deviation over that of the noise used.
        note: what is different, or why it is refused.
    """

    name: str
    std: float | None
    factor: float | None
    note: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """What a guarantee costs.

    Attributes:
        guarantee: the promise.
        sensitivity: how far one user can move the statistic.
        size: length of the statistic.
        noise_multiplier: standard deviation over sensitivity.
        std: standard deviation on each coordinate.
        releases: how many such noises a run adds up.
        twin: the exact discrete mechanism for deployment.
        twin_epsilon: what the twin really costs, at the guarantee's delta.
        alternatives: other ways, each with its factor.
    """

    guarantee: Guarantee
    sensitivity: float
    size: int
    noise_multiplier: float
    std: float
    releases: int
    twin: DiscreteGaussian
    twin_epsilon: float
    alternatives: tuple[Alternative, ...]

    @property
    def total_std(self) -> float:
        """Standard deviation of the noise in the total over all users."""
        return self.std * math.sqrt(self.releases)

    def to_dict(self) -> dict[str, object]:
        """The answer as JSON."""
        return {
            "guarantee": self.guarantee.to_dict(),
            "sensitivity": self.sensitivity,
            "size": self.size,
            "noise_multiplier": self.noise_multiplier,
            "std": self.std,
            "releases": self.releases,
            "total_std": self.total_std,
            "discrete": {
                "grid_bits": self.twin.grid_bits,
                "grid": self.twin.grid,
                "scale": self.twin.scale,
                "std": self.twin.std,
                "epsilon": self.twin_epsilon,
            },
            "alternatives": [dataclasses.asdict(one) for one in self.alternatives],
        }


def calibrate(
    *,
    epsilon: float,
    delta: float,
    trust: str = "local",
    link: str = "linear",
    dim: int = 5,
    radius: float = 1.0,
    horizon: int = 10_000,
    sensitivity: float | None = None,
) -> Noise:
    """Find the noise for LinUCB's statistic (x xᵀ, y x), or for any statistic of known sensitivity.

    Args:
        epsilon: of the guarantee.
        delta: of the guarantee.
        trust: `local`: the noise of each report; `central`: the noise of each batch's sum. Every
            user is in one of them, once, so both need one noise; a run adds up its releases.
        link: how a score becomes an expected reward; it bounds y.
        dim: length of x.
        radius: norm of the parameter; it bounds y where the link does not.
        horizon: number of rounds.
        sensitivity: in place of the one of (x xᵀ, y x).

    Raises:
        KerchiefError: a value is out of its bound.

    >>> answer = calibrate(epsilon=1.0, delta=1e-5)
    >>> round(answer.noise_multiplier, 4), round(answer.std, 4)
    (3.7306, 7.9139)
    """
    validate.positive("epsilon", epsilon)
    validate.between("delta", delta, 0.0, 1.0)
    validate.one_of("trust", trust, ("local", "central"))
    problem = make_environment(link=link, dim=dim, radius=radius).problem(
        validate.whole("horizon", horizon, high=2**31 - 1)
    )
    query = Regression.of(problem)
    reach = query.sensitivity if sensitivity is None else sensitivity
    validate.positive("sensitivity", reach)
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    std = multiplier * reach
    others = _looser(epsilon, delta, reach, std)
    twin = DiscreteGaussian.matching(multiplier, reach, query.size)
    return Noise(
        guarantee=Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust), rounds=horizon),
        sensitivity=reach,
        size=query.size,
        noise_multiplier=multiplier,
        std=std,
        releases=TRUSTS[trust].make(query, multiplier, horizon).schedule.capacity(horizon),
        twin=twin,
        twin_epsilon=epsilon_at([twin.event()], delta),
        alternatives=others + (_coarser(query, epsilon, delta, std) if sensitivity is None else ()),
    )


def _looser(epsilon: float, delta: float, reach: float, std: float) -> tuple[Alternative, ...]:
    """The same release, with looser accounting."""
    ways: tuple[tuple[str, str, Callable[[float, float], float]], ...] = (
        ("zCDP, tight", "Canonne, Kamath, Steinke 2020", lambda e, d: _of_rho(zcdp_rho(e, d))),
        ("zCDP, loose", "Bun, Steinke 2016", lambda e, d: _of_rho(bun_steinke_rho(e, d))),
        ("classical Gaussian", "Dwork, Roth 2014", classical_gaussian_noise_multiplier),
    )
    return tuple(
        _alternative(name, note, lambda rule=rule: reach * rule(epsilon, delta), std)  # type: ignore[misc]
        for name, note, rule in ways
    )


def _coarser(
    query: Regression, epsilon: float, delta: float, std: float
) -> tuple[Alternative, ...]:
    """Other ways to release (x xᵀ, y x), with exact accounting."""
    reward = max(abs(query.low), abs(query.high))
    half = gaussian_noise_multiplier(epsilon / 2, delta / 2)
    whole = gaussian_noise_multiplier(epsilon, delta)
    naive = 2 * query.norm * math.hypot(query.norm, reward)
    ways = (
        ("naive sensitivity", f"twice the largest norm, {naive:.4g}", whole * naive),
        ("split: on the matrix", "epsilon/2, delta/2 each", half * math.sqrt(2) * query.norm**2),
        ("split: on the vector", "epsilon/2, delta/2 each", half * 2 * reward * query.norm),
    )
    return tuple(
        Alternative(name=name, std=other, factor=other / std, note=note)
        for name, note, other in ways
    )


def _alternative(name: str, note: str, rule: Callable[[], float], std: float) -> Alternative:
    """What a rule would have cost, or why it is refused."""
    try:
        other = rule()
    except InvalidValue:
        note = "proved up to epsilon 1 only"
        return Alternative(name=name, std=None, factor=None, note=note)
    return Alternative(name=name, std=other, factor=other / std, note=note)


def _of_rho(rho: float) -> float:
    return math.sqrt(0.5 / rho)
