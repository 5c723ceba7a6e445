"""Fits to shuffled cohorts: whom they speak about, their coins, and their bills.

Statistical tests fail by chance with probability at most 1e-6; their seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Clock, Example, FitRelease, Gradient, Start
from kerchief.core.errors import BudgetExceededError, InvalidValueError
from kerchief.core.losses import GLMLoss
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.mechanisms.binomial import Binomial
from kerchief.privacy import (
    Cohort,
    Guarantee,
    MemoryLedger,
    NonPrivate,
    Trust,
    gaussian_noise_multiplier,
)
from kerchief.privatizers.billing import pay, settle
from kerchief.privatizers.schedule import At, OnDemand
from kerchief.privatizers.shuffled_fits import ShuffledFits

ENDS, HORIZON = (4, 7, 12), 14
PROMISE = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.SHUFFLE)
WHOLE = gaussian_noise_multiplier(1.0, 1e-5)
START = Start(point=jnp.array([0.2, -0.1]), metric=jnp.eye(2), ridge=jnp.float64(0), radius=1e6)
RNG = np.random.default_rng(5)
FEATURES, REWARDS = RNG.normal(size=(HORIZON, 2)), RNG.uniform(size=HORIZON)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Telltale:
    """Returns every gradient sum that it was given, side by side."""

    steps: int

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        return jnp.concatenate([gradient(start.point, step) for step in range(self.steps)])


def loss(steps: int = 2) -> GLMLoss:
    return GLMLoss(
        link="logistic",
        dim=2,
        norm=1.0,
        low=0.0,
        high=1.0,
        clip=0.5,
        fits=3,
        minimizer=Telltale(steps=steps),
    )


def fits(*, multiplier: float | None = WHOLE, steps: int = 2) -> ShuffledFits:
    return ShuffledFits.of(
        loss(steps), noise_multiplier=multiplier, horizon=HORIZON, schedule=At(ends=ENDS)
    )


def silent(privatizer: ShuffledFits) -> ShuffledFits:
    return privatizer.with_noise(partial(dataclasses.replace, std=0.0))


def clock(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def play(
    privatizer: ShuffledFits,
    *,
    replicate: int | Array = 0,
    ends: tuple[int, ...] = ENDS,
    changed: dict[int, Any] | None = None,
) -> list[FitRelease]:
    """What a run releases; `changed` replaces the features of some users."""
    root = Stream.of(seed=3, replicate=replicate)
    memory, tally = privatizer.open()
    found = []
    for round in range(HORIZON):
        x = (changed or {}).get(round, FEATURES[round])
        record = Example(features=jnp.asarray(x), reward=jnp.asarray(REWARDS[round]))
        report = privatizer.randomize(record, clock(round), root.at(DEVICE, round=round))
        tally = privatizer.collect(tally, report)
        if round + 1 in ends:
            at = root.at(AGGREGATOR, round=round)
            release, memory = privatizer.release(memory, tally, START, clock(round), at)
            tally = privatizer.clear(tally)
            found.append(release)
    return found


def exact_sum(first: int, last: int) -> Any:
    users = zip(FEATURES[first:last], REWARDS[first:last], strict=True)
    rows = [
        loss().encode(Example(features=jnp.asarray(x), reward=jnp.asarray(y))) for x, y in users
    ]
    return loss().gradients(jnp.stack(rows).astype(jnp.float32), START.point).sum(0)


def test_a_fit_speaks_about_its_own_cohort() -> None:
    for release, first, last in zip(play(silent(fits())), (0, *ENDS), ENDS, strict=False):
        expected = exact_sum(first, last)
        np.testing.assert_allclose(release.point.reshape(2, 2), [expected] * 2, atol=1e-6)
        assert int(release.count) == last - first
        assert float(release.noise) == 0.0


def test_without_noise_it_is_the_minimizer_over_the_cohort() -> None:
    privatizer = fits(multiplier=None)
    wide = dataclasses.replace(loss(), clip=100.0)
    privatizer = dataclasses.replace(privatizer, query=wide)
    ridged = dataclasses.replace(START, ridge=jnp.float64(0.3))
    _, tally = privatizer.open()
    for round in range(ENDS[1]):
        record = Example(features=jnp.asarray(FEATURES[round]), reward=jnp.asarray(REWARDS[round]))
        tally = privatizer.collect(tally, privatizer.randomize(record, clock(round), None))
        if round + 1 == ENDS[0]:
            tally = privatizer.clear(tally)
    release, _ = privatizer.release((), tally, ridged, clock(ENDS[1] - 1), None)
    rows = tally.rows[: ENDS[1] - ENDS[0]].astype(jnp.float64)
    slope = wide.gradients(rows, release.point).sum(0) + 0.3 * release.point
    np.testing.assert_allclose(slope, 0, atol=1e-7)
    assert {charge.event for charge in privatizer.charges(HORIZON)} == {NonPrivate()}
    assert privatizer.exact() is privatizer


def test_skipped_users_enter_at_most_one_fit() -> None:
    """A fit that nobody asked for leaves rows behind: as many as there is room for, for once."""
    quiet = silent(fits(steps=1))
    second, third = play(quiet, ends=ENDS[1:])
    assert int(second.count) == quiet.horizon == 5
    np.testing.assert_allclose(second.point, exact_sum(ENDS[1] - 5, ENDS[1]), atol=1e-6)
    np.testing.assert_allclose(third.point, exact_sum(*ENDS[1:]), atol=1e-6)


@jax.jit
def _many(privatizer: ShuffledFits, copies: Array) -> Array:
    def one(replicate: Array) -> Array:
        return jnp.stack([release.point for release in play(privatizer, replicate=replicate)])

    return jax.vmap(one)(copies)


def scores(privatizer: ShuffledFits, copies: int) -> Any:
    """The noise of every sum that was told, one row per copy."""
    shown = _many(privatizer, jnp.arange(copies, dtype=jnp.uint32))
    exact = [
        np.tile(exact_sum(first, last), 2)
        for first, last in zip((0, *ENDS[:-1]), ENDS, strict=True)
    ]
    return (np.asarray(shown) - np.stack(exact)).reshape(copies, -1)


@pytest.mark.parametrize(("share", "holds"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_coins_of_every_sum_are_what_was_charged(share: float, holds: bool) -> None:
    privatizer = fits()
    noise: Any = privatizer.noise
    event: Any = privatizer.charges(HORIZON)[0].event
    reach = loss().sensitivity + noise.step * math.sqrt(2)
    charged = event.noise_multiplier * reach
    changed = privatizer.with_noise(partial(dataclasses.replace, std=share * noise.std))
    found = scores(changed, 500)
    low, high = special.chdtri(found.size, [1 - 5e-7, 5e-7])
    assert (low < (found**2).sum() / charged**2 < high) == holds


def test_sums_have_noise_of_their_own() -> None:
    """No two sums, of one fit or of two, share coins: correlations within 5 deviations."""
    found = scores(fits(), 500)
    beside = np.corrcoef(found.T) - np.eye(found.shape[1])
    assert np.abs(beside).max() < 5 / math.sqrt(500)
    assert np.abs(found.mean(0)).max() < 5 * found.std() / math.sqrt(500)


COARSE = [math.sqrt(1 + 0.25 / 4 * (b - a)) for a, b in zip((0, *ENDS), ENDS, strict=False)]


def coarse() -> ShuffledFits:
    """Numbers on a grid of halves, with coins of deviation 1."""
    return fits().with_noise(
        lambda noise: dataclasses.replace(noise, step=0.5, std=1.0, sensitivity=noise.sensitivity)
    )


def test_the_stated_deviation_is_coins_and_rounding() -> None:
    stated = [float(release.noise) for release in play(coarse())]
    np.testing.assert_allclose(stated, COARSE, rtol=1e-12)


@pytest.mark.nightly
def test_rounding_noise_is_positive_and_below_its_bound() -> None:
    found = scores(coarse(), 2000).reshape(2000, 3, 4).std((0, 2))
    assert (found > 1.005).all()
    assert (found < np.array(COARSE) * 1.02).all()


@pytest.mark.parametrize("steps", [1, 3, 60])
def test_all_sums_of_one_fit_cost_the_promise(steps: int) -> None:
    """Never more than was asked, and no less than 2 % below: cohorts compose in parallel."""
    privatizer = fits(steps=steps)
    charges = privatizer.charges(HORIZON)
    assert [charge.cohort for charge in charges] == [
        Cohort(first=0, last=4),
        Cohort(first=4, last=7),
        Cohort(first=7, last=12),
    ]
    assert {charge.capacity for charge in charges} == {steps}
    ledger = MemoryLedger(PROMISE)
    receipts = pay({"fit": privatizer}, ledger, horizon=HORIZON)
    assert 0.98 <= ledger.spent().epsilon <= 1.0
    settle(
        {"fit": privatizer},
        ledger,
        receipts,
        users=HORIZON,
        covered={"fit": 7},
        releases={"fit": 2},
    )
    assert [receipt.used for receipt in ledger.receipts] == [steps, steps, 0]


def test_a_third_less_noise_is_refused() -> None:
    less = fits().with_noise(lambda noise: dataclasses.replace(noise, std=2 / 3 * noise.std))
    with pytest.raises(BudgetExceededError):
        pay({"fit": less}, MemoryLedger(PROMISE), horizon=HORIZON)


@pytest.mark.parametrize("x", [(1e30, -1e30), (math.nan, math.inf), (0.0, 0.0), (-3.0, 4.0)])
def test_user_moves_sums_of_one_fit_by_at_most_the_sensitivity(x: Any) -> None:
    privatizer, user = fits(), 5
    told = [np.asarray(release.point).reshape(2, 2) for release in play(privatizer)]
    other = play(privatizer, changed={user: x})
    moves = [
        np.linalg.norm(np.asarray(b.point).reshape(2, 2) - a, axis=1)
        for a, b in zip(told, other, strict=True)
    ]
    noise: Any = privatizer.noise
    assert moves[0].max() == moves[2].max() == 0.0
    assert 0.0 < moves[1].max() <= loss().sensitivity + noise.step * math.sqrt(2)


def test_fits_on_demand_cost_everyone_one_fit() -> None:
    asked = fits().with_schedule(OnDemand(limit=3))
    (charge,) = asked.charges(HORIZON)
    assert charge.cohort == Cohort(first=0, last=HORIZON)
    assert charge.capacity == 2
    assert asked.horizon == 5


def test_other_cohorts_get_their_room() -> None:
    assert fits().with_schedule(At(ends=(3, 12))).horizon == 9
    alone = ShuffledFits.of(loss(), noise_multiplier=WHOLE, horizon=HORIZON)
    assert alone.schedule == At(ends=(HORIZON,))


def test_shuffled_fits_reject_deployment_and_name_alternative() -> None:
    with pytest.raises(
        InvalidValueError, match=r"asks every device 2 times, .* such as 'glm-batched-sums'"
    ):
        fits().exact()
    assert fits().idealized
    assert isinstance(fits().noise, Binomial)


def test_a_fit_needs_a_start() -> None:
    privatizer = fits()
    memory, tally = privatizer.open()
    with pytest.raises(TypeError, match="needs a start"):
        privatizer.release(memory, tally, None, clock(3), Stream.of(seed=0, replicate=0))
