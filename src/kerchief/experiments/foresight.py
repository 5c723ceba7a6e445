"""Whether plans hold: how often their intervals cover worlds that they have not seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.experiments.forecast import Interval, predicted
from kerchief.experiments.parts import Part
from kerchief.experiments.planning import Planning, segments
from kerchief.experiments.played import Played, yardstick
from kerchief.experiments.players import Cell


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """The share of unseen worlds that lay where a plan had said, on average over plans."""

    reward: float
    regret: float
    gain: float | None


def played_here(planning: Planning, *, width: int, chunks: int = 1, first: int = 0) -> Played:
    """Play every cell in this process, however long it takes.

    Args:
        planning: what is asked.
        width: how many replicates a chunk has.
        chunks: how many of them.
        first: number of the first of them: others are other worlds.
    """
    users, ticks = segments(planning.count)
    played = Played(users=users)
    for cell in planning.cells(users):
        played.runs[cell] = {
            chunk: Part(
                cell=cell,
                environment=planning.environment,
                seed=planning.seed,
                first=(first + chunk) * width,
                last=(first + chunk + 1) * width,
                ticks=ticks,
            ).play()
            for chunk in range(chunks)
        }
    return played


def coverage(
    planning: Planning, *, width: int, plans: int, unseen: int, seed: int
) -> dict[Cell, Coverage]:
    """Make several plans of `width` worlds each, and hold them to worlds of another seed.

    Args:
        planning: what is asked; its seed is that of the plans.
        width: how many worlds one plan simulates.
        plans: how many plans are made.
        unseen: how many times `width` worlds are drawn anew.
        seed: of those; not that of the plans.
    """
    validate.whole("plans", plans)
    made = played_here(planning, width=width, chunks=plans)
    fresh = played_here(dataclasses.replace(planning, seed=seed), width=width, chunks=unseen)
    beside = yardstick(list(made.runs))

    def held(read: Callable[[Played], NDArray[np.float64]]) -> float:
        return _covered(read(made), read(fresh), width)

    def of(cell: Cell) -> Coverage:
        return Coverage(
            reward=held(lambda one: one.rewards(cell)),
            regret=held(lambda one: one.curves(cell)[-1]),
            gain=None if cell == beside else held(lambda one: one.gains(cell, beside)[-1]),
        )

    return {cell: of(cell) for cell in made.runs}


def _covered(seen: NDArray[np.float64], unseen: NDArray[np.float64], width: int) -> float:
    plans = [predicted(seen[start : start + width]) for start in range(0, seen.size, width)]
    return float(np.mean([_share(plan, unseen) for plan in plans]))


def _share(plan: Interval, unseen: NDArray[np.float64]) -> float:
    return float(np.mean([plan.covers(one) for one in unseen]))
