"""Dense algebra: unrolled where matrices are small, so that XLA fuses it into the loop.

Up to ten dimensions that is the fastest, for one matrix and for many at once; from twelve on it is
slower, and compiling it takes ever longer. From there up to 64 a loop is near LAPACK's speed (at 64
it takes nearly twice as long), and does without its calls: several of them at once were seen to
hang. Larger matrices, and eigenvalues of all, need them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

_MOST_UNROLLED = 10
"""The largest matrices whose elimination is unrolled."""

_MOST_SWEPT = 64
"""The largest matrices that are inverted by sweeps; larger ones by their Cholesky factor."""


_MOST_PROJECTED = 32
"""The most columns that a loop sets at right angles; of more, the orthogonal factor is faster."""


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
    """
    rows, columns, weights, _ = _layout(matrix.shape[-1])
    return matrix[rows, columns] * weights.astype(matrix.dtype)


def smat(vector: Array, dim: int) -> Array:
    """Rebuild the symmetric matrix: the inverse of `svec`."""
    _, _, weights, position = _layout(dim)
    return (vector / weights.astype(vector.dtype))[position]


def inverse(matrix: Array, *, rolled: bool = False) -> Array:
    """Invert a positive definite matrix; pass any other through `floor_eigenvalues` first.

    By Gauss-Jordan sweeps without exchanges, or, if it is large, by its Cholesky factor. Where it
    is done rarely, sweeps that are `rolled` into a loop compile in half the time.
    """
    dim = matrix.shape[-1]
    if dim > _MOST_SWEPT:
        return _by_factor(matrix)
    unit = jnp.eye(dim, dtype=matrix.dtype)
    if rolled or dim > _MOST_UNROLLED:
        swept: Array = jax.lax.fori_loop(
            0, dim, lambda k, current: _sweep(current, unit[k], k), matrix
        )
        return swept
    for k in range(dim):
        matrix = _sweep(matrix, unit[k], k)
    return matrix


def _sweep(matrix: Array, unit: Array, k: int | Array) -> Array:
    """Exchange one row with its unknown."""
    column = matrix[:, k]
    base = jnp.where(unit == 1, unit[:, None], matrix)
    return base - (column - unit)[:, None] * (base[k] / column[k])[None, :]


def solve_quadratic(matrix: Array, right: Array) -> tuple[Array, Array]:
    """M⁻¹ b of a positive definite matrix M, and xᵀ M⁻¹ x for that x.

    Where the matrix is small by its Cholesky factor, number by number: fewer steps than an inverse.

    >>> x, square = solve_quadratic(jnp.array([[4.0, 2.0], [2.0, 10.0]]), jnp.array([9.0, 9.0]))
    >>> x.round(4).tolist(), round(float(square), 4)
    ([2.0, 0.5], 1.0278)
    """
    dim = matrix.shape[-1]
    if dim > _MOST_UNROLLED:
        inverted = inverse(matrix)
        x = inverted @ right
        return x, x @ inverted @ x
    # Each row holds what is left of its pivot, and the inverse of the pivot.
    rows: list[tuple[list[Array], Array]] = []
    for i in range(dim):
        row = _forward(rows, matrix[i])
        rows.append((row, jax.lax.rsqrt(matrix[i, i] - sum(entry * entry for entry in row))))
    x = jnp.stack(_backward(rows, _forward(rows, right)))
    return x, jnp.square(jnp.stack(_forward(rows, x))).sum()


def _forward(rows: list[tuple[list[Array], Array]], right: Array) -> list[Array]:
    """The numbers that a lower triangle takes to the first ones of the right side."""
    solution: list[Array] = []
    for i, (row, inverted) in enumerate(rows):
        solution.append(
            (right[i] - sum(a * b for a, b in zip(row, solution, strict=True))) * inverted
        )
    return solution


def _backward(rows: list[tuple[list[Array], Array]], right: list[Array]) -> list[Array]:
    """The numbers that the triangle, transposed, takes to the right side."""
    solution = list(right)
    for i in reversed(range(len(rows))):
        row, inverted = rows[i]
        solution[i] = solution[i] * inverted
        for j, entry in enumerate(row):
            solution[j] = solution[j] - entry * solution[i]
    return solution


def _by_factor(matrix: Array) -> Array:
    unit = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    half = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(matrix), unit, lower=True)
    return half.T @ half


