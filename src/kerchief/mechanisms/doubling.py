"""A factor for streams of unknown length: epochs that double, each with a factor of its own.

Source of the idea: T.-H. H. Chan, E. Shi, D. Song, "Private and continual release of statistics",
TISSEC 2011, whose hybrid mechanism adds up trees for epochs of growing length; here each epoch has
the factor of `blt.BLT`. Proof note: `doubling.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from kerchief.core.validate import whole
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.blt_fit import energy, fit, modes
from kerchief.mechanisms.factor import Factor, Floats
from kerchief.privacy import events

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


class _Epochs(NamedTuple):
    """What each epoch's noise is made of, one row for each epoch, at seeds of deviation 1.

    Decays and weights are those of its sums, amplitudes and rates those of its variance
    (`blt_fit.modes`); `before` is the variance that finished epochs have left.
    """

    decays: Floats
    weights: Floats
    amplitudes: Floats
    rates: Floats
    before: Floats


@functools.cache
def _epochs(horizon: int, first: int) -> _Epochs:
    """All epochs that a stream of at most this length can reach."""
    spans = lengths(horizon, first)
    fits = [fit(span, BUFFERS) for span in spans]
    weights = np.array([np.array([f.base, *f.weights]) * f.column_norm for f in fits])
    decays = np.array([[1.0, *f.decays] for f in fits])
    base, fading, gaps = weights[:, :1], weights[:, 1:], 1.0 - decays[:, 1:]
    variances = [energy(base[i], fading[i], gaps[i], span) for i, span in enumerate(spans)]
    amplitudes, rates = modes(base, fading, gaps)
    before = np.concatenate([[0.0], np.cumsum(variances)[:-1]])
    return _Epochs(decays, weights, amplitudes, rates, before)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doubling(Factor):
    """Epochs of `first`, 2 `first`, 4 `first`, ... places, each made for its own length.

    A prefix gets the noise of its epoch, and of every finished epoch what its last place had. So
    the noise of a place is the same however long the stream becomes.

    Attributes:
        horizon: the most places that may be paid for; the noise does not depend on it.

    >>> Doubling(horizon=5000).row_norm(jnp.array([1024, 1025, 5000]), jnp).round(2).tolist()
    [3.27, 3.77, 5.99]
    """

    longest: ClassVar[int] = BLT.longest
    # Every epoch's factor is scaled so that its longest column has norm 1.
    column_norm: ClassVar[float] = 1.0
    # What finished epochs have left, and the sums of the present one.
    rows: ClassVar[int] = 2 + BUFFERS

    first: int = FIRST

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        whole("first epoch", self.first, high=self.longest)

    def step(self, state: Array, round: Array, seed: Array) -> tuple[Array, Array]:
        """Step the present epoch's noise; where that epoch ends, keep its last noise for good."""
        table, (epoch, start) = _epochs(self.horizon, self.first), self._find(round)
        decays, weights = (
            jnp.asarray(rows)[epoch][:, None] for rows in (table.decays, table.weights)
        )
        sums = decays * state[1:] + seed
        noise = state[0] + jnp.sum(weights * sums, axis=0)
        ends = round + 1 == 2 * start + self.first
        next_state = jnp.concatenate(
            [jnp.where(ends, noise, state[0])[None], jnp.where(ends, 0.0, sums)]
        )
        return noise, next_state

    def row_norm(self, count: Any, library: Any) -> Any:
        """Exact up to rounding: the present epoch's closed form, and what finished ones left."""
        table = _epochs(self.horizon, self.first)
        epoch, start = self._find(library.asarray(count) - 1)
        base, amplitudes, rates, before = (
            library.asarray(rows)[epoch]
            for rows in (table.weights[:, 0], table.amplitudes, table.rates, table.before)
        )
        places = (count - start).astype(library.float64)
        faded = library.sum(amplitudes * library.expm1(places[..., None] * rates), axis=-1)
        return library.sqrt(before + base**2 * places - faded)

    @property
    def parts(self) -> tuple[BLT, ...]:
        """The epochs."""
        return _parts(self.horizon, self.first)

    def places(self, count: int) -> tuple[int, ...]:
        """Finished epochs with all of theirs, then the present one."""
        spans = lengths(count, self.first)[:-1]
        return (*spans, count - sum(spans))

    def price(self, *seeds: events.DiscreteGaussian) -> events.DiscreteGaussian:
        """A user is in one epoch, and no epoch costs more than this."""
        prices = [part.price(seed) for part, seed in zip(self.parts, seeds, strict=True)]
        scale = min(event.scale for event in prices)
        ratio = min(event.noise_multiplier for event in prices)
        return events.DiscreteGaussian(
            sensitivity=scale / ratio * (1 + 2.0**-50),
            scale=scale,
            dimension=max(event.dimension for event in prices),
        )

    def _find(self, round: Array) -> tuple[Array, Array]:
        """The epoch of a place, and the place at which it starts, first (2^epoch - 1)."""
        blocks = round // self.first + 1
        epoch = 31 - lax.clz(jnp.asarray(blocks, jnp.int32))
        return epoch, self.first * ((1 << epoch) - 1)


@functools.cache
def _parts(horizon: int, first: int) -> tuple[BLT, ...]:
    return tuple(BLT(horizon=span, buffers=BUFFERS) for span in lengths(horizon, first))
