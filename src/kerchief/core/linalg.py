"""Dense algebra: unrolled where matrices are small, so that XLA fuses it into the loop.

Up to ten dimensions that is faster than calls of LAPACK, for one matrix and for many at once; from
twelve on it is slower, and compiling it takes ever longer.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

__all__ = ["floored", "inverse", "log_det", "pivots", "smat", "svec", "svec_size"]

_MOST_UNROLLED = 10
"""The largest matrices whose elimination is unrolled (`benchmarks/dimensions.py`)."""


def svec_size(dim: int) -> int:
    """Length of the flat form of a symmetric matrix."""
    return dim * (dim + 1) // 2


@functools.cache
def _layout(
    dim: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64], NDArray[np.intp]]:
    """Rows, columns and weights of the flat form, and where each entry of the matrix lies in it."""
    rows, columns = np.triu_indices(dim)
    weights = np.where(rows == columns, 1.0, math.sqrt(2.0))
    position = np.empty((dim, dim), np.intp)
    position[rows, columns] = position[columns, rows] = np.arange(len(rows))
    return rows, columns, weights, position


def svec(matrix: Array) -> Array:
    """Flatten a symmetric matrix isometrically: off-diagonals times the square root of two.

    So isotropic noise on it is exactly what a Frobenius sensitivity pays for.

    >>> svec(jnp.array([[1.0, 0.0], [0.0, 2.0]])).tolist()
    [1.0, 0.0, 2.0]
    """
    rows, columns, weights, _ = _layout(matrix.shape[-1])
    return matrix[rows, columns] * weights.astype(matrix.dtype)


def smat(vector: Array, dim: int) -> Array:
    """Rebuild the symmetric matrix: the inverse of `svec`."""
    _, _, weights, position = _layout(dim)
    return (vector / weights.astype(vector.dtype))[position]


def inverse(matrix: Array) -> Array:
    """Invert a positive definite matrix; pass any other through `floored` first.

    Small ones by unrolled Gauss-Jordan sweeps without exchanges, others by their Cholesky factor.

    >>> inverse(jnp.diag(jnp.array([2.0, 4.0]))).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    if matrix.shape[-1] > _MOST_UNROLLED:
        root, unit = jnp.linalg.cholesky(matrix), jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
        half = jax.scipy.linalg.solve_triangular(root, unit, lower=True)
        return half.T @ half
    unit = np.eye(matrix.shape[-1], dtype=matrix.dtype)
    for k in range(matrix.shape[-1]):
        column = matrix[:, k]
        started = jnp.where(unit[k] == 1, unit[k][:, None], matrix)
        matrix = started - (column - unit[k])[:, None] * (started[k] / column[k])[None, :]
    return matrix


def floored(matrix: Array, floor: Array) -> Array:
    """Raise every eigenvalue of a symmetric matrix to at least `floor` (post-processing)."""
    values, vectors = jnp.linalg.eigh(matrix)
    raised: Array = (vectors * jnp.maximum(values, floor)) @ vectors.T
    return raised


def pivots(matrix: Array) -> Array:
    """The pivots of a symmetric matrix, by elimination without exchanges.

    All are positive exactly for a positive definite matrix; their product is its determinant. Of
    other matrices that are not small, none is a number.

    >>> pivots(jnp.array([[2.0, 1.0], [1.0, 2.0]])).tolist()
    [2.0, 1.5]
    """
    if matrix.shape[-1] > _MOST_UNROLLED:
        return jnp.diagonal(jnp.linalg.cholesky(matrix)) ** 2
    found = []
    for _ in range(matrix.shape[-1]):
        found.append(matrix[0, 0])
        column = matrix[1:, 0]
        matrix = matrix[1:, 1:] - column[:, None] * (column / matrix[0, 0])[None, :]
    return jnp.stack(found)


def log_det(matrix: Array) -> Array:
    """Of a positive definite matrix; of any other, less than of all such.

    >>> log_det(jnp.diag(jnp.array([1.0, 1.0]))).item(), log_det(jnp.array([[-1.0]])).item()
    (0.0, -inf)
    """
    found = pivots(matrix)
    return jnp.where((found > 0).all(), jnp.log(found).sum(), -jnp.inf)
