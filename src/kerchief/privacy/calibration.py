"""How much noise a promise costs, and what promise a noise keeps: closed forms (`calibration.md`).

Noise is always rounded up, and a promise towards a weaker one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import at_least, between, positive
from kerchief.privacy.external import erfcx, ndtr
from kerchief.privacy.search import least, least_epsilon

_SQRT2 = math.sqrt(2.0)


def gaussian_delta(epsilon: float, noise_multiplier: float) -> float:
    """Return the exact δ(ε) of one Gaussian release (Balle and Wang 2018, theorem 8).

    It is Φ(1/(2m) − εm) − e^ε Φ(−1/(2m) − εm), with m the noise multiplier: the noise's standard
    deviation over the L2 sensitivity. A negative ε is meaningful, and of use inside proofs.
    """
    epsilon = at_least("epsilon", epsilon, -sys.float_info.max)
    m = positive("noise_multiplier", noise_multiplier)
    if epsilon < 0:
        return -math.expm1(epsilon) + math.exp(epsilon) * gaussian_delta(-epsilon, m)
    near, far = epsilon * m - 0.5 / m, epsilon * m + 0.5 / m
    # far² / 2 − ε = near² / 2, so e^ε Φ(−far) needs no large exponent and nothing overflows.
    density = 0.5 * math.exp(-0.5 * near * near)
    head = ndtr(-near) if near < 0 else density * erfcx(near / _SQRT2)
    return max(0.0, head - density * erfcx(far / _SQRT2))


def gaussian_epsilon(delta: float, noise_multiplier: float) -> float:
    """Return the least ε ≥ 0 at which one Gaussian release keeps δ."""
    delta = between("delta", delta, 0.0, 1.0)
    return least_epsilon(lambda epsilon: gaussian_delta(epsilon, noise_multiplier), delta)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the least noise multiplier with which one Gaussian release is (ε, δ)-private.

    Formal guarantees:
        `gaussian_delta(epsilon, result) <= delta` holds in floating point too.

    >>> round(gaussian_noise_multiplier(1.0, 1e-5), 4)
    3.7306
    """
    epsilon = at_least("epsilon", epsilon, 0.0)
    delta = between("delta", delta, 0.0, 1.0)
    return least(lambda m: gaussian_delta(epsilon, m) <= delta)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the tightest known δ(ε) that ρ-zCDP implies (Canonne, Kamath, Steinke 2020, cor. 13).

    It is the least over α > 1 of exp((α−1)(αρ − ε)) (1 − 1/α)^(α−1) / α.

    >>> f"{zcdp_delta(0.5 / 4.0451**2, 1.0):.2e}"
    '1.00e-05'
    """
    rho, epsilon = at_least("rho", rho, 0.0), at_least("epsilon", epsilon, 0.0)
    if rho == 0.0:
        return 0.0
    # t = α − 1. Every t > 0 gives a valid bound, so the search's own error is on the safe side.
    t = least(lambda t: (2 * t + 1) * rho - epsilon - math.log1p(1 / t) >= 0.0)
    exponent = t * ((t + 1) * rho - epsilon - math.log1p(1 / t)) - math.log1p(t)
    return math.exp(min(0.0, exponent))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ for which ρ-zCDP is known to imply (ε, δ)."""
    epsilon = at_least("epsilon", epsilon, 0.0)
    delta = between("delta", delta, 0.0, 1.0)
    m = least(lambda m: zcdp_delta(0.5 / m / m, epsilon) <= delta)
    return 0.5 / m / m


def pure_rho(epsilon: float) -> float:
    """Return the least ρ for which every ε-differentially private mechanism is ρ-zCDP.

    It is ε tanh(ε/2), reached by randomized response; proof in `calibration.md`.

    >>> pure_rho(0.1) < 0.1**2 / 2
    True
    """
    epsilon = at_least("epsilon", epsilon, 0.0)
    return epsilon * math.tanh(epsilon / 2)


def classical_gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return √(2 ln(1.25/δ)) / ε: only to show what the older formula would have cost.

    >>> round(classical_gaussian_noise_multiplier(1.0, 1e-5), 4)
    4.8448
    """
    epsilon = positive("epsilon", epsilon)
    delta = between("delta", delta, 0.0, 1.0)
    if epsilon > 1.0:
        raise InvalidValueError(
            f"epsilon is {epsilon}; the classical Gaussian formula is proved up to epsilon 1 only, "
            "and from about 6 to 9 on (by delta) its real delta is above the stated one; "
            "use gaussian_noise_multiplier"
        )
    return math.sqrt(2 * (math.log(1.25) - math.log(delta))) / epsilon


def bun_steinke_rho(epsilon: float, delta: float) -> float:
    """Return the ρ at which ρ + 2√(ρ ln(1/δ)), the older and looser reading of zCDP, is ε.

    >>> round((0.5 / bun_steinke_rho(1.0, 1e-5)) ** 0.5, 4)
    4.9006
    """
    epsilon, delta = at_least("epsilon", epsilon, 0.0), between("delta", delta, 0.0, 1.0)
    log = -math.log(delta)
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    return root * root


def share(noise_multiplier: float, weights: Sequence[float]) -> tuple[float, ...]:
    """Divide one Gaussian budget between several releases on the same data, by their weights.

    Returns:
        m_i = m √(Σw / w_i), for which Σ 1/m_i² = 1/m² (rounded up by a few units in the
        last place, so that the parts never cost more than the whole).
    """
    m = positive("noise_multiplier", noise_multiplier)
    checked = [positive(f"weights[{i}]", weight) for i, weight in enumerate(weights)]
    if not checked:
        raise InvalidValueError("weights is empty; give one weight a release")
    guard = 1.0 + (len(checked) + 4) * sys.float_info.epsilon
    total = math.fsum(checked)
    return tuple(m * math.sqrt(total / weight) * guard for weight in checked)
