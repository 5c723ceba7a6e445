"""Buffered linear Toeplitz factors: as good as the square root, in constant memory.

Source: K. Dvijotham, H. B. McMahan, K. Pillutla, T. Steinke, A. Thakurta, "Efficient and
near-optimal noise generation for streaming differential privacy", FOCS 2024. The factors are fitted
here, for the worst prefix (`blt_fit.py`). Proof note: `blt.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.validate import whole
from kerchief.mechanisms.blt_fit import Fit, fit, row_norm
from kerchief.mechanisms.factor import FAR, UNIT, Floats, RoundedFactor

MAX_BUFFERS = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLT(RoundedFactor):
    """A few buffers that fade at different speeds: the default, for every horizon.

    A seed vector drawn i steps ago enters the noise with weight base + Σ_j weights_j decays_j^i, so
    a running sum and one fading sum for each of the 2 to `MAX_BUFFERS` buffers are all that has to
    be remembered. The worst prefix has the least noise among factors of constant memory: equal to
    the square root's up to five digits for the shortest streams, below the tree's from two on.

    >>> factor = BLT.of(horizon=1000)
    >>> round(factor.column_norm * float(factor.row_norm(1000, np)), 2)
    3.27
    """

    longest: ClassVar[int] = 10**7
    inexact: ClassVar[float] = 2.0**-40

    buffers: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        whole("buffers", self.buffers, low=2, high=MAX_BUFFERS)

    @classmethod
    def of(cls, *, horizon: int) -> BLT:
        """With about one buffer for each factor of ten in the horizon.

        That brings the noise within 0.4 % of the square root's.
        """
        digits = len(str(whole("horizon", horizon, high=cls.longest) - 1))
        return cls(horizon=horizon, buffers=min(max(2, digits), MAX_BUFFERS))

    @property
    def fit(self) -> Fit:
        """The weights and decays, fitted for the horizon."""
        return fit(self.horizon, self.buffers)

    @property
    def column_norm(self) -> float:
        """The norm of the first column of C; the others are cut off earlier."""
        return self.fit.column_norm

    @property
    def rows(self) -> int:
        """The running sum of seed vectors and the fading ones."""
        return 1 + self.buffers

    def step(self, state: Array, round: Array, seed: Array) -> tuple[Array, Array]:
        """Fade the sums, add this round's seed vector to each, and mix them."""
        decays = jnp.array([1.0, *self.fit.decays])[:, None]
        weights = jnp.array([self.fit.base, *self.fit.weights])[:, None]
        state = decays * state + seed
        return jnp.sum(weights * state, axis=0), state

    def row_norm(self, count: Any, library: Any) -> Any:
        """Exact up to rounding: see `blt_fit.row_norm`."""
        return row_norm(self.fit, library.asarray(count, library.float64), library)

    @property
    def limits(self) -> Floats:
        """Of every sum."""
        return _recursion(self.horizon, self.buffers).limits

    @property
    def error(self) -> float:
        """Two roundings for each step of a sum, which fade with it, and one for each term."""
        return _recursion(self.horizon, self.buffers).error

    def follow(self, state: Floats, first: int, seeds: Floats) -> tuple[Floats, Floats, Floats]:
        """Mix the sums, each with its weight one step later; fade them; add the seed to each."""
        recursion = _recursion(self.horizon, self.buffers)
        sums = np.concatenate([state[None], np.empty((len(seeds), *state.shape))])
        for before, after, seed in zip(sums, sums[1:], seeds, strict=False):
            np.multiply(recursion.decays, before, out=after)
            np.add(after, seed, out=after)
        return recursion.weights @ sums[:-1], sums[-1], np.abs(sums).max(axis=0)


class _Recursion(NamedTuple):
    """How sums of exact seed vectors go on, one row for each sum.

    Attributes:
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
    limits = FAR * np.sqrt(seeds)
    mixed = weights * limits
    error = UNIT * (decays.size * mixed.sum() + (mixed[1:] / gaps).sum())
    return _Recursion(decays[:, None], weights, limits[:, None], float(error))
