"""Factors: how continual noise mixes its seeds over time.

A factor is a public lower-triangular matrix B. The noise on prefix t of a stream is row t of B Z,
with independent seed vectors Z. With A the matrix of prefix sums and C = B⁻¹ A, what is released is
B (C x + Z). Proofs: `continual.md` for normal seeds, `exact_continual.md` for exact ones.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.validate import between, plain, positive, whole
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.privacy import discrete_slack, events
from kerchief_device.samplers import MAX_SCALE

Floats = NDArray[np.float64]

FAR = 40
"""In deviations: a sum of seeds beyond has a chance below 1e-330, and is refused."""

UNIT = 2.0**-52
"""More than two roundings of float64 lose, as a share."""

# Pays for what is left of the slack between the discrete and the continuous curve.
_MARGIN = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factor(abc.ABC):
    """A factor for streams of one length, the horizon, which is fixed before they start."""

    longest: ClassVar[int]
    """The longest stream that it can be made for."""

    horizon: int

    def __post_init__(self) -> None:
        """Check the horizon."""
        plain(self)
        whole("horizon", self.horizon, high=self.longest)

    @property
    @abc.abstractmethod
    def column_norm(self) -> float:
        """The largest Euclidean norm of a column of C: how much one user's change is amplified."""

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """How many vectors the stream remembers; before the first place all are zero."""

    @abc.abstractmethod
    def step(self, state: Array, round: Array, seed: Array) -> tuple[Array, Array]:
        """The noise on the prefix that ends here, and the next state, in compiled code."""

    @abc.abstractmethod
    def row_norm(self, count: Any, library: Any) -> Any:
        """The norm of row `count` of B: the noise on that prefix, for seeds of deviation 1.

        The library is NumPy or `jax.numpy`, whichever has made the count: one number or many.
        """

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Factors of successive stretches of the stream, each with exact seeds of its own scale."""

    @abc.abstractmethod
    def places(self, count: int) -> tuple[int, ...]:
        """How many of the first `count` places lie in each stretch that has begun."""

    @abc.abstractmethod
    def price(self, *seeds: events.DiscreteGaussian) -> events.Event:
        """What all the prefixes together cost, from what one seed vector of each part would."""

    @property
    def capacity(self) -> int:
        """How many vectors can be added up on the grid of exact seeds without any rounding."""
        return 10**7


class OfFactor:
    """Noise that is a factor times seeds."""

    factor: Factor

    @property
    def horizon(self) -> int:
        """The length of the stream, fixed before it starts."""
        return self.factor.horizon

    @property
    def column_norm(self) -> float:
        """How much the factor amplifies one user's change, before rounding."""
        return self.factor.column_norm


class Part(Factor):
    """A factor of one stretch: its exact seeds are all of one scale.

    The noise of a place is its own seed plus a mixture of the earlier ones, rounded to whole grid
    steps. All below is host code on NumPy arrays, in grid steps.
    """

    @property
    def parts(self) -> tuple[Part, ...]:
        """Itself alone."""
        return (self,)

    def places(self, count: int) -> tuple[int, ...]:
        """All of them."""
        return (count,)

    @property
    @abc.abstractmethod
    def limits(self) -> float | Floats:
        """How large the numbers of the state may become, in scales of a seed vector."""

    @abc.abstractmethod
    def follow(self, state: Floats, first: int, seeds: Floats) -> tuple[Floats, Floats, Floats]:
        """Consecutive places, the first of which is counted from 1, one seed vector each.

        Returns:
            What earlier seeds add to the noise of each place, before rounding; the next state; and
            how large its numbers became on the way.
        """

    @abc.abstractmethod
    def seed(self, *, noise_multiplier: float, sensitivity: float, dimension: int) -> ExactGaussian:
        """The seeds with which a stream costs no more than one Gaussian of this multiplier."""


def finest_grid(noise_multiplier: float, sensitivity: float) -> int:
    """The grid, as a number of bits, on which streams of any length have exact sums.

    Finer means less rounding. The scale of a seed vector must stay below `samplers.MAX_SCALE`,
    and the sum of `Factor.capacity` vectors below 2**51 steps.

    >>> finest_grid(3.7, 2.0), finest_grid(0.1, 2.0)
    (25, 25)
    """
    between("noise_multiplier", noise_multiplier, 0.0, MAX_SCALE)
    positive("sensitivity", sensitivity)
    noise = positive("noise", noise_multiplier * sensitivity)
    return min(28 - math.frexp(noise)[1], 27 - math.frexp(sensitivity)[1])


class RoundedFactor(Part):
    """A factor with B⁻¹ of norm at most 2, and weights that are float64 numbers.

    Its mixtures of exact seeds are rounded, and the rounding, which is public and bounded, enters
    the sensitivity.
    """

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
        for with_slack in (False, True):
            # A larger scale brings a little more rounding with it: this ends after a few passes.
            while seed.scale < (least := self._least(seed, noise_multiplier, slack=with_slack)):
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
