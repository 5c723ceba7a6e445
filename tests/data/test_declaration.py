"""Declared bounds become rows in a ball, by nothing but the declaration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerchief.core.errors import InvalidValueError
from kerchief.data.declaration import Declaration
from kerchief.data.tables import read_table
from kerchief.environments import ranged


def test_ranges_alone_are_scaled_as_by_ranged() -> None:
    values = np.random.default_rng(0).uniform(-20, 120, (50, 3))
    made = Declaration.of("x*=0:100").encode(read_table(values))
    np.testing.assert_allclose(made.rows, ranged(values, low=[0] * 3, high=[100] * 3), atol=1e-12)
    outside = ((values < 0) | (values > 100)).any(1)
    np.testing.assert_array_equal(made.clipped, outside)


@pytest.mark.parametrize(
    "features",
    [
        "age=18:90, plan=basic|gold, town=Rome|Oslo|other",
        ["age=18:90,plan=basic|gold", "town=Rome|Oslo|other"],
        {"age": (18, 90), "plan": ["basic", "gold"], "town": ["Rome", "Oslo", "other"]},
        {"age": "18:90", "plan": "basic|gold", "town": "Rome|Oslo|other"},
    ],
)
def test_categories_get_separate_coordinates(features: Any) -> None:
    public = Declaration.of(features)
    table = read_table({"age": [54, 90], "plan": ["gold", "basic"], "town": ["Oslo", "Bern"]})
    made = public.encode(table)
    usual = np.sqrt(0.25 + 1 + 1)
    np.testing.assert_allclose(made.rows[0], [0, *(np.array([1, 0, 1, 0]) / usual), 0.5])
    assert made.rows[1, 4] > 0 > made.rows[1, 1]
    assert public.dim == made.rows.shape[1] == 6
    assert (np.linalg.norm(made.rows, axis=1) <= public.norm + 1e-12).all()
    assert public.texts() == ("age=18:90", "plan=basic|gold", "town=Rome|Oslo|other")
    assert Declaration.of(public.texts()) == public


def test_a_vector_is_bounded_by_its_norm() -> None:
    public = Declaration.of("age=0:1, e*", norm=5.0)
    table = read_table({"e1": [3.0, 30.0], "age": [0.5, 0.5], "e2": [4.0, 40.0]})
    made = public.encode(table)
    usual = np.sqrt(0.25 + 1)
    np.testing.assert_allclose(made.rows, [[0, 0.6 / usual, 0.8 / usual, 0.5]] * 2)
    assert made.clipped.tolist() == [False, True]
    assert public.vector_norm == 5.0
    assert Declaration.of(public.texts(), norm=public.vector_norm) == public


def test_without_an_intercept_there_is_no_constant() -> None:
    public = Declaration.of("x0=0:1", intercept=0.0)
    assert public.encode(read_table([[1.0]])).rows.tolist() == [[1.0]]
    assert (public.dim, public.norm) == (1, 1.0)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ("age", "feature 'age' has no declared range; declare what is public, as in age=18:90"),
        ("age=auto", "neither a range nor words"),
        ("age=18", "neither a range nor words"),
        ("age=90:18", "the first must be less"),
        ("age=0:inf", "range of 'age'"),
        ("age=nan:1", "range of 'age'"),
        ("plan=basic|basic", "two or more different words"),
        ("plan=basic|", "two or more different words"),
        ("age=0:1,age=0:2", "'age' is declared twice"),
        ("", "no feature is declared"),
        ("=0:1", "the name of a feature is ''"),
        (7, "features are a int"),
        ([7], "a feature is a int"),
        ({"age": 7}, "neither a range nor words"),
        ({"age": [1, 2, 3]}, "two or more different words"),
    ],
)
def test_a_bound_that_is_not_declared_is_refused(features: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        Declaration.of(features)


def test_a_norm_is_for_features_without_ranges() -> None:
    with pytest.raises(InvalidValueError, match="every feature has a range"):
        Declaration.of("age=0:1", norm=1.0)
    with pytest.raises(InvalidValueError, match="norm is -1"):
        Declaration.of("age", norm=-1.0)


def test_a_row_with_a_word_that_was_never_declared_is_named() -> None:
    table = read_table({"plan": ["basic", "silver"]})
    with pytest.raises(
        InvalidValueError, match=r"row 2 of column 'plan' .* is not declared; .* 'other'"
    ):
        Declaration.of("plan=basic|gold").encode(table)
    with pytest.raises(
        InvalidValueError, match=r"no column is like 'x\*'; those that may be features are plan"
    ):
        Declaration.of("x*=0:1").encode(table)


def test_no_bound_follows_the_data() -> None:
    """The same user gets the same row whoever else is in the table."""
    public = Declaration.of("age=18:90, plan=basic|gold")
    alone = public.encode(read_table({"age": [40], "plan": ["gold"]})).rows[0]
    others = public.encode(read_table({"age": [40, 1000], "plan": ["gold", "basic"]})).rows[0]
    np.testing.assert_array_equal(alone, others)
