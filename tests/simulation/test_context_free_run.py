"""Runs without contexts: what is learned, what it costs, and who is asked.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray
from scipy import optimize  # type: ignore[import-untyped]

from kerchief.core.errors import BudgetExceededError, InvalidValueError
from kerchief.core.problems import Problem
from kerchief.core.queries import BoundedScalar
from kerchief.core.random import DEVICE, POLICY, REWARD, WORLD, Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.environments.context_free import Alternating, ChanceArms
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.one_bit import OneBit
from kerchief.policies.context_free.base import LOSS
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, channel_of
from kerchief.privatizers.billing import settle
from kerchief.privatizers.schedule import Every
from kerchief.privatizers.sums import CohortSums
from kerchief.simulation import Run, simulate
from kerchief.simulation import run as running

CHANCE = ChanceArms.of(arms=4, gap=0.4)
SWINGS = Alternating.of(arms=4, gap=0.15)
HORIZON = 3000
FREE = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)


def promise(epsilon: float) -> Guarantee:
    if math.isinf(epsilon):
        return FREE
    return Guarantee(epsilon=epsilon, delta=0.0, trust=Trust.LOCAL)


def built(name: str, epsilon: float = 4.0, *, world: Any = CHANCE, horizon: int = HORIZON) -> Any:
    made = build_protected(name, world.problem(horizon), Protection(guarantee=promise(epsilon)))
    return made.policy, made.privatizers


def run(
    name: str, epsilon: float = 4.0, *, world: Any = CHANCE, horizon: int = HORIZON, **changes: Any
) -> Run:
    policy, privatizers = built(name, epsilon, world=world, horizon=horizon)
    choices: dict[str, Any] = {
        "policy": policy,
        "privatizers": privatizers,
        "environment": world,
        "ledger": MemoryLedger(promise(epsilon)),
        "horizon": horizon,
        "replicates": 32,
        "seed": 5,
        "ticks": 10,
    }
    return simulate(**choices | changes)


def pulls(found: Run) -> NDArray[np.int64]:
    return found.releases[LOSS]


def rights(found: Run) -> NDArray[np.float64]:
    assert found.right is not None
    return found.right


@lru_cache
def ran(name: str, epsilon: float = 4.0, world: Any = CHANCE) -> Run:
    return run(name, epsilon, world=world, replicates=200)


def test_noiseless_run_matches_the_non_private_bandit() -> None:
    """The channel of a bit with no noise is clear, and every replicate goes the same way."""
    policy, privatizers = built("tsallis", horizon=300)
    silent = {
        name: one.with_noise(lambda noise: dataclasses.replace(noise, std=0.0))
        for name, one in privatizers.items()
    }
    clear = dataclasses.replace(policy, channel=channel_of(silent[LOSS]))
    changes: dict[str, Any] = {"policy": clear, "horizon": 300, "replicates": 4}
    quiet = run("tsallis", privatizers=silent, ledger=MemoryLedger(FREE), **changes)
    bare = {LOSS: dataclasses.replace(privatizers[LOSS], device=None)}
    plainly = run("tsallis", privatizers=bare, ledger=MemoryLedger(FREE), **changes)
    np.testing.assert_array_equal(quiet.regret, plainly.regret)
    assert plainly.regret.std(1)[-1] > 0


def test_the_reduction_is_tsallis_inf_on_the_bits() -> None:
    """Propose, clip, randomize, update: beside a plain loop that is written anew."""
    epsilon, seed, rounds = 1.0, 5, 40
    root = Stream.of(seed=seed, replicate=0)
    world = CHANCE.init(root.at(WORLD))
    losses, weights, lost = np.zeros(4), np.full(4, 0.25), 0.0
    tilt = math.tanh(epsilon / 2)
    late = 40 * 4 / tilt**2
    for round in range(rounds):
        uniform = float(root.at(POLICY, round=round).uniform(1)[0])
        arm = int((np.cumsum(weights) < uniform).sum())
        mean = 0.1 if arm == int(world.best) else 0.5
        loss = float(root.at(REWARD, round=round).uniform(1)[0]) <= mean
        coin = float(root.at(DEVICE, round=round).uniform(1)[0])
        bit = float(coin <= 0.5 + (loss - 0.5) * tilt)
        start = np.where(weights >= 0.25 * 25 / (round + 1 + late), 0.5, 0.0)
        estimate = start.copy()
        estimate[arm] += (bit - start[arm]) / weights[arm]
        losses += estimate
        weights = _weights(losses, 5 / math.sqrt(round + 2 + late))
        lost += mean - 0.1
    found = run("tsallis", epsilon, horizon=rounds, replicates=1, seed=seed, ticks=1)
    np.testing.assert_allclose(found.regret[-1, 0], lost, atol=1e-9)
    assert 0 < lost < 0.4 * rounds


def _weights(losses: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    def weights(x: float) -> NDArray[np.float64]:
        return np.asarray(4 / (rate * (losses - x)) ** 2)

    low, high = losses.min() - 4 / rate * 2, losses.min() - 1.9999 / rate
    return weights(optimize.brentq(lambda x: weights(x).sum() - 1, low, high, xtol=1e-14))


def test_regret_in_bits_is_regret_in_losses_times_the_tilt() -> None:
    epsilon = 1.0
    _, privatizers = built("tsallis", epsilon)
    channel, tilt = channel_of(privatizers[LOSS]), math.tanh(epsilon / 2)
    world, arms = CHANCE.init(Stream.of(seed=1, replicate=0).at(WORLD)), jnp.arange(4)
    means = jax.vmap(CHANCE.means, in_axes=(None, 0, None))(world, arms, jnp.int32(0))
    bits = channel.unit(means)
    np.testing.assert_allclose(bits - bits.min(), tilt * (means - means.min()), rtol=1e-8)

    # And a bit has that mean: 100 000 reports, five deviations.
    many = 100_000
    root = Stream.of(seed=2, replicate=0)

    @jax.jit
    def reports(loss: Array) -> Array:
        def send(user: Array) -> Array:
            sent: Array = privatizers[LOSS].randomize(loss, None, root.at(DEVICE, round=user))
            return channel.unit(sent)

        return jax.vmap(send)(jnp.arange(many))

    for loss in (0.0, 0.3, 1.0):
        sent = np.asarray(reports(jnp.asarray(loss)))
        np.testing.assert_allclose(np.unique(sent.round(9)), [0, 1])
        expected = float(channel.unit(jnp.asarray(loss)))
        assert abs(sent.mean() - expected) < 5 * 0.5 / math.sqrt(many)


@pytest.mark.nightly
def test_it_learns_against_chance_and_against_an_adversary() -> None:
    """Against chance UCB is better; where all means swing, it settles on a wrong arm too often."""

    def lost(name: str, epsilon: float, world: Any) -> float:
        return float(ran(name, epsilon, world).regret[-1].mean())

    for world in (CHANCE, SWINGS):
        assert lost("tsallis", 4.0, world) < 0.3 * lost("uniform", math.inf, world)
    assert lost("ucb", 4.0, CHANCE) < lost("tsallis", 4.0, CHANCE)
    assert lost("ucb", 4.0, SWINGS) > 1.3 * lost("tsallis", 4.0, SWINGS)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        "ucb",
        "tsallis-iw",
        *(
            pytest.param(one, marks=pytest.mark.nightly)
            for one in ("kl-ucb", "successive-elimination")
        ),
    ],
)
def test_every_bandit_learns_from_bits(name: str) -> None:
    uniform = ran("uniform", math.inf).regret[-1].mean()
    assert ran(name).regret[-1].mean() < 0.4 * uniform


@pytest.mark.nightly
def test_the_best_arm_is_found_and_pulls_grow_with_the_variance() -> None:
    many = run("lil-ucb", 1.5, replicates=200, horizon=20_000, ticks=40)
    few = run("lil-ucb", 4.0, replicates=200, horizon=20_000, ticks=40)
    for found in (many, few):
        assert rights(found).mean() >= 0.95
        assert pulls(found).max() < 20_000
    ratio = (math.tanh(2.0) / math.tanh(0.75)) ** 2
    assert abs(pulls(many).mean() / pulls(few).mean() / ratio - 1) < 0.2


def test_stopped_replicate_sends_no_query_and_has_no_regret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled: dict[str, Any] = {}

    def spy(*arguments: Any, **words: Any) -> None:
        settled.update(words)
        settle(*arguments, **words)

    monkeypatch.setattr(running, "settle", spy)
    found = run("lil-ucb", 4.0, replicates=200, horizon=20_000, ticks=40)
    assert len(np.unique(pulls(found))) > 4
    assert settled["users"] == pulls(found).max() < 20_000
    assert settled["releases"] == {LOSS: pulls(found).max()}
    for tick, rounds in enumerate(found.rounds):
        over = pulls(found) <= rounds
        np.testing.assert_array_equal(found.regret[tick, over], found.regret[-1, over])
    assert found.rounds[-1] == 20_000
    # No more than what the pulls themselves can lose, and more than nothing.
    assert (found.regret[-1] < 0.4 * pulls(found)).all()
    assert (found.regret[-1] > 0).all()


def test_halving_asks_exactly_its_budget() -> None:
    found = run("halving", horizon=1001, replicates=8)
    assert (pulls(found) == 1000).all()
    assert rights(found).mean() == 1


def test_uniform_policy_has_no_queries_or_phases() -> None:
    found = ran("uniform", math.inf)
    assert found.releases == {}
    assert found.spent.epsilon == 0
    # Three of four arms lose 0.4: binomial, within five deviations.
    expected = 0.3 * HORIZON
    deviation = 0.4 * math.sqrt(HORIZON * 3 / 16 / 200)
    assert abs(found.regret[-1].mean() - expected) < 5 * deviation


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_local_run_spends_the_requested_epsilon(epsilon: float) -> None:
    found = run("ucb", epsilon, horizon=50, replicates=2, ticks=1)
    assert found.spent.trust is Trust.LOCAL
    assert epsilon * (1 - 1e-7) < found.spent.epsilon <= epsilon
    assert (found.releases[LOSS] == 50).all()


def test_a_run_over_budget_is_refused_before_anything_is_played() -> None:
    ledger = MemoryLedger(promise(1.0))
    told: list[str] = []
    changes: dict[str, Any] = {"horizon": 50, "replicates": 2, "ticks": 1, "ledger": ledger}
    with pytest.raises(BudgetExceededError):
        run("ucb", 2.0, **changes, progress=lambda stage, done: told.append(stage))
    assert told == []
    assert ledger.spent().epsilon == 0
    run("ucb", 1.0, **changes)
    # The same users may not be asked again.
    with pytest.raises(BudgetExceededError):
        run("ucb", 1.0, **changes)


def test_replicates_may_be_run_in_chunks() -> None:
    whole = run("ucb", horizon=50, replicates=4, ticks=1)
    rest = run("ucb", horizon=50, replicates=2, first_replicate=2, ticks=1)
    np.testing.assert_array_equal(rest.regret, whole.regret[:, 2:])
    assert whole.regret.std(1)[-1] > 0


def sums(device: Any = None, aggregator: Any = None) -> CohortSums:
    query = BoundedScalar(low=-1.0, high=3.0)
    return CohortSums(query=query, schedule=Every(), device=device, aggregator=aggregator)


def test_channel_states_range_and_spread_of_reports() -> None:
    assert channel_of(sums()) == ReportDistribution(low=-1.0, high=3.0, spread=2.0)
    bit = channel_of(sums(OneBit.of(epsilon=1.0, center=1.0, radius=2.0)))
    far = 2.0 / math.tanh(0.5)
    found = np.array([bit.low, bit.high, bit.spread], np.float64)
    np.testing.assert_allclose(found, np.array([1 - far, 1 + far, far]))
    normal = Gaussian.of(noise_multiplier=1.0, sensitivity=4.0)
    assert channel_of(sums(normal)) == ReportDistribution(low=None, high=None, spread=math.sqrt(20))
    with pytest.raises(InvalidValueError, match="trust 'local'"):
        channel_of(sums(aggregator=normal))
    with pytest.raises(InvalidValueError, match="ExactGaussian"):
        channel_of(sums(normal).exact())


def test_reports_are_refused_where_users_choose_in_private() -> None:
    world = make_environment(dim=2, arms=4)
    assert isinstance(world.problem(50), Problem)
    ledger = MemoryLedger(promise(4.0))
    with pytest.raises(
        InvalidValueError, match=r"UCB hears reports.* a Problem.* a ContextFreeProblem"
    ):
        run("ucb", horizon=50, environment=world, ledger=ledger)
    assert ledger.receipts == ()


def test_invalid_run_is_rejected_before_any_charge() -> None:
    ledger = MemoryLedger(promise(4.0))
    policy, privatizers = built("ucb", horizon=50)
    with pytest.raises(InvalidValueError, match="50 rounds and the run has 60"):
        run("ucb", policy=policy, privatizers=privatizers, horizon=60, ledger=ledger)
    with pytest.raises(InvalidValueError, match="protect"):
        run("ucb", privatizers={}, ledger=ledger)
    local = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    with pytest.raises(InvalidValueError, match="one-bit"):
        build_protected(
            "tsallis", CHANCE.problem(50), Protection(guarantee=local, mechanism="gaussian")
        )
    joint = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT)
    with pytest.raises(InvalidValueError, match="choose trust 'local' or 'none'"):
        build_protected("ucb", CHANCE.problem(50), Protection(guarantee=joint))
    assert ledger.spent().epsilon == 0
