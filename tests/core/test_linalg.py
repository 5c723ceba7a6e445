"""Small dense algebra against NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.linalg import (
    floor_eigenvalues,
    inverse,
    invert_floored,
    log_det,
    lower_root,
    orthonormalize,
    pivots,
    smat,
    solve_quadratic,
    svec,
    svec_size,
)

DIMENSIONS = range(1, 13)
FAST: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}  # to compile, not to run


def symmetric(dim: int, count: int = 8, seed: int = 0) -> NDArray[np.float64]:
    raw = np.random.default_rng(seed + dim).normal(size=(count, dim, dim))
    return raw + raw.transpose(0, 2, 1)


def test_svec_is_an_isometry_and_smat_undoes_it() -> None:
    given = [jnp.asarray(symmetric(dim)) for dim in DIMENSIONS]

    @jax.jit
    def both(given: list[Array]) -> list[tuple[Array, Array]]:
        flat = [jax.vmap(svec)(matrices) for matrices in given]
        back = [
            jax.vmap(partial(smat, dim=dim))(f) for dim, f in zip(DIMENSIONS, flat, strict=True)
        ]
        return list(zip(flat, back, strict=True))

    compiled = both.lower(given).compile(compiler_options=FAST)
    for dim, matrices, (flat, back) in zip(DIMENSIONS, given, compiled(given), strict=True):
        assert flat.shape == (8, svec_size(dim))
        inner = np.einsum("aij,bij->ab", matrices, matrices)
        np.testing.assert_allclose(np.asarray(flat) @ np.asarray(flat).T, inner, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(back), np.asarray(matrices), rtol=1e-15)


def test_svec_keeps_the_type() -> None:
    assert svec(jnp.ones((2, 2), jnp.float32)).dtype == jnp.float32
    assert smat(jnp.ones(3, jnp.float32), 2).dtype == jnp.float32
    assert inverse(jnp.eye(2, dtype=jnp.float32)).dtype == jnp.float32


def test_isotropic_noise_becomes_the_symmetrized_matrix() -> None:
    unit = np.stack([np.asarray(smat(row, 3)) for row in jnp.eye(svec_size(3))])
    variance = (unit**2).sum(0)
    np.testing.assert_allclose(variance, 0.5 + 0.5 * np.eye(3), rtol=1e-15)


def test_inverse_equals_numpys() -> None:
    given = []
    for dim in DIMENSIONS:
        roots = np.random.default_rng(dim).normal(size=(16, dim, dim))
        given.append(roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(dim))
    together = jax.jit(lambda many: [jax.vmap(inverse)(matrices) for matrices in many])
    compiled = together.lower(given).compile(compiler_options=FAST)
    found = compiled(given)
    for dim, matrices, ours in zip(DIMENSIONS, given, found, strict=True):
        theirs = np.linalg.inv(matrices)
        scale = np.linalg.cond(matrices)[:, None, None] * np.abs(theirs).max((1, 2), keepdims=True)
        assert (np.abs(np.asarray(ours) - theirs) <= 1e-14 * dim * scale).all()


@pytest.mark.parametrize("dim", [64, 128])
def test_inverse_of_many_dimensions(dim: int) -> None:
    roots = np.random.default_rng(dim).normal(size=(2, dim, 2 * dim))
    matrices = roots @ roots.transpose(0, 2, 1)
    found = np.asarray(jax.vmap(inverse)(jnp.asarray(matrices)))
    np.testing.assert_allclose(found @ matrices, np.stack([np.eye(dim)] * 2), atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 5, 10, 11])
def test_a_solution_and_its_square_in_the_inverse(dim: int) -> None:
    rng = np.random.default_rng(dim)
    half, right = rng.normal(size=(dim, dim)), rng.normal(size=dim)
    matrix = half @ half.T + np.eye(dim)
    x, square = jax.jit(solve_quadratic)(jnp.asarray(matrix), jnp.asarray(right))
    expected = np.linalg.solve(matrix, right)
    np.testing.assert_allclose(x, expected, rtol=1e-10)
    np.testing.assert_allclose(square, expected @ np.linalg.solve(matrix, expected), rtol=1e-10)


def test_inverse_of_widely_spread_eigenvalues() -> None:
    matrix = np.diag(np.logspace(-6, 6, 5))
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))
    ours = np.asarray(inverse(jnp.asarray(turn @ matrix @ turn.T)))
    np.testing.assert_allclose(ours @ turn @ matrix @ turn.T, np.eye(5), atol=1e-3)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_floored_raises_small_eigenvalues_and_keeps_the_rest(dim: int) -> None:
    matrices = symmetric(dim)
    raised = np.asarray(
        jax.vmap(lambda m: floor_eigenvalues(m, jnp.float64(0.5)))(jnp.asarray(matrices))
    )
    for before, after in zip(matrices, raised, strict=True):
        expected = np.maximum(np.linalg.eigvalsh(before), 0.5)
        np.testing.assert_allclose(np.linalg.eigvalsh(after), expected, atol=1e-12)
        np.testing.assert_allclose(after, after.T, atol=1e-12)
        commutator = before @ after - after @ before
        np.testing.assert_allclose(commutator, 0, atol=1e-11)


def test_floored_leaves_a_matrix_above_the_floor_alone() -> None:
    matrix = jnp.diag(jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(
        np.asarray(floor_eigenvalues(matrix, jnp.float64(1.0))), np.asarray(matrix)
    )


@pytest.mark.parametrize("dim", [2, 64])
def test_the_inverse_of_a_floored_matrix(dim: int) -> None:
    (matrix,), floor = symmetric(dim, count=1), jnp.float64(0.5)
    product = invert_floored(jnp.asarray(matrix), floor) @ floor_eigenvalues(
        jnp.asarray(matrix), floor
    )
    np.testing.assert_allclose(np.asarray(product), np.eye(dim), atol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 5, 16])
def test_pivots_tell_definite_matrices_and_their_determinant(dim: int) -> None:
    told = jax.jit(pivots)
    for matrix in symmetric(dim, count=12):
        definite = bool((np.linalg.eigvalsh(matrix) > 0).all())
        assert bool((np.asarray(told(matrix)) > 0).all()) == definite
        raised = matrix @ matrix + np.eye(dim)
        determinant = float(np.prod(told(raised)))
        assert determinant == pytest.approx(float(np.linalg.det(raised)), rel=1e-9)


@pytest.mark.parametrize("dim", [3, 16, 512])
def test_volumes_of_many_dimensions_do_not_overflow(dim: int) -> None:
    assert float(log_det(1e9 * jnp.eye(dim))) == pytest.approx(dim * np.log(1e9), rel=1e-12)
    assert float(log_det(jnp.eye(dim).at[1, 1].set(-1.0))) == -np.inf


@pytest.mark.parametrize("dim", [1, 2, 7, 23])
def test_the_lower_root_is_cholesky_s(dim: int) -> None:
    half = symmetric(dim)
    matrices = half @ half + 0.1 * np.eye(dim)
    for rolled in (False, True):
        found = jax.jit(jax.vmap(partial(lower_root, rolled=rolled)))(jnp.asarray(matrices))
        np.testing.assert_allclose(found, np.linalg.cholesky(matrices), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dim", "count"), [(1, 1), (5, 2), (8, 8), (14, 12), (32, 32), (40, 33)])
def test_orthonormal_columns_have_the_span_of_the_given(dim: int, count: int) -> None:
    """Even of columns that are nearly the same."""
    given = np.random.default_rng(dim).normal(size=(dim, count))
    for one in (given, given[:, :1] + 1e-6 * given):
        found = np.asarray(jax.jit(orthonormalize)(jnp.asarray(one)))
        np.testing.assert_allclose(found.T @ found, np.eye(count), atol=1e-12)
        np.testing.assert_allclose(found @ (found.T @ one), one, atol=1e-12)


def test_a_column_of_the_span_of_others_becomes_zeros() -> None:
    found = orthonormalize(jnp.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
    assert found.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def test_orthonormal_zeroes_redundant_columns_among_many() -> None:
    given = np.eye(14)[:, :12]
    given[:, [3, 11]] = 0
    np.testing.assert_allclose(orthonormalize(jnp.asarray(2 * given)), given, atol=1e-15)


def test_only_matrices_with_a_small_eigenvalue_are_raised() -> None:
    """Alone, mapped, mapped twice and with one floor for all: what eigenvalues themselves say."""
    rng = np.random.default_rng(3)
    roots = rng.normal(size=(24, 4, 4))
    shifts = np.linspace(0, 4, 24)[:, None, None] * np.eye(4)
    matrices = jnp.asarray(roots + roots.transpose(0, 2, 1) + shifts)
    floors = jnp.asarray(rng.uniform(0.1, 1.0, 24))
    values, vectors = np.linalg.eigh(matrices)

    def raised(least: Any) -> Any:
        above = np.maximum(values, np.asarray(least)[..., None])
        return np.einsum("nij,nj,nkj->nik", vectors, above, vectors)

    sound = values[:, 0] > np.asarray(floors)
    assert 0 < sound.sum() < 24
    mapped = jax.jit(jax.vmap(floor_eigenvalues))(matrices, floors)
    np.testing.assert_allclose(mapped, raised(floors), atol=1e-12)
    np.testing.assert_array_equal(mapped[sound], matrices[sound])
    alone = jnp.stack(
        [floor_eigenvalues(one, floor) for one, floor in zip(matrices, floors, strict=True)]
    )
    np.testing.assert_allclose(alone, raised(floors), atol=1e-12)
    np.testing.assert_array_equal(alone[sound], matrices[sound])
    shared = jax.vmap(floor_eigenvalues, in_axes=(0, None))(matrices, floors[0])
    np.testing.assert_allclose(shared, raised(floors[:1]), atol=1e-12)
    twice = jax.vmap(jax.vmap(floor_eigenvalues))(
        matrices.reshape(4, 6, 4, 4), floors.reshape(4, 6)
    )
    np.testing.assert_allclose(twice.reshape(24, 4, 4), raised(floors), atol=1e-12)
    assert jnp.isnan(
        jax.vmap(floor_eigenvalues)(matrices.at[0, 0, 0].set(jnp.nan), floors)[0]
    ).all()

    assert jax.vmap(floor_eigenvalues)(matrices[:0], floors[:0]).shape == (0, 4, 4)
    single = floor_eigenvalues(jnp.eye(2, dtype=jnp.float32), jnp.float64(0.5))
    assert single.dtype == jnp.float64
    np.testing.assert_array_equal(
        floor_eigenvalues(jnp.eye(2, dtype=int), jnp.float64(2.0)), 2 * np.eye(2)
    )
