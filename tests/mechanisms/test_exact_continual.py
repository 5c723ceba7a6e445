"""Exact noise of factors whose mixtures are rounded: its law, its sensitivity by search, its cost.

Statistical tests err at 1e-6 or less.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from fractions import Fraction
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.checks.statistics import (
    ERROR,
    fits_deviation,
    least_draws,
    normal_bound,
    normality,
    precision_range,
)
from kerchief.core.errors import CapacityExceededError, InvalidValueError
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.blt_fit import fit
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.factor import Factor, finest_grid
from kerchief.mechanisms.toeplitz import SqrtToeplitz, coefficients
from kerchief.mechanisms.tree import Tree
from kerchief.privacy import Gaussian, delta_at, epsilon_at, gaussian_noise_multiplier
from kerchief.privacy.events import DiscreteGaussian as Event
from kerchief_device.samplers import MAX_SCALE

Floats = NDArray[np.float64]

HORIZON, SIZE = 12, 20_000


def made(
    horizon: int = HORIZON, dimension: int = SIZE, *, multiplier: float = 1.7, buffers: int = 2
) -> ExactContinualNoise:
    return ExactContinualNoise.matching(
        BLT(horizon=horizon, buffers=buffers),
        noise_multiplier=multiplier,
        sensitivity=2.5,
        dimension=dimension,
    )


def matched(*, horizon: Any, buffers: Any, **asked: Any) -> ExactContinualNoise:
    return ExactContinualNoise.matching(BLT(horizon=horizon, buffers=buffers), **asked)


def drawn(noise: ExactContinualNoise, size: int = SIZE, seed: int = 3, group: int = 1) -> Floats:
    """The noise on every prefix, one row each; so many prefixes are drawn together."""
    state, source, rows = noise.open(size), np.random.default_rng(seed).bytes, []
    for round in range(0, noise.horizon, group):
        many = min(group, noise.horizon - round)
        some, state = noise.steps(state, np.int32(round), source, many)
        rows.append(some * noise.grid)
    return np.concatenate(rows)


def mixing(factor: Factor) -> Floats:
    """The matrix B, from its definition."""
    ages = np.arange(factor.horizon)
    if isinstance(factor, BLT):
        found = factor.fit
        column = found.base + np.array(found.weights) @ np.power.outer(found.decays, ages)
    else:
        column = coefficients(factor.horizon)
    gaps = np.subtract.outer(ages, ages)
    return np.where(gaps >= 0, column[gaps], 0.0)


@dataclasses.dataclass
class Script:
    """A node that gives known vectors of whole steps, on a grid of 1."""

    scale: int
    reach: float
    size: int = 1
    given: Any = 0.0

    idealized: ClassVar[bool] = False
    grid: ClassVar[float] = 1.0

    @property
    def std(self) -> float:
        return float(self.scale)

    @property
    def sensitivity(self) -> float:
        return self.reach

    def prepare(self, vector: Any, stream: Any) -> Any:
        return np.rint(vector)

    def add(self, vector: Any, stream: Any) -> Any:
        return vector + self.given

    def draw(self, stream: Any, rows: int) -> Any:
        assert rows == 1
        return np.atleast_1d(self.given)[None]

    def event(self) -> Event:
        return Event(sensitivity=self.reach, scale=self.scale, dimension=self.size)


@dataclasses.dataclass
class Dealt(Script):
    """A node that deals known vectors, each once."""

    def draw(self, stream: Any, rows: int) -> Any:
        found, self.given = self.given[:rows], self.given[rows:]
        return found


def scripted(factor: Factor, *, scale: int, reach: float) -> Any:
    return ExactContinualNoise(factor=factor, seeds=(Script(scale=scale, reach=reach),))


class Replay:
    """What seed vectors a transcript would need, if prefixes were known: one column each.

    The noise of a place is its seed vector plus a function of the earlier ones, so whoever holds
    the prefixes can work back from the releases.
    """

    def __init__(self, noise: Any, size: int) -> None:
        self.noise, self.state, self.round = noise, noise.open(size), 0

    def rest(self) -> Floats:
        """What the earlier seed vectors add here."""
        self.noise.seeds[0].given = np.zeros(self.state.shape[1])
        return np.asarray(self.noise.step(self.state, self.round, None)[0])

    def take(self, seed: Floats) -> None:
        """Go on with this place's seed vector."""
        self.noise.seeds[0].given = seed
        self.state = self.noise.step(self.state, self.round, None)[1]
        self.round += 1


