"""How noisy a word is, written a second time: by what was charged, or by what was published."""

from __future__ import annotations

import math
from typing import Any

from kerchief.checks.leakage import charged_multiplier
from kerchief.mechanisms.binomial import Binomial
from kerchief.mechanisms.compass import Compass
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.randomized_bits import Response
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.privacy import Guarantee
from kerchief.privacy.unit_vectors import unit_noise
from kerchief.privacy.vector_sum import scalar_sum, vector_sum
from kerchief.privatizers import Privatizer


def named_deviation(noise: Any, privatizer: Privatizer) -> float | None:
    """The deviation of a word's noise that costs what was charged; None where no formula has it."""
    if isinstance(noise, Response | Shortlist | Compass):
        return None
    query: Any = privatizer.query
    event = noise.event()
    match noise:
        case Gaussian() | ContinualNoise():
            norm = getattr(noise, "column_norm", 1.0)
            return charged_multiplier(event) * float(query.sensitivity * norm)
        case Laplace():
            euclidean = math.sqrt(query.size) * query.sensitivity
            return math.sqrt(2) * float(getattr(query, "taxicab", euclidean)) / pure_epsilon(event)
        case OneBit():
            return float(query.radius) / math.tanh(event.epsilon / 2)
        case PrivUnitG():
            return float(query.radius * unit_noise(event.epsilon))
        case Binomial():
            return float(event.scale * noise.step)
    return None


def pure_epsilon(event: Any) -> float:
    """The epsilon of pure noise."""
    epsilon = getattr(event, "epsilon", None)
    return float(1 / event.noise_multiplier if epsilon is None else epsilon)


def published_deviation(privatizer: Any, promise: Guarantee, *, by_phases: bool) -> float:
    """Compute the published deviation for the cohort that needs most coins.

    The constants are for vectors no longer than 1. Clients' answers are as long as their radius,
    and two clients are always counted as a cohort; records of zeros are written as zeros.
    """
    query, terms = privatizer.query, {"epsilon": promise.epsilon, "delta": promise.delta}
    longest, least = (query.radius, {2}) if by_phases else (query.sensitivity, set())
    proved = (
        scalar_sum(users=users, **terms)
        if query.size == 1
        else vector_sum(users=users, size=query.size, **terms)
        for users in least.union(privatizer.schedule.sizes)
    )
    return float(longest * max(noise.std for noise in proved))
