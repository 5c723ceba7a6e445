"""Laplace noise and its discrete twin."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.mechanisms.laplace import ExactLaplace, Laplace
from kerchief.privacy import NonPrivate, epsilon_at
from kerchief_device.samplers import sample_discrete_laplace

VECTOR = np.array([0.3, -0.7, 0.0])


def made(epsilon: float = 1.0) -> Laplace:
    return Laplace.of(epsilon=epsilon, taxicab=2.0, dimension=3)


@jax.jit
def _reports(noise: Laplace) -> Any:
    def one(copy: Any) -> Any:
        return noise.add(jnp.asarray(VECTOR), Stream.of(seed=2, replicate=copy).at(4))

    return jax.vmap(one)(jnp.arange(20_000, dtype=jnp.uint32))


def test_the_simulated_noise_is_laplace_and_as_wide_as_stated() -> None:
    noise = made()
    errors = (np.asarray(_reports(noise)) - VECTOR).ravel()
    scale = float(noise.std) / math.sqrt(2)
    assert stats.kstest(errors / scale, "laplace").pvalue > 1e-6
    assert stats.kstest(errors * 2 / 3 / scale, "laplace").pvalue < 1e-6
    assert abs(errors.mean()) < 5 * float(noise.std) / math.sqrt(60_000)


def test_the_price_is_read_off_the_noise() -> None:
    assert epsilon_at([made(2.0).event()], 1e-12) == pytest.approx(2.0, rel=1e-6)
    weak = Laplace(std=float(made().std) * 2 / 3, taxicab=2.0, dimension=3)
    assert epsilon_at([weak.event()], 1e-12) > 1.4
    assert Laplace(std=0.0, taxicab=2.0, dimension=3).event() == NonPrivate()


@pytest.mark.parametrize("scale", [1, 3, 40])
def test_the_discrete_law_is_exact(scale: int) -> None:
    source = np.random.default_rng(8).bytes
    draws = sample_discrete_laplace(scale, 100_000, randomness=source)
    reach = 3 * scale
    inside = draws[np.abs(draws) <= reach]
    values = np.arange(-reach, reach + 1)
    chances = np.exp(-np.abs(values) / scale)
    expected = chances / chances.sum() * inside.size
    assert stats.chisquare(np.bincount(inside + reach), expected).pvalue > 1e-6
    wrong = np.exp(-1.5 * np.abs(values) / scale)
    seen = np.bincount(inside + reach)
    assert stats.chisquare(seen, wrong / wrong.sum() * inside.size).pvalue < 1e-6
    share = 1 - math.exp(-1 / scale)
    beyond = 2 * math.exp(-(reach + 1) / scale) / share / (1 + 2 * math.exp(-1 / scale) / share)
    assert abs((np.abs(draws) > reach).mean() - beyond) < 5 * math.sqrt(beyond / 100_000)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_the_twin_keeps_epsilon_with_rounding_in_the_sensitivity(epsilon: float) -> None:
    twin = made(epsilon).exact()
    # The worst pair after rounding: every coordinate half a step to either side.
    steps = 2.0 / twin.grid + 3
    assert steps / twin.scale <= twin.event().epsilon <= epsilon
    assert twin.event().epsilon == pytest.approx(epsilon, rel=1e-5)
    assert twin.std == pytest.approx(float(made(epsilon).std), rel=1e-5)
    weak = ExactLaplace(
        grid_bits=twin.grid_bits, scale=twin.scale * 2 // 3, taxicab=2.0, dimension=3
    )
    assert weak.event().epsilon > 1.4 * epsilon


def test_reports_are_right_on_average_and_on_the_grid() -> None:
    twin, source = made().exact(), np.random.default_rng(4).bytes
    reports = np.stack([twin.add(VECTOR, source) for _ in range(1500)])
    assert (reports / twin.grid == np.rint(reports / twin.grid)).all()
    assert (np.abs(reports.mean(0) - VECTOR) < 5 * twin.std / math.sqrt(1500)).all()
    errors = (reports - VECTOR).ravel()
    assert stats.kstest(errors * math.sqrt(2) / twin.std, "laplace").pvalue > 1e-6
    np.testing.assert_allclose(twin.prepare(VECTOR), VECTOR, atol=twin.grid)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e308, -1e308])
def test_hostile_numbers_do_no_harm(value: float) -> None:
    report = made().exact().add(np.array([value, 0.0, 0.0]))
    assert np.isfinite(report).all()


def test_invalid_laplace_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="epsilon"):
        made(0.0)
    with pytest.raises(InvalidValueError, match="taxicab"):
        Laplace.of(epsilon=1.0, taxicab=math.inf, dimension=3)
    with pytest.raises(InvalidValueError, match="float64 of shape"):
        made().exact().add(np.zeros(2))
    with pytest.raises(InvalidValueError, match="scale"):
        sample_discrete_laplace(0, 3)
