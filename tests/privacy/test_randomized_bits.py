"""Randomized bits against enumerated laws: one report, and the sums of a batch."""

from __future__ import annotations

import itertools
import math
import re
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import InvalidValueError
from kerchief.privacy import bit_sums, randomized_bits
from kerchief.privacy.bit_sums import binomial_law, fineness, glimpsed_costs, shift_costs
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.curves import ORDERS, Renyi, RenyiCurve
from kerchief.privacy.randomized_bits import (
    KEEP_UNIT,
    RandomizedBits,
    bits_epsilon,
    bits_keep,
    bits_renyi,
    bits_tail,
    local_epsilon,
    local_keep,
    paper_local_epsilon,
)

Floats = NDArray[np.float64]
ROOT = math.sqrt(4.5)


def described(
    users: int, bits: int, keep: float, *, sensitivity: float = ROOT, dimension: int = 20
) -> RandomizedBits:
    return RandomizedBits(
        users=users,
        bits=bits,
        keep=math.floor(keep / KEEP_UNIT) * KEEP_UNIT,
        sensitivity=sensitivity,
        dimension=dimension,
        tail=1e-8,
    )


def binomial(trials: int, chance: float) -> Floats:
    law: Floats = stats.binom.pmf(range(trials + 1), trials, chance)
    return law


def user(x: float, bits: int, keep: float) -> Floats:
    """The law of one user's sum of bits, coded as x ones on average."""
    whole = min(math.floor(x), bits - 1)
    rest = (1 + keep * (2 * (x - whole) - 1)) / 2
    law = np.convolve(binomial(whole, (1 + keep) / 2), binomial(bits - 1 - whole, (1 - keep) / 2))
    return np.convolve(law, [1 - rest, rest])


def problem(ones: int, count: int, keep: float) -> Floats:
    return np.convolve(binomial(ones, (1 + keep) / 2), binomial(count - ones, (1 - keep) / 2))


def divergence(p: Floats, q: Floats, order: float) -> float:
    logs = order * np.log(p) + (1 - order) * np.log(q)
    return float(logs.max() + np.log(np.exp(logs - logs.max()).sum())) / (order - 1)


