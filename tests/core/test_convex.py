"""Convex sets: projections, directions and barriers against definitions and brute force."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.convex import Ball, Box, Domain, Simplex
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import POLICY, Stream

Floats = NDArray[np.float64]

SETS: list[Domain] = [
    Ball(dim=3, radius=2.0),
    Box(dim=3, half=0.5),
    Simplex(dim=2),
    Simplex(dim=4),
]
each_set = pytest.mark.parametrize("domain", SETS, ids=str)


def _each(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function on every row, compiled as one."""
    return jax.jit(jax.vmap(function))


def _inside(domain: Domain, points: Floats, share: float = 1.0, slack: float = 1e-12) -> bool:
    """Whether all points lie in the set scaled around its center, by its definition."""
    match domain:
        case Ball():
            held = np.linalg.norm(points, axis=-1) <= share * domain.radius + slack
        case Box():
            held = np.abs(points).max(-1) <= share * domain.half + slack
        case _:
            held = points.min(-1) >= (1 - share) / domain.dim - slack
            held &= np.abs(points.sum(-1) - 1) <= slack
    return bool(held.all())


def _points(domain: Domain, count: int, seed: int) -> Floats:
    """Points of the set, some of them on its boundary."""
    rng = np.random.default_rng(seed)
    match domain:
        case Ball():
            normal = rng.normal(size=(count, domain.dim))
            unit = normal / np.linalg.norm(normal, axis=1, keepdims=True)
            points = domain.radius * unit * np.minimum(rng.uniform(0, 1.5, (count, 1)), 1)
        case Box():
            points = domain.half * np.clip(rng.uniform(-1.5, 1.5, (count, domain.dim)), -1, 1)
        case _:
            weight = np.maximum(rng.exponential(size=(count, domain.dim)) - 0.3, 1e-9)
            points = weight / weight.sum(1, keepdims=True)
    return np.asarray(points, np.float64)


def _directions(domain: Domain, count: int) -> Floats:
    streams = _each(
        lambda round: domain.direction(Stream.of(seed=3, replicate=0).at(POLICY, round=round))
    )
    return np.asarray(streams(jnp.arange(count, dtype=jnp.uint32)))


@each_set
@pytest.mark.parametrize("share", [1.0, 0.6, 0.0])
def test_projection_is_the_nearest_point_of_the_set(domain: Domain, share: float) -> None:
    center = np.asarray(domain.center())
    held = center + share * (_points(domain, 3000, seed=1) - center)
    assert _inside(domain, held, share)
    wild = np.random.default_rng(2).normal(size=(40, domain.dim)) * 2
    points = np.concatenate([wild, held[:5]])
    found = np.asarray(_each(lambda point: domain.project(point, share))(jnp.asarray(points)))
    assert _inside(domain, found, share)
    # The nearest point of a convex set is the one that no member lies beyond.
    for point, nearest in zip(points, found, strict=True):
        assert ((held - nearest) @ (point - nearest) <= 1e-12).all()


@each_set
def test_points_of_the_set_stay_where_they_are(domain: Domain) -> None:
    held = _points(domain, 20, seed=4)
    found = _each(domain.project)(jnp.asarray(held))
    np.testing.assert_allclose(found, held, atol=1e-14)


@each_set
def test_directions_are_unit_vectors_of_the_span_and_uniform(domain: Domain) -> None:
    count = 20_000
    units = _directions(domain, count)
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1, atol=1e-14)
    basis = np.asarray(domain.basis())
    np.testing.assert_allclose(units @ basis @ basis.T, units, atol=1e-14)
    # A coordinate in the span has variance 1/rank; |u|² = 1 bounds every fourth moment by 1.
    places, bound = units @ basis, 5 / math.sqrt(count)
    assert np.abs(places.mean(0)).max() < bound
    assert np.abs(places.T @ places / count - np.eye(domain.rank) / domain.rank).max() < bound


