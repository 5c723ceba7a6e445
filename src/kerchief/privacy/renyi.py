"""Rényi profiles: a mechanism's divergence at fixed orders, and the rare outcomes it leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["ORDERS", "Renyi", "renyi_delta", "renyi_of_rho", "renyi_sum"]

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
    counted = list(profiles)
    values = tuple(
        math.fsum(profile.values[i] * count for profile, count in counted)
        for i in range(len(ORDERS))
    )
    return Renyi(values=values, tail=math.fsum(p.tail * count for p, count in counted))


def renyi_delta(profile: Renyi, epsilon: float) -> float:
    """The least δ(ε) that a profile implies (Canonne, Kamath, Steinke 2020, proposition 12).

    Their bound on the part of P above e^ε Q holds outcome by outcome, so it holds for the outcomes
    that the profile speaks about; the others are charged with their probability.

    >>> f"{renyi_delta(renyi_of_rho(0.5 / 4.0451**2), 1.0):.2e}"
    '1.11e-05'
    """
    least = math.inf
    for order, value in zip(ORDERS, profile.values, strict=True):
        exponent = (order - 1) * (value - epsilon) + order * math.log1p(-1 / order)
        least = min(least, exponent - math.log(order - 1))
    return min(1.0, math.exp(min(0.0, least)) + profile.tail)