def seeds_of(noise: Any, prefixes: Floats, released: Floats) -> Floats:
    replay, rows = Replay(noise, released.shape[1]), []
    for prefix, release in zip(prefixes, released, strict=True):
        rows.append(release - prefix - replay.rest())
        replay.take(rows[-1])
    return np.stack(rows)


def buffered(horizon: int) -> BLT:
    return BLT(horizon=horizon, buffers=2)


each = pytest.mark.parametrize("kind", [buffered, SqrtToeplitz])


class TestGroups:
    @pytest.mark.parametrize("groups", [[40], [1, 39], [7, 1, 32], [13] * 3 + [1]], ids=repr)
    @pytest.mark.parametrize(
        "factor",
        [
            BLT(horizon=40, buffers=4),
            SqrtToeplitz(horizon=40),
            Tree(horizon=40),
            Doubling(horizon=40, first=8),
        ],
        ids=repr,
    )
    def test_places_drawn_together_are_those_drawn_one_by_one(
        self, factor: Factor, groups: list[int]
    ) -> None:
        given = np.random.default_rng(4).integers(-(2**20), 2**20, (len(factor.parts), 40, 3))

        def run(groups: list[int]) -> tuple[Floats, Floats]:
            seeds = tuple(Dealt(scale=2**20, reach=1.0, size=3, given=one) for one in given)
            noise, found, round = ExactContinualNoise(factor=factor, seeds=seeds), [], 0
            state = noise.open(3)
            for many in groups:
                some, state = noise.steps(state, round, None, many)
                found.append(some)
                round += many
            return np.concatenate(found), state

        for grouped, single in zip(run(groups), run([1] * 40), strict=True):
            assert (grouped == single).all()

    def test_noise_beyond_proof_is_rejected_at_any_place_of_a_group(self) -> None:
        factor, far = SqrtToeplitz(horizon=3), 41.0
        for place in range(3):
            given = far * np.eye(3)[place][:, None]
            seed = Dealt(scale=1, reach=1.0, given=given)
            noise = ExactContinualNoise(factor=factor, seeds=(seed,))
            with pytest.raises(CapacityExceededError, match="40 deviations"):
                noise.steps(noise.open(1), 0, None, 3)

    def test_extreme_noise_is_rejected_even_if_the_sum_returns(self) -> None:
        given = np.array([[30.0], [30.0], [30.0], [-80.0]])
        seed = Dealt(scale=1, reach=1.0, given=given)
        noise = ExactContinualNoise(factor=BLT(horizon=4, buffers=2), seeds=(seed,))
        assert abs(given.sum()) < 80 < given[:3].sum()
        with pytest.raises(CapacityExceededError, match="40 deviations"):
            noise.steps(noise.open(1), 0, None, 4)

    def test_group_beyond_paid_places_is_rejected(self) -> None:
        noise = made(dimension=2)
        with pytest.raises(CapacityExceededError, match=f"place {HORIZON + 1} "):
            noise.steps(noise.open(2), HORIZON - 2, None, 3)


