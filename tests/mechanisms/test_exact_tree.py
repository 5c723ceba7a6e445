"""The tree of exact noise: its law, its grid, its cost. Statistical tests err at 1e-6 or less."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.checks.statistics import fits_deviation, precision_range
from kerchief.core.errors import CapacityExceededError, InvalidValueError
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.tree import Tree
from kerchief.privacy import Gaussian, Repeated, epsilon_at, gaussian_noise_multiplier

# Seven places on 2000 coordinates: one draw of a block is one sample of 2000.
HORIZON, SIZE = 7, 2000


def made(horizon: int = HORIZON, dimension: int = SIZE) -> ExactContinualNoise:
    return ExactContinualNoise.matching(
        Tree(horizon=horizon), noise_multiplier=1.7, sensitivity=2.5, dimension=dimension
    )


def matched(*, horizon: Any, **asked: Any) -> ExactContinualNoise:
    return ExactContinualNoise.matching(Tree(horizon=horizon), **asked)


def drawn(tree: ExactContinualNoise, size: int = SIZE, seed: int = 3) -> NDArray[np.float64]:
    """The noise on every prefix, a row each."""
    state, source, rows = tree.open(size), np.random.default_rng(seed).bytes, []
    for round in range(tree.horizon):
        noise, state = tree.step(state, np.int32(round), source)
        rows.append(noise)
    return np.stack(rows)


def test_the_stated_deviation_is_the_noise() -> None:
    tree, noise = made(), drawn(made())
    stated = tree.std_at(np.arange(1, HORIZON + 1))
    np.testing.assert_allclose(stated / tree.std, np.sqrt([1, 1, 2, 1, 2, 2, 3]), rtol=1e-12)
    for row, std in zip(noise, stated, strict=True):
        verdict = [fits_deviation(row, std * factor) for factor in (1.0, 2 / 3, 3 / 2)]
        assert verdict == [True, False, False]


def test_blocks_are_drawn_once() -> None:
    noise = drawn(made())
    # 3 = [1, 2] + [3]; 5 = [1..4] + [5]; 6 = [1..4] + [5, 6]; 7 = 6 + [7]: shared blocks cancel.
    fresh = [noise[0], noise[1], noise[2] - noise[1], noise[3], noise[4] - noise[3]]
    fresh += [noise[5] - noise[3], noise[6] - noise[5]]
    correlation = np.corrcoef(np.stack(fresh))
    bound = 5.6 / math.sqrt(SIZE)
    assert (np.abs(correlation - np.eye(HORIZON)) < bound).all()
    for block in fresh:
        assert fits_deviation(block, made().std)


def test_tree_stream_precision_matches_its_cost() -> None:
    tree, noise = made(), drawn(made())
    low, high = precision_range(noise, np.ones(HORIZON))
    # The first user is in one block of each of three sizes.
    assert low <= 3 / tree.std**2 <= high
    assert high / low < 1.4


def test_it_has_the_noise_of_the_idealized_tree() -> None:
    tree = made(1000, 5)
    ideal = ContinualNoise.of(Tree(horizon=1000), noise_multiplier=1.7, sensitivity=2.5)
    counts = np.arange(1, 1001)
    np.testing.assert_allclose(tree.std_at(counts), ideal.std_at(jnp.asarray(counts)), rtol=1e-4)
    assert tree.column_norm == ideal.column_norm
    assert tree.sensitivity == ideal.sensitivity


@pytest.mark.parametrize("horizon", [1, 2, 7, 8, 20_000, 10**7])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
def test_the_event_costs_no_more_than_the_gaussian(horizon: int, epsilon: float) -> None:
    multiplier = gaussian_noise_multiplier(epsilon, 1e-5)
    tree = ExactContinualNoise.matching(
        Tree(horizon=horizon), noise_multiplier=multiplier, sensitivity=2.0, dimension=20
    )
    assert isinstance(tree.event(), Repeated)
    cost = epsilon_at([tree.event()], 1e-5)
    assert cost <= epsilon_at([Gaussian(noise_multiplier=multiplier)], 1e-5)
    assert cost == pytest.approx(epsilon, rel=1e-3)


def test_every_prefix_is_on_the_grid() -> None:
    tree = made(dimension=4)
    vector = tree.prepare(np.array([0.3, -0.7, 1.0, 1e-9]))
    state, total, source = tree.open(4), np.zeros(4), np.random.default_rng(1).bytes
    for round in range(HORIZON):
        noise, state = tree.step(state, round, source)
        total = total + vector
        assert ((total + noise) % tree.grid == 0).all()


def test_the_state_given_is_not_edited() -> None:
    tree = made(dimension=2)
    state = tree.open(2)
    tree.step(state, 0, None)
    assert not state.any()


def test_without_a_source_it_draws_from_the_operating_system() -> None:
    tree = made(dimension=3)
    first, second = (tree.step(tree.open(3), 0, None)[0] for _ in range(2))
    assert (first != second).any()


def test_exact_tree_rejects_invalid_use() -> None:
    tree = made(dimension=2)
    with pytest.raises(CapacityExceededError, match="place 8"):
        tree.step(tree.open(2), HORIZON, None)
    with pytest.raises(InvalidValueError, match="would not be exact"):
        tree.prepare(np.array([0.0, 2.0**52 * tree.grid / 2]))
    bad: list[dict[str, Any]] = [{"horizon": 0}, {"noise_multiplier": 0.0}, {"sensitivity": -1.0}]
    for change in bad:
        values = {"noise_multiplier": 1.0, "sensitivity": 1.0, "horizon": 3, "dimension": 2}
        with pytest.raises(InvalidValueError):
            matched(**(values | change))
    seed = ExactGaussian.matching(1.0, 1.0, 2)
    with pytest.raises(InvalidValueError, match="2 seeds on 1 grids; the factor has 1 parts"):
        ExactContinualNoise(factor=Tree(horizon=3), seeds=(seed, seed))
