"""Noise for every prefix sum of a stream, paid once for the whole stream.

Replacing one user changes one of the stream's vectors. The noise is correlated over time: noise on
one prefix says something about the noise on the next, and so less of it is needed. The vectors may
depend on what was released before. Noise is a factor (`factor.Factor`) times seeds: idealized ones
here, exact ones in `exact_continual`. Theorem and proof: `continual.md`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import Array

from kerchief.core.struct import static, struct
from kerchief.core.validate import at_least, positive
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.factor import Factor, OfFactor
from kerchief.mechanisms.mechanism import Simulated
from kerchief.privacy import events


@struct
class ContinualNoise(OfFactor, Simulated):
    """A factor times normal seeds: the noise of simulations, and its cost, in one object.

    Formal guarantees:
        With real numbers the whole stream costs `event()`: see `continual.md`. Floating-point
        noise, so only simulation may use it; `ExactContinualNoise` is the twin for deployment.

    Attributes:
        std: standard deviation of each coordinate of the seed vectors.
        sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
    """

    std: float | Array
    sensitivity: float = static()
    factor: Factor = static()

    @classmethod
    def of(cls, factor: Factor, *, noise_multiplier: float, sensitivity: float) -> ContinualNoise:
        """With it the whole stream costs one Gaussian release of this multiplier; 0 is no noise."""
        multiplier = at_least("noise_multiplier", noise_multiplier, 0.0)
        std = multiplier * positive("sensitivity", sensitivity) * factor.column_norm
        return cls(std=std, sensitivity=sensitivity, factor=factor)

    def open(self, size: int) -> Array:
        """The state before the first vector, for vectors of this length."""
        return jnp.zeros((self.factor.rows, size), jnp.float64)

    def step(self, state: Array, round: Array, stream: Any) -> tuple[Array, Array]:
        """The noise on the prefix that ends with this vector, and the next state, vector by vector.

        The caller meters the horizon. As a second lock the noise beyond it is NaN.
        """
        # In float64: the prefixes of a long stream add up many seeds.
        seed = self.std * stream.normal(state.shape[1]).astype(jnp.float64)
        noise, state = self.factor.step(state, round, seed)
        return jnp.where(round < self.horizon, noise, jnp.nan), state

    def std_at(self, count: Array) -> Array:
        """Standard deviation of one coordinate of the noise on the sum of the first `count`."""
        norm: Array = self.factor.row_norm(count, jnp)
        return self.std * norm

    def _price(self) -> events.Event:
        """All the prefixes together, charged once, when the stream is opened."""
        return events.Gaussian(noise_multiplier=self._multiplier)

    def exact(self, dimension: int) -> ExactContinualNoise:
        """The twin for deployment: the same factor over exact seeds, at the same cost."""
        return ExactContinualNoise.matching(
            self.factor,
            noise_multiplier=self._multiplier,
            sensitivity=self.sensitivity,
            dimension=dimension,
        )

    @property
    def _multiplier(self) -> float:
        return float(self.std) / (self.sensitivity * self.column_norm)


PrefixNoise: TypeAlias = ContinualNoise | ExactContinualNoise
"""Either kind of noise on prefixes."""
