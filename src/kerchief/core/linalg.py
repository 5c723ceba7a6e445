"""Small dense algebra, written unrolled so that XLA fuses it into the loop.

One LAPACK call per round is slow inside a compiled loop; for the sizes of a bandit (up to about
32) a few unrolled vector operations are several times faster.
"""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

__all__ = ["floored", "inverse", "pivots", "smat", "svec", "svec_size"]


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

    The Euclidean norm of the result is the Frobenius norm of the matrix, so isotropic noise on it
    is exactly what a Frobenius sensitivity pays for.

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
    """Invert a positive definite matrix by unrolled Gauss-Jordan sweeps.

    No pivoting is needed for a positive definite matrix. For any other the result is meaningless:
    pass it through `floored` first.

    >>> inverse(jnp.diag(jnp.array([2.0, 4.0]))).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
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
    """The pivots of a symmetric matrix, by unrolled elimination without exchanges.

    All are positive exactly for a positive definite matrix, and then their product is its
    determinant. After one that is not positive the rest means nothing.

    >>> pivots(jnp.array([[2.0, 1.0], [1.0, 2.0]])).tolist()
    [2.0, 1.5]
    """
    found = []
    for _ in range(matrix.shape[-1]):
        found.append(matrix[0, 0])
        column = matrix[1:, 0]
        matrix = matrix[1:, 1:] - column[:, None] * (column / matrix[0, 0])[None, :]
    return jnp.stack(found)
