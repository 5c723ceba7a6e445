"""The square root of prefix summation: near-optimal noise, at the price of remembering every draw.

Source: H. Fichtenberger, M. Henzinger, J. Upadhyay, "Constant matters: fine-grained error bound on
differentially private continual observation", ICML 2023. Proof note: `toeplitz.md`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from kerchief.mechanisms.factor import FAR, UNIT, Floats, RoundedFactor


@functools.cache
def coefficients(horizon: int) -> Floats:
    """The first column of the square root of the lower-triangular matrix of ones.

    They are the Taylor coefficients of (1 - x)^(-1/2): c₀ = 1, c_k = c_{k-1} (2k - 1) / (2k).
    """
    k = np.arange(1, horizon)
    values = np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))
    values.flags.writeable = False
    return values


@functools.cache
def _energy(horizon: int) -> Floats:
    """Sums of the first 0, 1, ..., `horizon` squared coefficients."""
    sums = np.concatenate([[0.0], np.cumsum(coefficients(horizon) ** 2)])
    sums.flags.writeable = False
    return sums


@dataclasses.dataclass(frozen=True, kw_only=True)
class SqrtToeplitz(RoundedFactor):
    """C = B = A^(1/2): the yardstick that `blt.BLT` comes close to.

    State and work of a step grow with the horizon, so it is for short streams and for tests;
    `blt.BLT` needs neither.
    """

    longest: ClassVar[int] = 20_000
    inexact: ClassVar[float] = 2.0**-28
    limits: ClassVar[float] = FAR

    @property
    def column_norm(self) -> float:
        """The norm of the first column of C; the others are cut off earlier."""
        return math.sqrt(_energy(self.horizon)[self.horizon])

    @property
    def rows(self) -> int:
        """All seed vectors."""
        return self.horizon

    def step(self, state: Array, round: Array, seed: Array) -> tuple[Array, Array]:
        """Keep this round's seed vector; mix all that were drawn."""
        state = state.at[round].set(seed)
        # The coefficients backwards, then zeros: a window of them is row `round` of B.
        rows = np.concatenate([coefficients(self.horizon)[::-1], np.zeros(self.horizon - 1)])
        row = lax.dynamic_slice_in_dim(jnp.asarray(rows), self.horizon - 1 - round, self.horizon)
        return row @ state, state

    def row_norm(self, count: Any, library: Any) -> Any:
        """Exact up to rounding: from a table of partial sums, `horizon` + 1 numbers."""
        return library.sqrt(library.asarray(_energy(self.horizon))[count])

    @property
    def error(self) -> float:
        """One rounding for each term of a sum, in any order."""
        return UNIT * self.horizon * FAR * float(coefficients(self.horizon).sum())

    def follow(self, state: Floats, first: int, seeds: Floats) -> tuple[Floats, Floats, Floats]:
        """Write down the seeds; mix all earlier ones, each with the coefficient of its age."""
        history, ages = np.array(state), coefficients(self.horizon)
        history[first - 1 : first - 1 + len(seeds)] = seeds
        mixed = [
            ages[here:0:-1] @ history[:here] for here in range(first - 1, first - 1 + len(seeds))
        ]
        return np.array(mixed), history, np.abs(history)
