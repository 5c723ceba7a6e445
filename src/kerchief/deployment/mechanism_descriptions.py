"""Descriptions of mechanisms on the wire: what a task says about the noise of each query."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerchief.core.errors import InvalidValueError
from kerchief.mechanisms.binomial import ExactBinomial
from kerchief.mechanisms.compass import ExactCompass
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.laplace import ExactLaplace
from kerchief.mechanisms.one_bit import ExactOneBit
from kerchief.mechanisms.shortlist import ExactShortlist
from kerchief.privacy.guarantee import Guarantee
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.sums import CohortSums
from kerchief_protocol import noise as wire

# The finest grid of exact sums where no noise decides it.
_FINEST = 40


def describe_noise(
    privatizer: Privatizer,
    guarantee: Guarantee,
    needs: tuple[int, ...],
    horizon: int,
    *,
    equal: bool,
) -> wire.Noise:
    """Describe the noise of one query in the words of the wire.

    Args:
        privatizer: exact noise of the query.
        guarantee: what each user is promised.
        needs: users of each cohort.
        horizon: how many users may report.
        equal: every cohort gets the coins of the smallest one, as where a device cannot trust the
            label of a status.
    """
    query = privatizer.query
    if isinstance(privatizer, BitSums):
        first = privatizer.batches[0]
        keep_units = tuple(
            round(batch.keep * wire.KEEP_UNITS) for batch in privatizer.batches[: len(needs)]
        )
        return wire.Bits(size=query.size, bits=first.bits, bound=first.bound, keep=keep_units)
    if isinstance(privatizer, ShuffledSums):
        return _describe_coins(privatizer.coins, guarantee, needs, equal=equal)
    if isinstance(privatizer, PrefixSums):
        assert isinstance(privatizer.noise, ExactContinualNoise)
        return describe_statistic(query, _compute_grid_bits(privatizer.noise.grid))
    assert isinstance(privatizer, CohortSums)
    if privatizer.device is not None:
        return _describe_device_noise(privatizer.device, query)
    if isinstance(privatizer.aggregator, ExactGaussian | ExactLaplace):
        return describe_statistic(query, privatizer.aggregator.grid_bits)
    return describe_statistic(query, _compute_finest_grid_bits(query, horizon))


def _describe_coins(
    noise: ExactBinomial, guarantee: Guarantee, needs: tuple[int, ...], *, equal: bool
) -> wire.Coins:
    """Describe coins of which the honest part of each cohort suffices (`crediting.md`).

    With `equal`, every cohort gets those of the smallest one.
    """
    coins = tuple(-(-noise.trials // max(1, guarantee.counted(need))) for need in needs)
    if equal:
        coins = (max(coins),) * len(coins)
    return wire.Coins(
        size=noise.dimension,
        step_bits=_compute_grid_bits(noise.step),
        levels=noise.levels,
        scale=noise.scale,
        coins=coins,
    )


def _describe_device_noise(noise: Any, query: Any) -> wire.Noise:
    match noise:
        case ExactShortlist():
            return wire.Shortlist(
                units=noise.units,
                candidates=noise.candidates,
                listed=noise.listed,
                center=noise.center,
                radius=noise.radius,
                factor=noise.factor,
                grid_bits=_compute_grid_bits(noise.grid),
            )
        case ExactCompass():
            return noise.wire
        case ExactOneBit():
            low, high = noise.reports
            return wire.OneBit(
                bias=noise.bias, center=noise.center, radius=noise.radius, low=low, high=high
            )
        case ExactGaussian() | ExactLaplace():
            law = "gaussian" if isinstance(noise, ExactGaussian) else "laplace"
            statistic = describe_statistic(query, noise.grid_bits)
            return wire.Rounded(
                law=law,
                grid_bits=noise.grid_bits,
                scale=noise.scale,
                center=statistic.center,
                radius=statistic.radius,
            )
    raise InvalidValueError(
        f"{type(noise).__name__} has no form on the wire; choose another mechanism"
    )


def describe_statistic(query: Any, grid_bits: int) -> wire.Statistic:
    """Describe a box that holds every statistic, in whole units of the grid."""
    center = np.broadcast_to(np.asarray(query.center, np.float64), (query.size,))
    units = np.rint(np.ldexp(center, grid_bits)).astype(np.int64)
    radius = math.ceil(math.ldexp(query.radius, grid_bits)) + 1
    return wire.Statistic(grid_bits=grid_bits, center=tuple(units.tolist()), radius=radius)


def _compute_finest_grid_bits(query: Any, horizon: int) -> int:
    """Return the bits of the finest grid for which exact sums have room."""
    largest = (float(np.abs(query.center).max()) + query.radius) * horizon
    return min(_FINEST, 60 - math.frexp(largest)[1])


def _compute_grid_bits(grid: float) -> int:
    mantissa, exponent = math.frexp(grid)
    assert mantissa == 0.5
    return 1 - exponent
