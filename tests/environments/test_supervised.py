"""Worlds of data: orders of users, labels or rewards, features of users and of arms."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.checks.check import check
from kerchief.core.contracts import Clock, HasBestArm
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.environments import Supervised

ROWS = np.array([[0.6, 0.5], [-0.6, 0.5], [0.0, 0.5], [0.3, 0.5]])
LABELS = [2, 0, 1, 2]
DATA = Supervised.of(users=ROWS, labels=LABELS, norm=1.0, constant=0.5)
REWARDS = np.array([[0.0, 5.0, 2.0], [4.0, -1.0, 2.0], [0.0, 0.0, 2.0], [1.0, 0.0, 2.0]])
PAID = Supervised.of(users=ROWS, rewards=REWARDS, norm=1.0, constant=0.5, low=-1.0, high=5.0)
ROOT = Stream.of(seed=0, replicate=0)


def at(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def test_users_come_once_each_in_an_order_of_the_replicate() -> None:
    orders = [tuple(np.asarray(DATA.init(Stream.of(seed=0, replicate=k)))) for k in range(8)]
    assert len(set(orders)) > 1
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    order = jnp.asarray(orders[0])
    for round, place in enumerate(orders[0]):
        arms = DATA.arms(order, at(round), ROOT)
        np.testing.assert_allclose(arms.features, np.tile(ROWS[place], (3, 1)), rtol=1e-6)
        for arm in range(3):
            given = (order, arms, jnp.int32(arm), at(round))
            assert float(DATA.regret(*given)) == (arm != LABELS[place])
            assert float(DATA.reward(*given, ROOT)) == (arm == LABELS[place])


def test_all_orders_are_equally_likely() -> None:
    """Error 1e-6: of 24 counts with mean 1000, none strays by more than six deviations."""
    orders = jax.vmap(lambda k: DATA.init(Stream.of(seed=5, replicate=k)))(jnp.arange(24_000))
    codes = np.asarray(orders) @ np.array([64, 16, 4, 1])
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 6 * np.sqrt(1000)


def test_users_are_drawn_anew_by_the_bootstrap() -> None:
    data = Supervised.of(users=ROWS, labels=LABELS, norm=1.0, constant=0.5, orders="bootstrap")
    world = data.init(ROOT)

    def seen(round: Any) -> Any:
        arms = data.arms(world, Clock(round=round, since={}), ROOT)
        clock = Clock(round=round, since={})
        lost = [data.regret(world, arms, jnp.int32(arm), clock) for arm in range(3)]
        return arms.features[0, 0], jnp.stack(lost)

    firsts, lost = jax.vmap(seen)(jnp.arange(8000, dtype=jnp.int32))
    counts = [(np.isclose(np.asarray(firsts), one)).sum() for one in ROWS[:, 0]]
    assert sum(counts) == 8000
    assert np.abs(np.array(counts) - 2000).max() < 5 * np.sqrt(8000 * 3 / 16)
    rights = [LABELS[int(np.argmin(abs(ROWS[:, 0] - one)))] for one in np.asarray(firsts)]
    np.testing.assert_array_equal(np.asarray(lost).argmin(1), rights)
    assert data.problem(10_000).horizon == 10_000


def test_rewards_of_a_table_are_paid_as_they_are() -> None:
    order = jnp.arange(4)
    for user, row in enumerate(REWARDS):
        arms = PAID.arms(order, at(user), ROOT)
        for arm, reward in enumerate(row):
            given = (order, arms, jnp.int32(arm), at(user))
            assert float(PAID.reward(*given, ROOT)) == reward
            assert float(PAID.regret(*given)) == row.max() - reward
    facts = PAID.problem(4)
    assert (facts.low, facts.high, facts.radius, facts.own) == (-1.0, 5.0, 6.0, 2)


def test_the_best_single_arm_is_the_best_on_average() -> None:
    assert isinstance(DATA, HasBestArm)
    assert int(DATA.single(jnp.arange(4))) == 2
    assert int(PAID.single(jnp.arange(4))) == 2


def test_features_of_arms_share_a_parameter() -> None:
    offers = np.array([[0.1, 0.5], [0.2, 0.5], [0.3, 0.5]])
    shared = Supervised.of(offers=offers, labels=LABELS, norm=1.0, constant=0.5)
    arms = shared.arms(jnp.arange(4), at(1), ROOT)
    np.testing.assert_allclose(arms.features, offers, rtol=1e-6)
    assert (shared.problem(4).own, shared.problem(4).dim) == (0, 2)
    each = np.stack([offers + user / 100 for user in range(4)])
    met = Supervised.of(offers=each, labels=LABELS, norm=1.0)
    for user in range(4):
        arms = met.arms(jnp.arange(4), at(user), ROOT)
        np.testing.assert_allclose(arms.features, each[user], rtol=1e-6)


def test_user_and_arm_features_form_one_row_with_block_per_arm() -> None:
    each = np.full((4, 3, 1), 0.25)
    both = Supervised.of(users=ROWS, offers=each, labels=LABELS, norm=1.0, constant=0.5)
    arms = both.arms(jnp.arange(4), at(1), ROOT)
    none = [0.0, 0.0]
    blocks = [[*ROWS[1], *none, *none], [*none, *ROWS[1], *none], [*none, *none, *ROWS[1]]]
    np.testing.assert_allclose(arms.features, [[0.25, *one] for one in blocks], rtol=1e-6)
    facts = both.problem(4)
    assert (facts.own, facts.dim, facts.constant, facts.radius) == (0, 7, 0.0, 2.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": [0, 1, 2]}, "one row and one outcome per user"),
        ({"labels": [0.0, 1.0, 2.0, 0.0]}, "one whole number from 0"),
        ({"labels": [0, -1, 2, 0]}, "one whole number from 0"),
        ({"labels": [[0], [1, 2]]}, "one whole number from 0"),
        ({"labels": None}, "both given, or neither"),
        ({"rewards": REWARDS}, "both given, or neither"),
        ({"labels": None, "rewards": REWARDS}, r"do not all lie in \[0.0, 1.0\]"),
        ({"labels": None, "rewards": [1.0]}, "one row per user and one column per arm"),
        ({"labels": None, "rewards": REWARDS / 10 + 0.1, "arms": 4}, "one per arm"),
        ({"arms": 2}, "arms is 2; it must be at least 3"),
        ({"high": 2.0}, r"rewards of labels lie in \[0, 1\]"),
        ({"norm": 0.5}, "the longest row has norm"),
        ({"constant": 0.4}, "the last coordinate of all rows"),
        ({"users": None}, "there are no features"),
        ({"users": [1.0]}, "one row of features each"),
        ({"offers": [[1.0]]}, "one row per arm, or one row per user and arm"),
        ({"orders": "sorted"}, "choose one of permutation, bootstrap"),
    ],
)
def test_data_outside_their_bounds_are_refused(change: dict[str, Any], said: str) -> None:
    given = {"users": ROWS, "labels": LABELS, "norm": 1.0, "constant": 0.5}
    with pytest.raises(InvalidValueError, match=said):
        Supervised.of(**{**given, **change})


def test_a_run_ends_with_the_data() -> None:
    with pytest.raises(
        InvalidValueError, match=r"horizon is 5, and there are 4 users .* bootstrap"
    ):
        DATA.problem(5)


def test_data_travel_to_other_processes() -> None:
    back = pickle.loads(pickle.dumps(PAID))
    np.testing.assert_array_equal(back.outcomes, PAID.outcomes)
    assert back.problem(4) == PAID.problem(4)


def test_data_keep_the_laws_of_worlds() -> None:
    dice = np.random.default_rng(3)
    users = np.column_stack([dice.uniform(-0.5, 0.5, (600, 2)), np.full(600, 0.5)])
    labels = (users[:, 0] > 0).astype(int)
    for orders in ("permutation", "bootstrap"):
        data = Supervised.of(users=users, labels=labels, norm=1.0, constant=0.5, orders=orders)
        check(data, thorough=True)
