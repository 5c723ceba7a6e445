"""Near-optimal designs: how often to play which arm so that every arm is learned about evenly.

Kiefer and Wolfowitz (1960): among all distributions over a finite set of rank r, the least possible
maximum of xᵀV(π)⁻¹x over the set, with V(π) = Σ π(x) x xᵀ, is r. Proofs in `design.md`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.queries import finite
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.core.validate import between, whole

TOLERANCE = 1e-5  # of the longest arm: a direction in which no arm reaches further does not count
_SLACK = 1e-6  # the ascent aims this much lower, so that its own rounding cannot miss the factor

# Weights, the inverse of V(π), all leverages, and the number of steps.
_Ascent: TypeAlias = tuple[Array, Array, Array, Array]


@struct
class Design:
    """A distribution over arms, with the proof of its quality.

    Attributes:
        weights: the chance of each arm, zero for all that are not allowed; they add up to one.
        leverage: the greatest xᵀV(π)⁻¹x of an allowed arm, within the span of the arms, from a
            factorization of its own; compare it with `rank`, its least value.
        rank: dimension of that span, up to `TOLERANCE`.
        basis: its orthonormal basis in the first `rank` rows; the others are zero.
        steps: how many arms were brought in (or back) after the start.
    """

    weights: Array
    leverage: Array
    rank: Array
    basis: Array
    steps: Array

    def matrix(self, features: Array) -> Array:
        """V(π) = Σ π(x) x xᵀ, in float64."""
        x = jnp.where(self.weights[:, None] > 0, features, 0).astype(jnp.float64)
        return (x.T * self.weights) @ x

    def pulls(self, total: float | Array) -> Array:
        """How often to play each arm, ⌈total · π(x)⌉: at most one more than its share.

        >>> near_optimal(jnp.eye(3), jnp.ones(3, bool)).pulls(10).tolist()
        [4, 4, 4]
        """
        return jnp.ceil(total * self.weights).astype(jnp.int64)

    def draw(self, stream: Stream) -> Array:
        """An arm with these chances (to 2⁻²⁴, the grain of the one uniform that it takes)."""
        # Parallel sums may differ between neighbours even where the weight is zero.
        reached = jnp.where(self.weights > 0, jnp.cumsum(self.weights), 0)
        ticket = jnp.minimum(stream.uniform(1)[0].astype(jnp.float64), reached.max())
        return jnp.argmax(reached >= ticket)


@struct
class _Start:
    """As many arms as the rank, far apart, with equal weights."""

    weights: Array
    rank: Array
    basis: Array
    frame: Array  # x @ frame: the coefficients of x in these arms


def near_optimal(
    features: Array, allowed: Array, *, factor: float = 2.0, most_steps: int | None = None
) -> Design:
    """A design with leverage at most `factor` times the rank, on few arms, one in each row.

    Khachiyan's (1996) ascent on log det V(π), stopped early, after a start in the manner of Kumar
    and Yıldırım (2005): pivoted Gram-Schmidt in place of their random directions. It draws nothing.
    If no arm is allowed, all weights are zero; if all features are, the first allowed arm has all.
    What is not finite counts as zero. With fewer than `enough_steps`, the default, leverage may be
    above factor · rank, and says so.

    >>> made = near_optimal(jnp.array([[3.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), jnp.ones(3, bool))
    >>> made.weights.tolist(), int(made.rank)
    ([0.5, 0.5, 0.0], 2)
    """
    between("factor", factor, 1.001, 1e6, closed=True)
    aim = factor * (1 - _SLACK)
    enough = enough_steps(min(features.shape), aim)
    limit = enough if most_steps is None else whole("most_steps", most_steps, low=0)
    design: Design = _build_design(features, allowed, aim, limit)
    return design


@functools.partial(jax.jit, static_argnums=(2, 3))
def _build_design(features: Array, allowed: Array, aim: float, limit: int) -> Design:
    """One program for arm sets of one shape, so that a call outside of any program is quick too."""
    x = _scale_arms(features, allowed)
    start = _pick_spanning_arms(x, allowed)
    arms = x @ start.frame
    weights, steps = _ascend(arms, start, aim, limit)
    return Design(
        weights=weights,
        leverage=_leverage(arms, weights, start.rank),
        rank=start.rank,
        basis=start.basis,
        steps=steps,
    )


@functools.cache
def enough_steps(rank: int, factor: float) -> int:
    """A number of steps after which leverage is at most factor · rank, whatever the arms.

    The start is within r ln r of the best log det, and each step gains `_gain` (`design.md`).

    >>> [enough_steps(rank, 2.0) for rank in (1, 3, 5, 20)]
    [0, 12, 25, 133]
    """
    gap, steps = whole("rank", rank) * math.log(rank), 0
    between("factor", factor, 1.0, math.inf)
    while gap > 0:
        gap -= _gain(rank, max(factor, math.exp(gap / rank)))
        steps += 1
    return steps


def _gain(rank: int, excess: float) -> float:
    """What the best step adds to log det V(π) when leverage is excess · rank."""
    return math.log(excess) - (rank - 1) * math.log1p((excess - 1) / (excess * (rank - 1)))


def _scale_arms(features: Array, allowed: Array) -> Array:
    """The allowed arms in float64 with entries up to one, the others zero."""
    x = jnp.where(allowed[:, None], finite(features), 0).astype(jnp.float64)
    return x / jnp.clip(jnp.abs(x).max(), 2.0**-1000, 2.0**1000)


def _pick_spanning_arms(x: Array, allowed: Array) -> _Start:
    """Pivoted Gram-Schmidt: take the arm farthest from the span of those taken, if any is far."""
    count, dim = x.shape
    squares = jnp.where(allowed, (x * x).sum(1), -1)
    least = TOLERANCE**2 * jnp.maximum(0, squares.max())

    def take(i: Array | int, sofar: tuple[Array, _Start]) -> tuple[Array, _Start]:
        squares, start = sofar
        pick = jnp.argmax(squares)
        arm = x[pick]
        rest = arm - (start.basis @ arm) @ start.basis
        rest -= (start.basis @ rest) @ start.basis  # once more: the first left rounding behind
        far = rest @ rest > least
        length = jnp.sqrt(jnp.where(far, rest @ rest, 1))
        unit = jnp.where(far, rest / length, 0)
        back = (jnp.arange(dim) == i) - arm @ start.frame
        return squares - (x @ unit) ** 2, _Start(
            weights=start.weights + far * (jnp.arange(count) == pick),
            rank=start.rank + far,
            basis=start.basis.at[i].set(unit),
            frame=start.frame + (unit / length)[:, None] * back,
        )

    empty = jnp.zeros((dim, dim))
    none = _Start(weights=jnp.zeros(count), rank=jnp.int32(0), basis=empty, frame=empty)
    _, start = jax.lax.fori_loop(0, min(count, dim), take, (squares, none))
    first = allowed & (jnp.arange(count) == jnp.argmax(allowed))
    weights = jnp.where(start.rank > 0, start.weights / jnp.maximum(1, start.rank), first)
    spanning_start: _Start = dataclasses.replace(start, weights=weights)
    return spanning_start


def _ascend(arms: Array, start: _Start, aim: float, limit: int) -> tuple[Array, Array]:
    """Move weight to the arm of greatest leverage, each time as far as is best for log det V(π)."""
    rank = jnp.maximum(1, start.rank).astype(jnp.float64)

    def unfinished(state: _Ascent) -> Array:
        _, _, leverages, steps = state
        return (leverages.max() > aim * rank) & (steps < limit)

    def step(state: _Ascent) -> _Ascent:
        weights, inverted, leverages, steps = state
        pick = jnp.argmax(leverages)
        peak = leverages[pick]
        share = (peak / rank - 1) / (peak - 1)
        along = inverted @ arms[pick]
        factor = share * rank / peak  # share / (1 - share + share * peak)
        return (
            (1 - share) * weights + share * (jnp.arange(len(weights)) == pick),
            (inverted - factor * along[:, None] * along) / (1 - share),
            (leverages - factor * (arms @ along) ** 2) / (1 - share),
            steps + 1,
        )

    # In the coefficients, the matrix of equal weights on the starting arms is the unit matrix / r.
    begin = start.weights, rank * jnp.eye(arms.shape[1]), rank * (arms * arms).sum(1), jnp.int32(0)
    weights, _, _, steps = jax.lax.while_loop(unfinished, step, begin)
    return weights, steps


def _leverage(arms: Array, weights: Array, rank: Array) -> Array:
    """The greatest leverage, computed anew; infinite where V(π) cannot be factorized."""
    dim = arms.shape[1]
    beyond = jnp.diag((jnp.arange(dim) >= rank).astype(jnp.float64))
    root = jnp.linalg.cholesky((arms.T * weights) @ arms + beyond)
    inverted = jax.scipy.linalg.solve_triangular(root, jnp.eye(dim), lower=True)
    leverage = ((arms @ inverted.T) ** 2).sum(1).max()
    return jnp.where(jnp.isfinite(leverage), leverage, jnp.inf)