def lower_root(matrix: Array, *, rolled: bool = False) -> Array:
    """The lower triangular root of a positive definite matrix (Cholesky's).

    Where it is done rarely, columns that are `rolled` into a loop compile faster.

    >>> lower_root(jnp.array([[4.0, 2.0], [2.0, 10.0]])).tolist()
    [[2.0, 0.0], [1.0, 3.0]]
    """
    dim = matrix.shape[-1]
    rows = jnp.arange(dim)

    def column(k: Array | int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        root, rest = state
        # Where rounding has left nothing of a pivot, the matrix has no rank there.
        pivot = rest[k, k]
        scaled = rest[:, k] / jnp.sqrt(jnp.where(pivot > 0, pivot, 1.0))
        entries = jnp.where((rows >= k) & (pivot > 0), scaled, 0)
        return root + entries[:, None] * (rows == k), rest - entries[:, None] * entries[None, :]

    state = jnp.zeros_like(matrix), matrix
    if rolled or dim > _MOST_UNROLLED:
        state = jax.lax.fori_loop(0, dim, column, state)
    else:
        for k in range(dim):
            state = column(k, state)
    return state[0]


def orthonormalize(columns: Array) -> Array:
    """Columns at right angles, of length 1, with the same span; a column of it adds zeros.

    There are no more of them than they are long.

    By Gram and Schmidt, each column twice, which leaves nothing that floats could tell; or, of many
    columns, the orthogonal factor.

    >>> orthonormalize(jnp.array([[0.0, 5.0], [2.0, 1.0]])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    dim, count = columns.shape
    if count > _MOST_PROJECTED:
        return jnp.linalg.qr(columns)[0]
    if count <= _MOST_UNROLLED:
        basis: list[Array] = []
        for column in columns.T:
            for unit in 2 * basis:
                column = column - (unit * column).sum() * unit
            basis.append(_unit(column))
        return jnp.stack(basis, axis=1)
    rows = jnp.zeros((0, dim), columns.dtype)
    # A loop for each so many: it has no room for those to come, which would cost as much as others.
    for first in range(0, count, _MOST_UNROLLED):
        last = min(count, first + _MOST_UNROLLED)
        room = jnp.zeros((last - first, dim), columns.dtype)
        rows = jax.lax.fori_loop(
            first, last, partial(_project, columns), jnp.concatenate([rows, room])
        )
    return rows.T


def _project(columns: Array, i: Array | int, rows: Array) -> Array:
    """Put what a column adds to the rows before it into its row; rows to come are zeros."""
    column = columns[:, i]
    for _ in range(2):
        column = column - (rows @ column) @ rows
    return rows.at[i].set(_unit(column))


def _unit(vector: Array) -> Array:
    """The vector at length 1, or zeros."""
    length = jnp.linalg.norm(vector)
    return jnp.where(length > 0, vector / jnp.where(length > 0, length, 1), 0)


def invert_floored(matrix: Array, floor: Array) -> Array:
    """Invert `floor_eigenvalues(matrix, floor)`, in one decomposition where that is cheaper."""
    if matrix.shape[-1] <= _MOST_UNROLLED:
        return inverse(floor_eigenvalues(matrix, floor))
    values, vectors = jnp.linalg.eigh(matrix)
    inverted: Array = (vectors / jnp.maximum(values, floor)) @ vectors.T
    return inverted


def floor_eigenvalues(matrix: Array, floor: Array) -> Array:
    """Raise every eigenvalue of a symmetric matrix to at least `floor` (post-processing).

    It must be symmetric to the bit: one with no smaller eigenvalue may come back as it is.

    >>> floor_eigenvalues(jnp.array([[2.0, 1.0], [1.0, 2.0]]), jnp.array(0.5)).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    if jax.default_backend() != "cpu" or matrix.shape[-1] > _MOST_UNROLLED:
        return _raise_eigenvalues(matrix, floor)
    kind = jnp.result_type(matrix, floor, float)
    raised: Array = _raised_where_needed(matrix.astype(kind), jnp.asarray(floor, kind))
    return raised


def _raise_eigenvalues(matrix: Array, floor: Array) -> Array:
    values, vectors = jnp.linalg.eigh(matrix)
    raised: Array = (vectors * jnp.maximum(values, floor)) @ vectors.T
    return raised


def _is_above(matrix: Array, floor: Array) -> Array:
    """Whether no eigenvalue is below the floor: a few steps, where finding them takes a call."""
    return (pivots(matrix - floor * jnp.eye(matrix.shape[-1])) > 0).all()


@jax.custom_batching.custom_vmap
def _raised_where_needed(matrix: Array, floor: Array) -> Array:
    raised: Array = jax.lax.cond(
        _is_above(matrix, floor), lambda: matrix, lambda: _raise_eigenvalues(matrix, floor)
    )
    return raised


@_raised_where_needed.def_vmap
def _raise_some(
    rows: int, mapped: Sequence[bool], matrix: Array, floor: Array
) -> tuple[Array, bool]:
    """One after the other, and only those that need it: mapped, a branch would be taken by all."""
    matrices, floors = (
        array if own else jnp.broadcast_to(array, (rows, *jnp.shape(array)))
        for array, own in zip((matrix, floor), mapped, strict=True)
    )

    def raise_next(state: tuple[Array, Array]) -> tuple[Array, Array]:
        is_above, current = state
        i = jnp.argmin(is_above)
        return is_above.at[i].set(True), current.at[i].set(
            _raise_eigenvalues(current[i], floors[i])
        )

    if rows == 0:
        return matrices, True
    start = jax.vmap(_is_above)(matrices, floors), matrices
    _, raised = jax.lax.while_loop(lambda state: ~state[0].all(), raise_next, start)
    return raised, True


def pivots(matrix: Array) -> Array:
    """The pivots of a symmetric matrix, by elimination without exchanges.

    All are positive exactly for a positive definite matrix; their product is its determinant. Of
    other matrices that are not small, none is a number.
    """
    if matrix.shape[-1] > _MOST_UNROLLED:
        return jnp.square(jnp.diagonal(jnp.linalg.cholesky(matrix)))
    diagonal = []
    for _ in range(matrix.shape[-1]):
        diagonal.append(matrix[0, 0])
        column = matrix[1:, 0]
        matrix = matrix[1:, 1:] - column[:, None] * (column / matrix[0, 0])[None, :]
    return jnp.stack(diagonal)


def log_det(matrix: Array) -> Array:
    """Of a positive definite matrix; of any other, less than of all such."""
    diagonal = pivots(matrix)
    return jnp.where((diagonal > 0).all(), jnp.log(diagonal).sum(), -jnp.inf)
