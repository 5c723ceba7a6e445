"""The square root of prefix summation: near-optimal noise, at the price of remembering every draw.

Source: H. Fichtenberger, M. Henzinger, J. Upadhyay, "Constant matters: fine-grained error bound on
differentially private continual observation", ICML 2023. Proof note: `toeplitz.md`.
"""

from __future__ import annotations

import functools
import math
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import whole
from kerchief.mechanisms.continual import draw, seed_std, stream_event, until
from kerchief.privacy import events

__all__ = ["MAX_HORIZON", "SqrtToeplitz", "coefficients"]

# Beyond, memory and work that grow with the horizon are out of proportion; `blt.BLT` has neither.
MAX_HORIZON = 20_000


@functools.cache
def coefficients(horizon: int) -> NDArray[np.float64]:
    """The first column of the square root of the lower-triangular matrix of ones.

    They are the Taylor coefficients of (1 - x)^(-1/2): c₀ = 1, c_k = c_{k-1} (2k - 1) / (2k).

    >>> coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    k = np.arange(1, horizon)
    values = np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))
    values.flags.writeable = False
    return values


@functools.cache
def _energy(horizon: int) -> NDArray[np.float64]:
    """Sums of the first 0, 1, ..., `horizon` squared coefficients."""
    sums = np.concatenate([[0.0], np.cumsum(coefficients(horizon) ** 2)])
    sums.flags.writeable = False
    return sums


@struct
class SqrtToeplitz:
    """Noise on every prefix from C = B = A^(1/2): the yardstick that `blt.BLT` comes close to.

    State and work a step grow with the horizon, so it is for short streams and for tests.

    Formal guarantees:
        With real numbers the whole stream costs `event()`: see `toeplitz.md`. Floating-point noise,
        so `idealized` is True.

    Attributes:
        std: standard deviation of each coordinate of the seed vectors.
        sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
        horizon: the length of the stream, at most `MAX_HORIZON`.

    >>> noise = SqrtToeplitz.of(noise_multiplier=1.0, sensitivity=1.0, horizon=2)
    >>> round(float(noise.std_at(jnp.array(2))), 9)
    1.25
    """

    idealized: ClassVar[bool] = True

    std: float | Array
    sensitivity: float = static()
    horizon: int = static()

    @classmethod
    def of(cls, *, noise_multiplier: float, sensitivity: float, horizon: int) -> SqrtToeplitz:
        """The noise with which the whole stream costs one Gaussian release of this multiplier.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        norm = _column_norm(whole("horizon", horizon, high=MAX_HORIZON))
        std = seed_std(noise_multiplier=noise_multiplier, sensitivity=sensitivity, column_norm=norm)
        return cls(std=std, sensitivity=sensitivity, horizon=horizon)

    @property
    def column_norm(self) -> float:
        """The norm of the first column of C; the others are cut off earlier."""
        return _column_norm(self.horizon)

    def prepare(self, vector: Array) -> Array:
        """What a user adds to a prefix: the vector itself."""
        return vector

    def open(self, size: int) -> Array:
        """All seed vectors, none drawn yet."""
        return jnp.zeros((self.horizon, size), jnp.float64)

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        """Draw this round's seed vector; mix all that were drawn."""
        state = state.at[round].set(draw(self.std, state.shape[1], stream))
        # The coefficients backwards, then zeros: a window of them is row `round` of B.
        rows = np.concatenate([coefficients(self.horizon)[::-1], np.zeros(self.horizon - 1)])
        row = lax.dynamic_slice_in_dim(jnp.asarray(rows), self.horizon - 1 - round, self.horizon)
        return until(self.horizon, round, row @ state), state

    def std_at(self, count: Array) -> Array:
        """Exact up to rounding: from a table of partial sums, `horizon` + 1 numbers."""
        return self.std * jnp.sqrt(jnp.asarray(_energy(self.horizon))[count])

    def event(self) -> events.Event:
        """What all the prefixes together cost; without noise there is no privacy."""
        return stream_event(self)


def _column_norm(horizon: int) -> float:
    return math.sqrt(_energy(horizon)[horizon])
