"""Logs in the forms that people have become the same logs, and a world to play in."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.data.simulated import logged

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.datasets import describe_data
from kerchief.comparison.runner import compare
from kerchief.core.errors import CodecError, InvalidValueError, WriteError
from kerchief.data import (
    Declaration,
    Logs,
    files,
    from_logs,
    read_logs,
    to_feedback,
    write_dsjson,
    write_feedback,
    write_log_table,
)

LOGS = logged(60, seed=5, users=np.arange(60) // 2)
DECLARATION = Declaration.of("age", norm=99.0, intercept=1.0)
TABLE: dict[str, Any] = {
    "item": ["red", "blue", "red", "blue"],
    "gain": [1.0, 0.0, 0.5, 1.0],
    "chance": [0.5, 0.25, 0.5, 1.0],
    "age": [20, 99, 35, 50],
    "plan": ["gold", "basic", "gold", "basic"],
    "who": ["a", "b", "a", "c"],
}
ASKED: dict[str, Any] = {
    "reward_range": (0.0, 1.0),
    "action": "item=red|blue",
    "reward": "gain",
    "propensity": "chance",
    "features": "age=18:90,plan=basic|gold",
}


def same(one: Logs, other: Logs) -> None:
    for name in ("contexts", "actions", "rewards", "propensities", "arms", "users", "names"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_log_table_round_trips_logs(ending: str, tmp_path: Path) -> None:
    write_log_table(LOGS, tmp_path / f"log{ending}")
    again = read_logs(
        tmp_path / f"log{ending}",
        reward_range=(0.0, 1.0),
        features=("x0", "x1"),
        arms=3,
        user="user",
    )
    same(LOGS, again)


def test_every_format_holds_the_same_logs(tmp_path: Path) -> None:
    write_dsjson(LOGS, tmp_path / "log.jsonl")
    write_feedback(LOGS, tmp_path / "log.npz")
    asked: Any = {"reward_range": (0.0, 1.0)}
    same(LOGS, read_logs(tmp_path / "log.npz", **asked))
    same(LOGS, read_logs(to_feedback(LOGS), **asked))
    same(LOGS, read_logs(tmp_path / "log.jsonl", user="_user", **asked))
    same(LOGS, read_logs(tmp_path / "log.jsonl", **asked))


@pytest.mark.parametrize("frame", [dict, pl.DataFrame], ids=["mapping", "polars"])
def test_declared_features_are_scaled_and_words_become_arms(frame: Any) -> None:
    logs = read_logs(frame(TABLE), user="who", **ASKED)
    assert logs.actions.tolist() == [0, 1, 0, 1]
    assert logs.users is not None
    assert logs.users.tolist() == [0, 1, 0, 2]
    assert logs.names == ("age", "plan", "constant")
    assert logs.norm is not None
    assert np.linalg.norm(logs.contexts, axis=1).max() <= logs.norm
    assert (logs.contexts[:, -1] == logs.constant).all()


def test_one_chance_serves_all_rows() -> None:
    assert read_logs(TABLE, **(ASKED | {"propensity": 0.5})).propensities.tolist() == [0.5] * 4


def test_bare_feature_names_are_unscaled_unless_norm_is_declared() -> None:
    plain = read_logs(TABLE, **(ASKED | {"features": "age"}))
    assert (plain.contexts[:, 0].tolist(), plain.norm) == ([20, 99, 35, 50], None)
    bounded = read_logs(TABLE, **(ASKED | {"features": "age", "norm": 50.0}))
    assert bounded.names == ("age", "constant")
    assert np.abs(bounded.contexts[:, 0]).max() <= 1


def test_features_of_other_formats_can_be_declared_too(tmp_path: Path) -> None:
    write_dsjson(LOGS, tmp_path / "log.json")
    logs = read_logs(tmp_path / "log.json", reward_range=(0, 1), features="x0=-1:1")
    assert logs.names == ("x0", "constant")
    empty = to_feedback(LOGS) | {"context": np.zeros((60, 0))}
    with pytest.raises(InvalidValueError, match="have none"):
        read_logs(empty, reward_range=(0, 1), features="x0=-1:1")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"action": "items"}, "no column 'items'; did you mean 'item'"),
        ({"action": "item"}, "is no number"),
        ({"action": "item=red|green"}, "of column 'item' in the table is not declared"),
        ({"reward": "age", "features": "plan=basic|gold"}, r"row 1 .*: reward is outside \[0, 1\]"),
        ({"propensity": "age", "features": "plan=basic|gold"}, "propensity is above 1"),
        ({"reward": "plan", "features": "age=18:90"}, "is no number; mend the row$"),
        ({"propensity": "plan", "features": "age=18:90"}, "is no number; mend the row$"),
        ({"features": "gain=0:1"}, "'gain' of the table is something else already"),
        ({"features": "item=red|blue"}, "'item' of the table is something else already"),
        ({"features": "chance=0:1"}, "'chance' of the table is something else already"),
        ({"features": "who=a|b|c", "user": "who"}, "'who' of the table is something else already"),
        ({"propensity": 0.0}, "propensity is 0.0"),
        ({"features": "age=18:90,town=a|b"}, "no column 'town'"),
        ({"features": "plan"}, "is no number"),
        ({"reward_range": 1.0}, "reward_range is no pair"),
        ({"reward_range": np.array(0.5)}, "reward_range is no pair"),
        ({"reward_range": (1, 1)}, "width of reward_range is 0"),
        ({"user": "nobody"}, "no column 'nobody'"),
        ({"reward": 7}, "reward is a int"),
        ({"sha256": "00"}, "these are not the same data"),
    ],
)
def test_from_logs_rejects_invalid_table_in_one_line(changed: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said) as found:
        from_logs(TABLE, **(ASKED | changed))
    assert "\n" not in str(found.value)


def test_star_excludes_action_reward_and_user_columns() -> None:
    """Else a bandit would see the reward before it chooses."""
    table = {name: one for name, one in TABLE.items() if name not in ("plan", "who")}
    asked = ASKED | {"features": "*", "norm": 99.0}
    assert read_logs(table, **asked).names == ("age", "constant")
    users = {**table, "who": [1, 2, 1, 3]}
    assert read_logs(users, **asked, user="who").names == ("age", "constant")
    with pytest.raises(InvalidValueError, match=r"'c\*'; those that may be features are age$"):
        read_logs(table, **asked | {"features": "c*"})


def test_dsjson_excludes_user_column_from_features(tmp_path: Path) -> None:
    users = ({"age": 30, "id": "a"}, {"age": 40, "id": "b"})
    file = _lines(tmp_path / "log.json", *users)
    asked: dict[str, Any] = {"reward_range": (0, 1), "user": "User.id"}
    assert read_logs(file, **asked).names == ("User.age",)
    starred = read_logs(file, **asked, features="User.*", norm=99.0)
    assert starred.names == ("User.age", "constant")
    for name in ("User.id", "User.id^a"):
        with pytest.raises(InvalidValueError, match="says who came, and is no feature then"):
            read_logs(file, **asked, features=f"User.age,{name}", norm=99.0)
    assert "User.id^a" in read_logs(file, reward_range=(0, 1)).names


def test_a_star_among_bare_names_stands_for_columns_too() -> None:
    table = {**TABLE, "age*": [1, 2, 3, 4], "ages": [5, 6, 7, 8]}
    assert read_logs(table, **ASKED | {"features": "a*s,age"}).names == ("ages", "age")
    assert read_logs(table, **ASKED | {"features": "age*"}).names == ("age*",)
    with pytest.raises(InvalidValueError, match="feature 'age' is named twice"):
        read_logs(TABLE, **ASKED | {"features": "a*,age"})
    feedback = {
        "n_rounds": 2,
        "n_actions": 2,
        "action": [0, 1],
        "reward": [0, 1],
        "pscore": [0.5, 0.5],
    }
    made = read_logs(feedback | {"context": np.eye(2)}, reward_range=(0, 1), features="x*")
    assert made.names == ("x0", "x1")


def test_cut_files_change_nothing_and_are_named(tmp_path: Path) -> None:
    for ending in (".csv", ".parquet"):
        file = tmp_path / f"log{ending}"
        write_log_table(LOGS, file)
        file.write_bytes(file.read_bytes()[: -(20 if ending == ".csv" else 60)])
        with pytest.raises(InvalidValueError, match=r"cut off|log\.csv"):
            read_logs(file, reward_range=(0, 1), features="x0,x1")


def test_write_log_table_rejects_logs_it_cannot_express(tmp_path: Path) -> None:
    for more, said in (
        ({"arm_features": np.eye(3)}, "write DSJSON"),
        ({"names": ("action", "x")}, "rename it"),
    ):
        with pytest.raises(CodecError, match=said):
            write_log_table(logged(60, seed=5, **more), tmp_path / "log.csv")
    with pytest.raises(InvalidValueError, match=r"\.csv or \.parquet"):
        write_log_table(LOGS, tmp_path / "log.txt")
    assert not list(tmp_path.iterdir())


def test_log_environment_rebuilds_from_its_origin() -> None:
    world = from_logs(TABLE, **ASKED, least_propensity=0.5)
    said = dict(world.origin.parameters)
    assert said["features"] == ("age=18:90", "plan=basic|gold")
    assert (said["action"], said["least_propensity"]) == ("item=red|blue", 0.5)
    assert said["reward_range"] == "0:1"
    assert world.origin.clipped == 0.25
    again = from_logs(TABLE, **ASKED, least_propensity=0.5, sha256=said["data_sha256"])
    np.testing.assert_array_equal(again.contexts, world.contexts)
    with pytest.raises(InvalidValueError, match="read already"):
        from_logs(LOGS, action="item")


def _digest_of(source: Any, **asked: Any) -> str:
    world = from_logs(source, **asked)
    digest: str = dict(world.origin.parameters)["data_sha256"]
    assert from_logs(source, sha256=digest, **asked).origin == world.origin
    return digest


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        *(("reward", 1 - LOGS.rewards), ("pscore", LOGS.propensities / 2)),
        *(("action", (LOGS.actions + 1) % 3), ("context", LOGS.contexts / 2)),
        *(("user", np.arange(60)), ("action_context", np.eye(3) / 2)),
    ],
)
def test_the_digest_covers_feedback_and_logs(name: str, changed: Any) -> None:
    """Else results of other logs would be taken for results of these."""
    feedback = to_feedback(dataclasses.replace(LOGS, arm_features=np.eye(3)))
    asked: dict[str, Any] = {"norm": 1.0, "arm_norm": 1.0}
    ranged: dict[str, Any] = {**asked, "reward_range": (0, 1)}
    digest, other = _digest_of(feedback, **ranged), feedback | {name: changed}
    assert len(digest) == 64
    assert _digest_of(feedback, **ranged | {"reward_range": (0, 2)}) == digest
    assert _digest_of(other, **ranged) != digest
    logs, others = (read_logs(one, reward_range=(0, 1)) for one in (feedback, other))
    assert _digest_of(others, **asked) != _digest_of(logs, **asked)
    with pytest.raises(InvalidValueError, match="these are not the same data"):
        from_logs(others, **asked, sha256=_digest_of(logs, **asked))


def test_loaded_log_environment_records_its_declaration() -> None:
    said = dict(from_logs(LOGS, norm=1.0, least_propensity=0.1).origin.parameters)
    assert said == {
        "data": "logs",
        "data_sha256": LOGS.digest,
        "norm": 1.0,
        "least_propensity": 0.1,
        "reward_range": "0:1",
    }


def test_the_digest_covers_features_of_arms_beside_a_table() -> None:
    plain, arms = _digest_of(TABLE, **ASKED), {"arm_features": np.eye(2), "arm_norm": 1.0}
    one = _digest_of(TABLE, **ASKED, **arms)
    other = _digest_of(TABLE, **ASKED, **arms | {"arm_features": np.eye(2) / 2})
    assert len({plain, one, other}) == 3


@pytest.mark.parametrize("arms", [("red", "blue"), ("blue", "red")])
def test_arm_names_are_recorded_in_the_origin(arms: tuple[str, str]) -> None:
    world = from_logs(TABLE, **ASKED | {"action": "item"}, arms=arms)
    assert dict(world.origin.parameters)["action"] == f"item={'|'.join(arms)}"
    counted = from_logs(TABLE, **ASKED | {"action": f"item={'|'.join(arms)}"}, arms=2)
    assert counted.origin == world.origin


@pytest.mark.parametrize(
    ("name", "done"), [("item", ["0.0", "1.0"]), ("a,b", [0, 1]), ("a|b", [0, 1])]
)
def test_numbered_arms_are_counted_in_whatever_column_they_are(name: str, done: list[Any]) -> None:
    table = {key: one for key, one in TABLE.items() if key != "item"} | {name: done * 2}
    world = from_logs(table, **ASKED | {"action": name}, arms=2)
    assert dict(world.origin.parameters)["action"] == name


@pytest.mark.nightly
def test_bandits_are_compared_on_logs() -> None:
    """As many rounds as agree with a bandit; yardsticks play along, the best arm among them."""
    world = from_logs(logged(800, seed=2), norm=1.0)
    plan = Comparison.on(world, trusts=("none",), replicates=8)
    assert plan.horizon == 80
    rows = {row.cell.label(): row for row in compare(plan)}
    assert {"uniform", "single-arm not private"} < rows.keys()
    assert "best single arm" in plan.note()
    assert "800 logged decisions" in plan.note()
    assert rows["single-arm not private"].regret.mean < rows["uniform"].regret.mean


def test_declared_dsjson_shape_does_not_depend_on_its_lines(tmp_path: Path) -> None:
    """Two files that differ in one line have logs of one shape, whatever that line brings."""
    lines = [_line(0, ["a", "b"], {"age": 3}), _line(1, ["a", "b"], {"age": 4})]
    other = [lines[0], _line(1, ["a", "b", "c"], {"age": 4, "town": 7})]
    found = []
    for name, content in (("one", lines), ("other", other)):
        path = tmp_path / f"{name}.dsjson"
        path.write_text("\n".join(map(json.dumps, content)))
        found.append(read_logs(path, reward_range=(0, 1), arms=3, features=("User.age",)))
    assert {(logs.arms, logs.names) for logs in found} == {(3, ("User.age",))}
    with pytest.raises(CodecError, match="more arms than the 2 declared"):
        read_logs(tmp_path / "other.dsjson", reward_range=(0, 1), arms=2, features=("User.age",))


def _line(action: int, arms: list[str], user: dict[str, float]) -> dict[str, Any]:
    order = [action + 1, *(i + 1 for i in range(len(arms)) if i != action)]
    return {
        "_label_cost": -1.0,
        "_label_probability": 0.5,
        "_labelIndex": action,
        "a": order,
        "p": [0.5] + [0.5 / (len(arms) - 1)] * (len(arms) - 1),
        "c": {"User": user, "_multi": [{"A": {"id": one}} for one in arms]},
    }


def test_declared_category_names_round_trip_through_a_file(tmp_path: Path) -> None:
    table = TABLE | {"town": ["Rome", "Oslo", "Bern, CH", "Rome"]}
    declared = {"town": ("Rome", "Oslo", "Bern, CH")}
    first = read_logs(table, **(ASKED | {"features": declared}))
    assert first.names == ("town:Rome", "town:Oslo", "town:2", "constant")
    write_log_table(first, tmp_path / "log.CSV")
    again = read_logs(tmp_path / "log.CSV", reward_range=(0, 1), features=list(first.names))
    assert again.names == first.names
    np.testing.assert_array_equal(again.contexts, first.contexts)


@pytest.mark.parametrize(
    ("write", "name"),
    [(write_log_table, "x.csv"), (write_dsjson, "x.json"), (write_feedback, "x.npz")],
)
def test_a_missing_folder_is_one_line(write: Any, name: str, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"cannot be written \(No such file"):
        write(LOGS, tmp_path / "nowhere" / name)


def test_logs_that_cannot_be_written_leave_the_old_file(tmp_path: Path) -> None:
    write_dsjson(LOGS, tmp_path / "log.json")
    held = (tmp_path / "log.json").read_bytes()
    allowed = np.ones((60, LOGS.arms), bool)
    allowed[-1, 0] = False
    masked = dataclasses.replace(LOGS, allowed=allowed, actions=np.full(60, LOGS.arms - 1))
    with pytest.raises(CodecError, match="row 60 allows some arms and not those before"):
        write_dsjson(masked, tmp_path / "log.json")
    assert (tmp_path / "log.json").read_bytes() == held
    assert [one.name for one in tmp_path.iterdir()] == ["log.json"]


def _lines(path: Path, *users: dict[str, Any], arms: int = 2) -> Path:
    names = [f"arm {place}" for place in range(arms)]
    path.write_text("".join(json.dumps(_line(0, names, one)) + "\n" for one in users))
    return path


@pytest.mark.parametrize(
    ("form", "changed"),
    [
        *(("npz", {name: "x"}) for name in ("action", "reward", "propensity", "user")),
        *(("npz", {"arms": 3}), ("npz", {"arm_features": np.eye(3)})),
        *(("mapping", {"user": "x"}), ("mapping", {"propensity": 0.5})),
        *(("json", {name: "x"}) for name in ("reward", "propensity", "action")),
        *(("json", {"arm_features": np.eye(3)}), ("json", {"propensity": 0.5})),
    ],
)
def test_reading_logs_rejects_options_of_other_formats(
    form: str, changed: dict[str, Any], tmp_path: Path
) -> None:
    """A row would be protected where a user was asked for, or a chance told that was not used."""
    write_feedback(LOGS, tmp_path / "log.npz")
    write_dsjson(LOGS, tmp_path / "log.json")
    source = to_feedback(LOGS) if form == "mapping" else tmp_path / f"log.{form}"
    (name,) = changed
    for read in (read_logs, from_logs):
        with pytest.raises(InvalidValueError, match=rf"^{name} is .*leave (it|{name}) out"):
            read(source, reward_range=(0, 1), **changed)


def test_a_norm_of_no_features_is_refused(tmp_path: Path) -> None:
    write_feedback(LOGS, tmp_path / "log.npz")
    with pytest.raises(InvalidValueError, match=r"norm is 2\.0, and no features are named"):
        read_logs(tmp_path / "log.npz", reward_range=(0, 1), norm=2.0)


@pytest.mark.parametrize(
    ("form", "more", "said"),
    [
        (
            "csv",
            {"arm_norm": 9.0, "features": "x0=-1:1"},
            "arm_norm is 9.0, and no features of arm",
        ),
        ("json", {"arm_norm": 9.0, "norm": 2.0}, "arm_norm is 9.0, and no features of arms are re"),
        (
            "json",
            {"intercept": 3.0, "norm": 2.0},
            "intercept is 3.0, and no features have declared",
        ),
        ("npz", {"intercept": 0.5, "norm": 2.0}, "intercept is 0.5, and no features have declared"),
        ("csv", {"intercept": 3.0, "features": "x0,x1"}, "intercept is 3.0, and no features have"),
        ("csv", {"norm": 2.0, "features": DECLARATION}, "norm is 2.0, and the declaration of feat"),
        (
            "csv",
            {"intercept": 2.0, "features": DECLARATION},
            "intercept is 2.0, and the declaration",
        ),
    ],
)
def test_from_logs_rejects_unused_bounds(
    form: str, more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Else they would be written down, and the printed command would promise what nobody did."""
    write = {"csv": write_log_table, "json": write_dsjson, "npz": write_feedback}[form]
    write(LOGS, tmp_path / f"log.{form}")
    with pytest.raises(InvalidValueError, match=said):
        from_logs(tmp_path / f"log.{form}", reward_range=(0, 1), **more)


