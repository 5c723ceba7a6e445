"""A world that replays logs: what it shows is what the bandit would have met."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.data.simulated import contexts, logged, means, rule

from kerchief import Guarantee, MemoryLedger, Protection, Trust, simulate
from kerchief.comparison.datasets import describe_data
from kerchief.core.contracts import Arms, Clock, Environment, HasBestArm, OmniscientAdversary
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import ARMS, WORLD, Stream
from kerchief.data.logs import Logs
from kerchief.data.replay import LoggedArms, Replay
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments.projected import Projected

LOGS = logged(3000, seed=1)
REPLAYED = Replay.of(LOGS, norm=1.0)
FREE = Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE)


def by_rule(arms: Arms) -> Any:
    return jnp.where(arms.features[0, 1] > 0, 2, 0)


def met(world: Replay, choose: Any, replicates: int, rounds: int) -> tuple[Any, ...]:
    """Rows, rewards and regrets of many rounds in many replicates."""

    def one(replicate: Any, round: Any) -> Any:
        root = Stream.of(seed=5, replicate=replicate)
        truth, clock = world.init(root.at(WORLD)), Clock(round=round, since={})
        arms = world.opposed(truth, clock, root.at(ARMS, round=round), choose)
        action = choose(arms)
        reward = world.reward(truth, arms, action, clock, root)
        return arms.row, reward, world.regret(truth, arms, action, clock)

    both = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))
    found = jax.jit(both)(jnp.arange(replicates), jnp.arange(rounds))
    return tuple(np.asarray(leaf) for leaf in found)


def test_users_and_rewards_have_the_law_that_playing_would_give() -> None:
    """Bootstrap and draws: five standard errors of 200 replicates of 200 rounds."""
    rows, rewards, regrets = met(REPLAYED, by_rule, 200, 200)
    assert (rows >= 0).all()
    error = 5 * rewards.mean(axis=1).std() / np.sqrt(200)
    chosen = rule(LOGS.contexts)
    weights = (chosen == LOGS.actions) / LOGS.propensities
    expected = (weights * LOGS.rewards).sum() / weights.sum()
    assert abs(rewards.mean() - expected) < error
    seen = LOGS.contexts[rows]
    everyone = (weights[:, None] * LOGS.contexts).sum(axis=0) / weights.sum()
    # Of the logging policy's users, two fifths would have been met too often or too rarely.
    assert np.abs(seen.mean(axis=(0, 1)) - everyone).max() < 0.01
    np.testing.assert_allclose(regrets, np.asarray(REPLAYED.means).max() - rewards, atol=1e-6)


def test_a_replicate_is_a_bootstrap_sample() -> None:
    """Its mean over many rounds is its sample's, which differs from sample to sample."""
    small = Replay.of(logged(60, seed=2), norm=1.0)
    rows, _, _ = met(small, lambda arms: jnp.int32(0), 30, 600)
    missing = [len(np.setdiff1d(np.flatnonzero(small.actions == 0), one)) for one in rows]
    assert np.mean(missing) > 0.2 * np.sum(np.asarray(small.actions) == 0)


def test_replay_pays_least_reward_without_matching_row() -> None:
    """All users to the left were given arm 0, and the bandit wants arm 1 there and nowhere else."""
    left = Logs(
        contexts=np.array([[-0.5], [-0.5], [0.5], [0.5]]),
        actions=np.array([0, 0, 1, 1]),
        rewards=np.ones(4),
        propensities=np.full(4, 0.5),
        arms=2,
        low=0.25,
        high=1.0,
    )
    world = Replay.of(left, norm=1.0)
    rows, rewards, _ = met(world, lambda arms: (arms.features[0, 0] < 0).astype(jnp.int32), 4, 8)
    assert (rows == -1).all()
    assert (rewards == 0.25).all()


def test_means_and_the_best_arm_are_by_inverse_propensity() -> None:
    truth = means(contexts(200_000, seed=9)).mean(axis=0)
    world = Replay.of(logged(30_000, seed=3), norm=1.0)
    np.testing.assert_allclose(world.means, truth, atol=0.03)
    assert int(world.single(Stream.of(seed=1, replicate=0))) == int(truth.argmax())


