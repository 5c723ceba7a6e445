"""Contexts of each arm: the posted policy, simulated on released or public contexts.

Simulated users draw from public random numbers that never change, so whoever follows the same
releases gets the same numbers.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.disjoint_moments import DisjointMoments, DisjointSums
from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import inverse, lower_root
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import struct

# Features are float32.
_ROUNDING = 1e-6
_USERS, _DRAWS = 512, 8
"""Simulated users, and how often each of them plays."""
_MOST_PUBLIC = 4096
_LEAST, _FLOOR = 1e-3, 0.02
"""Of the mean variance of a feature: its share of the greatest; of the variance in a direction."""


@struct
class DisjointPosterior:
    """The billboard: for every arm an estimate, and a square root of what scores are drawn with."""

    estimate: Array
    sample: Array


def public_contexts(problem: Problem, rows: ArrayLike) -> NDArray[np.float64]:
    """Check public contexts, and return their features that vary.

    Raises:
        InvalidValueError: they do not keep the problem's bounds, or are too many.
    """
    contexts = validate.real_array("public contexts", rows)
    if (
        contexts.ndim != 2
        or contexts.shape[1] != problem.dim
        or not 0 < len(contexts) <= _MOST_PUBLIC
    ):
        raise InvalidValueError(
            f"public contexts have shape {contexts.shape}; give 1 to {_MOST_PUBLIC} rows of "
            f"{problem.dim} features: a sample of those that there are"
        )
    if not np.linalg.norm(contexts, axis=1).max() <= problem.norm * (1 + _ROUNDING):
        raise InvalidValueError(
            f"a public context is longer than norm, {problem.norm:g}; shorten it"
        )
    if not problem.constant:
        return contexts
    if not np.allclose(contexts[:, -1], problem.constant):
        raise InvalidValueError(
            f"the last feature of a public context is not the constant, {problem.constant:g}"
        )
    return contexts[:, :-1]


def simulate_contexts(
    query: DisjointMoments, sums: DisjointSums, count: Array, noise: Array
) -> Array:
    """Simulate contexts, one per row: normal, with the released moments.

    Args:
        query: that was answered.
        sums: over all users so far.
        count: how many these are.
        noise: deviation of the noise on each coordinate of the total.
    """
    mean, root = _moments(query, sums, count, noise)
    return mean + _build_normals(query.varying) @ root.T


def _moments(
    query: DisjointMoments, sums: DisjointSums, count: Array, noise: Array
) -> tuple[Array, Array]:
    """Estimate the mean and the covariance root of contexts, shrunk by known noise."""
    dim, bound = query.varying, query.norm**2 / query.varying
    total = sums.features.sum(0)[:dim]
    error = (noise / query.weight) ** 2 * dim * query.arms
    mean = total / count * _find_signal_share(error, (total**2).sum())
    covariance = sums.squares / count - mean[:, None] * mean[None, :]
    level = jnp.clip(jnp.trace(covariance) / dim, _LEAST * bound, bound)
    apart = covariance - level * jnp.eye(dim)
    error = (noise / query.balance / count) ** 2 * dim * (dim + 1) / 2
    values, axes = jnp.linalg.eigh(
        level * jnp.eye(dim) + _find_signal_share(error, (apart**2).sum()) * apart
    )
    return mean, axes * jnp.sqrt(jnp.maximum(values, _FLOOR * level))


def predict_gram(
    query: DisjointMoments, beliefs: DisjointPosterior, first: Array, seen: Array
) -> Array:
    """Compute by arm the expected u uᵀ of one user who plays by these beliefs.

    If `first`, the user plays at random.
    """
    users = query.levered(seen)
    plays = jnp.where(first, 1 / query.arms, _count_plays(beliefs, users))
    grams: Array = jax.lax.map(lambda shares: (users * shares[:, None]).T @ users, plays)
    return grams / len(seen)


def correct_gram(
    query: DisjointMoments,
    gram: Array,
    feature_sums: Array,
    variance: Array,
    drift: Array | float,
) -> tuple[Array, Array]:
    """Correct simulated matrices by the arms' released sums of features.

    Args:
        query: with a lever.
        gram: by arm, the simulated sum of u uᵀ.
        feature_sums: by arm, the released sum of u.
        variance: of the noise on each coordinate of it.
        drift: how far off a simulated mean of features may be, in deviations of these.

    Returns:
        The matrices, and the variance of what is left unknown of the sums.
    """
    count = jnp.maximum(gram[:, -1, -1] / query.lever**2, 0.1)[:, None]
    guessed = gram[:, :, -1] / query.lever
    doubt = (drift**2 * count + 1) * jnp.diagonal(gram, axis1=-2, axis2=-1) + 1e-9
    unknown = 1 / (1 / doubt + 1 / (variance + 1e-9))
    sums = unknown * (guessed / doubt + feature_sums / (variance + 1e-9))
    right = jnp.maximum(sums[:, -1:] / query.lever, 0.1)
    mean = sums[:, : query.varying] / right
    length = jnp.sqrt((mean**2).sum(-1, keepdims=True))
    mean = query.levered(mean * jnp.minimum(1.0, query.norm / jnp.maximum(length, 1e-9)))
    within = (gram - _outer(guessed) / count[:, :, None]) / count[:, :, None]
    return (within + _outer(mean)) * right[:, :, None], unknown


def _find_signal_share(error: Array, square: Array) -> Array:
    """Return the share of a squared length that its known error does not explain."""
    return jnp.maximum(0.0, 1 - error / jnp.maximum(square, 1e-12))


def _outer(rows: Array) -> Array:
    return rows[:, :, None] * rows[:, None, :]


def _build_normals(dim: int) -> Array:
    """Build normal vectors, one per row, with mean exactly 0 and covariance exactly I."""
    half = _stream(0).normal(_USERS // 2 * dim).reshape(-1, dim).astype(jnp.float64)
    rows = jnp.concatenate([half, -half])
    white: Array = rows @ inverse(lower_root(rows.T @ rows / _USERS, rolled=True), rolled=True).T
    return white


def _count_plays(beliefs: DisjointPosterior, users: Array) -> Array:
    """Count how often each user plays each arm, one row per arm."""
    arms, count = beliefs.estimate.shape[0], len(users)
    scores = beliefs.estimate @ users.T
    widths = jax.lax.map(lambda root: jnp.sqrt(((users @ root) ** 2).sum(-1)), beliefs.sample)

    def add_draw(number: Array, plays: Array) -> Array:
        normals = _stream(number + 1).normal(arms * count).reshape(arms, count)
        best = jnp.argmax(scores + widths * normals, axis=0)
        return plays + (jnp.arange(arms)[:, None] == best)

    plays: Array = jax.lax.fori_loop(0, _DRAWS, add_draw, jnp.zeros(scores.shape))
    return plays / _DRAWS


def _stream(part: int | Array) -> Stream:
    return Stream.of(seed=20261116, replicate=0).split(part)
