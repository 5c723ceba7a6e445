"""What a bandit in one process draws ahead: the same numbers, each used once, by nobody else."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deployment.field import FACTS, promise

from kerchief.deployment.bandit import Bandit
from kerchief.deployment.pool import CandidatePool, PooledGaussian
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief_device.randomize import candidates

COUNT, SIZE = 256, 21


class Seeds:
    """Another seed with every call, and how many there were."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, count: int) -> bytes:
        self.calls += 1
        return self.calls.to_bytes(count, "little")


class Rows(np.ndarray[Any, Any]):
    """Rows whose user is interrupted when one is overwritten."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        raise KeyboardInterrupt


def test_an_interrupt_leaves_no_noise_of_zero() -> None:
    size = 8
    pool = PooledGaussian(ExactGaussian(grid_bits=10, scale=4096, sensitivity=1.0, dimension=size))
    first = pool.add(np.zeros(size))
    whole = pool._rows
    pool._rows = whole.view(Rows)
    with pytest.raises(KeyboardInterrupt):
        pool.add(np.zeros(size))
    pool._rows = whole
    second = pool.add(np.zeros(size))
    assert np.any(second)
    assert not np.array_equal(first, second)


def test_every_list_that_was_drawn_is_used_once() -> None:
    ahead, seeds = CandidatePool(), Seeds()
    lists = []
    while seeds.calls < 2:
        lists.append(ahead(COUNT, SIZE, seeds).tobytes())
    drawn = candidates((len(lists) - 1) * COUNT, SIZE, Seeds())
    rows = drawn.reshape(-1, COUNT, SIZE)
    assert len(lists) > 10
    assert sorted(lists[:-1]) == sorted(one.tobytes() for one in rows)


def test_lists_of_different_sizes_are_apart() -> None:
    ahead, seeds = CandidatePool(), Seeds()
    assert ahead(COUNT, SIZE, seeds).shape == (COUNT, SIZE)
    assert ahead(2**16, SIZE, seeds).shape == (2**16, SIZE)
    assert ahead(COUNT, SIZE, seeds).shape == (COUNT, SIZE)
    assert seeds.calls == 2


@pytest.mark.parametrize("way", ["fork", "copy"])
def test_copies_and_forks_inherit_no_predrawn_lists(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, seeds = CandidatePool(), Seeds()
    ahead(COUNT, SIZE, seeds)
    other = copy.deepcopy(ahead) if way == "copy" else ahead
    if way == "fork":
        pid = os.getpid() + 1
        monkeypatch.setattr(os, "getpid", lambda: pid)
    mine = other(COUNT, SIZE, seeds)
    assert seeds.calls == 2
    fresh = candidates(COUNT, SIZE, lambda count: (1).to_bytes(count, "little"))
    assert not {row.tobytes() for row in mine} & {row.tobytes() for row in fresh}


def test_a_bandit_on_disk_draws_nothing_ahead(tmp_path: Path) -> None:
    bandit = Bandit(
        policy="linucb",
        problem=FACTS,
        guarantee=promise("local"),
        window_s=0,
        path=tmp_path / "bandit",
        witness=tmp_path / "witness",
    )
    assert bandit._device._draw_candidates is candidates
    bandit.close()


def test_a_pool_that_runs_short_deals_no_row_twice() -> None:
    pool = PooledGaussian(ExactGaussian(grid_bits=10, scale=2**20, sensitivity=1.0, dimension=8))
    rows = np.concatenate([pool.draw(None, many) for many in (1, 2000, 60, 1, 5000, 1)])
    assert rows.all(axis=1).mean() > 0.9
    assert len(np.unique(rows, axis=0)) == len(rows) == 7063
