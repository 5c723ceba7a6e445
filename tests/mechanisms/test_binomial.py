"""Coins as noise: their law, their shares, their rounding and their cost."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import InvalidValueError
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.mechanisms.binomial import Binomial, ExactBinomial, heads
from kerchief.privacy import NonPrivate, epsilon_at, gaussian_noise_multiplier

COPIES = 20_000
SIZE = 4


def bytes_of(seed: int) -> Any:
    return np.random.default_rng(seed).bytes


def noise(**changes: Any) -> Binomial:
    made = Binomial(std=3.0, step=0.5, sensitivity=2.0, dimension=SIZE)
    return dataclasses.replace(made, **changes)


@jax.jit
def totals(one: Binomial) -> jax.Array:
    def copy(number: jax.Array) -> jax.Array:
        at = Stream.of(seed=7, replicate=number).at(AGGREGATOR)
        return one.add(jnp.zeros(SIZE), at)

    return jax.vmap(copy)(jnp.arange(COPIES, dtype=jnp.uint32))


def expect_binomial(draws: Any, trials: int) -> None:
    """Chi-square against Bin(trials, 1/2), in cells of at least five; errs once in a million."""
    counts = np.bincount(np.asarray(draws).astype(int).ravel(), minlength=trials + 1)
    expected = stats.binom.pmf(np.arange(trials + 1), trials, 0.5) * counts.sum()
    keep = expected >= 5
    seen = np.append(counts[keep], counts[~keep].sum())
    wanted = np.append(expected[keep], expected[~keep].sum())
    assert stats.chisquare(seen, wanted).pvalue > 1e-6


@pytest.mark.nightly
@pytest.mark.parametrize("scale", [3, 6, 40])
def test_binomial_draw_has_law_of_the_sum_of_coins(scale: int) -> None:
    one = noise(std=0.5 * scale)
    coins = np.asarray(totals(one)) / 0.5 + 2 * scale**2
    np.testing.assert_array_equal(coins, np.rint(coins))
    expect_binomial(coins, 4 * scale**2)


@pytest.mark.nightly
def test_a_third_less_noise_is_seen() -> None:
    full, thin = np.asarray(totals(noise())), np.asarray(totals(noise(std=2.0)))
    room = 5 * 3.0 / math.sqrt(2 * full.size)
    assert abs(full.std() - 3.0) < room
    assert abs(thin.std() - 3.0) > 10 * room


@pytest.mark.parametrize("users", [1, 3, pytest.param(7, marks=pytest.mark.nightly)])
def test_shares_add_up_to_all_coins(users: int) -> None:
    coins = ExactBinomial(step=0.25, scale=2, sensitivity=1.0, dimension=2)
    assert sum(coins.coins(place, users) for place in range(users)) == coins.trials == 16
    source = bytes_of(3)
    zero = np.zeros(2)
    sums = [
        sum(
            coins.share(zero, place=place, users=users, randomness=source) for place in range(users)
        )
        for _ in range(3000)
    ]
    expect_binomial(np.array(sums) / 0.25 + 8, 16)


def test_heads_are_fair() -> None:
    assert heads(0, 3).tolist() == [0.0, 0.0, 0.0]
    expect_binomial(heads(13, 20_000, randomness=bytes_of(1)), 13)


@pytest.mark.parametrize("exact", [False, True])
def test_rounding_is_right_on_average_and_to_a_neighbour(exact: bool) -> None:
    vector = np.array([0.3, -0.7, 1.0, -1.9])
    if exact:
        coins, source = noise().exact(), bytes_of(2)
        rounded = np.stack([coins.prepare(vector, source) for _ in range(COPIES)])
    else:
        streams = jax.vmap(lambda i: Stream.of(seed=1, replicate=i).at(DEVICE))(
            jnp.arange(COPIES, dtype=jnp.uint32)
        )
        exact_vector = jnp.asarray(vector)
        rounded = np.asarray(jax.vmap(lambda at: noise().prepare(exact_vector, at))(streams))
    assert (np.abs(rounded - vector) < 0.5).all()
    fraction = vector / 0.5 - np.floor(vector / 0.5)
    std = 0.5 * np.sqrt(fraction * (1 - fraction))
    assert (np.abs(rounded.mean(0) - vector) <= 5 * std / math.sqrt(COPIES) + 1e-6).all()


def test_rounded_pairs_stay_within_the_charged_distance() -> None:
    event: Any = noise().exact().event()
    one, other = np.full(SIZE, 0.4), np.full(SIZE, -0.6)
    source = bytes_of(4)
    coins = noise().exact()
    moves = [(coins.prepare(one, source) - coins.prepare(other, source)) / 0.5 for _ in range(500)]
    longest = max(float(np.linalg.norm(move)) for move in moves)
    assert 2.0 / 0.5 < longest <= event.sensitivity


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
def test_calibration_is_within_the_budget_and_near_the_gaussian(epsilon: float) -> None:
    m = gaussian_noise_multiplier(epsilon, 1e-6)
    made = Binomial.of(noise_multiplier=m, sensitivity=2.0, dimension=15, users=1000)
    spent = epsilon_at([made.event()], 1e-6)
    assert 0.98 * epsilon <= spent <= epsilon
    std = math.hypot(float(made.std), made.grid * math.sqrt(1000 / 4))
    assert std <= 1.05 * m * 2.0


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize(("dimension", "users"), [(1, 2), (15, 1000), (300, 10**6)])
def test_binomial_cost_stays_within_requested_epsilon(
    dimension: int, users: int, delta: float
) -> None:
    for epsilon in (0.01, 0.1, 1.0, 10.0, 20.0, 25.0, 30.0, 35.0, 40.0, 60.0, 80.0, 100.0):
        m = gaussian_noise_multiplier(epsilon, delta)
        made = Binomial.of(noise_multiplier=m, sensitivity=2.0, dimension=dimension, users=users)
        assert 0.93 * epsilon <= epsilon_at([made.event()], delta) <= epsilon


def test_no_noise_rounds_nothing_and_promises_nothing() -> None:
    quiet = noise(std=0.0)
    vector = jnp.array([0.3, -0.7, 1.0, -1.9])
    at = Stream.of(seed=1, replicate=0).at(DEVICE)
    np.testing.assert_array_equal(quiet.prepare(vector, at), vector)
    np.testing.assert_array_equal(quiet.add(vector, at), vector)
    assert quiet.event() == NonPrivate()


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="power of two"):
        ExactBinomial(step=0.3, scale=2, sensitivity=1.0, dimension=2)
    coins = ExactBinomial(step=0.25, scale=2, sensitivity=1.0, dimension=2)
    bad: Any
    for bad in (np.zeros(3), np.zeros(2, np.float32), np.array([np.nan, 0.0])):
        with pytest.raises(InvalidValueError, match="vector"):
            coins.prepare(bad)
    with pytest.raises(InvalidValueError, match="place"):
        coins.share(np.zeros(2), place=5, users=5)
    with pytest.raises(InvalidValueError, match="larger epsilon"):
        Binomial.of(noise_multiplier=1e6, sensitivity=2.0, dimension=15, users=10)
    with pytest.raises(InvalidValueError, match="smaller epsilon"):
        Binomial.of(noise_multiplier=2e-5, sensitivity=2.0, dimension=15, users=10)
