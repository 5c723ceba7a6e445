"""Schedules: when a release may be made, and how often."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from kerchief.core.contracts import Clock
from kerchief.core.errors import InvalidValueError
from kerchief.privatizers.schedule import At, Every, OnDemand


def clock(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def test_every_round_is_one_release() -> None:
    assert Every().capacity(7) == 7


def test_batches_end_after_their_last_user() -> None:
    schedule = At(ends=(1, 3, 7))
    ready = [bool(schedule.ready(clock(round))) for round in range(8)]
    assert ready == [True, False, True, False, False, False, True, False]


@pytest.mark.parametrize(("horizon", "capacity"), [(1, 1), (2, 1), (3, 2), (6, 2), (7, 3), (99, 3)])
def test_only_batches_that_end_in_time_are_released(horizon: int, capacity: int) -> None:
    assert At(ends=(1, 3, 7)).capacity(horizon) == capacity


def test_no_batch_at_all() -> None:
    assert At(ends=()).capacity(10) == 0
    assert not bool(At(ends=()).ready(clock(0)))


@pytest.mark.parametrize("ends", [(0,), (3, 3), (5, 2), (-1, 4), (1.5,), (True,)])
def test_batches_without_users_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValueError):
        At(ends=ends)


def test_on_demand_has_a_limit() -> None:
    assert OnDemand(limit=3).capacity(1_000_000) == 3
    with pytest.raises(InvalidValueError):
        OnDemand(limit=0)


def test_schedules_are_static_structure() -> None:
    assert hash(At(ends=(1, 2))) == hash(At(ends=(1, 2)))
    assert OnDemand(limit=2) == OnDemand(limit=2) != OnDemand(limit=3)
