"""Fair coins as noise: what a shuffled vector sum really adds, drawn at once or coin by coin.

In the shuffle model every device adds a few coins of its own to every coordinate, and only the sum
over a whole cohort is seen: one binomial draw per coordinate. Proof note: `binomial.md`.

Protocol: A. Cheu, M. Joseph, J. Mao, B. Peng, "Shuffle private stochastic convex optimization",
ICLR 2022, with fair coins, a finer grid, and an accountant in place of the theorem's constants.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import MOST_ROUNDS, between, plain, positive, whole
from kerchief.mechanisms.mechanism import Floats, Simulated, float64_vector
from kerchief.privacy import events
from kerchief.privacy.binomial import binomial_slack
from kerchief_device.randomize import heads as toss
from kerchief_device.samplers import Randomness

# The grid's sensitivity is at least so many times what rounding adds to it.
_FINE = 32
# Coins enough that their law costs next to nothing beyond the Gaussian's.
_LEAST_SCALE = 512
# Rounding at random adds at most this part of the noise's variance.
_ROUNDING = 0.05
_MAX_SCALE = 2**24
# What one device may be asked to toss for each number of a report.
_MOST_COINS = 2**30


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How fine a vector is written, and how many coins it gets: public, from public bounds alone.

    Attributes:
        step: the distance between two values that can be reported.
        scale: standard deviation of the coins' sum, in steps; there are 4 scale² coins.
    """

    step: float
    scale: int

    @classmethod
    def of(cls, *, noise_multiplier: float, sensitivity: float, dimension: int, users: int) -> Grid:
        """The grid and the coins that stand for a Gaussian of this multiplier.

        Rounding at random must not show in a sum of at most so many `users`.

        >>> Grid.of(noise_multiplier=4.0, sensitivity=2.0, dimension=16, users=1000).scale
        533
        """
        m = between("noise_multiplier", noise_multiplier, 1e-6, 1e12, closed=True)
        sensitivity = between("sensitivity", sensitivity, 1e-150, 1e150, closed=True)
        dimension = whole("dimension", dimension, high=2**24)
        users = whole("users", users, high=MOST_ROUNDS)
        enough = max(_LEAST_SCALE, math.sqrt(users / (4 * _ROUNDING)))
        levels = max(_FINE * math.sqrt(dimension), enough / m)
        step = 2.0 ** math.floor(math.log2(sensitivity / levels))
        grid_sensitivity = _grid_sensitivity(sensitivity, step, dimension)
        scale = m * grid_sensitivity * (1 + _margin(m, grid_sensitivity, dimension))
        # Coins pay for their distance from the Gaussian, which is endless where noise is too small.
        _check_scale(scale, dimension, wish="larger" if m >= 1 else "smaller")
        return cls(step=step, scale=math.ceil(scale))


@struct
class Binomial(Simulated):
    """Round to the grid at random, and add a sum of fair coins to every coordinate of the total.

    Formal guarantees:
        The total of vectors that went through `prepare`, once through `add`, costs `event`: see
        `binomial.md`. The draw is floating point, so only simulation may use it; `ExactBinomial` is
        the twin for deployment.

    Attributes:
        std: standard deviation of the coins' sum on each coordinate, in the vector's own units.
        step: the distance between two values that can be reported.
        sensitivity: how far, in the Euclidean norm, one user can move the vector before rounding.
    """

    std: float | Array
    step: float | Array
    sensitivity: float = static()
    dimension: int = static()

    @classmethod
    def of(
        cls, *, noise_multiplier: float, sensitivity: float, dimension: int, users: int
    ) -> Binomial:
        """The coins that a multiplier, once calibrated, asks for; see `Grid.of`."""
        grid = Grid.of(
            noise_multiplier=noise_multiplier,
            sensitivity=sensitivity,
            dimension=dimension,
            users=users,
        )
        return cls(
            std=grid.scale * grid.step, step=grid.step, sensitivity=sensitivity, dimension=dimension
        )

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return float(self.step)

    def prepare(self, vector: Array, stream: Any = None) -> Array:
        """Device: round every coordinate up or down to the grid, right on average."""
        up = 1 - stream.uniform(self.dimension).astype(jnp.float64)
        rounded = jnp.floor(vector / self.step + up) * self.step
        return jnp.where(self.std > 0, rounded, vector)

    def add(self, vector: Array, stream: Stream) -> Array:
        """The total with all coins of its cohort: one draw per coordinate."""
        coins = jnp.round(4 * (self.std / self.step) ** 2)
        shape = (self.dimension,)
        heads = jax.random.binomial(stream.key(), coins, 0.5, shape=shape, dtype=jnp.float64)
        return vector + self.step * (heads - coins / 2)

    def _price(self) -> events.Event:
        return self.exact().event()

    def exact(self, dimension: int | None = None) -> ExactBinomial:
        """The twin for deployment."""
        return ExactBinomial(
            step=float(self.step),
            scale=round(float(self.std) / float(self.step)),
            sensitivity=self.sensitivity,
            dimension=self.dimension,
        )


