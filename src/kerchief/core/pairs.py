"""The query behind online and errors-in-variables bandits: one user's features and reward.

`Regression` asks for products, x xᵀ and y x; `Pair` leaves those to the learner, who must then take
off the noise's own square. Proof note: `pairs.md`.
"""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Example
from kerchief.core.problems import Problem
from kerchief.core.queries import BaseStatistic, clip_features, finite
from kerchief.core.validate import between, whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair(BaseStatistic):
    """The sum of (x, b y) over users, as one flat vector.

    x, of length `dim`, is scaled into the ball of radius `norm`, and y clipped to [low, high].
    Under local trust a total is released after every user, and the difference of two totals is one
    user's report.

    Attributes:
        offset: subtracted from y after clipping; for arms that hold a constant coordinate.
        balance: b, how much the reward counts beside the features: less of it, less noise on x and
            more on y.
        constant: the value of the last coordinate where all arms share it: it is public, so it is
            written and not reported. 0 for none.
    """

    dim: int
    norm: float
    low: float
    high: float
    offset: float = 0.0
    balance: float = 1.0
    constant: float = 0.0

    def __post_init__(self) -> None:
        """Check the bounds."""
        super().__post_init__()
        # What is left of the norm is then at least a thousandth of it.
        limit = (1 - 1e-6) * self.norm
        constant = between("constant", self.constant, -limit, limit, closed=True)
        whole("dim", self.dim, low=2 if constant else 1)

    @classmethod
    def of(cls, problem: Problem, *, balance: float = 1.0) -> Pair:
        """The query that fits a problem's public bounds, rewards centred where that is free."""
        midpoint = (problem.low + problem.high) / 2
        has_constant = 0 < abs(problem.constant) <= (1 - 1e-6) * problem.norm and problem.dim > 1
        return cls(
            dim=problem.dim,
            norm=problem.norm,
            low=problem.low,
            high=problem.high,
            offset=midpoint if problem.constant else 0.0,
            balance=balance,
            constant=problem.constant if has_constant else 0.0,
        )

    @property
    def size(self) -> int:
        """Length of the statistic: the features that are reported, and the reward."""
        return self.dim + 1 - bool(self.constant)

    @property
    def sensitivity(self) -> float:
        """Exact diameter of the statistics under replacement, √(4ℓ² + b² W²): see `pairs.md`.

        Features lie in a ball of radius ℓ = √(L² - c²) and rewards in an interval of length W.
        """
        return 2 * self.radius

    @property
    def center(self) -> NDArray[np.float64]:
        """No features, and the center of the rewards."""
        point = np.zeros(self.size)
        point[-1] = self.balance * ((self.low + self.high) / 2 - self.offset)
        return point

    @property
    def radius(self) -> float:
        """The greatest distance from the center, exactly: half the diameter."""
        return math.hypot(self._rest, self.balance * (self.high - self.low) / 2)

    @property
    def noisy(self) -> NDArray[np.float64]:
        """One for each coordinate of x that is reported, and so carries noise; else zero."""
        mask = np.ones(self.dim)
        mask[-1] = not self.constant
        return mask

    def encode(self, record: Example) -> Array:
        """Clip x and y, then write them side by side, without what is public."""
        features = record.features[:-1] if self.constant else record.features
        x = clip_features(features, self._rest)
        y = jnp.clip(finite(record.reward), self.low, self.high) - self.offset
        return jnp.append(x, self.balance * y)

    def split(self, report: Array) -> tuple[Array, Array]:
        """The features, with what is public, and the centred reward, from one user's report."""
        x = jnp.append(report[:-1], self.constant) if self.constant else report[:-1]
        return x, report[-1] / self.balance

    @property
    def _rest(self) -> float:
        """How long the reported features can be."""
        return math.sqrt(self.norm**2 - self.constant**2)
