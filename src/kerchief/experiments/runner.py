"""Play a plan cell by cell, so that an interrupted run keeps what was finished."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.contracts import BoundedLoss
from kerchief.core.problems import AnyProblem
from kerchief.experiments.plan import Plan
from kerchief.experiments.players import Cell
from kerchief.experiments.results import Result
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.bits import BitSums
from kerchief.roles.arrange import Arranged
from kerchief.simulation.recorder import Progress
from kerchief.simulation.run import Run, simulate

MOST_FEATURES = 2**24
"""What one chunk of replicates may hold in arms; a round keeps a handful of such arrays."""

MOST_KEPT = 2**28
"""What one chunk of replicates may hold in histories, for policies that ask for fits."""

MOST_TOGETHER = 2**14
"""How many replicates may be mapped over at once: on one kind of CPU, JAX 0.10 was seen to give
wrong numbers in some programs from the 16385th on."""

Watch: TypeAlias = Callable[[Cell, str, float], None]


@functools.lru_cache(maxsize=1024)
def arranged(cell: Cell, problem: AnyProblem) -> Arranged:
    """The bandit of a cell with its protection, built once.

    Raises:
        KerchiefError: something is unknown, out of its bound, or not to be had in this world.
    """
    return cell.player.arrange(problem, cell.player.promise(cell.delta, cell.horizon))


def compare(
    plan: Plan, *, ticks: int = 100, width: int | None = None, watch: Watch | None = None
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
    ['uniform', 'greedy not private', 'sampling not private']
    """
    most = widest(plan) if width is None else validate.whole("width", width)
    uniform: dict[str, float] = {}
    for cell in plan.cells():
        result = _play(plan, cell, ticks, most, watch or (lambda cell, stage, share: None))
        # Uniform play comes first in each world.
        usual = uniform.setdefault(cell.world, float(result.curves[-1].mean()))
        yield dataclasses.replace(result, uniform=usual)


def _play(plan: Plan, cell: Cell, ticks: int, width: int, watch: Watch) -> Result:
    """One cell, in chunks of replicates of nearly equal width.

    Each has a ledger of its own: replicates are parallel universes of one deployment.
    """
    start = time.perf_counter()
    environment = plan.environment(cell.world)
    made = arranged(cell, environment.problem(cell.horizon))
    chunks = -(-plan.replicates // width)
    edges = [plan.replicates * i // chunks for i in range(chunks + 1)]
    runs = [
        simulate(
            policy=made.policy,
            privatizers=made.privatizers,
            environment=environment,
            ledger=MemoryLedger(cell.guarantee),
            horizon=cell.horizon,
            replicates=last - first,
            seed=plan.seed,
            first_replicate=first,
            ticks=ticks,
            progress=_progress(plan, cell, first, last, watch),
        )
        for first, last in itertools.pairwise(edges)
    ]
    result = _joined(cell, runs, time.perf_counter() - start)
    return dataclasses.replace(result, noises=_noises(made), alone=_alone(made, cell.horizon))


def _noises(made: Arranged) -> dict[str, str]:
    """The class of each query's noise, as far as there is any."""
    noises = {name: one.noises for name, one in made.privatizers.items()}
    return {name: type(one[0]).__name__ for name, one in noises.items() if one}


def _alone(made: Arranged, horizon: int) -> Guarantee | None:
    """What one report promises by itself: of bits, which are randomized one by one."""
    for one in made.privatizers.values():
        if isinstance(one, BitSums):
            return dataclasses.replace(one.alone, rounds=horizon)
    return None


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
    return {name: float(np.concatenate([one[name] for one in counts]).mean()) for name in counts[0]}


def widest(plan: Plan) -> int:
    """How many replicates of a plan may play at once in bounded memory."""
    worlds = [(cell, plan.environment(cell.world)) for cell in plan.cells()]
    problems = [(cell, world.problem(cell.horizon)) for cell, world in worlds]
    seen = max(_seen(problem) for _, problem in problems)
    kept = max(_kept(cell, problem) for cell, problem in problems)
    room = min(MOST_TOGETHER, MOST_FEATURES // seen, MOST_KEPT // max(1, kept))
    return max(1, min(plan.replicates, room))


def _seen(problem: AnyProblem) -> int:
    """How many numbers a replicate looks at in a round: features, weights, or a few matrices."""
    if problem.arms == 0:
        return 4 * problem.dim**2
    return problem.arms * max(1, problem.dim)


def _kept(cell: Cell, problem: AnyProblem) -> int:
    """How many numbers a replicate keeps for the whole run: a history, where it asks for fits."""
    queries = arranged(cell, problem).policy.queries.values()
    return cell.horizon * sum(one.size for one in queries if isinstance(one, BoundedLoss))
