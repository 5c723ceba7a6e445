"""Play a plan cell by cell, so that an interrupted run keeps what was finished."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.experiments.plan import Plan
from kerchief.experiments.players import Cell
from kerchief.experiments.results import Result
from kerchief.experiments.runner import Part
from kerchief.experiments.runner import play as play_part
from kerchief.experiments.runner import width as widest
from kerchief.simulation.recorder import Progress
from kerchief.simulation.run import Run

__all__ = ["Watch", "compare"]

Watch: TypeAlias = Callable[[Cell, str, float], None]


def compare(
    plan: Plan,
    *,
    ticks: int = 100,
    width: int | None = None,
    watch: Watch | None = None,
) -> Iterator[Result]:
    """Play every cell, one after another, and give each as soon as it is finished.

    All cells meet the same worlds: the seed and the replicate's number decide what is drawn.

    Args:
        plan: what to play.
        ticks: how often regret is read.
        width: the most replicates that play at once; by default what memory allows. Results do not
            depend on it, up to rounding.
        watch: called with the cell, "compiling" or "playing", and the finished share of the cell.

    Yields:
        The results, in the order of `Plan.cells`.

    >>> from kerchief.experiments.declare import Comparison
    >>> small = Comparison(
    ...     contexts=("ball",), dim=2, arms=3, horizon=40, replicates=2, trusts=("none",)
    ... )
    >>> [result.cell.label() for result in compare(small, ticks=4)]
    ['uniform', 'greedy not private', 'linucb not private']
    """
    most = widest(plan) if width is None else validate.whole("width", width)
    uniform: dict[str, float] = {}
    for cell in plan.cells():
        result = _play(plan, cell, ticks, most, watch or (lambda cell, stage, share: None))
        # Uniform play comes first in each world.
        usual = uniform.setdefault(cell.world, float(result.curves[-1].mean()))
        yield dataclasses.replace(result, uniform=usual)


def _play(plan: Plan, cell: Cell, ticks: int, width: int, watch: Watch) -> Result:
    """One cell, in chunks of replicates of nearly equal width."""
    start = time.perf_counter()
    chunks = -(-plan.replicates // width)
    edges = [plan.replicates * i // chunks for i in range(chunks + 1)]
    environment = plan.environment(cell.world)
    runs = [
        play_part(
            cell,
            environment,
            Part(
                seed=plan.seed,
                first=first,
                last=last,
                ticks=ticks,
                progress=_progress(plan, cell, first, last, watch),
            ),
        )
        for first, last in itertools.pairwise(edges)
    ]
    return _joined(cell, runs, time.perf_counter() - start)


def _progress(plan: Plan, cell: Cell, first: int, last: int, watch: Watch) -> Progress:
    """Turn the rounds of one chunk into the finished share of its cell."""

    def report(stage: str, rounds: int) -> None:
        done = first + (last - first) * rounds / cell.horizon
        watch(cell, stage, done / plan.replicates)

    return report


def _joined(cell: Cell, runs: list[Run], wall_seconds: float) -> Result:
    """Chunks side by side; what was spent is what the worst-off user of any was charged."""
    right = [run.right for run in runs if run.right is not None]
    return Result(
        cell=cell,
        rounds=runs[0].rounds,
        curves=np.concatenate([run.regret for run in runs], axis=1),
        releases=_means([run.releases for run in runs]),
        uniform=0.0,
        guarantee=max((run.spent for run in runs), key=lambda spent: spent.epsilon),
        seconds=sum(run.seconds for run in runs),
        compile_seconds=sum(run.compile_seconds for run in runs),
        wall_seconds=wall_seconds,
        device=runs[0].device,
        communication=_means([run.communication for run in runs]),
        right=float(np.concatenate(right).mean()) if right else None,
    )


def _means(counts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, float]:
    """The average over the replicates of all chunks, name by name."""
    names = counts[0] if counts else ()
    return {name: float(np.concatenate([one[name] for one in counts]).mean()) for name in names}
