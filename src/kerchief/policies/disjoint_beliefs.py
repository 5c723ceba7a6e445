"""Posterior of every arm's parameter, by normal regressions with known noise.

How much contexts matter is not known. Each of several answers, from not at all to very much, has a
belief of its own, and these are averaged by their evidence.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.disjoint_moments import DisjointMoments
from kerchief.core.linalg import inverse, lower_root

VARIANCES = np.concatenate([[1e-6], np.logspace(-3.5, -0.5, 7)])
"""Of a context's weight, in squared ranges of rewards per norm: the first is no context at all."""
_LOG_PRIOR = np.log(np.maximum(VARIANCES / VARIANCES[1], 1.0)) / 2
"""How likely each of them is before any data, as a logarithm: as its deviation (seed 1000)."""
# Learned from once per cohort: nearly all of it is compilation.
_inverse = partial(inverse, rolled=True)


def measure_information(
    gram: Array, moments: Array, residual: Array, variance: Array
) -> tuple[Array, Array]:
    """Compute what moments = gram θ + noise tell of θ.

    The noise has covariance residual gram + diag variance.

    Returns:
        By arm the precision matrix of θ, and its product with the estimate.
    """
    floor = variance + 1e-9 + 1e-9 * residual * jnp.trace(gram, axis1=-2, axis2=-1)[:, None]
    noise = residual * gram + floor[:, :, None] * jnp.eye(gram.shape[-1])
    weighted = jax.vmap(_inverse)(noise) @ gram
    precision = jnp.einsum("kij,kjl->kil", gram, weighted)
    return (precision + jnp.swapaxes(precision, -1, -2)) / 2, jnp.einsum(
        "kji,kj->ki", weighted, moments
    )


def center_features(query: DisjointMoments, mean: Array) -> Array:
    """Build the matrix that takes u to u with features measured from this mean.

    What is believed beforehand of arms' levels is meant for a user in the middle of the others.
    """
    move = jnp.eye(query.dim)
    return move.at[:-1, -1].set(-mean / query.lever) if query.lever else move


def estimate_parameters(
    query: DisjointMoments,
    told: Array,
    evidence: Array,
    coming: Array,
    spread: Array | float,
    most: Array | float,
) -> tuple[Array, Array]:
    """Estimate every arm's parameter, and what is still to be learned of it.

    Both are averaged over how much contexts matter.

    Args:
        query: whose units these are.
        told: by arm, a precision matrix.
        evidence: by arm, its product with an estimate.
        coming: by arm, the precision that users to come will add, if arms share them equally.
        spread: deviation of arms' mean rewards around each other, in ranges of rewards.
        most: the greatest deviation of a context's weight.

    Returns:
        By arm the mean, and the covariance that this mean will have moved with after those users.
    """
    scale = ((query.high - query.low) / query.norm) ** 2
    variances = jnp.minimum(VARIANCES * scale, most**2)
    logs, means, covariances = jax.vmap(
        lambda variance: _posterior(query, told, evidence, coming, variance, spread)
    )(variances)
    # Bounds of a thousand and more leave matrices that no float64 inverts: those count for nothing.
    sound = jnp.isfinite(logs) & jnp.isfinite(means).all((1, 2))
    sound &= jnp.isfinite(covariances).all((1, 2, 3))
    means = jnp.where(sound[:, None, None], means, 0.0)
    covariances = jnp.where(sound[:, None, None, None], covariances, 0.0)
    weights = jax.nn.softmax(jnp.where(sound, logs + _LOG_PRIOR, -1e300))
    mean = jnp.tensordot(weights, means, 1)
    apart = means - mean
    mixed = jnp.einsum("g,gki,gkj->kij", weights, apart, apart)
    return mean, jnp.tensordot(weights, covariances, 1) + mixed


def _posterior(
    query: DisjointMoments,
    data_precision: Array,
    evidence: Array,
    coming: Array,
    variance: Array,
    deviation: Array | float,
) -> tuple[Array, Array, Array]:
    """Compute the posterior for one variance of contexts' weights.

    Return the log evidence, the means and the covariance of their future moves.
    """
    prior = jnp.full(query.dim, variance)
    if query.lever:
        prior = prior.at[-1].set((deviation * (query.high - query.low) / query.lever) ** 2)
    precision = data_precision + jnp.diag(1 / prior)
    covariance = jax.vmap(_inverse)(precision)
    volume = jnp.log(
        jnp.diagonal(jax.vmap(partial(lower_root, rolled=True))(precision), axis1=-2, axis2=-1)
    ).sum()
    volume += query.arms * jnp.log(prior).sum() / 2
    level, gained = jnp.float64(0), jnp.float64(0)
    if query.lever:
        level, gained = _fit_common_level(query, data_precision, evidence, covariance)
        evidence = evidence - data_precision[:, :, -1] * level
    apart = jnp.einsum("kij,kj->ki", covariance, evidence)
    log = gained + (evidence * apart).sum() / 2 - volume
    remaining = jax.vmap(_inverse)(precision + coming)
    return log, apart.at[:, -1].add(level), covariance - remaining


def _fit_common_level(
    query: DisjointMoments, data_precision: Array, evidence: Array, covariance: Array
) -> tuple[Array, Array]:
    """Fit the level around which arms' levels lie; return it and its log evidence."""
    wide = (query.high - query.low) / 2 / query.lever
    explained = jnp.einsum("ki,kij->kj", data_precision[:, -1], covariance)
    score = (evidence[:, -1] - (explained * evidence).sum(-1)).sum()
    curve = (data_precision[:, -1, -1] - (explained * data_precision[:, -1]).sum(-1)).sum()
    precision = curve + 1 / wide**2
    level = score / precision
    shift = evidence[:, -1].sum() * level - data_precision[:, -1, -1].sum() * level**2 / 2
    return level, shift - (level / wide) ** 2 / 2 - jnp.log(precision) / 2