class TestLaw:
    @each
    @pytest.mark.parametrize("group", [1, 5, HORIZON])
    def test_covariance_over_time(self, kind: Any, group: int) -> None:
        noise = ExactContinualNoise.matching(
            kind(horizon=HORIZON), noise_multiplier=1.7, sensitivity=2.5, dimension=SIZE
        )
        draws, mix = drawn(noise, group=group), noise.std * mixing(noise.factor)
        wanted, found = mix @ mix.T, draws @ draws.T / SIZE
        spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / SIZE)
        bound = normal_bound(HORIZON**2)
        assert (np.abs(found - wanted) < bound * spread).all()
        assert (np.abs(np.diag(found) - np.diag(wanted) * 4 / 9) > bound * np.diag(spread)).all()
        low, high = precision_range(draws, np.ones(HORIZON))
        # What all releases tell about the first user is what the column norm says.
        assert low <= (noise.column_norm / noise.std) ** 2 <= high
        assert high / low < 1.2

    def test_deviation_is_accepted_at_std_at_and_rejected_beside_it(self) -> None:
        noise = made(100, 3 * least_draws())
        draws = drawn(noise, 3 * least_draws())
        for count in (1, 2, 31, 64, 100):
            sample, std = draws[count - 1], float(noise.std_at(count))
            verdict = [fits_deviation(sample, std * factor) for factor in (1.0, 2 / 3, 3 / 2)]
            assert verdict == [True, False, False]
            assert normality(sample, std) >= ERROR

    def test_coordinates_are_independent(self) -> None:
        last = drawn(made())[-1]
        assert abs(np.corrcoef(last[1:], last[:-1])[0, 1]) < normal_bound() / math.sqrt(SIZE - 1)

    @pytest.mark.parametrize(
        "factor",
        [*(BLT(horizon=t, buffers=6) for t in (1, 2, 300)), SqrtToeplitz(horizon=300)],
        ids=repr,
    )
    def test_the_stream_applies_the_matrix_of_the_simulated(self, factor: Factor) -> None:
        noise: Any = scripted(factor, scale=2**30, reach=1.0)
        horizon = factor.horizon
        state, rows = noise.open(horizon), []
        for round in range(horizon):
            noise.seeds[0].given = 2.0**30 * np.eye(horizon)[round]
            row, state = noise.step(state, round, None)
            rows.append(row)
        assert np.abs(np.stack(rows) / 2.0**30 - mixing(factor)).max() < 2.0**-30

    @pytest.mark.parametrize(
        "factor",
        [BLT(horizon=100, buffers=2), BLT(horizon=10**6, buffers=6), SqrtToeplitz(horizon=1000)],
        ids=repr,
    )
    def test_it_has_the_noise_of_the_idealized(self, factor: Factor) -> None:
        ideal = ContinualNoise.of(factor, noise_multiplier=1.7, sensitivity=2.5)
        noise = ideal.exact(20)
        counts = np.geomspace(1, factor.horizon, 30).astype(int)
        ratio = noise.std_at(counts) / np.asarray(ideal.std_at(jnp.asarray(counts)))
        assert (ratio >= 1).all()
        assert ratio.max() < 1.0002
        assert noise.sensitivity == ideal.sensitivity
        assert noise.column_norm == ideal.column_norm

    @pytest.mark.parametrize(("horizon", "factor"), [(100, 2.5), (5000, 3.3), (10**6, 3.5)])
    def test_the_tree_is_that_much_noisier(self, horizon: int, factor: float) -> None:
        tree = ExactContinualNoise.matching(
            Tree(horizon=horizon), noise_multiplier=1.7, sensitivity=2.5, dimension=20
        )
        worst = 2 ** ((horizon + 1).bit_length() - 1) - 1
        buffers = len(str(horizon - 1))
        own = made(horizon, 20, buffers=buffers).std_at(horizon)
        assert tree.std_at(worst) / own == pytest.approx(factor, abs=0.07)


