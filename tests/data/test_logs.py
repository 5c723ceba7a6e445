"""Logs are checked when they are made, and every format gives back what it was given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.data.simulated import logged

from kerchief.core.errors import CodecError, InvalidValueError, KerchiefError
from kerchief.data.dsjson import read_dsjson, write_dsjson
from kerchief.data.logs import Logs
from kerchief.data.open_bandit import from_feedback, read_feedback, to_feedback, write_feedback

RANGE: Any = {"low": 0.0, "high": 1.0}
USERS = np.arange(40) // 2
OF_ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
OF_ROWS = np.random.default_rng(1).random((40, 3, 2))
COLUMNS = ("contexts", "actions", "rewards", "propensities", "arms", "users")


def same(one: Logs, other: Logs, *more: str) -> None:
    for name in (*COLUMNS, *more):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"actions": np.array([0, 3])}, "row 2: action is not one of the arms 0 to 2"),
        ({"actions": np.array([0.5, 1])}, "row 1: action is not one of the arms"),
        ({"actions": np.array([])}, "actions have shape"),
        ({"actions": np.array([np.nan, 1])}, "row 1: action is missing"),
        ({"rewards": np.array([0.0, 1.5])}, r"row 2: reward is outside \[0, 1\]"),
        ({"rewards": np.array([np.nan, 1])}, "row 1: reward is missing"),
        ({"rewards": np.array([1.0])}, "rewards have shape"),
        ({"propensities": np.array([0.5, 0.0])}, "row 2: propensity is not above 0"),
        ({"propensities": np.array([1.5, 2.0])}, "row 1 .and 1 more row.: propensity is above 1"),
        ({"propensities": np.array([np.nan, 0.5])}, "row 1: propensity is missing"),
        ({"contexts": np.array([[0.0], [np.inf]])}, "row 2: column 0 of contexts is not finite"),
        ({"contexts": np.zeros((3, 1))}, "contexts have shape"),
        ({"contexts": [["a"], ["b"]]}, "contexts are not an array of real numbers"),
        ({"allowed": np.array([[False, True, True], [True] * 3])}, "row 1: action is not among"),
        ({"allowed": np.ones((2, 2), bool)}, "allowed has shape"),
        ({"arm_features": np.zeros((2, 2))}, "arm_features have shape"),
        ({"arm_features": np.full((3, 1), np.nan)}, "row 1: column 0 of arm_features"),
        ({"users": np.array(["a", ""])}, "row 2: user is missing"),
        ({"users": np.array(["a"])}, "users have shape"),
        ({"names": ("a", "b")}, "names has 2 words for 1 columns"),
        ({"high": 0.0}, "high"),
        ({"arms": 0}, "arms is 0"),
    ],
)
def test_logs_error_names_row_and_column(changed: Any, said: str) -> None:
    good: Any = {
        "contexts": np.zeros((2, 1)),
        "actions": np.array([0, 1]),
        "rewards": np.array([0.0, 1.0]),
        "propensities": np.array([0.5, 0.5]),
        "arms": 3,
        **RANGE,
    }
    Logs(**good)
    with pytest.raises(InvalidValueError, match=said):
        Logs(**(good | changed))


def test_logs_are_copies_that_nobody_can_write_to() -> None:
    rewards = np.array([0.0, 1.0])
    logs = logged(2, seed=1, rewards=rewards)
    rewards[0] = 1.0
    assert logs.rewards[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        logs.rewards[0] = 1.0


@pytest.mark.parametrize("of_arms", [None, OF_ROWS], ids=["users", "arms"])
def test_dsjson_round_trips_logs(of_arms: Any, tmp_path: Path) -> None:
    allowed = np.arange(3) < np.maximum(2, logged(40, seed=5).actions + 1)[:, None]
    more: Any = {"arm_features": of_arms, "users": USERS, "names": ("User.age", "hour")}
    logs = logged(40, seed=5, allowed=allowed, **more)
    write_dsjson(logs, tmp_path / "log.json")
    again = read_dsjson(tmp_path / "log.json", user="_user", **RANGE)
    same(logs, again, "names", "allowed", "arm_names")
    if of_arms is not None:
        assert again.arm_features is not None
        np.testing.assert_array_equal(np.where(allowed[..., None], of_arms, 0), again.arm_features)


def test_a_line_of_vowpal_wabbit_is_understood(tmp_path: Path) -> None:
    event = {
        "_label_cost": -1,
        "_label_probability": 0.8166667,
        "_label_Action": 2,
        "_labelIndex": 1,
        "o": [{"EventId": "7", "v": 1}],
        "Timestamp": "2021-07-29T10:00:00.999Z",
        "Version": "1",
        "EventId": "0074434d3a3a46529f65de8a59631939",
        "a": [2, 1, 3],
        "c": {
            "Person": {"id": "anna", "tall": True, "age": 30, "_note": 7},
            "Where": [{"town": "Rome"}, {"far": [1.5, 2]}],
            "_multi": [{"_tag": "x", "i": {"price": 2}}, {"i": {"price": 1, "new": "yes"}}, {}],
        },
        "p": [0.816666663, 0.183333333, 0.183333333],
        "pdrop": 0.5,
        "VWState": {"m": "N/A"},
    }
    file = tmp_path / "vw.json"
    file.write_text(f"{json.dumps({**event, '_skipLearn': True})}\n\n{json.dumps(event)}")
    logs = read_dsjson(file, user="Person.id", **RANGE)
    assert (logs.rows, logs.arms, logs.actions[0], logs.rewards[0]) == (1, 3, 1, 1.0)
    assert logs.propensities[0] == 0.8166667
    named = dict(zip(logs.names, logs.contexts[0].tolist(), strict=True))
    ages = {"Person.tall": 1.0, "Person.age": 30.0}
    assert named == ages | {"Where.town^Rome": 1.0, "Where.far[0]": 1.5, "Where.far[1]": 2.0}
    assert logs.arm_names == ("i.price", "i.new^yes")
    assert logs.arm_features is not None
    np.testing.assert_array_equal(logs.arm_features[0], [[2, 0], [1, 1], [0, 0]])
    few = read_dsjson(file, features=("Person.age",), arm_features=(), **RANGE)
    assert (few.dim, few.arm_features) == (1, None)


def line(**changed: Any) -> str:
    good = {
        "_label_cost": -1,
        "_label_probability": 0.5,
        "_labelIndex": 0,
        "c": {"_multi": [{}, {}]},
    }
    return json.dumps({name: one for name, one in (good | changed).items() if one is not ...})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no decision"),
        (line() + "\n" + line()[:-20], "line 2 of log.json is no JSON; the file is cut off here"),
        ("[" * 100_000 + "\n", "line 1 of log.json is no JSON"),
        (line().replace("0.5", "NaN") + "\n", "line 1 of log.json is no JSON"),
        ("[1]\n", "line 1 .*missing or odd"),
        (line(_label_cost=...), "missing or odd"),
        (line(_label_cost="1"), "missing or odd"),
        (line(_labelIndex=2), "_labelIndex is 2 of 2 arms"),
        (line(_labelIndex=-1), "_labelIndex is -1 of 2 arms"),
        (line(_label_cost=10**400), "beyond all floats"),
        (line(_label_probability=0), "row 1: propensity is not above 0"),
        (line(_label_cost=-2), "row 1: reward is outside"),
        (line(a=[2, 1], p=[0.5, 0.5]), "another arm or chance"),
        (line(a=[1, 2], p=[0.25, 0.75]), "another arm or chance"),
        (line(a=[1], p=[0.5]), "1 and 1 of 2 arms"),
        (line(a="x"), "a must be a list"),
        (line(pdrop=1), "pdrop must be a chance below 1"),
        (line() + "\n" + line(pdrop=0.5), "pdrop is 0 in some lines and 0.5 in others"),
        (line(c={"_multi": []}), "_labelIndex is 0 of 0 arms"),
        (line(c={"_multi": [1, 2]}), "neither an object nor a list"),
    ],
)
def test_files_that_are_no_dsjson_get_one_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    file.write_text(text)
    with pytest.raises(KerchiefError, match=said) as found:
        read_dsjson(file, **RANGE)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "names",
    [
        *(("_x", "y"), ("a", "a.b"), ("a._x", "b"), (".x", "y")),
        *(("a.[0]", "b"), ("[0].x", "b"), ("y", "[0].x.z")),
    ],
    ids=str,
)
def test_write_dsjson_rejects_ambiguous_feature_names(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(CodecError, match="rename it"):
        write_dsjson(logged(3, seed=5, names=names), tmp_path / "log.json")
    assert not list(tmp_path.iterdir())


def test_a_feature_that_no_line_has_is_named(tmp_path: Path) -> None:
    write_dsjson(logged(3, seed=5), tmp_path / "log.json")
    with pytest.raises(CodecError, match="no line has a feature 'x7'"):
        read_dsjson(tmp_path / "log.json", features=("x0", "x7"), **RANGE)


def test_write_dsjson_rejects_masks_it_cannot_express(tmp_path: Path) -> None:
    allowed = np.ones((40, 3), bool)
    rows = np.flatnonzero(logged(40, seed=5).actions > 0)
    allowed[rows, 0] = False
    with pytest.raises(CodecError, match="DSJSON cannot say it"):
        write_dsjson(logged(40, seed=5, allowed=allowed), tmp_path / "log.json")


@pytest.mark.parametrize("of_arms", [None, OF_ARMS, OF_ROWS], ids=["users", "arms", "rows"])
def test_bandit_feedback_round_trips_logs(of_arms: Any, tmp_path: Path) -> None:
    logs = logged(40, seed=5, arm_features=of_arms, users=USERS)
    write_feedback(logs, tmp_path / "log.npz")
    for again in (
        read_feedback(tmp_path / "log.npz", **RANGE),
        from_feedback(to_feedback(logs), **RANGE),
    ):
        same(logs, again)
        np.testing.assert_array_equal(logs.arm_features, again.arm_features)


def test_bandit_feedback_keeps_the_names_of_features(tmp_path: Path) -> None:
    """Else a feature could not be asked for by the name that it was declared with."""
    named: dict[str, Any] = {"names": ("age", "constant"), "arm_names": ("price", "z1")}
    logs = logged(40, seed=5, arm_features=OF_ROWS, **named)
    write_feedback(logs, tmp_path / "log.npz")
    for again in (
        read_feedback(tmp_path / "log.npz", **RANGE),
        from_feedback(to_feedback(logs), **RANGE),
    ):
        same(logs, again, *named)
    assert not {"context_names", "action_context_names"} & set(to_feedback(logged(4, seed=5)))
    with pytest.raises(CodecError, match="without its last character; rename it"):
        to_feedback(logged(4, seed=5, names=("age\0", "x")))


@pytest.mark.parametrize("user", [None, "_user"])
def test_dsjson_reads_users_without_user_option(user: str | None, tmp_path: Path) -> None:
    logs = logged(40, seed=5, users=USERS)
    write_dsjson(logs, tmp_path / "log.json")
    same(logs, read_dsjson(tmp_path / "log.json", user=user, **RANGE), "names")
    with pytest.raises(CodecError, match=r"no word or whole number 'user' .* it has '_user'"):
        read_dsjson(tmp_path / "log.json", user="user", **RANGE)


def test_dsjson_requires_users_in_all_lines_or_none(tmp_path: Path) -> None:
    """One line with a note would make its user the unit of what is promised to all."""
    file = tmp_path / "log.json"
    both: dict[str, Any] = {"_multi": [{}, {}]}
    said, other = both | {"_user": "anna"}, both | {"_user": {"id": 7}}
    file.write_text(line(c=said) + "\n" + line(c=other) + "\n")
    with pytest.raises(
        CodecError, match=r"line 2 of log\.json does not say who came, and others do"
    ):
        read_dsjson(file, **RANGE)
    file.write_text(line(c=other) + "\n" + line() + "\n")
    assert read_dsjson(file, **RANGE).users is None


def test_a_dictionary_that_was_saved_as_it_is_can_be_read(tmp_path: Path) -> None:
    """`np.savez(**feedback)` pickles a position that is None; nothing of ours unpickles it."""
    logs = logged(40, seed=5)
    np.savez(tmp_path / "log.npz", **to_feedback(logs))
    same(logs, read_feedback(tmp_path / "log.npz", **RANGE))


def test_files_that_are_no_feedback_get_one_line(tmp_path: Path) -> None:
    file, logs = tmp_path / "log.npz", logged(40, seed=5)
    write_feedback(logs, file)
    whole = file.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 5):
        file.write_bytes(whole[:cut])
        with pytest.raises(CodecError, match="no whole"):
            read_feedback(file, **RANGE)
    np.savez(file, **{**to_feedback(logs), "context": np.array([{}])})
    with pytest.raises(CodecError, match="context has the kind object"):
        read_feedback(file, **RANGE)
    with pytest.raises(CodecError, match="cannot be read"):
        read_feedback(tmp_path / "none.npz", **RANGE)


def test_read_feedback_rejects_unreadable_user_array(tmp_path: Path) -> None:
    """Else rows would be protected, and nobody told."""
    file, logs = tmp_path / "log.npz", to_feedback(logged(40, seed=5))
    words = np.array(["anna", "otto"] * 20)
    for users in (words.astype(object), words.astype("S")):
        np.savez(file, **logs | {"user": users})
        with pytest.raises(
            CodecError, match=r"user has the kind .* only numbers and words are read"
        ):
            read_feedback(file, **RANGE)
    np.savez(file, **logs | {"user": None})
    assert read_feedback(file, **RANGE).users is None


@pytest.mark.parametrize("noted", [1.0, True, [1], None])
def test_dsjson_rejects_invalid_user_note(noted: Any, tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    file.write_text(line(c={"_multi": [{}, {}], "_user": noted}) + "\n")
    with pytest.raises(CodecError, match=r"line 1 of log\.json: '_user' in c is neither a word"):
        read_dsjson(file, **RANGE)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"pscore": None}, "no pscore"),
        ({"n_rounds": 41}, "n_rounds is 41 and there are 40 actions"),
        ({"n_actions": 2}, "action is not one of the arms 0 to 1"),
        ({"n_actions": 2.5}, "n_actions is 2.5"),
        ({"context": np.zeros(40)}, "contexts have shape"),
        ({"context_names": 7}, "context_names of the feedback are no words"),
        ({"context_names": np.eye(2)}, "context_names of the feedback are no words"),
        ({"context_names": ["age"]}, "names has 1 words for 2 columns"),
    ],
)
def test_feedback_that_contradicts_itself_is_refused(changed: Any, said: str) -> None:
    with pytest.raises(KerchiefError, match=said):
        from_feedback(to_feedback(logged(40, seed=5)) | changed, **RANGE)


def test_features_of_one_namespace_stand_side_by_side(tmp_path: Path) -> None:
    """A model by columns would be about others after they were moved."""
    three = logged(3, seed=5, contexts=np.eye(3), names=("a.x", "b", "a.y"))
    with pytest.raises(CodecError, match=r"feature 'b' stands apart .* put them side by"):
        write_dsjson(three, tmp_path / "log.json")
    beside = logged(3, seed=5, contexts=np.eye(3), names=("a.x", "a.y.z", "b[0]"))
    write_dsjson(beside, tmp_path / "log.json")
    same(beside, read_dsjson(tmp_path / "log.json", arms=3, **RANGE), "names")


def test_write_dsjson_rejects_last_arm_that_no_row_allows(tmp_path: Path) -> None:
    allowed = np.ones((40, 4), bool)
    allowed[:, 3] = False
    with pytest.raises(CodecError, match="arm 3, the last, is allowed in no row"):
        write_dsjson(logged(40, seed=5, arms=4, allowed=allowed), tmp_path / "log.json")
    assert not list(tmp_path.iterdir())
