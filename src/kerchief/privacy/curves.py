"""Privacy curves: for one composed event, every valid way to read δ off ε and ε off δ.

Each curve is an upper bound on the same true curve, so the least of several is one too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from kerchief.privacy.calibration import (
    gaussian_delta,
    gaussian_epsilon,
    zcdp_delta,
    zcdp_epsilon,
)
from kerchief.privacy.discrete_slack import Slack
from kerchief.privacy.external import LossDistribution
from kerchief.privacy.renyi import Renyi, renyi_delta
from kerchief.privacy.search import least

__all__ = [
    "Curve",
    "GaussianCurve",
    "LossCurve",
    "PureCurve",
    "RenyiCurve",
    "SlackCurve",
    "ZcdpCurve",
]

_LEAST_LOSS_DELTA = 1e-10


class Curve(Protocol):
    """An upper bound on a privacy curve."""

    def epsilon(self, delta: float) -> float:
        """Return an ε ≥ 0 that is kept at this δ, or infinity."""

    def delta(self, epsilon: float) -> float:
        """Return a δ that is kept at this ε; ε may be negative."""


@dataclass(frozen=True, kw_only=True)
class GaussianCurve:
    """The exact curve of Gaussian releases with Σ 1/m_i² = precision."""

    precision: float

    def epsilon(self, delta: float) -> float:
        """Return the exact ε."""
        return gaussian_epsilon(delta, self.precision**-0.5) if delta > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        """Return the exact δ."""
        return gaussian_delta(epsilon, self.precision**-0.5)


@dataclass(frozen=True, kw_only=True)
class ZcdpCurve:
    """The curve that ρ-zCDP implies."""

    rho: float

    def epsilon(self, delta: float) -> float:
        """Return the ε that is implied."""
        return zcdp_epsilon(self.rho, delta) if delta > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        """Return the δ that is implied."""
        return zcdp_delta(self.rho, epsilon) if epsilon >= 0 else 1.0


@dataclass(frozen=True, kw_only=True)
class RenyiCurve:
    """The curve that a Rényi profile implies."""

    profile: Renyi

    def epsilon(self, delta: float) -> float:
        """Return the least ε that is implied, or infinity where the tail alone is above δ."""
        if self.profile.tail >= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        return least(lambda epsilon: self.delta(epsilon) <= delta)

    def delta(self, epsilon: float) -> float:
        """Return the δ that is implied."""
        return renyi_delta(self.profile, epsilon) if epsilon >= 0 else 1.0


@dataclass(frozen=True, kw_only=True)
class PureCurve:
    """The curve that pure ε₀-differential privacy implies by itself."""

    total: float

    def epsilon(self, delta: float) -> float:
        """Return the ε of randomized response with ε₀, the worst of its kind."""
        kept = 1.0 - delta * (1.0 + math.exp(-self.total))
        return max(0.0, self.total + math.log(kept)) if kept > 0 else 0.0

    def delta(self, epsilon: float) -> float:
        """Return the δ of randomized response with ε₀, the worst of its kind."""
        if epsilon >= self.total:
            return 0.0
        between = -math.expm1(epsilon - self.total) / (1.0 + math.exp(-self.total))
        return max(0.0, between, -math.expm1(epsilon))


@dataclass(frozen=True, kw_only=True)
class LossCurve:
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
class SlackCurve:
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