def test_from_logs_rejects_bounds_unused_by_loaded_logs() -> None:
    with pytest.raises(
        InvalidValueError, match=r"arm_norm is 2\.0, and no features of arms are read"
    ):
        from_logs(LOGS, norm=1.0, arm_norm=2.0)
    with pytest.raises(InvalidValueError, match="these logs were read already"):
        from_logs(LOGS, norm=1.0, intercept=0.5)
    armed = logged(60, seed=5, contexts=np.zeros((60, 0)), arm_features=np.eye(3))
    with pytest.raises(InvalidValueError, match=r"norm is 2\.0, and no features of users"):
        from_logs(armed, norm=2.0, arm_norm=1.0)


def test_a_constant_is_written_down_where_there_is_one(tmp_path: Path) -> None:
    write_dsjson(LOGS, tmp_path / "log.json")
    asked: dict[str, Any] = {"reward_range": (0, 1), "norm": 2.0}
    plain = dict(from_logs(tmp_path / "log.json", **asked).origin.parameters)
    assert "intercept" not in plain
    for said_of_it, value in ((None, 0.5), (3.0, 3.0)):
        bounded = asked | {"features": "x0,x1", "intercept": said_of_it}
        world = from_logs(tmp_path / "log.json", **bounded)
        assert dict(world.origin.parameters)["intercept"] == value
        assert world.constant == value
    declared = from_logs(TABLE, **ASKED | {"features": DECLARATION})
    said = dict(declared.origin.parameters)
    assert (said["intercept"], said["norm"]) == (1.0, 99.0)


