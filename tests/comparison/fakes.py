"""Cells that were never played: what outputs look like does not depend on how they came about."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kerchief.comparison.plan import Plan
from kerchief.comparison.players import Cell
from kerchief.comparison.results import Result
from kerchief.comparison.runner import RunState, Watch

__all__ = ["fake", "fake_play", "fake_result"]


def fake(plan: Plan, *, ticks: int = 5) -> list[Result]:
    """Every cell of a plan, the later the less regret."""
    cells = plan.cells()
    return [_finished(plan, cell, 100.0 - 2 * place, ticks) for place, cell in enumerate(cells)]


def fake_play(stop: int | None = None) -> Callable[..., Iterator[Result]]:
    """A stand-in for `RunState.results` that stops as Ctrl-C does, after so many cells."""

    def play(work: RunState, watch: Watch) -> Iterator[Result]:
        for number, finished in enumerate(fake(work.plan)):
            if number == stop:
                raise KeyboardInterrupt
            yield finished

    return play


def _finished(plan: Plan, cell: Cell, regret: float, ticks: int) -> Result:
    rounds = np.linspace(cell.horizon / ticks, cell.horizon, ticks).astype(np.int64)
    spread = np.linspace(0.9, 1.1, plan.replicates)
    return Result(
        cell=cell,
        rounds=rounds,
        curves=np.linspace(1 / ticks, 1, ticks)[:, None] * regret * spread,
        uniform=100.0,
        releases={"moments": 1.0},
        guarantee=cell.guarantee,
        seconds=1.0,
        seconds_alone=1.0,
        compile_seconds=0.5,
        device="cpu",
    )


def fake_result(cell: Cell, mean: float, se: float | None = 1.0, *, replicates: int = 10) -> Result:
    """A result whose final regret has this mean and this standard error."""
    count = 1 if se is None else replicates
    signs = np.where(np.arange(count) % 2, 1.0, -1.0)
    final = mean + (0.0 if se is None else se * np.sqrt(count - 1)) * signs * (count > 1)
    return Result(
        cell=cell,
        rounds=np.array([cell.horizon]),
        curves=final[None],
        uniform=100.0,
        releases={},
        guarantee=cell.guarantee,
        seconds=1e-6 * cell.horizon * count,
        seconds_alone=1e-6 * cell.horizon * count,
        compile_seconds=0.0,
        device="cpu",
    )