class TestSensitivity:
    @pytest.mark.parametrize(("horizon", "buffers"), [(1, 2), (2, 6), (300, 4)])
    def test_the_column_norm_covers_the_weights_in_use(self, horizon: int, buffers: int) -> None:
        """With whole numbers of 300 bits: b from the very floats that the stream uses, then C."""
        factor, unit = fit(horizon, buffers), 1 << 300

        def whole(value: float) -> int:
            return int(Fraction(value) * unit)

        parts = [whole(factor.base)]
        parts += [whole(w * d) for w, d in zip(factor.weights, factor.decays, strict=True)]
        decays = [unit, *map(whole, factor.decays)]
        response = [unit]
        for _ in range(horizon - 1):
            response.append(sum(parts))
            parts = [part * decay >> 300 for part, decay in zip(parts, decays, strict=True)]
        column: list[int] = []
        for i in range(horizon):
            known = sum(response[j] * column[i - j] for j in range(1, i + 1)) >> 300
            column.append(unit - known)
        norm = math.sqrt(sum(Fraction(value, unit) ** 2 for value in column))
        assert norm == pytest.approx(factor.column_norm, rel=2.0**-44)

    @pytest.mark.parametrize("horizon", [2, 300, SqrtToeplitz.longest])
    def test_the_coefficients_of_the_root_are_within_their_error(self, horizon: int) -> None:
        """Against binom(2k, k) / 4^k in whole numbers; section 2 of the note."""
        stated, exact = coefficients(horizon), 1
        for k in range(1, horizon):
            exact = exact * (2 * k - 1) * 2 // k
            if k in (1, 2, 299, horizon - 1):
                off = Fraction(float(stated[k])) / Fraction(exact, 4**k) - 1
                assert abs(off) <= Fraction(k, 2**52)
        total = math.fsum(stated)
        assert total < 160
        assert math.sqrt(2) * horizon * 2.0**-52 * total < SqrtToeplitz.inexact / 2
        norm = math.sqrt(math.fsum(stated**2))
        assert norm == pytest.approx(SqrtToeplitz(horizon=horizon).column_norm, rel=2.0**-36)

    @pytest.mark.parametrize(("horizon", "buffers"), [(2, 2), (100, 3), (150, 6)])
    def test_unmixing_at_most_doubles(self, horizon: int, buffers: int) -> None:
        matrix = mixing(BLT(horizon=horizon, buffers=buffers))
        assert np.linalg.norm(np.linalg.inv(matrix), 2) <= 2 * (1 + 1e-12)
        root = mixing(SqrtToeplitz(horizon=horizon))
        assert np.linalg.norm(np.linalg.inv(root), 2) <= math.sqrt(2) * (1 + 1e-12)

    def test_root_mixture_is_within_its_error_of_the_exact_mixture(self) -> None:
        horizon, rng = 400, np.random.default_rng(2)
        factor = SqrtToeplitz(horizon=horizon)
        replay, seeds = Replay(scripted(factor, scale=2**30, reach=1.0), 1), list[int]()
        weights = [Fraction(float(value)) for value in coefficients(horizon)]
        error = Fraction(factor.error * 2**30)
        assert 0 < error < Fraction(1, 10)
        for _ in range(horizon):
            exact = sum(w * z for w, z in zip(weights[1:], reversed(seeds), strict=False))
            assert abs(Fraction(float(replay.rest()[0])) - exact) <= Fraction(1, 2) + error
            seeds.append(int(rng.normal() * 2**30))
            replay.take(np.array([float(seeds[-1])]))

    def test_the_mixture_is_within_its_error_of_the_exact_one(self) -> None:
        horizon, rng = 400, np.random.default_rng(2)
        noise: Any = scripted(BLT(horizon=horizon, buffers=4), scale=2**30, reach=1.0)
        factor = noise.factor.fit
        decays = [Fraction(1), *map(Fraction, factor.decays)]
        floats = [factor.base] + [w * d for w, d in zip(factor.weights, factor.decays, strict=True)]
        weights, sums, replay = list(map(Fraction, floats)), [Fraction(0)] * 5, Replay(noise, 1)
        error = noise.event().sensitivity / (1 + 2.0**-40) - noise.column_norm
        error = (error / (2 * math.sqrt(horizon)) - 1) / 2
        assert 0 < error < 1e-3
        for _ in range(horizon):
            exact = sum(w * s for w, s in zip(weights, sums, strict=True))
            assert abs(Fraction(float(replay.rest()[0])) - exact) <= Fraction(1, 2) + Fraction(
                error
            )
            seed = int(rng.normal() * 2**30)
            replay.take(np.array([float(seed)]))
            # Exact sums would grow by 53 bits at every place: cut far below the error.
            sums = [
                Fraction(int(d * s * 2**200), 2**200) + seed
                for d, s in zip(decays, sums, strict=True)
            ]

    @each
    @pytest.mark.parametrize("place", [0, 7, 39])
    @pytest.mark.parametrize("step", [1.0, -3.0, 1000.0])
    def test_no_transcript_moves_the_seeds_further(
        self, kind: Any, place: int, step: float
    ) -> None:
        """Random transcripts, with prefixes that depend on what was released before."""
        horizon, size, rng = 40, 2000, np.random.default_rng(5)
        noise: Any = scripted(kind(horizon=horizon), scale=1000, reach=abs(step))
        released = np.rint(rng.normal(scale=3000.0, size=(horizon, size)))
        inputs = np.concatenate([np.ones((1, size)), np.sign(released[:-1]) * 5.0])
        other = inputs.copy()
        other[place] += step
        first, second = (seeds_of(noise, np.cumsum(x, axis=0), released) for x in (inputs, other))
        moved = np.linalg.norm(second - first, axis=0)
        assert moved.max() <= noise.event().sensitivity
        if abs(step) == 1000.0 and place == 0:
            assert moved.min() > 0.97 * noise.column_norm * abs(step)
            assert moved.max() > noise.event().sensitivity * 0.97

    @each
    def test_an_adversary_at_the_rounding_borders_stays_within(self, kind: Any) -> None:
        """At every place the seed that parts the two worlds most, of 1000, two places ahead."""
        horizon, tries = 60, 1000
        noise: Any = scripted(kind(horizon=horizon), scale=1000, reach=1.0)
        ours, theirs = Replay(noise, tries), Replay(noise, tries)
        moved = np.zeros(tries)
        for _ in range(horizon - 2):
            apart = -1.0 + ours.rest() - theirs.rest()
            moved += apart**2
            seed: Floats = np.arange(-tries / 2, tries / 2)
            ours.take(seed)
            theirs.take(seed + apart)
            ahead = [copy.copy(replay) for replay in (ours, theirs)]
            next_one = -1.0 + ahead[0].rest() - ahead[1].rest()
            ahead[0].take(np.zeros(tries))
            ahead[1].take(next_one)
            after = -1.0 + ahead[0].rest() - ahead[1].rest()
            best = int(np.argmax(moved + next_one**2 + after**2))
            moved = np.full(tries, moved[best])
            for replay in (ours, theirs):
                replay.state = np.repeat(replay.state[:, best : best + 1], tries, axis=1)
        reached = math.sqrt(moved[0])
        assert reached <= noise.event().sensitivity
        # Rounding is no formality: without it in the sensitivity this transcript breaks the claim.
        assert reached > 2 * noise.column_norm