@pytest.mark.nightly
def test_bandits_learn_from_logs_in_the_compiled_loop() -> None:
    """What a bandit loses against one arm, it loses at first: later it is better than any arm."""
    assert isinstance(REPLAYED, OmniscientAdversary)
    assert isinstance(REPLAYED, HasBestArm)
    world: Environment = REPLAYED
    made = build_protected("own-models", world.problem(1000), Protection(guarantee=FREE))
    run = simulate(
        policy=made.policy,
        privatizers=made.privatizers,
        environment=world,
        ledger=MemoryLedger(FREE),
        horizon=1000,
        replicates=8,
        seed=3,
        ticks=4,
    )
    late = (run.regret[-1] - run.regret[-2]).mean() / 250
    assert late < -0.03


def test_replay_crosses_arm_and_user_features_in_shared_model() -> None:
    of_arms = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])
    both = Replay.of(logged(50, seed=4, arm_features=of_arms), norm=1.0, arm_norm=1.0)
    facts = both.problem(10)
    assert (facts.dim, facts.own) == (6, 0)
    assert facts.norm == pytest.approx(np.sqrt(2))
    arms = both.arms(both.init(Stream.of(seed=1, replicate=0)), Clock(round=jnp.int32(0), since={}),
                     Stream.of(seed=1, replicate=0))  # fmt: skip
    user = logged(50, seed=4).contexts[int(arms.row)]
    expected = [[*one, *np.outer(one, user).ravel()] for one in of_arms]
    np.testing.assert_allclose(arms.features, expected, atol=1e-6)


def test_a_projected_replay_still_knows_the_row() -> None:
    short = Projected.of(world=Replay.of(logged(50, seed=4), norm=1.0), onto=1)
    assert isinstance(short, HasBestArm)
    assert isinstance(short, OmniscientAdversary)
    root, clock = Stream.of(seed=1, replicate=0), Clock(round=jnp.int32(0), since={})
    truth = short.init(root.at(WORLD))
    arms = short.opposed(truth, clock, root.at(ARMS), lambda arms: jnp.int32(0))
    row = arms.original.row  # type: ignore[attr-defined]
    assert isinstance(row, jax.Array)
    assert float(short.reward(truth, arms, jnp.int32(0), clock, root)) == logged(50, 4).rewards[row]


def test_masks_travel_with_their_rows() -> None:
    allowed = np.ones((50, 3), bool)
    rows = np.arange(50)
    allowed[rows, (logged(50, seed=4).actions + 1) % 3] = False
    world = Replay.of(logged(50, seed=4, allowed=allowed), norm=1.0)
    root, clock = Stream.of(seed=1, replicate=0), Clock(round=jnp.int32(0), since={})
    arms = world.arms(world.init(root), clock, root)
    assert isinstance(arms, LoggedArms)
    np.testing.assert_array_equal(arms.allowed, allowed[int(arms.row)])


@pytest.mark.parametrize(
    ("more", "asked", "said"),
    [
        ({}, {}, "norm is not given"),
        ({}, {"norm": 0.1}, "row 1 .*norm 0.1 is exceeded"),
        ({"arms": 4}, {"norm": 1.0}, "arm 3, counted from 0, was never logged: what"),
        ({"arms": 6}, {"norm": 1.0}, "was never logged, nor were 2 others"),
        ({"contexts": np.zeros((50, 0))}, {"norm": 1.0}, "no features"),
        ({"propensities": np.full(50, 1e-7)}, {"norm": 1.0}, "least propensity is 1e-07"),
        ({"propensities": np.full(50, 1e-300)}, {"norm": 1.0}, r"some 1e\+300 users must be drawn"),
        ({}, {"norm": 1.0, "least": 0.0}, "least_propensity is 0.0"),
    ],
)
def test_replay_rejects_unusable_logs(more: Any, asked: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        Replay.of(logged(50, seed=4, **more), **asked)


def test_worlds_of_logs_can_be_sent_to_other_processes() -> None:
    again = pickle.loads(pickle.dumps(REPLAYED))
    np.testing.assert_array_equal(again.contexts, REPLAYED.contexts)
    assert again.problem(9) == REPLAYED.problem(9)


def test_replay_states_user_per_decision_when_logs_name_users() -> None:
    known = dataclasses.replace(LOGS, users=np.arange(LOGS.rows) % 7)
    for world, said in ((REPLAYED, False), (Replay.of(known, norm=1.0), True)):
        assert any("stands for a user of its own" in line for line in describe_data(world)) is said


def test_runs_longer_than_the_logs_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="at most 3000"):
        REPLAYED.problem(3001)