@each_set
def test_bases_are_orthonormal_and_span_differences(domain: Domain) -> None:
    basis = np.asarray(domain.basis())
    assert basis.shape == (domain.dim, domain.rank)
    np.testing.assert_allclose(basis.T @ basis, np.eye(domain.rank), atol=1e-14)
    apart = _points(domain, 50, seed=5) - np.asarray(domain.center())
    np.testing.assert_allclose(apart @ basis @ basis.T, apart, atol=1e-12)


@each_set
def test_the_radii_are_the_largest_and_the_least(domain: Domain) -> None:
    center, units = np.asarray(domain.center()), _directions(domain, 2000)
    assert _inside(domain, center + domain.inner * units)
    touching = np.asarray(_each(domain.lowest)(-jnp.asarray(units)))
    far = np.linalg.norm(touching - center, axis=1).max()
    assert far == pytest.approx(domain.outer, rel=1e-12)
    match domain:
        case Ball() | Box():
            thin = np.eye(domain.dim)[0]
        case _:
            thin = np.ones(domain.dim) / domain.dim - np.eye(domain.dim)[0]
    thin = thin / np.linalg.norm(thin)
    assert not _inside(domain, center + 1.001 * domain.inner * thin)


@each_set
def test_linear_functions_are_least_at_the_point_named(domain: Domain) -> None:
    held = _points(domain, 3000, seed=6)
    slopes = np.random.default_rng(7).normal(size=(20, domain.dim))
    found = np.asarray(_each(domain.lowest)(jnp.asarray(slopes)))
    assert _inside(domain, found)
    assert ((slopes * found).sum(1) <= (held @ slopes.T).min(0) + 1e-12).all()


@each_set
def test_barriers_have_the_gradients_and_hessians_they_say(domain: Domain) -> None:
    center = np.asarray(domain.center())
    points = jnp.asarray(center + 0.9 * (_points(domain, 20, seed=8) - center))
    for mine, derived in [
        (domain.barrier_gradient, jax.grad(domain.barrier)),
        (domain.barrier_hessian, jax.hessian(domain.barrier)),
    ]:
        np.testing.assert_allclose(
            _each(mine)(points), _each(derived)(points), rtol=1e-9, atol=1e-9
        )
    assert (np.asarray(_each(domain.barrier)(points)) >= 0).all()
    assert float(domain.barrier(domain.center())) == pytest.approx(0, abs=1e-12)


@each_set
def test_barriers_are_self_concordant_with_their_parameter(domain: Domain) -> None:
    center, basis = np.asarray(domain.center()), np.asarray(domain.basis())

    def along(step: Array, point: Array, unit: Array) -> Array:
        return domain.barrier(point + step * unit)

    points = jnp.asarray(center + 0.95 * (_points(domain, 60, seed=9) - center))
    units = _directions(domain, 60)
    third = _each(jax.grad(jax.grad(jax.grad(along))))
    bent = np.abs(third(jnp.zeros(60), points, jnp.asarray(units)))
    hessians = np.asarray(_each(domain.barrier_hessian)(points))
    bend = np.einsum("ni,nij,nj->n", units, hessians, units)
    assert (bent <= 2 * bend**1.5 * (1 + 1e-9)).all()
    gradients = np.asarray(_each(domain.barrier_gradient)(points)) @ basis
    inner = np.linalg.solve(basis.T @ hessians @ basis, gradients[..., None])[..., 0]
    assert ((gradients * inner).sum(1) <= domain.nu * (1 + 1e-9)).all()
    for side in (1, -1):
        assert _inside(domain, np.asarray(points) + side * units / np.sqrt(bend)[:, None])


def test_sizes_are_checked() -> None:
    with pytest.raises(InvalidValueError, match="dim is 1; it must be at least 2"):
        Simplex(dim=1)
    with pytest.raises(InvalidValueError, match="radius is 0"):
        Ball(dim=2, radius=0)
    with pytest.raises(InvalidValueError, match="half is -1"):
        Box(dim=2, half=-1)
