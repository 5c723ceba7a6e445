"""One bit for one number: its two chances are all there is to it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.mechanisms.one_bit import ExactOneBit, OneBit
from kerchief.privacy import NonPrivate
from kerchief_device.samplers import UNITS, word

COPIES = 40_000
EPSILONS = (0.01, 0.5, 1.0, 4.0, 30.0)
HOSTILE = (math.nan, math.inf, -math.inf, 1e300, -1e300, 3.0)


def made(epsilon: float = 1.0) -> OneBit:
    return OneBit.of(epsilon=epsilon, center=0.5, radius=0.75)


def simulated(noise: OneBit, value: float) -> Any:
    streams = Stream.of(seed=5, replicate=0)
    at: Any = jax.vmap(lambda copy: noise.add(jnp.array([value]), streams.split(copy)))
    return np.asarray(at(jnp.arange(COPIES, dtype=jnp.uint32)))[:, 0]


def _bytes(word: int, count: int) -> bytes:
    return word.to_bytes(count, "little")


def chance(noise: ExactOneBit, value: float) -> float:
    """The exact chance of the upper report: the number of words that lead to it, by bisection."""
    low, high = 0, UNITS
    while low < high:
        midpoint = (low + high) // 2
        report = noise.add(np.array([value]), partial(_bytes, midpoint))
        low, high = (midpoint + 1, high) if report[0] > noise.center else (low, midpoint)
    return low / UNITS


@pytest.mark.parametrize("value", [-0.25, 0.1, 0.5, 1.25])
def test_simulated_report_is_unbiased_with_stated_deviation(value: float) -> None:
    noise = made()
    reports = simulated(noise, value)
    assert set(np.unique(reports)) <= set(noise.reports)
    deviation = math.sqrt(float(noise.std) ** 2 - (value - 0.5) ** 2)
    assert abs(reports.mean() - value) < 5 * deviation / math.sqrt(COPIES)
    # Two points at a known distance: the mean says all, and noise a third too small does not fit.
    weak = OneBit(std=noise.std * 2 / 3, center=0.5, radius=0.75)
    assert float(np.abs(simulated(weak, value) - 0.5).max()) < 0.7 * float(noise.std)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_exact_coin_keeps_epsilon_and_little_less(epsilon: float) -> None:
    noise = made(epsilon).exact()
    chances = [chance(noise, value) for value in (-0.25, 0.2, 0.5, 1.25, *HOSTILE)]
    ratio = max(max(chances) / min(chances), (1 - min(chances)) / (1 - max(chances)))
    assert math.log(ratio) <= noise.event().epsilon * (1 + 1e-12)
    assert math.log(ratio) <= epsilon
    assert noise.event().epsilon == pytest.approx(min(epsilon, math.log(UNITS - 1)), rel=1e-6)
    assert noise.event().epsilon <= epsilon


def test_noise_a_third_too_small_costs_more() -> None:
    noise = made(1.0)
    weak = OneBit(std=noise.std * 2 / 3, center=0.5, radius=0.75)
    assert weak.event().epsilon > 1.5  # type: ignore[attr-defined]
    exact = weak.exact()
    high, low = chance(exact, 1.25), chance(exact, -0.25)
    assert math.log(high / low) > 1.5


@pytest.mark.parametrize("value", [-0.25, 0.1, 0.5, 1.25])
def test_the_twin_has_the_same_law(value: float) -> None:
    noise = made(1.0)
    twin = noise.exact()
    assert chance(twin, value) == pytest.approx(0.5 + (value - 0.5) / (2 * float(noise.std)))
    assert twin.reports == pytest.approx(noise.reports)
    assert noise.event() == twin.event()
    low, high = twin.reports
    mean = low + (high - low) * chance(twin, value)
    assert mean == pytest.approx(value, abs=1e-8)
    drawn = np.array([twin.add(np.array([value]))[0] for _ in range(4000)])
    assert abs(drawn.mean() - value) < 5 * twin.std / math.sqrt(4000)


def test_reports_are_points_of_the_grid() -> None:
    twin = OneBit.of(epsilon=0.3, center=1 / 3, radius=0.7).exact()
    assert all((report / twin.grid).is_integer() for report in twin.reports)
    assert math.frexp(twin.grid)[0] == 0.5


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_numbers_are_clipped(value: float) -> None:
    noise = made()
    place = 0.5 if not math.isfinite(value) else 0.5 + math.copysign(0.75, value)
    assert chance(noise.exact(), value) == chance(noise.exact(), place)
    np.testing.assert_array_equal(simulated(noise, value), simulated(noise, place))


def test_without_noise_it_is_the_number_and_promises_nothing() -> None:
    quiet = OneBit(std=0.0, center=0.5, radius=0.75)
    assert simulated(quiet, 0.3)[0] == 0.3
    for std in (0.0, 0.5, 0.75):
        weak = OneBit(std=std, center=0.5, radius=0.75)
        assert weak.event() == NonPrivate()
        with pytest.raises(InvalidValueError, match="above the radius"):
            weak.exact()


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"radius": 0.0}, {"center": math.inf}]
)
def test_values_out_of_bounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        OneBit.of(**({"epsilon": 1.0, "center": 0.0, "radius": 1.0} | wrong))


def test_the_twin_refuses_what_is_no_number_and_a_dry_source() -> None:
    twin = made().exact()
    for vector in (np.zeros(2), np.zeros(1, np.float32), np.float64(0.5)):
        with pytest.raises(InvalidValueError, match="float64 of shape"):
            twin.add(vector)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="4 asked"):
        word(lambda n: b"")
