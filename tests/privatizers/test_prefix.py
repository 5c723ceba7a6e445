"""Prefix totals: exact inside, noisy outside, paid once. Statistical laws are in `checks`."""

from __future__ import annotations

import dataclasses
from functools import partial
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import Clock, Example, Release
from kerchief.core.errors import CapacityExceededError
from kerchief.core.queries import RegressionMoments
from kerchief.core.random import AGGREGATOR, Stream
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree
from kerchief.privacy import Cohort, Gaussian, NonPrivate
from kerchief.privatizers import At, Every, PrefixSums, Privatizer

QUERY = RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0)
HORIZON = 12
ROOT = Stream.of(seed=3, replicate=0)
RECORD = Example(features=jnp.array([0.6, 0.8]), reward=jnp.float64(0.5))
ENCODED = np.asarray(QUERY.encode(RECORD))


def sums(kind: Any = BLT.of, *, multiplier: float = 3.0, horizon: int = HORIZON) -> PrefixSums:
    noise = ContinualNoise.of(
        kind(horizon=horizon), noise_multiplier=multiplier, sensitivity=QUERY.sensitivity
    )
    return PrefixSums(query=QUERY, schedule=Every(), noise=noise)


def clock(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def played(privatizer: PrefixSums, ends: list[int], source: Any = ROOT) -> list[Release]:
    memory, tally = privatizer.open()
    releases = []
    for round in range(ends[-1]):
        tally = privatizer.collect(tally, privatizer.randomize(RECORD, clock(round), None))
        if round + 1 in ends:
            at = source.at(AGGREGATOR, round=round) if isinstance(source, Stream) else source
            release, memory = privatizer.release(memory, tally, None, clock(round), at)
            tally = privatizer.clear(tally)
            releases.append(release)
    return releases


@pytest.mark.parametrize("kind", [BLT.of, Tree])
@pytest.mark.parametrize("ends", [list(range(1, 10)), [2, 3, 8, 9]])
def test_without_noise_every_prefix_is_exact(kind: Any, ends: list[int]) -> None:
    for end, release in zip(ends, played(sums(kind, multiplier=0.0), ends), strict=True):
        np.testing.assert_allclose(release.total, end * ENCODED, atol=1e-12)
        assert int(release.count) == end
        assert float(release.noise) == 0.0


@pytest.mark.parametrize("kind", [BLT.of, Tree])
def test_the_noise_is_that_of_the_place_among_releases(kind: Any) -> None:
    privatizer, ends = sums(kind), [2, 3, 8]
    state = privatizer.noise.open(QUERY.size)
    for place, release in enumerate(played(privatizer, ends)):
        at = ROOT.at(AGGREGATOR, round=ends[place] - 1)
        noise, state = privatizer.noise.step(state, jnp.int32(place), at)
        np.testing.assert_allclose(release.total - ends[place] * ENCODED, noise, atol=1e-9)
        assert release.noise == privatizer.noise.std_at(jnp.int32(place + 1))


def test_beyond_the_horizon_nothing_can_be_read() -> None:
    last = played(sums(horizon=2), [1, 2, 3])
    assert np.isfinite(last[1].total).all()
    assert np.isnan(last[2].total).all()
    with pytest.raises(CapacityExceededError):
        played(sums(horizon=2).exact(), [1, 2, 3], None)


def test_prefix_sums_charge_each_user_once_for_the_stream() -> None:
    (charge,) = sums().charges(HORIZON)
    assert charge.cohort == Cohort(first=0, last=HORIZON)
    assert charge.event == sums().noise.event()
    assert isinstance(charge.event, Gaussian)
    assert charge.event.noise_multiplier == pytest.approx(3.0, rel=1e-12)
    assert sums(multiplier=0.0).charges(HORIZON)[0].event == NonPrivate()
    assert sums().took_part(charge.cohort, users=5, covered=0, releases=0) == 0
    assert sums().took_part(charge.cohort, users=5, covered=4, releases=1) == 1


def test_epoch_of_readings_is_charged_to_its_own_users() -> None:
    """Three epochs of 2, 4 and 8 readings: a border after n readings lies after their users."""
    made = sums(partial(Doubling, first=2), horizon=14)
    ends = tuple(range(10, 80, 10))
    borders = [one.cohort for one in made.with_schedule(At(ends=ends)).charges(75)]
    assert borders == [Cohort(first=a, last=b) for a, b in pairwise((0, 20, 60, 75))]


def test_noise_for_fewer_releases_is_rejected_before_charging() -> None:
    with pytest.raises(CapacityExceededError, match="13 releases over 13 rounds"):
        sums().charges(HORIZON + 1)
    rare = sums().with_schedule(At(ends=(50, 100)))
    assert len(rare.charges(100)) == 1


def test_prefix_memory_repr_hides_private_totals() -> None:
    memory, _ = sums().open()
    told = dataclasses.replace(memory, total=jnp.full(QUERY.size, 0.123))
    assert "0.123" not in repr(told)
    assert repr(told) == f"Prefix(releases={memory.releases!r})"


def test_the_outlook_and_where_noise_is_added() -> None:
    privatizer: Privatizer = sums()
    assert privatizer.outlook.noisy
    assert (privatizer.noisy_device, privatizer.noisy_aggregator) == (False, True)
    assert privatizer.idealized
    assert privatizer.noises == (sums().noise,)


@pytest.mark.parametrize("kind", [BLT.of, Tree, SqrtToeplitz])
def test_the_exact_twin_keeps_the_promise_with_the_same_noise(kind: Any) -> None:
    exact: Any = sums(kind).exact()
    assert isinstance(exact.noise, ExactContinualNoise)
    assert exact.noise.factor == sums(kind).noise.factor
    assert not exact.idealized
    assert exact.exact() is exact
    assert (exact.query, exact.schedule) == (QUERY, Every())
    counts = jnp.arange(1, HORIZON + 1)
    same = sums(kind).noise.std_at(counts)
    np.testing.assert_allclose(exact.noise.std_at(counts), same, rtol=1e-4)
    for release in played(exact, [1, 2, 3, 6], None):
        assert (np.asarray(release.total) % exact.noise.grid == 0).all()
        error = np.asarray(release.total) - int(release.count) * ENCODED
        # Beyond 6 deviations with probability below 3e-9 a coordinate.
        assert (np.abs(error) < 6 * float(release.noise)).all()


def test_a_report_off_the_grid_is_rounded_by_the_curator() -> None:
    exact = sums().exact()
    assert isinstance(exact.noise, ExactContinualNoise)
    _, tally = exact.open()
    tally = exact.collect(tally, np.full(QUERY.size, 0.1 * exact.noise.grid))
    assert (np.asarray(tally.total) == 0).all()
