"""Noise for the sums of a value from logs, and the one event that is charged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import one_of
from kerchief.data.reward_fits import RewardFit
from kerchief.data.value_sums import ValueSum
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.laplace import ExactLaplace
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.events import DiscreteGaussian, Event, RandomizedResponse
from kerchief.privacy.guarantee import Guarantee

ExactNoise: TypeAlias = ExactGaussian | ExactLaplace

MECHANISMS = ("best", "gaussian", "laplace")
_MOST_STEPS = 2**52


def noises_for(
    guarantee: Guarantee, mechanism: str, sums: Sequence[RewardFit | ValueSum]
) -> Sequence[ExactNoise]:
    """Build exact noise of one kind for all sums, from public facts alone.

    The best kind is the one that has less in the value, which is the last sum.
    """
    one_of("mechanism", mechanism, MECHANISMS)
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if mechanism == "gaussian" and delta == 0:
        raise InvalidValueError(
            "delta is 0 and the mechanism gaussian; give delta above 0, or laplace"
        )
    kinds: list[Sequence[ExactNoise]] = []
    if mechanism != "gaussian":
        kinds.append(
            [
                ExactLaplace.of(
                    epsilon=epsilon, taxicab=statistic.taxicab, dimension=statistic.size
                )
                for statistic in sums
            ]
        )
    if mechanism != "laplace" and delta > 0:
        multiplier = gaussian_noise_multiplier(epsilon, delta)
        kinds.append([_build_gaussian(multiplier, statistic, sums) for statistic in sums])
    return min(kinds, key=lambda noises: noises[-1].std)


def _build_gaussian(
    multiplier: float, target: RewardFit | ValueSum, sums: Sequence[RewardFit | ValueSum]
) -> ExactGaussian:
    """Build Gaussian noise on a grid that is fine enough for the largest sum."""
    widest = max(statistic.size for statistic in sums)
    noise = ExactGaussian.matching(multiplier, target.sensitivity, widest)
    return dataclasses.replace(noise, dimension=target.size)


def worst_of(noises: Sequence[ExactNoise]) -> Event:
    """Return one event that costs at least as much as the noise of any sum."""
    events = [noise.event() for noise in noises]
    if len(events) == 1:
        return events[0]
    pure = [event.epsilon for event in events if isinstance(event, RandomizedResponse)]
    normal = [event for event in events if isinstance(event, DiscreteGaussian)]
    if pure and not normal:
        return RandomizedResponse(epsilon=max(pure))
    assert not pure, "noise of two kinds in one call"
    scale = min(event.scale for event in normal)
    largest_ratio = max(event.sensitivity / event.scale for event in normal) * (1 + 2.0**-50)
    return DiscreteGaussian(
        sensitivity=largest_ratio * scale,
        scale=scale,
        dimension=max(event.dimension for event in normal),
    )


def check_grid(units: int, noise: ExactNoise) -> None:
    """Refuse, before anything is charged, what whole numbers cannot hold."""
    if units * 4 >= _MOST_STEPS * noise.grid:
        raise InvalidValueError(
            f"{units} units on a grid of {noise.grid} do not fit; ask for less epsilon"
        )
