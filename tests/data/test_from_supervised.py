"""From a table to a world: labels or rewards, features of users or of arms, all bounds declared."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import kerchief
from kerchief.comparison import Comparison
from kerchief.core.contracts import Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import Stream
from kerchief.data import Declaration, from_supervised, read_table
from kerchief.data.tables import digest_of
from kerchief.environments import Supervised
from kerchief.reports.outputs import Outputs

DICE = np.random.default_rng(7)
PEOPLE: dict[str, Any] = {
    "age": DICE.integers(15, 95, 40),
    "plan": DICE.choice(["basic", "gold"], 40),
    "likes": DICE.choice(["news", "shop", "sport"], 40),
    **{f"clicks_{arm}": DICE.uniform(0, 2, 40) for arm in ("news", "shop", "sport")},
    **{f"price_{arm}": DICE.uniform(0, 12, 40) for arm in ("news", "shop", "sport")},
}
FEATURES = "age=18:90, plan=basic|gold"
CLICKS = ("clicks_news", "clicks_shop", "clicks_sport")


def features_of(world: Supervised, user: int) -> np.ndarray[Any, Any]:
    clock = Clock(round=jnp.int32(user), since={})
    order = jnp.arange(world.rows)
    return np.asarray(world.arms(order, clock, Stream.of(seed=0, replicate=0)).features)


def test_a_label_is_an_arm() -> None:
    world = from_supervised(PEOPLE, "likes", features=FEATURES)
    arms = sorted(set(PEOPLE["likes"]))
    assert [arms[place] for place in np.asarray(world.outcomes)] == list(PEOPLE["likes"])
    encoded = Declaration.of(FEATURES).encode(read_table(PEOPLE))
    np.testing.assert_allclose(world.users, encoded.rows, rtol=1e-6)
    facts = world.problem(40)
    assert (facts.arms, facts.dim, facts.own, facts.constant) == (3, 3, 3, 0.5)
    assert facts.norm == pytest.approx(np.hypot(1, 0.5))
    assert world.origin.clipped == pytest.approx(encoded.clipped.mean())
    assert [name for name, _ in world.origin.shares] == ["age"]


def test_declared_labels_are_the_arms_in_their_order() -> None:
    world = from_supervised(PEOPLE, "likes=sport|never|news|shop", features=FEATURES)
    assert world.count == 4
    arms = ("sport", "never", "news", "shop")
    assert [arms[place] for place in np.asarray(world.outcomes)] == list(PEOPLE["likes"])
    with pytest.raises(InvalidValueError, match=r"of column 'likes' in .* is not declared"):
        from_supervised(PEOPLE, "likes=sport|news", features=FEATURES)


def test_labels_may_be_given_by_themselves() -> None:
    columns = {name: PEOPLE[name] for name in ("age", "plan")}
    named = from_supervised(PEOPLE, "likes", features=FEATURES)
    apart = from_supervised(pl.DataFrame(columns), PEOPLE["likes"], features=FEATURES)
    np.testing.assert_array_equal(apart.outcomes, named.outcomes)
    numbers = from_supervised(np.eye(12), np.arange(12), features="x*=0:1")
    np.testing.assert_array_equal(numbers.outcomes, np.arange(12))
    series = from_supervised(pl.DataFrame(columns), pl.Series(PEOPLE["likes"]), features=FEATURES)
    np.testing.assert_array_equal(series.outcomes, named.outcomes)


def test_rewards_have_a_declared_range() -> None:
    world = from_supervised(PEOPLE, features=FEATURES, rewards=CLICKS, reward_range=(0, 2))
    table = np.column_stack([PEOPLE[name] for name in CLICKS])
    np.testing.assert_allclose(world.outcomes, table, rtol=1e-6)
    assert (world.problem(1).low, world.problem(1).high) == (0.0, 2.0)
    given = from_supervised(PEOPLE, table, features=FEATURES, reward_range=(0, 2))
    np.testing.assert_array_equal(given.outcomes, world.outcomes)


def test_arms_have_features_of_their_own_or_of_every_meeting() -> None:
    listed: dict[str, Any] = {"arm": ["sport", "news", "shop"], "length": [3, 1, 2]}
    world = from_supervised(PEOPLE, "likes", arm_features="length=0:4", arm_table=listed)
    lengths = Declaration.of("length=0:4").encode(read_table({"length": [1, 2, 3]})).rows
    np.testing.assert_allclose(features_of(world, 5), lengths, rtol=1e-6)
    assert world.problem(40).own == 0
    both = "price_{arm}=0:12, length=0:4"
    world = from_supervised(PEOPLE, "likes", arm_features=both, arm_table=listed)
    prices = [PEOPLE[f"price_{arm}"][5] for arm in ("news", "shop", "sport")]
    wanted = Declaration.of("price=0:12, length=0:4").encode(
        read_table({"price": prices, "length": [1, 2, 3]})
    )
    np.testing.assert_allclose(features_of(world, 5), wanted.rows, rtol=1e-6)
    cube = np.stack([PEOPLE[f"price_{arm}"] for arm in ("news", "shop", "sport")], 1)[:, :, None]
    apart = from_supervised(PEOPLE, "likes", arm_features="x0=0:12", arm_table=cube)
    alone = from_supervised(PEOPLE, "likes", arm_features="price_{arm}=0:12")
    np.testing.assert_array_equal(apart.offers, alone.offers)


def test_users_and_arms_may_both_have_features() -> None:
    """Every arm's own parameter is a block of one that all bandits can learn."""
    world = from_supervised(PEOPLE, "likes", features=FEATURES, arm_features="price_{arm}=0:12")
    facts = world.problem(40)
    assert (facts.dim, facts.own) == (1 + 3 * facts.arms, 0)
    assert np.linalg.norm(features_of(world, 3), axis=1).max() <= facts.norm
    plan = Comparison.on(world, trusts=("joint",), epsilons=(1.0,))
    assert [cell.player.policy for cell in plan.cells()][-1] == "sampling"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"features": ()}, "no feature is declared"),
        ({"features": (), "norm": 3.0}, "norm is 3.0, and no features are named; name them, such"),
        ({"norm": 3.0}, "norm is 3.0, and every feature has a range"),
        ({"features": "age, plan=basic|gold"}, "feature 'age' has no declared range"),
        ({"features": "aeg=18:90"}, "no column 'aeg'; did you mean 'age'"),
        ({"features": "plan=basic|silver"}, "of column 'plan' in .* is not declared"),
        ({"y": "like"}, "no column 'like'; did you mean 'likes'"),
        ({"y": None}, "labels and rewards are both given, or neither is"),
        ({"rewards": CLICKS}, "labels and rewards are both given, or neither is"),
        ({"y": ["a", "b"]}, "the labels have 2 rows and the features 40"),
        ({"y": "age=1|2"}, "of column 'age' in .* is not declared"),
        ({"y": ["a"] * 40}, "one label alone"),
        ({"reward_range": (0, 1)}, "labels bring 0 or 1; leave it out"),
        ({"y": None, "rewards": CLICKS}, "rewards have no declared range"),
        (
            {"y": None, "rewards": CLICKS, "reward_range": (0, 1)},
            r"of column 'clicks_news' in the data lies outside the declared range of rewards 0:1",
        ),
        ({"y": None, "rewards": CLICKS, "reward_range": (1, 0)}, "width of reward_range"),
        ({"y": None, "rewards": CLICKS, "reward_range": 7}, "no pair"),
        ({"y": None, "rewards": CLICKS[:1], "reward_range": (0, 2)}, "name two or more"),
        ({"arm_table": {"arm": ["news"]}}, "no features of arms are declared"),
        ({"arm_features": "length=0:4"}, "there is no table of arms"),
        (
            {"arm_features": "length=0:4", "arm_table": {"arm": ["news"], "length": [1]}},
            "has 0 rows for arm 'shop'",
        ),
        ({"arm_features": "cost_{arm}=0:4"}, "no column 'cost_news'"),
        ({"arm_features": "x0=0:4", "arm_table": np.zeros((2, 3, 1))}, "users x arms x features"),
        (
            {
                "arm_features": "price_{arm}=0:12",
                "arm_table": {"arm": ["news", "shop", "sport"], "length": [1, 2, 3]},
            },
            "every declared feature of arms has a column of the data per arm; leave the table out",
        ),
        (
            {"features": (), "arm_features": "price_{arm}=0:12", "norm": 2.0},
            "norm is 2.0, and no features of users are declared",
        ),
        (
            {"features": Declaration.of(FEATURES), "norm": 2.0},
            "norm is 2.0, and the declaration of",
        ),
        ({"orders": "sorted"}, "choose one of permutation, bootstrap"),
        ({"sha256": "0" * 64}, "these are not the same data"),
    ],
)
def test_from_supervised_rejects_invalid_data_in_one_line(
    change: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"X": PEOPLE, "y": "likes", "features": FEATURES}
    with pytest.raises(InvalidValueError, match=said) as caught:
        from_supervised(**given | change)
    assert "\n" not in str(caught.value)