class TestCost:
    @pytest.mark.parametrize("horizon", [1, 2, 12, 5000, 10**6, BLT.longest])
    @pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
    def test_the_event_costs_no_more_than_the_gaussian(self, horizon: int, epsilon: float) -> None:
        multiplier = gaussian_noise_multiplier(epsilon, 1e-5)
        noise = made(horizon, 100, multiplier=multiplier, buffers=6)
        cost = epsilon_at([noise.event()], 1e-5)
        assert cost <= epsilon_at([Gaussian(noise_multiplier=multiplier)], 1e-5)
        assert cost == pytest.approx(epsilon, rel=1e-5)

    @pytest.mark.parametrize("horizon", [1, 12, SqrtToeplitz.longest])
    @pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
    def test_root_event_costs_no_more_than_the_gaussian(self, horizon: int, epsilon: float) -> None:
        multiplier = gaussian_noise_multiplier(epsilon, 1e-5)
        noise = ExactContinualNoise.matching(
            SqrtToeplitz(horizon=horizon),
            noise_multiplier=multiplier,
            sensitivity=2.5,
            dimension=100,
        )
        cost = epsilon_at([noise.event()], 1e-5)
        assert cost <= epsilon_at([Gaussian(noise_multiplier=multiplier)], 1e-5)
        assert cost == pytest.approx(epsilon, rel=1e-5)
        assert noise.std < 1.01 * multiplier * noise.sensitivity * noise.column_norm

    @pytest.mark.parametrize(
        ("epsilon", "dimension", "horizon"), [(0.1, 2144, 10**6), (10.0, 33152, BLT.longest)]
    )
    def test_the_slack_of_many_draws_is_paid(
        self, epsilon: float, dimension: int, horizon: int
    ) -> None:
        """Where a fixed margin would not do, and the ledger would refuse the bill."""
        multiplier = gaussian_noise_multiplier(epsilon, 1e-5)
        noise = made(horizon, dimension, multiplier=multiplier, buffers=6)
        assert epsilon_at([noise.event()], 1e-5) <= epsilon

    @pytest.mark.parametrize(
        ("horizon", "dimension", "share"), [(5000, 20, 1e-5), (10**6, 20, 2e-4), (10**6, 100, 4e-4)]
    )
    def test_what_rounding_costs(self, horizon: int, dimension: int, share: float) -> None:
        """The table of `exact_continual.md`, at epsilon 1 and delta 1e-5."""
        multiplier = gaussian_noise_multiplier(1.0, 1e-5)
        noise = made(horizon, dimension, multiplier=multiplier, buffers=6)
        ideal = multiplier * noise.sensitivity * noise.column_norm
        assert 1 < noise.std / ideal < 1 + share

    @each
    @pytest.mark.parametrize("reach", [20.0, 3.0])
    def test_two_place_transcripts_match_the_event_by_enumeration(
        self, kind: Any, reach: float
    ) -> None:
        """Every transcript of an adaptive stream of two, with its chance in both worlds."""
        noise: Any = scripted(kind(horizon=2), scale=20, reach=reach)
        released = np.mgrid[-250:251, -250:251].reshape(2, -1).astype(np.float64)
        chances = []
        for value in (0.0, reach):
            # The second vector depends on the first release.
            inputs = np.stack([np.full(released.shape[1], value), 7.0 * np.sign(released[0])])
            seeds = seeds_of(noise, np.cumsum(inputs, axis=0), released)
            chances.append(np.exp(-(seeds**2).sum(axis=0) / (2 * 20**2)) / (2 * math.pi * 20**2))
        assert chances[0].sum() == pytest.approx(1.0, abs=1e-9)
        event = noise.event()
        small = dataclasses.replace(event, sensitivity=event.sensitivity * 2 / 3)
        over = []
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
            for first, second in (chances, chances[::-1]):
                delta = float(np.maximum(0, first - math.exp(epsilon) * second).sum())
                assert delta <= delta_at([event], epsilon) + 1e-12
                over.append(delta > delta_at([small], epsilon) + 1e-9)
        if reach == 20.0:
            assert any(over)

    def test_adaptive_shifts_cost_the_same_as_a_fixed_shift(self) -> None:
        """Section 3 of the note: with squares that add up to one number the loss is normal."""
        rng, size = np.random.default_rng(11), 50_000
        score, left = np.zeros(size), np.full(size, 4.0)
        for _ in range(20):
            share = left * np.where(score > 0.3, 0.5, 0.02)
            score += np.sqrt(share) * np.where(score > -1, 1.0, -1.0) * rng.normal(size=size)
            left -= share
        score += np.sqrt(left) * rng.normal(size=size)
        assert fits_deviation(score, 2.0)
        assert normality(score, 2.0) >= ERROR