@dataclass(frozen=True, kw_only=True)
class ExactBinomial:
    """Deployed binomial noise: one share per device, in whole steps, by exact coins.

    Attributes:
        step: the distance between two values that can be reported, a power of two.
        scale: standard deviation of all the coins of a cohort, in steps.

    >>> noise = ExactBinomial(step=0.25, scale=2, sensitivity=1.0, dimension=3)
    >>> noise.share(np.zeros(3), place=0, users=4).shape, noise.width(users=4)
    ((3,), 12)
    """

    step: float
    scale: int
    sensitivity: float
    dimension: int

    idealized: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every field."""
        plain(self)
        if math.frexp(positive("step", self.step))[0] != 0.5:
            raise InvalidValueError(f"step is {self.step}; it must be a power of two")
        _check_scale(whole("scale", self.scale), self.dimension)
        positive("sensitivity", self.sensitivity)
        whole("dimension", self.dimension)

    @property
    def std(self) -> float:
        """Standard deviation of all the coins, in the vector's own units."""
        return self.scale * self.step

    @property
    def grid(self) -> float:
        """The distance between two values that can be released: odd numbers have halves."""
        return self.step / 2

    @property
    def grid_bits(self) -> int:
        """The grid is 2**-grid_bits."""
        return 1 - math.frexp(self.grid)[1]

    @property
    def trials(self) -> int:
        """Number of coins per coordinate, over the whole cohort."""
        return 4 * self.scale**2

    @property
    def levels(self) -> int:
        """How many steps a coordinate of one user can be away from 0, which every query can be."""
        return math.ceil(self.sensitivity / self.step)

    def coins(self, place: int, users: int) -> int:
        """How many coins the device at this place of its cohort tosses for a coordinate.

        Those that do not divide evenly go to the first devices.
        """
        users = whole("users", users)
        place = whole("place", place, low=0, high=users - 1)
        return self.trials // users + (place < self.trials % users)

    def check_tosses(self, users: int) -> None:
        """Refuse a cohort so small that each of its devices would have to toss too many coins."""
        _check_tosses(self.coins(0, users), self.dimension)

    def width(self, users: int) -> int:
        """Bits per coordinate that every device of such a cohort sends: code and coins."""
        return 2 * self.levels + self.coins(0, users)

    def prepare(self, vector: Floats, stream: object = None) -> Floats:
        """Round every coordinate to the grid at random, right on average to 2**-53."""
        array = float64_vector(vector, self.dimension)
        if not np.isfinite(array).all():
            raise InvalidValueError("vector has an entry that is not finite; every entry must be")
        source = stream if callable(stream) else os.urandom
        bits = np.frombuffer(source(8 * self.dimension), dtype="<u8")
        # Below 1, in units of 2**-53: exact, and so is its sum with the fraction of a level.
        up = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        level = array / self.step
        low = np.floor(level)
        return (low + (level - low > up)) * self.step

    def share(
        self, vector: Floats, *, place: int, users: int, randomness: Randomness = os.urandom
    ) -> Floats:
        """Device: the rounded vector plus this device's own coins, centred."""
        coins = self.coins(place, users)
        own = heads(coins, self.dimension, randomness=randomness)
        # Half steps where the number is odd: exact in floating point, and whole in the total.
        return self.prepare(vector, randomness) + self.step * (own - coins / 2)

    def add(self, vector: Floats, stream: object = None) -> Floats:
        """The total: the devices have added everything."""
        return vector

    def event(self) -> events.Event:
        """What one cohort's total costs, with lengths in steps."""
        return events.Binomial(
            sensitivity=_grid_sensitivity(self.sensitivity, self.step, self.dimension),
            scale=self.scale,
            dimension=self.dimension,
        )


def deviation(noise: Binomial | ExactBinomial, users: Any, sums: Any = 1) -> Any:
    """Standard deviation of the error of `sums` sums: all coins, and the most that rounding adds.

    Rounding at random to a grid errs by at most half a step, so its variance is at most a quarter
    of the step's square for each of so many users.

    >>> deviation(ExactBinomial(step=0.5, scale=2, sensitivity=1.0, dimension=3), users=48)
    2.0
    """
    rounding = (noise.std > 0) * noise.step**2 / 4 * users
    return (noise.std**2 * sums + rounding) ** 0.5


def heads(coins: int, size: int, *, randomness: Randomness = os.urandom) -> Floats:
    """Toss that many fair coins for each of `size` coordinates, and count the heads."""
    coins, size = whole("coins", coins, low=0), whole("size", size)
    _check_tosses(coins, size)
    return toss(coins, size, randomness).astype(np.float64)


def _check_scale(scale: float, dimension: int, *, wish: str = "larger") -> None:
    if scale > _MAX_SCALE:
        raise InvalidValueError(
            f"noise on {dimension} coordinates needs coins of deviation {min(scale, 1e18):.0f}; "
            f"the most is {_MAX_SCALE}: ask for a {wish} epsilon or delta, or use fewer dimensions"
        )


def _check_tosses(coins: int, size: int) -> None:
    if coins > _MOST_COINS:
        raise InvalidValueError(
            f"a device of the smallest cohort would toss {coins} coins for each of {size} numbers; "
            f"the most is {_MOST_COINS}: ask for a larger epsilon or delta, use fewer "
            "dimensions or longer cohorts, choose shuffling 'bits', or another trust"
        )


def _grid_sensitivity(sensitivity: float, step: float, dimension: int) -> float:
    """Bound, in steps, how far one user moves the rounded vector: one step per coordinate more.

    2**-40 pays for float64 arithmetic in the encoding and in this line.
    """
    return (sensitivity / step + math.sqrt(dimension)) * (1 + 2.0**-40)


def _margin(m: float, grid_sensitivity: float, dimension: int) -> float:
    """How much more noise pays, twice over, for the slack between coins and the Gaussian.

    ε is at least about 1/m, so a shift of it is at most `shift` · m of it, and e^stretch on δ
    moves it by less than a part of `stretch`.
    """
    event = events.Binomial(
        sensitivity=grid_sensitivity, scale=math.ceil(m * grid_sensitivity), dimension=dimension
    )
    stretch, shift, *_ = binomial_slack(event)
    return 2 * (shift * m + stretch) + 1e-6
