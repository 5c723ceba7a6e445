"""Fits to everyone's history: noise, bills, and the exact twin.

Statistical tests fail by chance with probability at most 1e-6; their seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Clock, Example, FitRelease, Start
from kerchief.core.errors import CapacityExceededError
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import PreconditionedSteps
from kerchief.core.random import AGGREGATOR, Stream
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.privacy import (
    Cohort,
    Guarantee,
    MemoryLedger,
    NonPrivate,
    Trust,
    gaussian_noise_multiplier,
)
from kerchief.privatizers.billing import pay, settle
from kerchief.privatizers.fits import Fits
from kerchief.privatizers.schedule import OnDemand

USERS, HORIZON = 6, 9
LOSS = GLMLoss(
    link="logistic",
    dim=2,
    norm=1.0,
    low=0.0,
    high=1.0,
    clip=0.5,
    fits=3,
    minimizer=PreconditionedSteps(steps=1),
)
PROMISE = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT)
WHOLE = gaussian_noise_multiplier(1.0, 1e-5)
START = Start(point=jnp.array([0.2, -0.1]), metric=jnp.eye(2), ridge=jnp.float64(0), radius=1e6)


def fits(*, multiplier: float | None = WHOLE, steps: int = 1, clip: float = 0.5) -> Fits:
    minimizer = PreconditionedSteps(steps=steps)
    query = dataclasses.replace(LOSS, minimizer=minimizer, clip=clip)
    return Fits.of(query, noise_multiplier=multiplier, horizon=HORIZON)


def clock(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def history(privatizer: Fits, users: int = USERS) -> Any:
    """The rows of so many users."""
    rng = np.random.default_rng(5)
    _, tally = privatizer.open()
    for x, y in zip(rng.normal(size=(users, 2)), rng.uniform(size=users), strict=True):
        record = Example(features=jnp.asarray(x), reward=jnp.asarray(y))
        tally = privatizer.collect(tally, privatizer.randomize(record, clock(0), None))
    return tally


def fitted(privatizer: Fits, tally: Any, stream: Any, start: Start = START) -> FitRelease:
    release, memory = privatizer.release((), tally, start, clock(USERS - 1), stream)
    assert memory == ()
    return release


def test_without_noise_it_is_the_minimizer() -> None:
    privatizer = fits(multiplier=None, clip=100.0)
    tally = history(privatizer)
    start = dataclasses.replace(START, ridge=jnp.float64(0.3))
    release = fitted(privatizer, tally, None, start)
    rows = tally.rows.astype(jnp.float64)
    slope = privatizer.query.gradients(rows, release.point).sum(0) + 0.3 * release.point
    np.testing.assert_allclose(slope, 0, atol=1e-7)
    assert int(release.count) == USERS
    assert float(release.noise) == 0.0
    assert privatizer.charges(HORIZON)[0].event == NonPrivate()
    assert privatizer.exact() is privatizer


def errors(privatizer: Fits, copies: int) -> Any:
    """The noise in a gradient sum: with one step in the plain metric, a fit shows it bare."""
    tally = history(privatizer)

    def one(replicate: Array) -> Array:
        stream = Stream.of(seed=3, replicate=replicate).at(AGGREGATOR, round=USERS - 1)
        return START.point - fitted(privatizer, tally, stream).point

    shown = jax.jit(jax.vmap(one))(jnp.arange(copies, dtype=jnp.uint32))
    exact = LOSS.gradients(tally.rows, START.point).sum(0, dtype=jnp.float64)
    return np.asarray(shown - exact, np.float64)


@pytest.mark.parametrize(("share", "holds"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_noise_of_a_gradient_sum_is_what_was_charged(share: float, holds: bool) -> None:
    privatizer = fits()
    event: Any = privatizer.charges(HORIZON)[0].event
    charged = event.noise_multiplier * LOSS.sensitivity
    changed = privatizer.with_noise(lambda noise: dataclasses.replace(noise, std=share * noise.std))
    scores = errors(changed, 2000).ravel() / charged
    # The sum of n squares is chi-squared; two-sided, 1e-6.
    low, high = special.chdtri(scores.size, [1 - 5e-7, 5e-7])
    assert (low < (scores**2).sum() < high) == holds


def test_the_stated_noise_is_that_of_the_sums() -> None:
    privatizer = fits(steps=4)
    noise: Any = privatizer.noise
    stream = Stream.of(seed=1, replicate=0)
    assert float(fitted(privatizer, history(privatizer), stream).noise) == float(noise.std)
    # Four steps of three fits cost twelve times, so each has √12 times the whole's noise.
    expected = WHOLE * math.sqrt(12) * LOSS.sensitivity
    assert float(noise.std) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_all_steps_of_all_fits_are_charged_whatever_ran(steps: int) -> None:
    """How many fits there were depends on the users: the promise is for the most allowed."""
    privatizer = fits(steps=steps)
    (charge,) = privatizer.charges(HORIZON)
    assert charge.capacity == 3 * steps
    assert charge.cohort == Cohort(first=0, last=HORIZON)
    ledger = MemoryLedger(PROMISE)
    receipts = pay({"fit": privatizer}, ledger, horizon=HORIZON)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)
    assert ledger.spent().epsilon <= 1.0
    settle(
        {"fit": privatizer},
        ledger,
        receipts,
        users=HORIZON,
        covered={"fit": 5},
        releases={"fit": 2},
    )
    assert ledger.receipts[0].used == 3 * steps
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)


def test_charge_without_users_counts_as_unused() -> None:
    everyone = Cohort(first=0, last=HORIZON)
    for privatizer, most in ((fits(), 3), (fits(multiplier=None), 1)):
        assert privatizer.took_part(everyone, users=0, covered=0, releases=0) == 0
        assert privatizer.took_part(everyone, users=9, covered=9, releases=2) == most


def test_a_longer_run_than_the_history_has_room_for_is_refused() -> None:
    with pytest.raises(CapacityExceededError, match="room for 9 users"):
        fits().charges(HORIZON + 1)


def test_fit_schedule_comes_from_its_loss() -> None:
    assert fits().schedule == OnDemand(limit=3)
    changed = fits().with_schedule(OnDemand(limit=5))
    assert changed.charges(HORIZON)[0].capacity == 5


def test_fit_does_not_depend_on_future_users() -> None:
    stream = Stream.of(seed=2, replicate=0)
    for multiplier in (None, WHOLE):
        short = fits(multiplier=multiplier)
        long = dataclasses.replace(short, horizon=500)
        both = [fitted(one, history(one), stream).point for one in (short, long)]
        np.testing.assert_allclose(both[0], both[1], rtol=1e-6)


def test_noise_is_fresh_in_every_step_and_every_round() -> None:
    privatizer = fits(steps=2)
    tally, noise = history(privatizer), privatizer.noise
    assert noise is not None
    seen: list[Any] = []

    class Watched(Gaussian):
        def add(self, vector: Array, stream: Stream) -> Array:
            noisy = Gaussian.add(self, vector, stream)
            seen.append(np.asarray(noisy - vector))
            return noisy

    watched = dataclasses.replace(privatizer, noise=Watched(**vars(noise)))
    root = Stream.of(seed=4, replicate=0)
    for round in (4, 5):
        watched.release((), tally, START, clock(round), root.at(AGGREGATOR, round=round))
    assert len({draw.tobytes() for draw in seen}) == 4


def test_a_fit_without_a_start_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a start"):
        fits().release((), history(fits()), None, clock(5), None)


def test_the_history_is_kept_and_not_shown() -> None:
    privatizer = fits()
    tally = history(privatizer)
    assert privatizer.clear(tally) is tally
    assert "rows" not in repr(tally)
    assert privatizer.noisy_aggregator
    assert not privatizer.noisy_device


def test_the_exact_twin_is_on_a_grid_and_within_the_budget() -> None:
    twin = fits().exact()
    assert not twin.idealized
    assert isinstance(twin.noise, ExactGaussian)
    tally = jax.tree.map(np.asarray, history(twin))
    assert tally.rows.dtype == np.float64
    shown = np.asarray(START.point - fitted(twin, tally, None).point) / twin.noise.grid
    # A step is taken in floating point: off the grid by rounding alone.
    np.testing.assert_allclose(shown, np.rint(shown), atol=1e-3)
    ledger = MemoryLedger(PROMISE)
    pay({"fit": twin}, ledger, horizon=HORIZON)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-4)
    assert twin.exact() is twin


def test_the_twins_noise_is_what_was_charged() -> None:
    twin = fits().exact()
    tally, source = history(twin), np.random.default_rng(0).bytes
    exact = np.asarray(LOSS.gradients(tally.rows, START.point)).sum(0)
    shown = [np.asarray(START.point - fitted(twin, tally, source).point) for _ in range(200)]
    event: Any = twin.charges(HORIZON)[0].event
    scores = (np.stack(shown) - exact).ravel() / (event.noise_multiplier * LOSS.sensitivity)
    low, high = special.chdtri(scores.size, [1 - 5e-7, 5e-7])
    assert low < (scores**2).sum() < high
    assert high / scores.size < (3 / 2) ** 2
    assert low / scores.size > (2 / 3) ** 2
