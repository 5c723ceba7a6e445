"""Privacy curves: for one composed event, every valid way to read δ off ε and ε off δ.

Each curve is an upper bound on the same true curve, so the least of several is one too.
"""

from __future__ import annotations

import abc
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kerchief.privacy.calibration import gaussian_delta, zcdp_delta
from kerchief.privacy.discrete_slack import Slack
from kerchief.privacy.external import LossDistribution
from kerchief.privacy.search import least_epsilon

_LEAST_LOSS_DELTA = 1e-10

ORDERS = (
    *(1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80),
    *(96, 128, 192, 256, 512),
)
"""The orders at which a profile is kept."""


class Renyi(NamedTuple):
    """What a mechanism tells about one user, outside a set of outcomes of probability `tail`.

    On all other outcomes the sum of P^α Q^(1−α) is at most exp((α−1) · value), for every order α of
    `ORDERS` and both ways round. Adaptive composition adds values and tails.
    """

    values: tuple[float, ...]
    tail: float


def renyi_of_rho(rho: float) -> Renyi:
    """The profile of ρ-zero-concentrated privacy: ρα at order α.

    >>> renyi_of_rho(0.5).values[4]
    1.0
    """
    return Renyi(values=tuple(rho * order for order in ORDERS), tail=0.0)


def renyi_sum(profiles: Iterable[tuple[Renyi, int]]) -> Renyi:
    """The profile of several mechanisms on the same user, each so many times."""
    counts = list(profiles)
    values = tuple(
        math.fsum(profile.values[i] * count for profile, count in counts)
        for i in range(len(ORDERS))
    )
    return Renyi(values=values, tail=math.fsum(p.tail * count for p, count in counts))


class Curve(abc.ABC):
    """An upper bound on a privacy curve."""

    @property
    def least_delta(self) -> float:
        """The δ that no ε brings it to."""
        return 0.0

    @abc.abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return a δ that is kept at this ε; ε may be negative."""

    def epsilon(self, delta: float) -> float:
        """Return an ε ≥ 0 that is kept at this δ, or infinity."""
        return least_epsilon(self.delta, delta) if delta > self.least_delta else math.inf


@dataclass(frozen=True, kw_only=True)
class GaussianCurve(Curve):
    """The exact curve of Gaussian releases with Σ 1/m_i² = precision."""

    precision: float

    def delta(self, epsilon: float) -> float:
        """Return the exact δ."""
        return gaussian_delta(epsilon, max(self.precision, sys.float_info.min) ** -0.5)


@dataclass(frozen=True, kw_only=True)
class ZcdpCurve(Curve):
    """The curve that ρ-zCDP implies."""

    rho: float

    def delta(self, epsilon: float) -> float:
        """Return the δ that is implied."""
        return zcdp_delta(self.rho, epsilon) if epsilon >= 0 else 1.0


@dataclass(frozen=True, kw_only=True)
class RenyiCurve(Curve):
    """The curve that a Rényi profile implies."""

    profile: Renyi

    @property
    def least_delta(self) -> float:
        """The tail alone."""
        return self.profile.tail

    def delta(self, epsilon: float) -> float:
        """Return the least δ that is implied (Canonne, Kamath, Steinke 2020, proposition 12).

        Their bound on the part of P above e^ε Q holds outcome by outcome, so it holds for the
        outcomes that the profile speaks about; the others are charged with their probability.

        >>> f"{RenyiCurve(profile=renyi_of_rho(0.5 / 4.0451**2)).delta(1.0):.2e}"
        '1.11e-05'
        """
        if epsilon < 0:
            return 1.0
        exponent = min(
            (order - 1) * (value - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)
            for order, value in zip(ORDERS, self.profile.values, strict=True)
        )
        return min(1.0, math.exp(min(0.0, exponent)) + self.profile.tail)


@dataclass(frozen=True, kw_only=True)
class PureCurve(Curve):
    """The curve that pure ε₀-differential privacy implies by itself."""

    total: float

    def epsilon(self, delta: float) -> float:
        """Return the ε of randomized response with ε₀, the worst of its kind."""
        remainder = 1.0 - delta * (1.0 + math.exp(-self.total))
        return max(0.0, self.total + math.log(remainder)) if remainder > 0 else 0.0

    def delta(self, epsilon: float) -> float:
        """Return the δ of randomized response with ε₀, the worst of its kind."""
        if epsilon >= self.total:
            return 0.0
        between = -math.expm1(epsilon - self.total) / (1.0 + math.exp(-self.total))
        return max(0.0, between, -math.expm1(epsilon))


@dataclass(frozen=True, kw_only=True)
class LaplaceCurve(Curve):
    """The exact curve of one Laplace release that is ε₀-differentially private."""

    total: float

    def epsilon(self, delta: float) -> float:
        """Return the exact ε.

        >>> curve = LaplaceCurve(total=2.0)
        >>> curve.epsilon(0.0), round(curve.delta(curve.epsilon(0.1)), 9)
        (2.0, 0.1)
        """
        return max(0.0, self.total + 2.0 * math.log1p(-delta)) if delta < 1.0 else 0.0

    def delta(self, epsilon: float) -> float:
        """Return the exact δ: 1 − e^((ε − ε₀)/2) from −ε₀ to ε₀, 1 − e^ε below and 0 above."""
        return max(0.0, -math.expm1(min(epsilon, (epsilon - self.total) / 2, 0.0)))


@dataclass(frozen=True, kw_only=True)
class LossCurve(Curve):
    """The curve of a privacy loss distribution, rounded pessimistically by dp_accounting.

    Its convolutions run through a Fourier transform with an absolute error near 1e-16 per
    point, so it answers only for δ well above that.
    """

    losses: LossDistribution

    def epsilon(self, delta: float) -> float:
        """Return the ε of the loss distribution."""
        if delta < _LEAST_LOSS_DELTA:
            return math.inf
        return max(0.0, float(self.losses.get_epsilon_for_delta(delta)))

    def delta(self, epsilon: float) -> float:
        """Return the δ of the loss distribution."""
        return max(_LEAST_LOSS_DELTA, float(self.losses.get_delta_for_epsilon(epsilon)))


@dataclass(frozen=True, kw_only=True)
class SlackCurve(Curve):
    """The curve of discrete Gaussians, from that of the continuous ones they stand for."""

    continuous: Curve
    slack: Slack

    def epsilon(self, delta: float) -> float:
        """Return an ε at which `delta` is kept, or infinity where the tail alone is above δ."""
        stretch, shift, tail, outside = self.slack
        delta -= outside
        if not math.isfinite(shift) or delta <= 0:
            return math.inf
        first = self.continuous.epsilon(delta * math.exp(-stretch)) + shift
        if tail == 0:
            return first
        # e^ε · tail is bounded once by its value at `cap`; the answer counts only if below it.
        cap = first + 1.0
        rest = delta - tail * math.exp(min(cap, 700.0))
        if rest <= 0:
            return math.inf
        answer = self.continuous.epsilon(rest * math.exp(-stretch)) + shift
        return answer if answer <= cap <= 700.0 else math.inf

    def delta(self, epsilon: float) -> float:
        """Return the theorem's right-hand side, at most 1."""
        stretch, shift, tail, outside = self.slack
        body = self.continuous.delta(epsilon - shift) if math.isfinite(shift) else 1.0
        rare = tail * math.exp(min(epsilon, 700.0)) + outside
        return min(1.0, body * math.exp(min(stretch, 700.0)) + rare)
