"""Noise for every prefix of a stream of unknown length: epochs that double, each with its own.

Source of the idea: T.-H. H. Chan, E. Shi, D. Song, "Private and continual release of statistics",
TISSEC 2011, whose hybrid mechanism adds up trees for epochs of growing length; here each epoch has
the noise of `blt.BLT`. Proof note: `doubling.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import whole
from kerchief.mechanisms.blt import MAX_HORIZON
from kerchief.mechanisms.blt_fit import energy, fit, modes
from kerchief.mechanisms.continual import draw, seed_std, stream_event, until
from kerchief.privacy import events

__all__ = ["BUFFERS", "FIRST", "Doubling", "lengths"]

FIRST = 1024
"""The length of the first epoch, where nothing else is said."""

BUFFERS = 5
"""As many for every epoch, so that one compiled step serves them all."""


def lengths(horizon: int, first: int) -> tuple[int, ...]:
    """How long each epoch is that a stream of at most this length can reach.

    >>> lengths(100, 10)
    (10, 20, 40, 80)
    """
    epochs = (-(-horizon // first)).bit_length()
    return tuple(first << epoch for epoch in range(epochs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Epochs:
    """What each epoch's noise is made of, a row an epoch, at seed vectors of deviation 1.

    Attributes:
        decays: how much of each sum is left a step later; the first is a plain sum.
        weights: how the sums are mixed, with columns of norm 1 on the other side.
        amplitudes: with `rates`, the variance within an epoch (`blt_fit.modes`).
        rates: likewise.
        before: the variance that the finished epochs have left.
    """

    decays: NDArray[np.float64]
    weights: NDArray[np.float64]
    amplitudes: NDArray[np.float64]
    rates: NDArray[np.float64]
    before: NDArray[np.float64]


@functools.cache
def _epochs(horizon: int, first: int) -> _Epochs:
    """All epochs that a stream of at most this length can reach."""
    spans = lengths(horizon, first)
    factors = [fit(span, BUFFERS) for span in spans]
    weights = np.array([np.array([f.base, *f.weights]) * f.column_norm for f in factors])
    decays = np.array([[1.0, *f.decays] for f in factors])
    base, fading, gaps = weights[:, :1], weights[:, 1:], 1.0 - decays[:, 1:]
    left = [energy(base[i], fading[i], gaps[i], span) for i, span in enumerate(spans)]
    amplitudes, rates = modes(base, fading, gaps)
    return _Epochs(
        decays=decays,
        weights=weights,
        amplitudes=amplitudes,
        rates=rates,
        before=np.concatenate([[0.0], np.cumsum(left)[:-1]]),
    )


@struct
class Doubling:
    """Noise on every prefix, for a stream whose length nobody knows beforehand.

    Epochs of `first`, 2 `first`, 4 `first`, ... places have noise of their own, made for their own
    length. A prefix gets the noise of its epoch, and of every finished epoch what its last place
    had. So the noise of a place is the same however long the stream becomes.

    Formal guarantees:
        With real numbers the whole stream costs `event()`: see `doubling.md`. Floating-point noise,
        so `idealized` is True.

    Attributes:
        std: standard deviation of each coordinate of the seed vectors.
        sensitivity: how far, in the Euclidean norm, one user moves one vector of the stream.
        horizon: the most places that may be paid for, at most `blt.MAX_HORIZON`; the noise does not
            depend on it.
        first: the length of the first epoch.

    >>> noise = Doubling.of(noise_multiplier=1.0, sensitivity=1.0, horizon=5000)
    >>> noise.std_at(jnp.array([1024, 1025, 5000])).round(2).tolist()
    [3.27, 3.77, 5.99]
    """

    idealized: ClassVar[bool] = True

    std: float | Array
    sensitivity: float = static()
    horizon: int = static()
    first: int = static()

    @classmethod
    def of(
        cls, *, noise_multiplier: float, sensitivity: float, horizon: int, first: int = FIRST
    ) -> Doubling:
        """The noise with which the whole stream costs one Gaussian release of this multiplier.

        Raises:
            InvalidValue: a value is out of its bound.
        """
        horizon = whole("horizon", horizon, high=MAX_HORIZON)
        first = whole("first epoch", first, high=MAX_HORIZON)
        std = seed_std(noise_multiplier=noise_multiplier, sensitivity=sensitivity, column_norm=1.0)
        return cls(std=std, sensitivity=sensitivity, horizon=horizon, first=first)

    @property
    def column_norm(self) -> float:
        """Every epoch's factor is scaled so that its longest column has norm 1."""
        return 1.0

    def prepare(self, vector: Array) -> Array:
        """What a user adds to a prefix: the vector itself."""
        return vector

    def open(self, size: int) -> Array:
        """What finished epochs have left, and the sums of the present one, all zero."""
        return jnp.zeros((2 + BUFFERS, size), jnp.float64)

    def step(self, state: Array, round: Array, stream: Stream) -> tuple[Array, Array]:
        """Step the present epoch's noise; where that epoch ends, keep its last noise for good."""
        table, (epoch, start) = _epochs(self.horizon, self.first), self._find(round)
        decays, weights = (
            jnp.asarray(rows)[epoch][:, None] for rows in (table.decays, table.weights)
        )
        sums = decays * state[1:] + draw(self.std, state.shape[1], stream)
        noise = state[0] + jnp.sum(weights * sums, axis=0)
        ends = round + 1 == 2 * start + self.first
        kept = jnp.concatenate([jnp.where(ends, noise, state[0])[None], jnp.where(ends, 0.0, sums)])
        return until(self.horizon, round, noise), kept

    def std_at(self, count: Array) -> Array:
        """Exact up to rounding: the present epoch's closed form, and a share a finished epoch."""
        table, (epoch, start) = (
            _epochs(self.horizon, self.first),
            self._find(jnp.asarray(count) - 1),
        )
        base, amplitudes, rates, before = (
            jnp.asarray(rows)[epoch]
            for rows in (table.weights[:, 0], table.amplitudes, table.rates, table.before)
        )
        places = (count - start).astype(jnp.float64)
        faded = jnp.sum(amplitudes * jnp.expm1(places[..., None] * rates), axis=-1)
        return self.std * jnp.sqrt(before + base**2 * places - faded)

    def event(self) -> events.Event:
        """What all the prefixes together cost; without noise there is no privacy."""
        return stream_event(self)

    def _find(self, round: Array) -> tuple[Array, Array]:
        """The epoch of a place, and the place at which it starts, first (2^epoch - 1)."""
        blocks = round // self.first + 1
        epoch = 31 - lax.clz(jnp.asarray(blocks, jnp.int32))
        return epoch, self.first * ((1 << epoch) - 1)
