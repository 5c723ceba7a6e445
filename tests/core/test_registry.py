"""Registries: found by name, refused by name."""

from __future__ import annotations

import pytest

from kerchief.core.errors import KerchiefError, UnknownNameError
from kerchief.core.registry import Registry


def test_entries_keep_their_order() -> None:
    things: Registry[int] = Registry("thing")
    assert len(things) == 0
    for place, name in enumerate(("zebra", "ant", "mule")):
        assert things.add(name, place) == place
    assert list(things) == ["zebra", "ant", "mule"]
    assert dict(things.items()) == {"zebra": 0, "ant": 1, "mule": 2}
    assert things["ant"] == 1
    assert "ant" in things
    assert "cat" not in things


def test_the_decorator_returns_the_definition() -> None:
    makers: Registry[type] = Registry("maker")

    @makers.entry("one")
    class One:
        pass

    assert makers["one"] is One


def test_a_name_is_taken_once() -> None:
    things: Registry[int] = Registry("thing")
    things.add("a", 1)
    with pytest.raises(ValueError, match="two entries of kind thing are called 'a'"):
        things.add("a", 2)
    assert things["a"] == 1


def test_unknown_name_error_suggests_the_nearest_name() -> None:
    things: Registry[int] = Registry("thing")
    things.add("linear", 1)
    things.add("logistic", 2)
    with pytest.raises(UnknownNameError, match=r"did you mean 'logistic'.*Known: linear, logistic"):
        things["logistics"]
    with pytest.raises(UnknownNameError, match="no thing is called 'xyz'; known: linear") as caught:
        things["xyz"]
    assert "did you mean" not in str(caught.value)
    assert isinstance(caught.value, KerchiefError)
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("LinUCB", "linucb"),
        ("lin_ucb", "linucb"),
        ("GLM ", "glm"),
        ("LINUCB PAIRS", "linucb-pairs"),
        ("glm-gre", "glm-greedy"),
        ("elim", "elimination"),
        ("linucb(joint)", "linucb"),
        ("linubc", "linucb"),
        ("bset", "best"),
    ],
)
def test_other_spellings_find_their_name(written: str, meant: str) -> None:
    things: Registry[int] = Registry("thing")
    for name in ("linucb", "linucb-pairs", "glm", "glm-greedy", "elimination"):
        things.add(name, 1)
    things.add_alias("best", "glm")
    with pytest.raises(UnknownNameError, match=f"did you mean '{meant}'"):
        things[written]


def test_blank_name_gets_no_suggestion() -> None:
    things: Registry[int] = Registry("thing")
    things.add("linucb", 1)
    with pytest.raises(UnknownNameError, match=r"^no thing is called ' '; known: linucb$"):
        things[" "]


def test_of_many_names_the_nearest_are_shown_and_where_all_are() -> None:
    things: Registry[int] = Registry("bandit or noise", listed=("policies", "mechanisms"))
    for number in range(60):
        things.add(f"bandit-{number}", number)
    things.add("linucb", 60)
    things.add("linucb-pairs", 61)
    with pytest.raises(UnknownNameError) as caught:
        things["linubc"]
    said = str(caught.value)
    assert "did you mean 'linucb'? " in said
    assert said.endswith("All 62: kerchief list policies, kerchief list mechanisms")
    assert len(said) < 200


def test_few_names_are_all_shown_in_alphabetical_order() -> None:
    things: Registry[int] = Registry("thing")
    for name in ("pear", "apple", "fig"):
        things.add(name, 1)
    with pytest.raises(UnknownNameError, match=r"known: apple, fig, pear$"):
        things["x"]
