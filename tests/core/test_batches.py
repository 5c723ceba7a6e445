"""Batches: public, increasing, within the horizon."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerchief.core.batches import ends_now, grow_batches, span_horizon
from kerchief.core.contracts import Clock
from kerchief.core.errors import InvalidValueError


@given(horizon=st.integers(1, 5000), first=st.integers(1, 6000), growth=st.floats(1.01, 4.0))
def test_batches_grow_within_the_horizon(horizon: int, first: int, growth: float) -> None:
    ends = grow_batches(horizon, first=first, growth=growth)
    assert ends[0] == min(first, horizon)
    assert ends[-1] <= horizon < max(ends[-1] + 1, ends[-1] * growth) + 1
    for before, after in itertools.pairwise(ends):
        assert before < after <= max(before + 1, before * growth)


@given(horizon=st.integers(1, 5000), first=st.integers(1, 6000), growth=st.floats(1.01, 4.0))
def test_the_last_batch_may_end_with_the_horizon(horizon: int, first: int, growth: float) -> None:
    ends = span_horizon(horizon, first=first, growth=growth)
    assert (ends[0], ends[-1]) == (min(first, horizon), horizon)
    for before, after in itertools.pairwise(ends):
        assert before < after <= max(before + 1, before * growth**1.5 + growth**1.5)


@pytest.mark.parametrize(
    ("horizon", "first", "growth"), [(0, 1, 2.0), (10, 0, 2.0), (10, 1, 1.0), (10, 1, float("nan"))]
)
def test_bad_batches_are_refused(horizon: int, first: int, growth: float) -> None:
    with pytest.raises(InvalidValueError):
        grow_batches(horizon, first=first, growth=growth)
    with pytest.raises(InvalidValueError):
        span_horizon(horizon, first=first, growth=growth)


def test_a_batch_ends_with_its_last_user() -> None:
    now = [r for r in range(9) if bool(ends_now((2, 7), Clock(round=jnp.int32(r), since={})))]
    assert now == [1, 6]