@pytest.mark.parametrize("said", [{"action": "item=a|b|c"}, {"arms": ("a", "b", "c")}], ids=str)
def test_declared_action_names_fix_number_of_dsjson_arms(
    said: dict[str, Any], tmp_path: Path
) -> None:
    file = _lines(tmp_path / "log.json", {"age": 3}, {"age": 4, "town": 7})
    logs = read_logs(file, reward_range=(0, 1), **said)
    assert (logs.arms, logs.dim, logs.arm_features) == (3, 0, None)
    named = read_logs(file, reward_range=(0, 1), features="User.age=0:9", **said)
    assert (named.arms, named.names) == (3, ("User.age", "constant"))
    more = _lines(tmp_path / "more.json", {"age": 3}, arms=4)
    with pytest.raises(CodecError, match="more arms than the 3 declared"):
        read_logs(more, reward_range=(0, 1), **said)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"action": "item=red|blue", "arms": 3}, "arms is 3, and action names 2"),
        ({"action": "item=red|blue", "arms": ("blue", "red")}, "arms are named twice"),
        ({"action": "item=red"}, "two or more different words"),
        ({"action": "item="}, "two or more different words"),
    ],
)
def test_arms_are_declared_once(said: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        read_logs(TABLE, **(ASKED | said))


@pytest.mark.parametrize("features", ["User.*=0:9", "User.age=0:9, *=0:1", ("User.*",)], ids=str)
def test_private_dsjson_rejects_wildcard_features(features: Any, tmp_path: Path) -> None:
    """One user with one more feature would change how many numbers are released."""
    file = _lines(tmp_path / "log.json", {"age": 3}, {"age": 4, "town": 7})
    with pytest.raises(InvalidValueError, match="declare each feature by its whole name"):
        read_logs(file, reward_range=(0, 1), arms=2, features=features)


def test_a_simulation_may_take_all_features_that_there_are(tmp_path: Path) -> None:
    file = _lines(tmp_path / "log.json", {"age": 3}, {"age": 4, "town": 7})
    logs = read_logs(file, reward_range=(0, 1), features="User.*=0:9")
    assert logs.names == ("User.age", "User.town", "constant")


def test_missing_dsjson_feature_is_zero_only_if_range_allows(tmp_path: Path) -> None:
    file = _lines(tmp_path / "log.json", {"age": 30}, {"town": 1})
    for features in ("User.age=18:90", "User.age=18:90,User.town=0:1", {"User.age": (18, 90)}):
        with pytest.raises(
            CodecError, match=r"line 2 of log\.json has no feature 'User.age'.*0 is"
        ):
            read_logs(file, reward_range=(0, 1), arms=2, features=features)
    with pytest.raises(CodecError, match=r"line 1 of log\.json has no feature 'User.town'"):
        read_logs(file, reward_range=(0, 1), features="User.*=18:90")
    sparse = read_logs(file, reward_range=(0, 1), arms=2, features="User.age=0:90,User.town=0:1")
    assert sparse.contexts[1, 0] < 0 < sparse.contexts[1, 1]
    bare = read_logs(file, reward_range=(0, 1), arms=2, features="User.age")
    assert bare.contexts.tolist() == [[30.0], [0.0]]


@pytest.mark.parametrize(
    ("table", "features", "names"),
    [
        ({"constant": [1, 0, 0, 1]}, {"constant": (0, 1)}, ("constant", "constant'")),
        (
            {"town": ["a|b", "0", "e,f", "0"]},
            {"town": ("a|b", "0", "e,f")},
            ("town:0", "town:0'", "town:2", "constant"),
        ),
    ],
)
def test_names_of_coordinates_never_clash(
    table: dict[str, Any], features: Any, names: tuple[str, ...]
) -> None:
    assert read_logs(TABLE | table, **(ASKED | {"features": features})).names == names


def test_a_feature_is_named_once() -> None:
    with pytest.raises(InvalidValueError, match="feature 'age' is named twice"):
        read_logs(TABLE, **(ASKED | {"features": "age,age"}))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_names_that_a_table_would_change_are_not_written(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"log{ending}"
    with pytest.raises(CodecError, match="would give it back as 'x'; rename it"):
        write_log_table(logged(5, seed=5, names=(" x", "y")), file)
    assert not list(tmp_path.iterdir())
    write_log_table(logged(5, seed=5, names=('q"', "y")), file)
    again = read_logs(file, reward_range=(0, 1), features=('q"', "y"), arms=3)
    assert again.names == ('q"', "y")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
@pytest.mark.parametrize(
    ("write", "name"),
    [(write_log_table, "x.csv"), (write_dsjson, "x.json"), (write_feedback, "x.npz")],
)
def test_rewritten_log_keeps_its_file_mode(
    write: Any, name: str, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what replaces it nor the draft, at any time, is open to more people."""
    file, seen, replace = tmp_path / name, [], Path.replace
    write(LOGS, file)
    file.chmod(mode)

    def look(draft: Path, target: Path) -> Path:
        seen.append(stat.S_IMODE(draft.stat().st_mode))
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", look)
    write(LOGS, file)
    assert seen == [mode]
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_draft_is_closed_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen, chmod = tmp_path / "x.npz", [], Path.chmod
    write_feedback(LOGS, file)
    file.chmod(0o644)

    def look(draft: Path, mode: int) -> None:
        seen.append((stat.S_IMODE(draft.stat().st_mode), draft.stat().st_size))
        chmod(draft, mode)

    monkeypatch.setattr(Path, "chmod", look)
    write_feedback(LOGS, file)
    assert seen == [(0o600, 0)]


def test_group_rights_are_dropped_when_chown_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.npz"
    write_feedback(LOGS, file)
    held = os.stat_result((0o100664, 0, 0, 1, 10**6, 10**6, 0, 0, 0, 0))

    def refuse(*given: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse)
    with file.open("rb") as opened:
        assert files._rights(opened.fileno(), held) == 0o604


def test_description_states_arms_counted_in_a_column() -> None:
    """`kerchief plan` writes how many arms there are into a bandit's problem."""
    numbered = TABLE | {"item": [0, 1, 0, 1]}
    plain = from_logs(numbered, **(ASKED | {"action": "item"}))
    assert any("Arms were counted in column 'item'" in one for one in describe_data(plain))
    for said in ({"action": "item=0|1"}, {"action": "item", "arms": 2}):
        declared = from_logs(numbered, **(ASKED | said))
        assert not any("counted in" in one for one in describe_data(declared))


def test_description_states_arms_counted_in_dsjson_lines(tmp_path: Path) -> None:
    write_dsjson(LOGS, tmp_path / "log.json")
    ask: dict[str, Any] = {"reward_range": (0, 1), "features": "x0=-1:1"}
    plain = from_logs(tmp_path / "log.json", **ask)
    assert any("Arms were counted in the lines" in one for one in describe_data(plain))
    declared = from_logs(tmp_path / "log.json", action="item=a|b|c", **ask)
    assert not any("counted in" in one for one in describe_data(declared))
    write_feedback(LOGS, tmp_path / "log.npz")
    said = from_logs(tmp_path / "log.npz", norm=1.0, reward_range=(0, 1))
    assert not any("counted in" in one for one in describe_data(said))
