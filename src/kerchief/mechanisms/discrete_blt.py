"""Buffered linear Toeplitz noise on a grid: the deployed twin of `blt.BLT`.

Each place draws one exact discrete Gaussian vector, in whole grid steps. The noise on a prefix is
the newest vector plus a mixture of the earlier ones, rounded to whole steps. How the mixture is
computed and rounded is public and bounded, and enters the sensitivity. Proof note:
`discrete_blt.md`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import CapacityExceeded
from kerchief.core.validate import between, plain, positive, whole
from kerchief.mechanisms.blt import BLT, MAX_BUFFERS, MAX_HORIZON
from kerchief.mechanisms.blt_fit import Factor, fit, row_norm
from kerchief.mechanisms.discrete_gaussian import MAX_SCALE, DiscreteGaussian
from kerchief.mechanisms.discrete_grid import GridNoise, on_grid, place_of
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy import discrete_slack, events

__all__ = ["DiscreteBLT", "finest_grid"]

Floats = NDArray[np.float64]

# Pays for what is left of the slack between the discrete and the continuous curve.
_MARGIN = 1e-6
# Of the column norm: weights and norm are float64 numbers.
_ROUNDED = 1 + 2.0**-40
# In deviations: a sum beyond has a chance below 1e-330, and is refused.
_FAR = 40
_UNIT = 2.0**-52


class _Recursion(NamedTuple):
    """How the sums of seed vectors go on, a row a sum.

    Attributes:
        decays: how much of each sum is left a step later; the first is a plain sum.
        weights: how the sums before a place are mixed for the noise there.
        limits: how large a sum may become, in scales of a seed vector.
        error: how far the mixture can be from that of real numbers, likewise.
    """

    decays: Floats
    weights: Floats
    limits: Floats
    error: float


@functools.cache
def _recursion(horizon: int, buffers: int) -> _Recursion:
    factor = fit(horizon, buffers)
    fading = np.array(factor.decays)
    gaps = 1.0 - fading
    decays = np.concatenate([[1.0], fading])
    weights = np.concatenate([[factor.base], np.array(factor.weights) * fading])
    seeds = np.concatenate([[horizon], np.minimum(horizon, 1.0 / (gaps * (1.0 + fading)))])
    limits = _FAR * np.sqrt(seeds)
    mixed = weights * limits
    error = _UNIT * (decays.size * mixed.sum() + (mixed[1:] / gaps).sum())
    return _Recursion(decays[:, None], weights, limits[:, None], float(error))


def finest_grid(noise_multiplier: float, sensitivity: float) -> int:
    """The grid, as a number of bits, on which streams of any length have exact sums.

    Finer means less rounding. The scale of a seed vector must stay below `discrete.MAX_SCALE`, and
    the sum of `blt.MAX_HORIZON` vectors below 2**51 steps.

    >>> finest_grid(3.7, 2.0), finest_grid(0.1, 2.0)
    (25, 25)
    """
    noise_multiplier = between("noise_multiplier", noise_multiplier, 0.0, MAX_SCALE)
    sensitivity = positive("sensitivity", sensitivity)
    noise = positive("noise", noise_multiplier * sensitivity)
    return min(28 - math.frexp(noise)[1], 27 - math.frexp(sensitivity)[1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteBLT:
    """Exact noise on every prefix, as little of it as `blt.BLT` has.

    Host code on NumPy arrays.

    Formal guarantees:
        The whole stream costs `event()` if every vector was rounded by `prepare`: see
        `discrete_blt.md`.

    Attributes:
        node: the noise of a seed vector.
        horizon: the length of the stream, at most `blt.MAX_HORIZON`.
        buffers: how many fading sums there are, 2 to `blt.MAX_BUFFERS`.

    >>> noise = DiscreteBLT.matching(
    ...     noise_multiplier=1.0, sensitivity=1.0, horizon=1000, buffers=4, dimension=3
    ... )
    >>> round(float(noise.std_at(1000)), 2)
    3.27
    """

    idealized: ClassVar[bool] = False

    node: GridNoise
    horizon: int
    buffers: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        plain(self)
        whole("horizon", self.horizon, high=MAX_HORIZON)
        whole("buffers", self.buffers, low=2, high=MAX_BUFFERS)

    @classmethod
    def matching(
        cls,
        *,
        noise_multiplier: float,
        sensitivity: float,
        horizon: int,
        buffers: int,
        dimension: int,
    ) -> DiscreteBLT:
        """The noise with which the stream costs no more than one Gaussian of this multiplier.

        Args:
            noise_multiplier: of the Gaussian release that the stream may cost.
            sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
            horizon: as in the attribute.
            buffers: as in the attribute.
            dimension: the length of the vectors.

        Raises:
            InvalidValue: a value is out of its bound, or no scale that the sampler has is enough.
        """
        node = DiscreteGaussian(
            grid_bits=finest_grid(noise_multiplier, sensitivity),
            scale=1,
            sensitivity=sensitivity,
            dimension=dimension,
        )
        noise = cls(node=node, horizon=horizon, buffers=buffers)
        for paid in (False, True):
            # A larger scale brings a little more rounding with it: this ends after a few passes.
            while node.scale < (least := noise._least(noise_multiplier, slack=paid)):
                node = dataclasses.replace(node, scale=least)
                noise = dataclasses.replace(noise, node=node)
        return noise

    @classmethod
    def twin(cls, noise: BLT, *, dimension: int) -> DiscreteBLT:
        """The exact noise that costs no more than this simulated one, for vectors of this length.

        Raises:
            InvalidValue: as `matching`; also where there is no noise.
        """
        return cls.matching(
            noise_multiplier=float(noise.std) / (noise.sensitivity * noise.column_norm),
            sensitivity=noise.sensitivity,
            horizon=noise.horizon,
            buffers=len(noise.factor.decays),
            dimension=dimension,
        )

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of the seed vectors."""
        return float(self.node.std)

    @property
    def sensitivity(self) -> float:
        """How far one user moves one vector of the stream, before rounding."""
        return self.node.sensitivity

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return self.node.grid

    @property
    def column_norm(self) -> float:
        """The norm of the first column of C, before rounding."""
        return self.factor.column_norm

    @property
    def factor(self) -> Factor:
        """The weights and decays, fitted for the horizon."""
        return fit(self.horizon, self.buffers)

    def prepare(self, vector: Vector) -> Floats:
        """Round a vector to the grid, and see that as many of them as may come fit a float64.

        Raises:
            InvalidValue: the vector does not fit the grid.
        """
        return on_grid(vector, self.node, places=MAX_HORIZON)

    def open(self, size: int) -> Floats:
        """The running sum of seed vectors and the fading ones, in grid steps, all zero."""
        return np.zeros((1 + self.buffers, size))

    def step(self, state: Floats, round: Any, stream: Any) -> tuple[Floats, Floats]:
        """Mix the sums as they were, add this place's seed vector, and fade them.

        Args:
            state: what the step before gave, or `open`.
            round: the place of the vector in the stream, from 0.
            stream: a source of bytes for tests; None for the operating system's.

        Raises:
            CapacityExceeded: the stream is over, or the noise is larger than the proof covers,
                which has a chance below 1e-330 whatever the data.
        """
        place_of(round, self.horizon)
        recursion = _recursion(self.horizon, self.buffers)
        seed: Floats = self.node.add(np.zeros(state.shape[1]), stream) / self.grid
        noise: Floats = (seed + np.rint(recursion.weights @ state)) * self.grid
        sums: Floats = recursion.decays * state + seed
        if not (np.abs(sums) <= recursion.limits * (self.std / self.grid)).all():
            raise CapacityExceeded(f"noise beyond {_FAR} deviations; begin a new run")
        return noise, sums

    def std_at(self, count: Any) -> Any:
        """That of `blt.BLT` with these seed vectors; rounding adds half a step at most."""
        return self.std * row_norm(self.factor, np.asarray(count, np.float64), np)

    def event(self) -> events.DiscreteGaussian:
        """What all the prefixes together cost: one draw of all seed vectors at once."""
        node = self.node.event()
        return events.DiscreteGaussian(
            sensitivity=self._reach, scale=node.scale, dimension=self.horizon * node.dimension
        )

    def _least(self, noise_multiplier: float, *, slack: bool) -> int:
        """The scale that a multiplier asks for, with what pays for the slack of so many draws.

        The slack is that of the scale at hand, so it is for a scale that is nearly right. A shift
        of epsilon costs about the multiplier times as large a share of the noise.
        """
        shift = discrete_slack.slack(self.event()).shift if slack else 0.0
        return math.ceil(self._reach * noise_multiplier * (1 + _MARGIN + noise_multiplier * shift))

    @property
    def _reach(self) -> float:
        """How far one user moves all seed vectors together, in grid steps."""
        node = self.node.event()
        rounding = 1 + 2 * node.scale * _recursion(self.horizon, self.buffers).error
        astray = 2 * rounding * math.sqrt(self.horizon * node.dimension)
        return (self.column_norm * node.sensitivity + astray) * _ROUNDED
