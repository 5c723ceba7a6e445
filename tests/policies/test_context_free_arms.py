"""Bandits on arms: their formulas on numbers worked out by hand, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import optimize  # type: ignore[import-untyped]

from kerchief.core.contracts import Stops
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import BoundedScalar
from kerchief.core.random import POLICY, Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.policies import POLICIES, PrivacyBudget
from kerchief.policies.context_free.base import Counts
from kerchief.policies.context_free.best_arm import Halving, HalvingState, LilUCB
from kerchief.policies.context_free.elimination import State as Surviving
from kerchief.policies.context_free.elimination import SuccessiveElimination
from kerchief.policies.context_free.tsallis import State, Tsallis, tsallis_weights
from kerchief.policies.context_free.ucb import KLUCB, UCB, coin_divergence, least_mean

GAME = ContextFreeProblem(horizon=1000, low=0.0, high=1.0, arms=3)
CLEAR = ReportDistribution.clear(low=0.0, high=1.0)
BIT = ReportDistribution(low=-1.5, high=2.5, spread=2.0)
NORMAL = ReportDistribution(low=None, high=None, spread=2.0)
HEAVY = ReportDistribution(low=None, high=None, spread=2.0, heavy=True)
AT = Stream.of(seed=0, replicate=0).at(POLICY)
MODES = ("theory", "tuned")
ARMED = [name for name, entry in POLICIES.items() if entry.plays(GAME)]


def made(name: str, problem: Any, mode: Any, channel: ReportDistribution) -> Any:
    """A bandit for what reports will be like."""
    return POLICIES[name].build(
        problem, mode, PrivacyBudget(epsilon=1.0, delta=0.0, trust="local", channel=channel)
    )


def counts(pulls: list[float], means: list[float]) -> Counts:
    n = jnp.asarray(pulls)
    return Counts(pulls=n, total=n * jnp.asarray(means))


def learnt(policy: Any, state: Any, arm: int, report: float, round: int) -> Any:
    """The state after an answer to the only open question."""
    return _learnt(policy, state, jnp.int32(arm), jnp.asarray([report]), jnp.int32(round))


@jax.jit
def _learnt(policy: Any, state: Any, action: Array, report: Array, now: Array) -> Any:
    return policy.learn(state, action, policy.memo(state, action, now), report, now)


_proposed = jax.jit(lambda policy, state, round: policy.propose(state, round, AT))


@pytest.mark.parametrize("arms", [2, 10, 1000])
def test_weights_sum_to_one_and_know_only_differences(arms: int) -> None:
    draw = np.random.default_rng(7)
    for scale in (0.0, 1e-3, 1.0, 30.0, 1e4):
        losses = scale * draw.standard_normal(arms)
        weights = np.asarray(tsallis_weights(jnp.asarray(losses), 0.3))
        assert abs(weights.sum() - 1) < 1e-10
        assert (weights > 0).all()
        assert (np.argsort(-weights, kind="stable") == np.argsort(losses, kind="stable")).all()
        moved = np.asarray(tsallis_weights(jnp.asarray(losses + 5.0), 0.3))
        np.testing.assert_allclose(moved, weights, rtol=1e-8)


def test_tsallis_weights_sum_to_one_for_one_good_arm_among_many() -> None:
    losses = jnp.full(100_000, 1e3).at[7].set(0.0)
    for rate in (1e-4, 1e-2, 1.0, 1e3):
        assert abs(float(tsallis_weights(losses, rate).sum()) - 1) < 1e-10


@pytest.mark.parametrize("lag", [0.0, 0.5, 20.0])
def test_the_weights_of_two_arms_have_a_closed_form(lag: float) -> None:
    """1/√w₂ - 1/√w₁ = ηd/2 with w₁ + w₂ = 1: one unknown angle, w₁ = cos², w₂ = sin²."""
    angle = optimize.brentq(lambda a: 1 / math.sin(a) - 1 / math.cos(a) - 0.4 * lag / 2, 1e-9, 0.8)
    weights = np.asarray(tsallis_weights(jnp.asarray([0.0, lag]), 0.4))
    np.testing.assert_allclose(weights, [math.cos(angle) ** 2, math.sin(angle) ** 2], rtol=1e-9)


def test_estimates_by_hand() -> None:
    """Report 2.5 is the bit 1; the third arm is below the floor and is not measured from ½."""
    weights = jnp.asarray([0.7, 0.29, 0.01])
    state = State(losses=jnp.zeros(3), weights=weights)
    reduced = Tsallis.of(GAME, mode="theory", channel=BIT)
    round = 99  # η² = 16/100
    after = learnt(reduced, state, 1, 2.5, round)
    np.testing.assert_allclose(after.losses, [0.5, 0.5 + 0.5 / 0.29, 0.0])
    after = learnt(reduced, state, 2, 2.5, round)
    np.testing.assert_allclose(after.losses, [0.5, 0.5, 100.0])
    plain = Tsallis.of(GAME, mode="theory", channel=BIT, estimator="importance")
    after = learnt(plain, state, 1, 2.5, round)
    np.testing.assert_allclose(after.losses, [0.0, 1 / 0.29, 0.0])
    np.testing.assert_allclose(after.weights, tsallis_weights(after.losses, 2 / math.sqrt(101)))


def test_reports_without_bounds_are_divided_by_their_spread() -> None:
    policy = Tsallis.of(GAME, mode="theory", channel=NORMAL, estimator="importance")
    state = policy.init({})
    after = learnt(policy, state, 0, -3.0, 0)
    np.testing.assert_allclose(after.losses, [3 * -3.0 / 4, 0.0, 0.0])


def test_arms_are_drawn_by_weight() -> None:
    """20 000 draws: each share is right within five deviations."""
    policy = Tsallis.of(GAME, channel=BIT)
    weights = jnp.asarray([0.1, 0.6, 0.3])
    state = State(losses=jnp.zeros(3), weights=weights)
    many = 20_000

    def draw(number: Array) -> Array:
        return policy.propose(state, number, Stream.of(seed=1, replicate=number).at(POLICY))

    shares = np.bincount(np.asarray(jax.vmap(draw)(jnp.arange(many))), minlength=3) / many
    assert (np.abs(shares - weights) < 5 * np.sqrt(weights * (1 - weights) / many)).all()


def test_ucb_plays_each_arm_once_then_the_least_optimistic_loss() -> None:
    policy = UCB.of(GAME, mode="theory", channel=NORMAL)
    assert int(policy.propose(counts([1, 0, 1], [0, 0, 0]), jnp.int32(2), AT)) == 1
    # Widths √(4·4·ln 100/n): 8.58, 4.29, 2.71; so the first wins although its mean is greater.
    state = counts([1, 4, 10], [2.0, 1.0, 0.5])
    assert int(policy.propose(state, jnp.int32(99), AT)) == 0
    state = counts([1, 4, 10], [7.5, 1.0, 0.5])
    assert int(policy.propose(state, jnp.int32(99), AT)) == 1
    assert int(UCB.of(GAME, channel=NORMAL, width=0.0).propose(state, jnp.int32(99), AT)) == 2
    assert int(policy.recommend(state)) == 2


@pytest.mark.parametrize("mean", [0.05, 0.3, 0.5, 0.95])
@pytest.mark.parametrize("bound", [1e-4, 0.01, 0.5])
def test_the_least_mean_solves_its_equation(mean: float, bound: float) -> None:
    found = float(least_mean(jnp.asarray(mean), jnp.asarray(bound)))
    right = optimize.brentq(
        lambda q: float(coin_divergence(jnp.asarray(mean), jnp.asarray(q))) - bound, 1e-12, mean
    )
    np.testing.assert_allclose(found, right, rtol=1e-4)
    assert found <= right + 1e-12


def test_kl_ucb_plays_by_the_divergence_of_bits() -> None:
    """Means 0.5 and 0.9 as bits are reports 0.5 and 2.1 in [-1.5, 2.5]."""
    policy = KLUCB.of(GAME, channel=BIT)
    level = math.log(100)
    low = least_mean(jnp.asarray([0.5, 0.9]), jnp.asarray([level / 50, level / 4]))
    state = counts([50, 4, 400], [0.5, 2.1, 2.5])
    assert int(policy.propose(state, jnp.int32(99), AT)) == int(np.argmin(low))
    assert int(policy.propose(counts([3, 3, 0], [0, 0, 0]), jnp.int32(6), AT)) == 2


def test_elimination_drops_only_clearly_worse_arms() -> None:
    policy = SuccessiveElimination.of(GAME, mode="theory", channel=CLEAR)
    n, union = 200.0, 4 * 3 * 1000 / 3
    width = 0.5 * math.sqrt(2 * math.log(union * n**2) / n)
    means = [0.1, 0.1 + 1.9 * width, 0.1 + 2.1 * width]
    before = counts([n, n, n - 1], means)
    state = Surviving(pulls=before.pulls, total=before.total, alive=jnp.ones(3, bool))
    assert int(policy.propose(state, jnp.int32(0), AT)) == 2
    after = learnt(policy, state, 2, means[2], 0)
    assert after.alive.tolist() == [True, True, False]
    assert int(policy.propose(after, jnp.int32(0), AT)) == 0
    assert int(policy.recommend(after)) == 0


def test_lil_ucb_by_hand() -> None:
    theory = LilUCB.of(GAME, mode="theory", channel=NORMAL, failure=0.05)
    constant = 2.01 / 0.01 * (1 / math.log(1.01)) ** 1.01
    assert theory.share == 9
    np.testing.assert_allclose(theory.delta, (math.sqrt(1.05) - 1) ** 2 / 4 / constant)
    np.testing.assert_allclose(theory.wide, 2 * 1.1)
    usual = LilUCB.of(GAME, channel=NORMAL, failure=0.05)
    assert (usual.wide, usual.slack, usual.delta) == (1.5, 1.0, 0.01)
    assert int(usual.propose(counts([3, 3, 2], [0, 0, 0]), jnp.int32(8), AT)) == 2

    def index(mean: float, n: float) -> float:
        return mean - 1.5 * 2.0 * math.sqrt(2 * math.log(math.log(n) / 0.01) / n)

    state = counts([30, 60, 90], [0.9, 0.2, 0.1])
    expected = [index(0.9, 30), index(0.2, 60), index(0.1, 90)]
    assert int(usual.propose(state, jnp.int32(180), AT)) == int(np.argmin(expected))


def test_lil_ucb_stops_when_one_arm_dwarfs_the_others() -> None:
    policy = LilUCB.of(GAME, channel=CLEAR)  # λ = 1 + 10/3
    others = 6 * (1 + 10 / 3)
    assert not bool(policy.is_stopped(counts([3, 3, others], [0, 0, 0])))
    enough = counts([3, 3, others + 1], [0, 0, 0])
    assert bool(policy.is_stopped(enough))
    assert int(policy.recommend(enough)) == 2


def test_halving_keeps_the_better_half_and_forgets() -> None:
    problem = ContextFreeProblem(horizon=100, low=0.0, high=1.0, arms=5)
    policy = Halving.of(problem, channel=CLEAR)
    assert [(s.arms, s.pulls) for s in policy.stages] == [(5, 6), (3, 11), (2, 16)]
    losses, state, played = [0.5, 0.1, 0.9, 0.3, 0.2], policy.init({}), []
    for round in range(policy.stages[-1].last):
        assert not (isinstance(policy, Stops) and bool(policy.is_stopped(state)))
        arm = int(_proposed(policy, state, jnp.int32(round)))
        played.append(arm)
        state = learnt(policy, state, arm, losses[arm], round)
        assert isinstance(state, HalvingState)
    assert np.bincount(played).tolist() == [6, 6 + 11 + 16, 6, 6 + 11, 6 + 11 + 16]
    assert bool(policy.is_stopped(state))
    assert int(policy.recommend(state)) == 1
    with pytest.raises(InvalidValueError, match="at least 15"):
        Halving.of(ContextFreeProblem(horizon=14, low=0.0, high=1.0, arms=5), channel=CLEAR)


def test_a_loss_is_clipped_whatever_it_is() -> None:
    loss = BoundedScalar(low=-1.0, high=3.0)
    assert (loss.sensitivity, loss.center, loss.radius, loss.size) == (4.0, 1.0, 2.0, 1)
    for wild, clipped in ((9.0, 3.0), (-9.0, -1.0), (math.inf, 0.0), (math.nan, 0.0)):
        assert loss.encode(jnp.asarray(wild)).tolist() == [clipped]


def test_a_bit_is_a_number_in_the_unit_interval() -> None:
    assert float(BIT.unit(jnp.asarray(-1.5))) == 0.0
    assert float(BIT.unit(jnp.asarray(2.5))) == 1.0
    assert not NORMAL.bounded


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["tsallis", "kl-ucb"])
def test_bounded_policy_rejects_unbounded_reports(name: str, mode: Any) -> None:
    made(name, GAME, mode, BIT)
    with pytest.raises(InvalidValueError, match="one-bit"):
        made(name, GAME, mode, NORMAL)


@pytest.mark.parametrize("name", ["ucb", "successive-elimination", "lil-ucb"])
def test_theorems_about_light_tails_refuse_heavy_ones(name: str) -> None:
    made(name, GAME, "theory", NORMAL)
    made(name, GAME, "tuned", HEAVY)
    with pytest.raises(InvalidValueError, match="sub-Gaussian"):
        made(name, GAME, "theory", HEAVY)


@pytest.mark.parametrize("name", ARMED)
def test_every_entry_builds_what_it_says(name: str) -> None:
    entry = POLICIES[name]
    for mode in ("theory", "tuned"):
        policy = made(name, GAME, mode, CLEAR)
        assert type(policy) in entry.kinds
        assert policy.problem is GAME
        state = policy.init({})
        action = policy.propose(state, jnp.int32(0), AT)
        assert action.dtype == jnp.int32
        assert 0 <= int(action) < 3
        assert not (isinstance(policy, Stops) and bool(policy.is_stopped(state)))
