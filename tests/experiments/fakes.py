"""Cells that were never played: what outputs look like does not depend on how they came about."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kerchief.experiments.compare import Finished
from kerchief.experiments.plan import Cell, Plan

__all__ = ["fake", "fake_play"]


def fake(plan: Plan, *, ticks: int = 5) -> list[Finished]:
    """Every cell of a plan, the later the less regret."""
    cells = plan.cells()
    return [_finished(plan, cell, 100.0 - 2 * place, ticks) for place, cell in enumerate(cells)]


def fake_play(stop: int | None = None) -> Callable[..., Iterator[Finished]]:
    """A stand-in for `compare` that stops as Ctrl-C does, after so many cells."""

    def play(plan: Plan, **options: object) -> Iterator[Finished]:
        for number, finished in enumerate(fake(plan)):
            if number == stop:
                raise KeyboardInterrupt
            yield finished

    return play


def _finished(plan: Plan, cell: Cell, regret: float, ticks: int) -> Finished:
    rounds = np.linspace(cell.horizon / ticks, cell.horizon, ticks).astype(np.int64)
    spread = np.linspace(0.9, 1.1, plan.replicates)
    return Finished(
        cell=cell,
        rounds=rounds,
        regret=np.linspace(1 / ticks, 1, ticks)[:, None] * regret * spread,
        releases={"moments": 1.0},
        spent=cell.guarantee,
        seconds=1.0,
        compile_seconds=0.5,
        wall_seconds=2.0,
        device="cpu",
    )
