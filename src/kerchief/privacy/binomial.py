"""Privacy cost of a sum of fair coins as noise, scanned and compared with the Gaussian.

Theorems and proofs are in `binomial.md`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kerchief.core.validate import whole
from kerchief.privacy import discrete_slack
from kerchief.privacy.curves import ORDERS, Renyi
from kerchief.privacy.discrete_slack import Slack
from kerchief.privacy.events import Binomial, DiscreteGaussian

WINDOW = 10
"""A: noise beyond A scales is charged as probability, at most 2 exp(-A²/2) a coordinate."""

# Pays for floating point in sums of up to a few million terms.
_GUARD = 1e-12


def binomial_slack(event: Binomial, count: int = 1) -> Slack:
    """Return what `count` releases cost beyond continuous Gaussians of the same deviation.

    Formal guarantees:
        `binomial.md`, theorem 2; infinite where the window does not fit the coins.
    """
    n, half = event.dimension * whole("count", count, low=0), 2 * event.scale**2
    window = _window(event)
    if window >= half:
        return Slack(stretch=math.inf, shift=math.inf, tail=0.0, outside=1.0)
    slope = _bound_slope(window, half)
    gaussian = discrete_slack.slack(
        DiscreteGaussian(
            sensitivity=event.sensitivity, scale=event.scale, dimension=event.dimension
        ),
        count,
        window=max(discrete_slack.WINDOW, window / event.scale),
    )
    stretch = n * window**2 / (half * (2 * half + 1))
    # One release moves its coordinates by at most √n · sensitivity in the sum of absolute values.
    distance = count * math.sqrt(event.dimension) * event.sensitivity
    return Slack(
        stretch=stretch + gaussian.stretch,
        shift=distance * slope + gaussian.shift,
        tail=0.0,
        outside=n * _tail(),
    )


@lru_cache(maxsize=256)
def binomial_renyi(event: Binomial) -> Renyi:
    """Return the profile of one release: every shift up to the bound, scanned.

    Formal guarantees:
        `binomial.md`, theorem 1: for integer shifts of Euclidean length at most `sensitivity`.
    """
    half, window = 2 * event.scale**2, _window(event)
    if window >= half:
        return Renyi(values=(0.0,) * len(ORDERS), tail=1.0)
    logs = log_ratios(half, window)
    peak = _log_peak(half)
    orders = np.asarray(ORDERS)
    worst = np.zeros(len(ORDERS))
    for shift in range(1, math.floor(event.sensitivity) + 1):
        # Outcomes x with x and x − shift inside the window: both laws are positive there.
        shifted, unshifted = logs[: len(logs) - shift], logs[shift:]
        moments = np.array(
            [peak + _add_logs(unshifted + a * (shifted - unshifted)) for a in ORDERS]
        )
        divergences = (moments + _GUARD) / (orders - 1)
        worst = np.maximum(worst, divergences / shift**2)
    values = tuple(float(value) for value in worst * event.sensitivity**2)
    return Renyi(values=values, tail=min(1.0, event.dimension * _tail()))


def log_ratios(half: int, window: int) -> NDArray[np.float64]:
    """Log of P(X = x) / P(X = 0) for −window ≤ x ≤ window, X being 2·half fair coins, centred.

    >>> float(np.exp(log_ratios(2, 1)[0]).round(12)) == round(4 / 6, 12)
    True
    """
    place = (2 * np.arange(1, window + 1, dtype=np.float64) - 1) / (2 * half + 1)
    right = np.cumsum(np.log1p(-place) - np.log1p(place))
    return np.concatenate([right[::-1], [0.0], right])


def _add_logs(logs: NDArray[np.float64]) -> float:
    """Return the log of the sum of numbers that are given by their logs."""
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).sum()))


def _log_peak(half: int) -> float:
    """Log of the largest probability of 2·half fair coins, from above: C(2h, h) / 4^h."""
    if half <= 512:
        return math.log(math.comb(2 * half, half)) - 2 * half * math.log(2)
    return -0.5 * math.log(math.pi * half) - 1 / (8 * half) + 1 / (192 * half**3)


def _window(event: Binomial) -> int:
    """Return the largest outcome that is scanned; any beyond is charged as probability."""
    return WINDOW * event.scale + math.floor(event.sensitivity)


def _tail() -> float:
    """Probability that a coordinate leaves the window, in either world (Hoeffding)."""
    return 4.0 * math.exp(-(WINDOW**2) / 2)


def _bound_slope(window: int, half: int) -> float:
    """Bound the change of log(binomial / Gaussian) from one integer to the next."""
    ratio = (2 * window - 1) / (2 * half + 1)
    upward = (2 * window - 1) / (half * (2 * half + 1))
    return max(upward, 2 / 3 * ratio**3 / (1 - ratio**2))
