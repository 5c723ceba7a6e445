"""Where arms come from: the laws of the draws.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Clock
from kerchief.core.random import ARMS, WORLD, Stream
from kerchief.core.struct import struct
from kerchief.environments import contexts
from kerchief.environments.contexts import (
    CONTEXTS,
    Ball,
    Contexts,
    Fixed,
    Intercept,
    Mixed,
    Skewed,
    Starved,
    in_ball,
    on_sphere,
)
from kerchief.environments.fixed_intercept import FixedIntercept

ERROR = 1e-6
ROOT = Stream.of(seed=31, replicate=4)
Floats = NDArray[np.float64]


@struct
class Still(Stream):
    """A stream whose normals and words are all at the edge: normals zero, uniforms one."""

    def normal(self, size: int) -> Array:
        return jnp.zeros(size, jnp.float32)

    def words(self, blocks: int) -> tuple[Array, Array, Array, Array]:
        word = jnp.full(blocks, 2**32 - 1, jnp.uint32)
        return word, word, word, word


def assert_uniform(levels: Floats, *, tests: int) -> None:
    """Kolmogorov-Smirnov against the uniform law, by Massart's inequality."""
    sample, n = np.sort(levels), levels.size
    steps = np.arange(n + 1) / n
    distance = max(np.abs(sample - steps[1:]).max(), np.abs(sample - steps[:-1]).max())
    assert distance < math.sqrt(math.log(2 * tests / ERROR) / (2 * n)) + 2**-20


def directions_are_uniform(points: Floats) -> None:
    """The second moments of directions: their mean is zero and their covariance I/d."""
    n, dim = points.shape
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    # Hoeffding for each of at most d + d² averages of numbers in [-1, 1].
    bound = math.sqrt(2 * math.log(2 * (dim + dim**2) / ERROR) / n)
    assert np.abs(unit.mean(0)).max() < bound
    assert np.abs(unit.T @ unit / n - np.eye(dim) / dim).max() < bound


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_points_in_the_ball_are_uniform(dim: int) -> None:
    draw = jax.jit(partial(in_ball, count=200_000, dim=dim))
    points = np.asarray(draw(ROOT.at(ARMS)), np.float64)
    assert points.shape == (200_000, dim)
    radius = np.linalg.norm(points, axis=1)
    assert radius.max() <= 1 + 1e-6
    assert_uniform(np.minimum(radius, 1) ** dim, tests=3)
    for coordinate in (0, dim - 1):
        level = (np.clip(points[:, coordinate], -1, 1) + 1) / 2
        assert_uniform(special.betainc((dim + 1) / 2, (dim + 1) / 2, level), tests=3)
    directions_are_uniform(points)


def test_points_on_the_sphere_are_uniform() -> None:
    for dim in (1, 4):
        draw = jax.jit(partial(on_sphere, count=100_000, dim=dim))
        points = np.asarray(draw(ROOT.at(ARMS)), np.float64)
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-6)
        directions_are_uniform(points)


@pytest.mark.parametrize("dim", [1, 3])
def test_zero_draws_make_no_nan(dim: int) -> None:
    still = Still.of(seed=0, replicate=0)
    sphere, ball = jax.jit(lambda: (on_sphere(still, 2, dim), in_ball(still, 2, dim)))()
    assert sphere.tolist() == [[1.0] + [0.0] * (dim - 1)] * 2
    assert (ball == 0).all()


ROUNDS = (0, 1, 62, 63, 64, 127)


@jax.jit
def shown(source: Contexts) -> tuple[Array, Array]:
    """A parameter, and the arms of a few rounds."""
    parameter = source.parameter(ROOT.at(WORLD).split(0))
    kept = source.init(ROOT.at(WORLD).split(1))

    def arms(round: Array) -> Array:
        return source.features(kept, Clock(round=round, since={}), ROOT.at(ARMS, round=round))

    return parameter, jax.vmap(arms)(jnp.array(ROUNDS, jnp.int32))


@pytest.mark.parametrize("name", list(CONTEXTS))
def test_every_context_source_keeps_its_stated_bounds(name: str) -> None:
    source = CONTEXTS[name](dim=3, count=50)
    parameter, arms = (np.asarray(part) for part in shown(source))
    assert arms.shape == (len(ROUNDS), 50, 3)
    assert arms.dtype == np.float32
    assert np.linalg.norm(parameter) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(arms, axis=-1).max() <= 1 + 1e-6
    assert (arms @ parameter).min() >= source.least_score() - 1e-6
    if source.constant:
        assert (np.abs(arms - source.constant).min(-1) < 1e-6).all()


@pytest.mark.parametrize("kind", [Intercept, FixedIntercept])
def test_the_intercept(kind: type[Intercept]) -> None:
    source = kind(dim=3, count=50)
    parameter, arms = (np.asarray(part) for part in shown(source))
    assert source.constant == pytest.approx(math.sqrt(0.5))
    for points in (arms, parameter):
        np.testing.assert_allclose(np.linalg.norm(points, axis=-1), 1, atol=1e-6)
        np.testing.assert_allclose(points[..., -1], math.sqrt(0.5), rtol=1e-6)
    scores = arms @ parameter
    assert scores.min() >= -1e-6
    assert scores.max() <= 1 + 1e-6


def test_fresh_arms_change_and_fixed_arms_stay() -> None:
    for kind in (Fixed, FixedIntercept):
        _, fixed = shown(kind(dim=3, count=50))
        assert (fixed == fixed[0]).all()
    _, fresh = shown(Ball(dim=3, count=50))
    assert (fresh[1:] != fresh[:-1]).all()
    _, mixed = shown(Mixed(dim=3, count=50))
    assert (mixed[:, ::2] == mixed[0, ::2]).all()
    assert (mixed[1:, 1::2] != mixed[:-1, 1::2]).all()


def test_the_starved_direction_is_open_one_round_in_64() -> None:
    _, arms = shown(Starved(dim=3, count=50))
    for round, points in zip(ROUNDS, np.asarray(arms), strict=True):
        assert bool((points[:, -1] == 0).all()) == (round % 64 != 63)
        assert (points[:, :-1] != 0).all()


def test_skewed_variances_fall_evenly_to_a_hundredth() -> None:
    _, arms = shown(Skewed(dim=3, count=5000))
    variances = np.asarray(arms)[0].var(axis=0)
    assert variances[1:] / variances[0] == pytest.approx([0.1, 0.01], rel=0.1)


@pytest.mark.parametrize("dim", [11, 12, pytest.param(64, marks=pytest.mark.nightly)])
def test_draws_do_not_depend_on_how_they_are_compiled(
    dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How they are compiled must not change what is drawn."""
    stream = Stream.of(seed=3, replicate=1)
    found = in_ball(stream, 7, dim)
    monkeypatch.setattr(contexts, "_many_normals", contexts._normals)
    assert found.tolist() == in_ball(stream, 7, dim).tolist()