class TestUse:
    def test_every_prefix_is_on_the_grid(self) -> None:
        noise = made(dimension=4)
        vector = noise.prepare(np.array([0.3, -0.7, 1.0, 1e-9]))
        state, total, source = noise.open(4), np.zeros(4), np.random.default_rng(1).bytes
        for round in range(HORIZON):
            row, state = noise.step(state, round, source)
            total = total + vector
            assert ((total + row) % noise.grid == 0).all()

    def test_saved_in_the_aggregator_it_goes_on_exactly(self) -> None:
        noise = made(dimension=3)
        state = noise.open(3)
        for round in range(5):
            state = noise.step(state, round, np.random.default_rng(round).bytes)[1]
        kept, again = np.frombuffer(state.tobytes()).reshape(state.shape), made(dimension=3)
        for round in range(5, HORIZON):
            one, state = noise.step(state, round, np.random.default_rng(round).bytes)
            two, kept = again.step(kept, round, np.random.default_rng(round).bytes)
            assert (one == two).all()

    def test_the_state_given_is_not_edited(self) -> None:
        noise = made(dimension=2)
        state = noise.open(2)
        noise.step(state, 0, None)
        assert not state.any()

    def test_without_a_source_it_draws_from_the_operating_system(self) -> None:
        noise = made(dimension=3)
        first, second = (noise.step(noise.open(3), 0, None)[0] for _ in range(2))
        assert (first != second).any()

    def test_the_grid_leaves_room_for_the_longest_stream(self) -> None:
        for multiplier in (1e-3, 0.1, 1.0, 300.0):
            for sensitivity in (1e-6, 2.0, 2.5, 1e6):
                step = 2.0 ** -finest_grid(multiplier, sensitivity)
                assert BLT.longest * sensitivity / step < 2**51
                widest = fit(BLT.longest, 2).column_norm * multiplier * sensitivity
                assert widest / step < MAX_SCALE

    def test_exact_continual_noise_rejects_invalid_use(self) -> None:
        noise = made(dimension=2)
        with pytest.raises(CapacityExceededError, match="place 13"):
            noise.step(noise.open(2), HORIZON, None)
        with pytest.raises(InvalidValueError, match="would not be exact"):
            noise.prepare(np.array([0.0, 2.0**52 * noise.grid / (HORIZON - 1)]))
        with pytest.raises(InvalidValueError, match=r"for \(3,\); the seeds have shape \(2,\)"):
            noise.step(noise.open(3), 0, None)
        with pytest.raises(InvalidValueError, match="seeds have shape"):
            made(dimension=1).step(noise.open(2), 0, None)
        far: Any = scripted(buffered(HORIZON), scale=1000, reach=1.0)
        far.seeds[0].given = 41.0 * 1000 * math.sqrt(HORIZON)
        with pytest.raises(CapacityExceededError, match="beyond 40 deviations"):
            far.step(far.open(1), 0, None)
        bad: list[dict[str, Any]] = [
            {"horizon": 0},
            {"horizon": BLT.longest + 1},
            {"buffers": 1},
            {"noise_multiplier": 0.0},
            {"noise_multiplier": 1e9},
            {"noise_multiplier": 1e308},
            {"sensitivity": -1.0},
            {"sensitivity": 1e308, "noise_multiplier": 100.0},
        ]
        values = {
            "noise_multiplier": 1.0,
            "sensitivity": 1.0,
            "horizon": 3,
            "buffers": 2,
            "dimension": 2,
        }
        for change in bad:
            with pytest.raises(InvalidValueError):
                matched(**(values | change))
        grids = tuple(ExactGaussian.matching(1.0, span, 2) for span in (1.0, 9.0))
        with pytest.raises(InvalidValueError, match="2 seeds on 2 grids"):
            ExactContinualNoise(factor=Doubling(horizon=9, first=3), seeds=grids)


@pytest.mark.nightly
def test_the_end_of_a_long_stream() -> None:
    horizon, size = 20_000, least_draws()
    noise = made(horizon, size, buffers=5)
    state, source = noise.open(size), np.random.default_rng(9).bytes
    for round in range(horizon):
        last, state = noise.step(state, round, source)
    std = float(noise.std_at(horizon))
    assert [fits_deviation(last, std * factor) for factor in (1.0, 2 / 3, 3 / 2)] == [
        True,
        False,
        False,
    ]