def excess(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


# One report.


def records(dim: int) -> Floats:
    """Statistics (r x, lower half of x xᵀ) on a grid, inner radii included."""
    if dim == 1:
        xs = np.linspace(-1, 1, 201)[:, None]
    else:
        angles = np.linspace(0, 2 * math.pi, 97)
        circle = np.stack([np.cos(angles), np.sin(angles)], 1)
        xs = (np.linspace(0, 1, 21)[:, None, None] * circle).reshape(-1, 2)
    lower = np.tril_indices(dim)
    squares = (xs[:, :, None] * xs[:, None, :])[:, lower[0], lower[1]]
    return np.concatenate([np.hstack([r * xs, squares]) for r in np.linspace(0, 1, 5)])


def reached(dim: int, keep: float) -> float:
    """The largest log-ratio of any output between any two records of the grid, one bit each."""
    stats_ = records(dim)
    worst = 0.0
    for signs in itertools.product((-1, 1), repeat=stats_.shape[1]):
        logs = np.log1p(keep * stats_ * np.array(signs)).sum(1)
        worst = max(worst, float(logs.max() - logs.min()))
    return worst


def l1(dim: int) -> float:
    return math.sqrt(dim) + (dim + 1) / 2


class TestOneReport:
    @pytest.mark.parametrize("dim", [1, 2])
    @pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
    def test_bound_lies_between_enumeration_and_the_paper(self, dim: int, keep: float) -> None:
        size = dim * (dim + 3) // 2
        bound = local_epsilon(keep, bits=1, dimension=size, taxicab=l1(dim))
        assert reached(dim, keep) <= bound <= paper_local_epsilon(keep, bits=1, dimension=size)

    def test_enumeration_gives_the_known_values(self) -> None:
        assert reached(1, 0.1) == pytest.approx(0.234, abs=1e-3)
        assert reached(2, 0.1) == pytest.approx(0.439, abs=2e-3)
        assert reached(2, 0.5) == pytest.approx(2.384, abs=1e-2)

    @pytest.mark.parametrize("bits", [1, 2, 3, 8])
    @pytest.mark.parametrize("keep", [0.05, 0.4, 0.8])
    def test_several_bits_are_covered(self, bits: int, keep: float) -> None:
        """Bits in order, each with its own chance of a one: the most that a report could tell."""
        levels = np.clip(bits * (1 + records(1)) / 2 - np.arange(bits)[:, None, None], 0, 1)
        ones = np.log((1 + keep * (2 * levels - 1)) / 2)
        zeros = np.log((1 - keep * (2 * levels - 1)) / 2)
        rng = np.random.default_rng(bits)
        pairs = rng.integers(0, levels.shape[1], (20_000, 2)).T
        gap = np.maximum(
            ones[:, pairs[0]] - ones[:, pairs[1]], zeros[:, pairs[0]] - zeros[:, pairs[1]]
        )
        worst = float(gap.sum((0, 2)).max())
        bound = local_epsilon(keep, bits=bits, dimension=2, taxicab=2.0)
        assert 0.5 * bound < worst <= bound

    def test_one_coordinate_uses_the_whole_bound_at_every_level(self) -> None:
        """The corner term pays for a fraction of a bit and cannot be left out."""
        keep, bits = 0.9, 4
        log = math.log(19)
        levels = np.clip(np.linspace(0, bits, 801)[:, None] - np.arange(bits), 0, 1)
        ones = np.log((1 + keep * (2 * levels - 1)) / 2)
        zeros = np.log((1 - keep * (2 * levels - 1)) / 2)
        gap = np.maximum(ones[:, None] - ones, zeros[:, None] - zeros).sum(2)
        shift = bits * np.abs(np.linspace(0, 1, 801)[:, None] - np.linspace(0, 1, 801))
        corner = local_epsilon(keep, bits=bits, dimension=1, taxicab=1e-9)
        assert (gap <= shift * log + corner + 1e-6).all()
        assert (gap - shift * log).max() == pytest.approx(corner, rel=1e-3)

    def test_is_looser_with_more_noise_kept_out(self) -> None:
        values = [local_epsilon(a, bits=8, dimension=5, taxicab=3.0) for a in (0.1, 0.3, 0.9)]
        assert values == sorted(values)

    @pytest.mark.parametrize(("bits", "expected"), [(1, 0.164), (4, 0.043)])
    def test_keep_is_the_last_that_fits(self, bits: int, expected: float) -> None:
        keep = local_keep(1.0, bits=bits, dimension=5, taxicab=l1(2))
        assert keep == pytest.approx(expected, abs=1e-3)
        assert local_epsilon(keep, bits=bits, dimension=5, taxicab=l1(2)) <= 1.0
        assert local_epsilon(keep + KEEP_UNIT, bits=bits, dimension=5, taxicab=l1(2)) > 1.0

    def test_refuses_what_no_keep_parameter_can_give(self) -> None:
        with pytest.raises(InvalidValueError, match="no keep parameter"):
            local_keep(1e-9, bits=64, dimension=20, taxicab=5.0)


# The sums of a batch.


class TestLaws:
    @pytest.mark.parametrize(("trials", "chance"), [(0, 0.3), (1, 0.9), (50, 0.2), (3000, 0.55)])
    def test_binomial_law(self, trials: int, chance: float) -> None:
        first, law = binomial_law(trials, chance)
        expected = stats.binom.pmf(np.arange(first, first + law.size), trials, chance)
        assert law == pytest.approx(expected, rel=1e-9)
        assert 1 - stats.binom.cdf(first + law.size - 1, trials, chance) < 1e-15

    def test_far_values_are_exact(self) -> None:
        first, law = binomial_law(2000, 0.5)
        far = 400 - first if first <= 400 else 0
        exact = math.comb(2000, first + far) / 2**2000
        assert law[far] == pytest.approx(exact, rel=1e-11)

    def test_the_intervals_cover_every_crowd(self) -> None:
        """Of the bits of any problem, no more than one part is missing."""
        variances = [
            float(law @ np.arange(law.size) ** 2 - (law @ np.arange(law.size)) ** 2)
            for law in bit_sums.others(1001, 16, 0.5)
        ]
        full = 16_000 * (1 - 0.25) / 4
        assert len(variances) >= 64
        assert max(variances) < full
        assert min(variances) >= full * (1 - 1.01 / len(variances))


def plain_costs(users: int, bits: int, keep: float, tail: float) -> Floats:
    """Every interval and every pair of averages on the grid, one after the other."""
    steps = fineness(bits)
    places = [(x / steps, y / steps) for x in range(1, bits * steps + 1) for y in range(steps)]
    worst = np.zeros(len(ORDERS))
    for others in bit_sums.others(users, bits, keep):
        for x, y in places:
            if y < x:
                full = math.ceil(x)
                p, q = (np.convolve(others, user(z, full, keep)) for z in (x, y))
                inside = (np.cumsum(p) > tail / 2) & (np.cumsum(p[::-1])[::-1] > tail / 2)
                found = [divergence(p[inside], q[inside], order) for order in ORDERS]
                worst = np.maximum(worst, np.array(found) / (x - y) ** 2)
    return worst


class TestScan:
    @pytest.mark.parametrize(
        ("users", "bits", "keep"),
        [(20, 1, 0.5), (12, 3, 0.25), (30, 10, 0.5), (9, 16, 0.75), (2, 20, 0.5)],
    )
    def test_shift_costs_match_a_plain_evaluation(self, users: int, bits: int, keep: float) -> None:
        """But for moments that are too large for a float: they are said to be endless."""
        costs, plain = shift_costs(users, bits, keep, 1e-9), plain_costs(users, bits, keep, 1e-9)
        finite = np.isfinite(costs)
        assert finite[np.array(ORDERS) <= 12].all()
        assert np.array(costs)[finite] == pytest.approx(plain[finite], rel=1e-6)

    @pytest.mark.parametrize(("users", "bits", "keep"), [(8000, 1, 0.125), (400, 16, 0.125)])
    def test_intervals_taken_together_leave_the_worst_of_all(
        self, users: int, bits: int, keep: float
    ) -> None:
        low, high = bit_sums._intervals(users, bits, keep)[0]
        assert bit_sums._count_joint_intervals(high - low, keep, 1e-9) > 1
        every = [
            bit_sums._costs(law, bits, keep, 1e-9) for law in bit_sums.others(users, bits, keep)
        ]
        costs = np.array(shift_costs(users, bits, keep, 1e-9))
        assert costs == pytest.approx(np.max(every, 0), rel=1e-3)
        assert (costs <= np.max(every, 0)).all()

    def test_intervals_are_split_where_one_of_them_may_cost_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing was found before that the first of them could be compared with."""
        users, bits, keep = 400, 16, 0.125
        every = [
            bit_sums._costs(law, bits, keep, 1e-9) for law in bit_sums.others(users, bits, keep)
        ]
        monkeypatch.setattr(bit_sums, "glimpsed_costs", lambda *_: (0.0,) * len(ORDERS))
        costs = shift_costs.__wrapped__(users, bits, keep, 1e-9)
        assert costs == pytest.approx(np.max(every, 0), rel=1e-3)

    @pytest.mark.parametrize("keep", [0.125, 0.5])
    def test_coins_hide_no_more_than_any_crowd_in_merged_intervals(self, keep: float) -> None:
        users, bits, low, high = 251, 16, 1000, 3000
        coins = bit_sums._coins(high - low, keep, 1e-9)
        assert 0.8 * (1 - keep) < coins / (high - low) < 1 - keep
        assert stats.binom.cdf(coins - 1, high - low, 1 - keep) <= 1e-9 / 256
        law = bit_sums._crowd(users, bits, keep, (low, high), coins)
        bound = bit_sums._costs(law, bits, keep, (1 - 2.0**-8) * 1e-9)
        for k in (1000, 1500, 2000, 2900, 3000):
            crowd = bit_sums._crowd(users, bits, keep, (k, k))
            true = bit_sums._costs(crowd, bits, keep, 1e-9)
            assert (true <= bound).all()
            assert true[4] > 0.7 * bound[4]

    @pytest.mark.parametrize("bits", [1, 3, 8, 16])
    def test_scanned_averages_bound_every_pair_with_their_shift(self, bits: int) -> None:
        keep, order, steps = 0.5, 4.0, fineness(bits)
        others = problem(7, 30, keep)
        scanned: dict[float, float] = {}
        for full, phi, f in zip(*bit_sums._shifts(bits), strict=True):
            p, q = (np.convolve(others, user(z, full, keep)) for z in (full - 1 + f, phi))
            shift = float(full - 1 + f - phi)
            scanned[shift] = max(scanned.get(shift, 0.0), divergence(p, q, order))
        assert len(scanned) == bits * steps
        rng = np.random.default_rng(bits)
        for _ in range(200):
            x, y = sorted(rng.choice(bits * steps + 1, 2, replace=False) / steps)[::-1]
            p, q = (np.convolve(others, user(z, bits, keep)) for z in (x, y))
            assert divergence(p, q, order) <= scanned[float(x - y)] * (1 + 1e-9)

    @pytest.mark.parametrize(
        ("users", "bits", "keep"), [(20, 1, 0.5), (12, 3, 0.25), (9, 16, 0.75)]
    )
    def test_is_the_worst_of_all_crowds_shifts_and_directions(
        self, users: int, bits: int, keep: float
    ) -> None:
        count, steps = (users - 1) * bits, fineness(bits)
        tail = 1e-15
        costs = shift_costs(users, bits, keep, tail)
        worst = np.zeros(len(ORDERS))
        places = np.arange(bits * steps + 1) / steps
        rng = np.random.default_rng(1)
        pairs = [(x, y) for x in places for y in places if x != y]
        chosen = rng.permutation(len(pairs))[:40]
        ends = [pairs.index((0.0, places[-1])), pairs.index((places[1], 0.0))]
        for ones, i in itertools.product(
            range(0, count + 1, max(1, count // 12)), [*chosen, *ends]
        ):
            x, y = pairs[i]
            others = problem(ones, count, keep)
            p, q = (np.convolve(others, user(z, bits, keep)) for z in (x, y))
            found = [divergence(p, q, order) / (x - y) ** 2 for order in ORDERS]
            worst = np.maximum(worst, found)
        low = [i for i, order in enumerate(ORDERS) if order <= 12]
        assert (worst[low] <= np.array(costs)[low] * (1 + 1e-6)).all()
        # The user's own common bits are left out of the scan: one part in `users`.
        assert (worst[low] >= np.array(costs)[low] * (0.9 - 1 / users)).all()

    def test_intervals_cost_no_more_than_their_width(self, monkeypatch: pytest.MonkeyPatch) -> None:
        exact = np.array(shift_costs(60, 8, 0.5, 1e-10))
        monkeypatch.setattr(bit_sums, "_FEWEST_PARTS", 16)
        monkeypatch.setattr(bit_sums, "_MOST_PARTS", 16)
        shift_costs.cache_clear()
        coarse = np.array(shift_costs(60, 8, 0.5, 1e-10))
        shift_costs.cache_clear()
        low = np.array(ORDERS) <= 16
        assert (coarse >= exact)[low].all()
        assert (coarse <= 1.12 * exact)[low].all()

    @pytest.mark.parametrize(
        ("users", "bits", "keep", "most"),
        [
            (1000, 1, 0.5, 1.05),
            pytest.param(5000, 1, 0.9, 1.11, marks=pytest.mark.nightly),
            pytest.param(250, 8, 0.576, 1.12, marks=pytest.mark.nightly),
            pytest.param(300, 64, 0.447, 1.04, marks=pytest.mark.nightly),
        ],
    )
    def test_is_close_to_the_gaussian(
        self, users: int, bits: int, keep: float, most: float
    ) -> None:
        costs = shift_costs(users, bits, keep, 1e-9)
        for order, cost in zip(ORDERS, costs, strict=True):
            gaussian = 2 * order * keep**2 / ((users - 1) * bits * (1 - keep**2))
            if order <= 32:
                assert 0.999 <= cost / gaussian <= most


class TestBetweenTheScannedShifts:
    @pytest.mark.parametrize(("users", "bits", "keep"), [(30, 1, 0.5), (12, 3, 0.5), (8, 20, 0.5)])
    def test_profile_covers_any_two_averages(self, users: int, bits: int, keep: float) -> None:
        count = (users - 1) * bits
        rng = np.random.default_rng(7)
        closest = 0.0
        for _ in range(40):
            x, y = rng.uniform(0, bits, 2)
            if rng.random() < 0.5:
                y = np.clip(x + rng.uniform(-1, 1) / 4, 0, bits)
            event = described(
                users, bits, keep, sensitivity=2 * abs(x - y) / bits + 1e-9, dimension=1
            )
            values = bits_renyi(event).values
            ones = int(rng.integers(0, count + 1))
            others = problem(ones, count, keep)
            p, q = (np.convolve(others, user(z, bits, keep)) for z in (x, y))
            for order, value in zip(ORDERS, values, strict=True):
                if order <= 8:
                    true = divergence(p, q, order)
                    assert true <= value
                    closest = max(closest, true / value)
        assert closest > 0.75


class TestBatch:
    def test_covers_two_coordinates_enumerated(self) -> None:
        """Twenty users, one bit, d = 1: extreme crowds and records, and the true δ at several ε."""
        users, keep = 20, 0.25
        event = described(users, 1, keep, sensitivity=2.0, dimension=2)
        profile = bits_renyi(event)
        pairs = [((1, 1), (-1, 1)), ((1, 1), (-0.5, 0.25)), ((1, 1), (0, 0)), ((0.3, 0.3), (0, 1))]

        def true(epsilon: float, a: float) -> float:
            worst = 0.0
            for (f, g), first, second in itertools.product(pairs, (0, 9, 19), (0, 10, 19)):
                laws = []
                for record in (f, g):
                    one, two = (
                        np.convolve(problem(k, users - 1, a), user((1 + v) / 2, 1, a))
                        for k, v in zip((first, second), record, strict=True)
                    )
                    laws.append(np.outer(one, two))
                worst = max(
                    worst, excess(laws[0], laws[1], epsilon), excess(laws[1], laws[0], epsilon)
                )
            return worst

        for epsilon in (0.2, 0.3, 0.4, 0.5):
            assert true(epsilon, keep) <= RenyiCurve(profile=profile).delta(epsilon)
        reached = bits_epsilon(event, 1e-5)
        assert true(reached / 1.25, keep) > 1e-5 >= true(reached, keep)
        # With noise a third too small the bound is broken: the test can fail.
        odds = keep**2 / (1 - keep**2) * 2.25
        assert true(0.4, math.sqrt(odds / (1 + odds))) > RenyiCurve(profile=profile).delta(0.4)

    @pytest.mark.parametrize(
        ("users", "bits", "keep", "epsilon"),
        [(1000, 1, 0.5, 0.147), (5000, 1, 0.9, 0.253), (250, 8, 0.576, 1.175)],
    )
    def test_known_values(self, users: int, bits: int, keep: float, epsilon: float) -> None:
        event = described(users, bits, keep)
        assert bits_epsilon(event, 1e-5) == pytest.approx(epsilon, rel=0.02)

    @pytest.mark.nightly
    def test_keep_parameter_is_nearly_the_gaussian_one(self) -> None:
        event = bits_keep(1.0, 1e-5, users=200, bits=64, sensitivity=ROOT, dimension=20)
        assert 0.998 <= bits_epsilon(event, 1e-5) <= 1.0
        assert event.noise_multiplier <= 1.13 * gaussian_noise_multiplier(1.0, 1e-5)

    @pytest.mark.parametrize(
        "epsilon", [0.5, *(pytest.param(one, marks=pytest.mark.nightly) for one in (0.1, 4.0))]
    )
    def test_keep_parameter_keeps_the_promise_and_little_more(self, epsilon: float) -> None:
        event = bits_keep(epsilon, 1e-6, users=100, bits=4, sensitivity=1.0, dimension=3)
        assert bits_epsilon(event, 1e-6) <= epsilon
        more = math.sqrt(event.keep**2 * 1.01)
        looser = RandomizedBits(
            users=100,
            bits=4,
            keep=math.floor(more / KEEP_UNIT) * KEEP_UNIT,
            sensitivity=1.0,
            dimension=3,
            tail=event.tail,
        )
        assert bits_epsilon(looser, 1e-6) > epsilon

    def test_keep_found_by_quick_scan_is_verified_in_full(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A crowd that hides too well is looked at: the search alone would keep too many bits."""
        asked: dict[str, Any] = {"users": 60, "bits": 4, "sensitivity": 1.0, "dimension": 3}
        expected = bits_keep(0.5, 1e-6, **asked)

        def elsewhere(users: int, bits: int, keep: float, tail: float) -> tuple[float, ...]:
            return tuple(cost / 2 for cost in glimpsed_costs(users, bits, keep, tail))

        monkeypatch.setattr(randomized_bits, "glimpsed_costs", elsewhere)
        randomized_bits._search_keep.cache_clear()
        event = bits_keep(0.5, 1e-6, **asked)
        randomized_bits._search_keep.cache_clear()
        assert bits_epsilon(event, 1e-6) <= 0.5
        assert event.keep == pytest.approx(expected.keep, rel=2e-3)

    def test_quick_search_ends_where_a_full_search_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: dict[str, Any] = {"users": 800, "bits": 8, "sensitivity": ROOT, "dimension": 5}
        expected = bits_keep(1.0, 1e-5, **asked)
        monkeypatch.setattr(randomized_bits, "glimpsed_costs", shift_costs)
        randomized_bits._search_keep.cache_clear()
        assert bits_keep(1.0, 1e-5, **asked) == expected
        randomized_bits._search_keep.cache_clear()

    def test_with_a_generous_promise_nearly_every_bit_is_kept(self) -> None:
        event = bits_keep(500.0, 1e-6, users=10, bits=1, sensitivity=1.0, dimension=1)
        assert event.keep == 1 - KEEP_UNIT

    def test_laws_too_far_apart_for_floats_raise_no_warning(self) -> None:
        event = bits_keep(1000.0, 1e-5, users=2, bits=64, sensitivity=1.5, dimension=1)
        assert bits_epsilon(event, 1e-5) <= 1000.0

    def test_an_impossible_promise_is_refused(self) -> None:
        with pytest.raises(InvalidValueError, match="orders up to"):
            bits_keep(1e-3, 1e-12, users=2, bits=1, sensitivity=1.0, dimension=1)

    @pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-12])
    def test_refusal_names_an_epsilon_that_suffices(self, delta: float) -> None:
        """It is just above the least that the orders certify; little less is refused as well."""
        asked: dict[str, Any] = {"users": 50, "bits": 1, "sensitivity": 1.0, "dimension": 5}
        with pytest.raises(InvalidValueError, match="at the least") as refusal:
            bits_keep(1e-3, delta, **asked)
        found = re.search(r"certify ([\d.E+-]+) at the least", str(refusal.value))
        assert found is not None
        least = float(found[1])
        assert bits_epsilon(bits_keep(least, delta, **asked), delta) <= least
        with pytest.raises(InvalidValueError, match="at the least"):
            bits_keep(0.98 * least, delta, **asked)

    @pytest.mark.parametrize("excess", [0.0, 1e-15, 1e-13, 1e-7, 1e-6, 1e-4])
    @pytest.mark.parametrize("users", [1, 50, 3000])
    def test_search_ends_just_above_the_least_epsilon(self, users: int, excess: float) -> None:
        """With a keep parameter, or with a refusal where rounding leaves none."""
        delta, tail = 1e-5, bits_tail(1e-5)
        floor = RenyiCurve(profile=Renyi(values=(0.0,) * len(ORDERS), tail=tail)).epsilon(delta)
        epsilon = max(floor + excess, math.nextafter(floor, 1))
        asked: dict[str, Any] = {"users": users, "bits": 1, "sensitivity": 1.0, "dimension": 5}
        with suppress(InvalidValueError) if excess < 1e-12 else nullcontext():
            assert bits_epsilon(bits_keep(epsilon, delta, **asked), delta) <= epsilon

    def test_profile_moves_the_right_way(self) -> None:
        base = described(100, 4, 0.5)
        for worse in (
            described(50, 4, 0.5),
            described(100, 4, 0.6),
            described(100, 4, 0.5, sensitivity=3.0),
            described(100, 4, 0.5, dimension=40),
        ):
            assert bits_epsilon(worse, 1e-5) > bits_epsilon(base, 1e-5)

    def test_lone_user_with_close_records_at_an_end_is_covered(self) -> None:
        """Where the chance of a one is small, a small step tells much."""
        keep, step = 0.5, 0.01
        event = described(1, 1, keep, sensitivity=step, dimension=1)
        p, q = user(step / 2, 1, keep), user(0.0, 1, keep)
        values = bits_renyi(event).values
        assert all(divergence(p, q, o) <= v for o, v in zip(ORDERS, values, strict=True))

    def test_coordinates_share_the_tail(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[float] = []

        def spy(users: int, bits: int, keep: float, tail: float) -> tuple[float, ...]:
            asked.append(tail)
            return shift_costs(users, bits, keep, tail)

        monkeypatch.setattr(randomized_bits, "shift_costs", spy)
        event = described(30, 4, 0.5, dimension=7)
        bits_renyi(event)
        assert asked == [event.tail / 7]

    def test_tail_is_charged(self) -> None:
        event = described(100, 4, 0.5)
        assert bits_renyi(event).tail == event.tail
        assert bits_epsilon(event, event.tail) == math.inf

    @pytest.mark.parametrize("users", [1, 50])
    def test_batch_costs_no_more_than_a_single_report(self, users: int) -> None:
        event = described(users, 2, 0.25, sensitivity=2.0, dimension=1)
        report = paper_local_epsilon(0.25, bits=2, dimension=1)
        assert max(bits_renyi(event).values) <= report
        assert (bits_epsilon(event, 1e-4) > 0.9 * report) == (users == 1)


class TestDescription:
    def test_is_written_as_any_event(self) -> None:
        event = described(10, 2, 0.5, dimension=3)
        assert event.to_dict()["kind"] == "randomized_bits"
        assert event.to_dict()["keep"] == 0.5

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("users", 0),
            ("bits", 0),
            ("keep", 0.0),
            ("keep", 1.0),
            ("keep", 0.3),
            ("sensitivity", 0.0),
            ("dimension", 0),
            ("tail", 0.0),
        ],
    )
    def test_checks_its_values(self, name: str, value: float) -> None:
        good = {
            "users": 5,
            "bits": 2,
            "keep": 0.5,
            "sensitivity": 1.0,
            "dimension": 1,
            "tail": 1e-9,
        }
        with pytest.raises(InvalidValueError, match=name):
            RandomizedBits(**{**good, name: value})  # type: ignore[arg-type]


def test_subnormal_probabilities_give_infinite_moments() -> None:
    """A point of the second law below the least normal float: its ratio is endless, not wrong."""
    after = np.array([[0.25, 0.5, 0.25]])
    normal, subnormal = np.array([[1e-300, 0.5, 0.5]]), np.array([[1e-310, 0.5, 0.5]])
    assert np.isfinite(bit_sums._moments(after, normal, 1e-6)[0]).all()
    assert np.isinf(bit_sums._moments(after, subnormal, 1e-6)).all()
