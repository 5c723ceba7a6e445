"""Factors whose mixtures of exact seeds are rounded: the rounding enters the sensitivity.

How a mixture is computed and rounded is public and bounded. Proof note: `exact_continual.md`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import ClassVar

from kerchief.core.validate import between, positive
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.exact_sampler import MAX_SCALE
from kerchief.mechanisms.factor import Part
from kerchief.privacy import discrete_slack, events

__all__ = ["FAR", "UNIT", "RoundedFactor", "finest_grid"]

FAR = 40
"""In deviations: a sum of seeds beyond has a chance below 1e-330, and is refused."""

UNIT = 2.0**-52
"""More than two roundings of float64 lose, as a share."""

# Pays for what is left of the slack between the discrete and the continuous curve.
_MARGIN = 1e-6


def finest_grid(noise_multiplier: float, sensitivity: float) -> int:
    """The grid, as a number of bits, on which streams of any length have exact sums.

    Finer means less rounding. The scale of a seed vector must stay below `exact_sampler.MAX_SCALE`,
    and the sum of `Factor.capacity` vectors below 2**51 steps.

    >>> finest_grid(3.7, 2.0), finest_grid(0.1, 2.0)
    (25, 25)
    """
    between("noise_multiplier", noise_multiplier, 0.0, MAX_SCALE)
    positive("sensitivity", sensitivity)
    noise = positive("noise", noise_multiplier * sensitivity)
    return min(28 - math.frexp(noise)[1], 27 - math.frexp(sensitivity)[1])


class RoundedFactor(Part):
    """A factor with B⁻¹ of norm at most 2, and weights that are float64 numbers."""

    inexact: ClassVar[float]
    """How much more than with exact weights the norms of C and of B⁻¹ may be, as a share."""

    @property
    @abc.abstractmethod
    def error(self) -> float:
        """How far a mixture can be from that of real numbers, in scales of a seed vector."""

    def seed(self, *, noise_multiplier: float, sensitivity: float, dimension: int) -> ExactGaussian:
        """The seeds of least scale, on the finest grid."""
        seed = ExactGaussian(
            grid_bits=finest_grid(noise_multiplier, sensitivity),
            scale=1,
            sensitivity=sensitivity,
            dimension=dimension,
        )
        for paid in (False, True):
            # A larger scale brings a little more rounding with it: this ends after a few passes.
            while seed.scale < (least := self._least(seed, noise_multiplier, slack=paid)):
                seed = dataclasses.replace(seed, scale=least)
        return seed

    def price(self, *seeds: events.DiscreteGaussian) -> events.DiscreteGaussian:
        """One draw of all seed vectors at once: how far one user moves them all together."""
        (seed,) = seeds
        draws = self.horizon * seed.dimension
        astray = 2 * (1 + 2 * seed.scale * self.error) * math.sqrt(draws)
        reach = (self.column_norm * seed.sensitivity + astray) * (1 + self.inexact)
        return events.DiscreteGaussian(sensitivity=reach, scale=seed.scale, dimension=draws)

    def _least(self, seed: ExactGaussian, noise_multiplier: float, *, slack: bool) -> int:
        """The scale that a multiplier asks for, with what pays for the slack of so many draws.

        The slack is that of the scale at hand, so it is for a scale that is nearly right. A shift
        of epsilon costs about the multiplier times as large a share of the noise.
        """
        price = self.price(seed.event())
        shift = discrete_slack.slack(price).shift if slack else 0.0
        margin = _MARGIN + noise_multiplier * shift
        return math.ceil(price.sensitivity * noise_multiplier * (1 + margin))