def test_no_label_and_no_reward_is_a_feature() -> None:
    """Else every bandit would know the right arm: neither by its name nor by a star."""
    table: dict[str, Any] = {"x": [0.1, 0.2, 0.3], "y": [0, 1, 1], "z": [0.0, 1.0, 0.5]}
    assert kerchief.from_supervised(table, "y", features="*", norm=1.0).problem(1).dim == 3
    rewarded: dict[str, Any] = {"rewards": ("y", "z"), "reward_range": (0, 1)}
    assert kerchief.from_supervised(table, features="*", norm=1.0, **rewarded).problem(1).dim == 2
    for asked in (
        {"y": "y=0|1", "features": "y=0:1"},
        {**rewarded, "features": "z=0:1"},
        {**rewarded, "arm_features": "{arm}=0:1"},
    ):
        with pytest.raises(InvalidValueError, match="something else already"):
            kerchief.from_supervised(table, **asked)


X3 = np.linspace(0, 1, 9).reshape(3, 3)
Y3 = np.array(["a", "b", "a"])
REWARDS3 = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
OFFERS3 = np.linspace(0, 1, 6).reshape(3, 2, 1)


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({"y": Y3}, {"y": ["b", "a", "b"]}),
        ({"y": Y3}, {"X": X3 / 2}),
        ({"y": REWARDS3, "reward_range": (0, 1)}, {"y": 1 - REWARDS3}),
        ({"y": {"a": [0, 1, 0], "b": [1, 0, 1]}, "reward_range": (0, 1)}, {"y": REWARDS3}),
        ({"y": Y3, "arm_features": "x0=0:1", "arm_table": OFFERS3}, {"arm_table": 1 - OFFERS3}),
        ({"y": Y3, "arm_features": "x0=0:1", "arm_table": OFFERS3}, {"y": ["b", "a", "b"]}),
    ],
)
def test_digest_covers_arrays_passed_separately(
    given: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    """Else results of other labels, rewards or arms would be taken for results of these."""
    asked = {"X": X3, "features": "x*=0:1", **given}
    first, second = from_supervised(**asked), from_supervised(**asked | other)
    digest = dict(first.origin.parameters)["data_sha256"]
    assert from_supervised(**asked, sha256=digest).origin == first.origin
    with pytest.raises(InvalidValueError, match="these are not the same data"):
        from_supervised(**asked | other, sha256=digest)
    plans = [Comparison.on(one, trusts=("none",), replicates=2) for one in (first, second)]
    Outputs.at(tmp_path, plans[0]).begin()
    with pytest.raises(InvalidValueError, match=r"holds another run .*data-sha256"):
        Outputs.at(tmp_path, plans[1])


def test_a_declaration_brings_its_own_constant() -> None:
    table: dict[str, Any] = {"age": [20, 70, 35], "plan": ["a", "b", "a"]}
    declared = Declaration.of("age=18:90", intercept=0.2)
    one = from_supervised(table, "plan", features=declared)
    other = from_supervised(table, "plan", features="age=18:90", intercept=0.2)
    assert one.origin == other.origin
    assert one.constant == other.constant == 0.2


def test_table_digest_covers_values_units_and_boundaries() -> None:
    small = np.array([1, 2, 3], "<i4")
    assert digest_of({"x": small}) == digest_of({"x": small.astype(">i4")})
    assert digest_of({"x": small}) != digest_of({"x": small.view(">i4")})
    days, seconds = (np.array([1, 2], kind) for kind in ("M8[D]", "M8[s]"))
    assert digest_of({"x": days}) != digest_of({"x": seconds})
    one, two = np.array([1], object), np.array([12], object)
    assert digest_of({"a": one, "2b": small}) != digest_of({"a": two, "b": small})


def test_a_label_for_everyone_is_a_number() -> None:
    with pytest.raises(InvalidValueError, match="4097 different labels"):
        from_supervised(np.zeros((4097, 1)), np.arange(4097), features="x0=0:1")


def test_comparison_on_data_lists_its_configurations(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    pl.DataFrame(PEOPLE).write_csv(path)
    world = from_supervised(path, "likes", features=FEATURES)
    plan = Comparison.on(world, trusts=("joint",), epsilons=(1.0,), replicates=3)
    assert plan.horizon == 40
    assert [cell.label() for cell in plan.cells()] == [
        "uniform",
        "greedy not private",
        "single-arm not private",
        "own-models not private",
        "own-models joint ε=1",
    ]
    told = plan.parameters()
    assert told["data"] == str(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert told["declare"] == [f"data-sha256={digest}", "intercept=0.5", "orders=permutation"]
    assert told["features"] == ["age=18:90", "plan=basic|gold"]
    assert "env" not in told
    assert plan.caption(plan.world) == "people.csv"
    assert plan.note().startswith("people.csv has 40 users, 3 coordinates, 3 arms; declared bounds")
    assert plan.note().endswith(
        "The arms are the labels in column 'likes': what is offered, and so public."
    )


def test_shared_arms_have_the_same_yardsticks() -> None:
    world = from_supervised(PEOPLE, "likes", arm_features="price_{arm}=0:12")
    plan = Comparison.on(world, trusts=("central",), epsilons=(1.0,))
    names = [cell.player.policy for cell in plan.cells()]
    assert names == ["uniform", "greedy", "single-arm", "sampling", "sampling"]
    assert "single-arm" not in [cell.player.policy for cell in Comparison().cells()]


def test_a_plan_on_data_travels_to_other_processes() -> None:
    world = from_supervised(PEOPLE, "likes", features=FEATURES)
    plan = Comparison.on(world, trusts=("joint",), epsilons=(1.0,))
    back = pickle.loads(pickle.dumps(plan))
    assert back.parameters() == plan.parameters()
    assert back.cells() == plan.cells()
    np.testing.assert_array_equal(back.environment(back.world).users, world.users)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"env": "linear"}, "env is 'linear', and data have no such option"),
        ({"arms": 5}, "arms is 5, and data have no such option"),
        ({"contexts": ("ball",)}, "contexts is .* and data have no such option"),
        ({"options": (("gap", 1),)}, "data have no such option"),
        ({"policies": ("dpe",)}, "policy 'dpe' does not play on these data; those that do are"),
        ({"policies": ("linucb",)}, "does not play on these data"),
        ({"horizon": 41}, "there are 40 users who come once each"),
    ],
)
def test_comparison_rejects_settings_that_misfit_the_data(
    change: dict[str, Any], said: str
) -> None:
    world = from_supervised(PEOPLE, "likes", features=FEATURES)
    with pytest.raises(InvalidValueError, match=said):
        Comparison.on(world, **change)


def test_comparison_rejects_environment_not_made_from_data() -> None:
    wrong: Any = kerchief.make_environment()
    with pytest.raises(InvalidValueError, match="give a world that `from_supervised` makes"):
        Comparison(data=wrong)


def test_labels_may_be_whole_numbers_of_any_length() -> None:
    long = "9" * 5000
    people: dict[str, Any] = {"age": [20, 70, 35, 51], "plan": [long, "10", "9", "-1"]}
    world = from_supervised(people, "plan", features="age=18:90")
    assert world.problem(4).arms == 4
    people["plan"] = [10**5000, 10, 9, -1]
    assert from_supervised(people, "plan", features="age=18:90").problem(4).arms == 4
