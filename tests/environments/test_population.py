"""A population: averages of rewards have their law, clients differ, worlds are addressed.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import InvalidValueError
from kerchief.core.random import REWARD, WORLD, Stream
from kerchief.environments.population import (
    EXACT,
    Population,
    PopulationTruth,
    cover_of_sphere,
)

ROOT = Stream.of(seed=3, replicate=0)
CLIENTS = 40_000


def seen(
    population: Population, world: PopulationTruth, features: Array, pulls: list[int]
) -> NDArray[np.float64]:
    """What many clients saw, a row each."""

    @jax.jit
    def all_clients(numbers: Array) -> Array:
        times = jnp.asarray(pulls)
        return jax.vmap(
            lambda u: population.averages(world, features, times, ROOT.at(REWARD, round=u))
        )(numbers)

    return np.asarray(all_clients(jnp.arange(CLIENTS)), np.float64)


def alike(mean: float, spread: float = 0.0) -> tuple[Population, PopulationTruth, Array]:
    """A world with one direction, in which one action has this mean."""
    population = Population.of(dim=2, arms=1, spread=spread)
    world = PopulationTruth(parameter=jnp.array([mean, 0.0]), features=jnp.eye(1, 2))
    return population, world, world.features


@pytest.mark.parametrize(
    "mean", [0.45, *(pytest.param(m, marks=pytest.mark.nightly) for m in (-0.7, 0.0))]
)
@pytest.mark.parametrize("pulls", [1, 2, 7, EXACT])
def test_short_averages_are_binomial(mean: float, pulls: int) -> None:
    averages = seen(*alike(mean), [pulls])[:, 0]
    counts = np.rint((averages + 1) / 2 * pulls)
    np.testing.assert_allclose(2 * counts / pulls - 1, averages, atol=1e-6)
    expected = CLIENTS * stats.binom.pmf(np.arange(pulls + 1), pulls, (1 + mean) / 2)
    found = np.bincount(counts.astype(int), minlength=pulls + 1)
    rare = expected < 10
    groups = (
        np.append(found[~rare], found[rare].sum()),
        np.append(expected[~rare], expected[rare].sum()),
    )
    keep = groups[1] > 0
    assert stats.chisquare(groups[0][keep], groups[1][keep]).pvalue > 1e-6


@pytest.mark.parametrize("mean", [-0.7, 0.0, 0.45])
@pytest.mark.parametrize("pulls", [EXACT + 1, 300])
def test_long_averages_have_the_right_mean_and_variance(mean: float, pulls: int) -> None:
    """As exact binomial averages have, of which the normal law is the limit."""
    averages = seen(*alike(mean), [pulls])[:, 0]
    exact = 2 * np.random.default_rng(0).binomial(pulls, (1 + mean) / 2, CLIENTS) / pulls - 1
    deviation = np.sqrt((1 - mean**2) / pulls)
    # Cutting at 1 takes a little from the tail of the shortest.
    cut = 0.03 * deviation if pulls == EXACT + 1 else 0.0
    assert abs(averages.mean() - mean) < cut + 5 * deviation / np.sqrt(CLIENTS)
    assert abs(averages.mean() - exact.mean()) < cut + 7 * deviation / np.sqrt(CLIENTS)
    assert averages.std() == pytest.approx(exact.std(), rel=0.06 if cut else 0.025)


def test_averages_stay_in_range_and_are_zero_without_plays() -> None:
    averages = seen(*alike(0.97), [20])
    assert np.abs(averages).max() <= 1
    assert (seen(*alike(0.97), [0]) == 0).all()


def test_clients_differ_by_the_spread() -> None:
    population = Population.of(dim=3, arms=2, spread=0.2)
    x = jnp.array([[0.6, 0.8, 0.0], [0.0, 1.0, 0.0]])
    world = PopulationTruth(parameter=jnp.array([0.1, 0.0, 0.2]), features=x)
    averages = seen(population, world, x, [10**9, 10**9])
    found = np.cov(averages.T)
    np.testing.assert_allclose(found, 0.04 * np.array([[1, 0.8], [0.8, 1]]), atol=0.04 * 0.04)


def test_worlds_are_redrawn_or_fixed() -> None:
    init = jax.jit(Population.init)

    def actions(population: Population, replicate: int) -> NDArray[np.float64]:
        world = init(population, Stream.of(seed=1, replicate=replicate).at(WORLD))
        np.testing.assert_allclose(jnp.linalg.norm(world.features, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(jnp.linalg.norm(world.parameter), 0.5, atol=1e-6)
        return np.asarray(world.features)

    redrawn = Population.of(dim=3, arms=4, radius=0.5)
    fixed = Population.of(dim=3, arms=4, radius=0.5, fixed=7)
    assert (actions(redrawn, 0) != actions(redrawn, 1)).any()
    assert (actions(fixed, 0) == actions(fixed, 1)).all()
    assert (actions(fixed, 0) != actions(redrawn, 0)).any()


def test_losses_are_against_the_best_action() -> None:
    population = Population.of(dim=2, arms=3)
    x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    world = PopulationTruth(parameter=jnp.array([0.5, 0.5]), features=x)
    np.testing.assert_allclose(population.losses(world), [0.2, 0.2, 0.0], atol=1e-7)


@pytest.mark.parametrize(
    "change",
    [{"dim": 0}, {"arms": 0}, {"clients": 0}, {"radius": 1.5}, {"spread": -0.1}, {"fixed": -1}],
)
def test_bad_values_are_refused(change: dict[str, float]) -> None:
    (name,) = change
    with pytest.raises(InvalidValueError, match=f"{name} is"):
        Population.of(**change)  # type: ignore[arg-type]


def test_public_facts() -> None:
    problem = Population.of(dim=4, arms=9, clients=77, spread=0.3, radius=0.8).problem(50)
    assert (problem.dim, problem.arms, problem.clients, problem.spread) == (4, 9, 77, 0.3)
    assert (problem.low, problem.high, problem.norm, problem.radius, problem.horizon) == (
        -1,
        1,
        1,
        0.8,
        50,
    )


@pytest.mark.parametrize(("dim", "distance"), [(1, 0.5), (2, 0.05), (2, 1.0), (3, 0.2), (4, 0.5)])
def test_no_point_of_the_sphere_is_far_from_the_cover(dim: int, distance: float) -> None:
    """Remark 3.1 of the paper, with no more points than its (3/distance)^dim."""
    points = cover_of_sphere(dim, distance)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    assert len(np.unique(points, axis=0)) == len(points) <= (3 / distance) ** dim
    some = np.random.default_rng(1).normal(size=(2000, dim))
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    assert np.sqrt(np.maximum(2 - 2 * (some @ points.T).max(1), 0)).max() <= distance


def test_continuum_regret_includes_gap_of_its_cover() -> None:
    """Regret is against the best of all points: for each action, half its squared distance."""
    world = Population.covering(dim=3, cover=0.4, radius=0.5)
    truth = world.init(ROOT.at(WORLD))
    assert truth.features.shape == (world.count, 3) == (world.problem(10).arms, 3)
    losses = np.asarray(world.losses(truth), np.float64)
    away = np.asarray(truth.features) - np.asarray(truth.parameter) / 0.5
    np.testing.assert_allclose(losses, 0.5 * (away**2).sum(1) / 2, atol=1e-6)
    assert 0 < losses.min() <= 0.5 * 0.4**2 / 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cover": 0.0}, "cover is 0"),
        ({"cover": 1.5}, "cover is 1.5"),
        ({"dim": 8, "cover": 0.1}, "fewer dimensions"),
        ({"dim": 0}, "dim is 0"),
    ],
)
def test_a_cover_that_cannot_be_is_refused(change: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        Population.covering(**change)  # type: ignore[arg-type]
