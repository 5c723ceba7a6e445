"""Buffered linear Toeplitz noise: as good as the square root, in constant memory.

Source: K. Dvijotham, H. B. McMahan, K. Pillutla, T. Steinke, A. Thakurta, "Efficient and
near-optimal noise generation for streaming differential privacy", FOCS 2024. The factors are fitted
here, for the worst prefix (`blt_fit.py`). Proof note: `blt.md`.
"""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import whole
from kerchief.mechanisms.blt_fit import Factor, fit, row_norm
from kerchief.mechanisms.continual import draw, seed_std, stream_event, until
from kerchief.privacy import events

__all__ = ["BLT", "MAX_BUFFERS", "MAX_HORIZON", "best_continual"]

MAX_HORIZON = 10**7
MAX_BUFFERS = 6


@struct
class BLT:
    """Noise on every prefix from a few buffers that fade at different speeds.

    A seed vector drawn i steps ago enters the noise with weight base + Σ_j weights_j decays_j^i, so
    a running sum and one fading sum a buffer are all that has to be remembered.

    Formal guarantees:
        With real numbers the whole stream costs `event()`: see `blt.md`. Floating-point noise, so
        `idealized` is True.

    Attributes:
        std: standard deviation of each coordinate of the seed vectors.
        sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
        horizon: the length of the stream, at most `MAX_HORIZON`.
        factor: the weights and decays, fitted for the horizon.

    >>> noise = BLT.of(noise_multiplier=1.0, sensitivity=1.0, horizon=1000)
    >>> round(float(noise.std_at(jnp.array(1000))), 2)
    3.27
    """

    idealized: ClassVar[bool] = True

    std: float | Array
    sensitivity: float = static()
    horizon: int = static()
    factor: Factor = static()

    @classmethod
    def of(
        cls,
        *,
        noise_multiplier: float,
        sensitivity: float,
        horizon: int,
        buffers: int | None = None,
    ) -> BLT:
        """The noise with which the whole stream costs one Gaussian release of this multiplier.

        Args:
            noise_multiplier: of the Gaussian release that the stream may cost; 0 for no noise.
            sensitivity: as in the attribute.
            horizon: as in the attribute.
            buffers: 2 to `MAX_BUFFERS`; by default about one for each factor of ten in the horizon,
                which brings the noise within 0.4 % of the square root's.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        horizon = whole("horizon", horizon, high=MAX_HORIZON)
        count = _buffers(horizon) if buffers is None else buffers
        factor = fit(horizon, whole("buffers", count, low=2, high=MAX_BUFFERS))
        std = seed_std(
            noise_multiplier=noise_multiplier,
            sensitivity=sensitivity,
            column_norm=factor.column_norm,
        )
        return cls(std=std, sensitivity=sensitivity, horizon=horizon, factor=factor)

    @property
    def column_norm(self) -> float:
        """The norm of the first column of C; the others are cut off earlier."""
        return self.factor.column_norm

    def prepare(self, vector: Array) -> Array:
        """What a user adds to a prefix: the vector itself."""
        return vector

    def open(self, size: int) -> Array:
        """The running sum of seed vectors and the fading ones, all zero."""
        return jnp.zeros((1 + len(self.factor.decays), size), jnp.float64)

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        """Fade the sums, add this round's seed vector to each, and mix them."""
        decays = jnp.array([1.0, *self.factor.decays])[:, None]
        weights = jnp.array([self.factor.base, *self.factor.weights])[:, None]
        state = decays * state + draw(self.std, state.shape[1], stream)
        return until(self.horizon, round, jnp.sum(weights * state, axis=0)), state

    def std_at(self, count: Array) -> Array:
        """Exact up to rounding: see `blt_fit.row_norm`."""
        norm: Array = row_norm(self.factor, jnp.asarray(count, jnp.float64), jnp)
        return self.std * norm

    def event(self) -> events.Event:
        """What all the prefixes together cost; without noise there is no privacy."""
        return stream_event(self)


def best_continual(*, noise_multiplier: float, sensitivity: float, horizon: int) -> BLT:
    """The default: the noise whose worst prefix is least, among those of constant memory.

    That is `BLT` for every horizon: equal to the square root up to five digits for the shortest
    streams, below the tree from two vectors on, and plain noise for one.

    Raises:
        InvalidValue: a value is out of its bound.

    >>> noise = best_continual(noise_multiplier=1.0, sensitivity=1.0, horizon=2)
    >>> round(float(noise.std_at(jnp.array(2))), 4)
    1.25
    """
    return BLT.of(noise_multiplier=noise_multiplier, sensitivity=sensitivity, horizon=horizon)


def _buffers(horizon: int) -> int:
    return min(max(2, len(str(horizon - 1))), MAX_BUFFERS)
