"""Coverage of plans: how often their intervals hold in new environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kerchief.comparison.chunks import Chunk
from kerchief.comparison.players import Cell
from kerchief.core import validate
from kerchief.planning.forecast import Interval, predict_interval
from kerchief.planning.pilot_runs import SimulatedRuns, yardstick
from kerchief.planning.planning import Planning, segments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """Share of new environments inside the intervals, on average over plans."""

    reward: float
    regret: float
    gain: float | None


def simulate_cells(
    planning: Planning, *, width: int, chunks: int = 1, first: int = 0
) -> SimulatedRuns:
    """Simulate every cell in this process, however long it takes.

    Args:
        planning: question of the plan.
        width: number of replicates of a chunk.
        chunks: number of chunks.
        first: number of the first chunk; another number gives other environments.
    """
    users, ticks = segments(planning.count)
    simulation = SimulatedRuns(users=users)
    for cell in planning.cells(users):
        simulation.runs[cell] = {
            chunk: Chunk(
                cell=cell,
                environment=planning.environment,
                seed=planning.seed,
                first=(first + chunk) * width,
                last=(first + chunk + 1) * width,
                ticks=ticks,
            ).play()
            for chunk in range(chunks)
        }
    return simulation


def coverage(
    planning: Planning, *, width: int, plans: int, unseen: int, seed: int
) -> dict[Cell, Coverage]:
    """Make several plans of `width` environments, and test them on new ones.

    Args:
        planning: question of the plans, with their seed.
        width: number of environments that one plan simulates.
        plans: number of plans.
        unseen: how many times `width` new environments are drawn.
        seed: seed of the new environments, which is not that of the plans.
    """
    validate.whole("plans", plans)
    planned_simulation = simulate_cells(planning, width=width, chunks=plans)
    fresh_simulation = simulate_cells(
        dataclasses.replace(planning, seed=seed), width=width, chunks=unseen
    )
    baseline = yardstick(list(planned_simulation.runs))

    def measure_coverage(read: Callable[[SimulatedRuns], NDArray[np.float64]]) -> float:
        return _compute_coverage(read(planned_simulation), read(fresh_simulation), width)

    def measure_cell(cell: Cell) -> Coverage:
        return Coverage(
            reward=measure_coverage(lambda simulation: simulation.rewards(cell)),
            regret=measure_coverage(lambda simulation: simulation.curves(cell)[-1]),
            gain=None
            if cell == baseline
            else measure_coverage(lambda simulation: simulation.gains(cell, baseline)[-1]),
        )

    return {cell: measure_cell(cell) for cell in planned_simulation.runs}


def _compute_coverage(
    simulated: NDArray[np.float64], unseen: NDArray[np.float64], width: int
) -> float:
    plans = [
        predict_interval(simulated[start : start + width])
        for start in range(0, simulated.size, width)
    ]
    return float(np.mean([_compute_share(plan, unseen) for plan in plans]))


def _compute_share(plan: Interval, unseen: NDArray[np.float64]) -> float:
    return float(np.mean([plan.covers(value) for value in unseen]))
