"""How a cell is checked and played, whatever the kind of its world."""

from __future__ import annotations

import dataclasses
import functools

from kerchief.core.contracts import BoundedLoss
from kerchief.core.problems import AnyProblem
from kerchief.experiments.plan import Plan
from kerchief.experiments.players import Cell
from kerchief.privacy.ledger import MemoryLedger
from kerchief.roles.arrange import Arranged
from kerchief.simulation.recorder import Progress
from kerchief.simulation.run import AnyEnvironment, Run, simulate

__all__ = ["MOST_FEATURES", "Part", "arranged", "play", "width"]

MOST_FEATURES = 2**24
"""What one chunk of replicates may hold in arms; a round keeps a handful of such arrays."""

MOST_KEPT = 2**28
"""What one chunk of replicates may hold in histories, for policies that ask for fits."""

MOST_TOGETHER = 2**14
"""How many replicates may be mapped over at once: on one kind of CPU, JAX 0.10 was seen to give
wrong numbers in some programs from the 16385th on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """Some replicates of a cell.

    Attributes:
        seed: of everything random.
        first: number of the first replicate.
        last: one past the last one.
        ticks: how often regret is read.
        progress: called with "compiling" or "playing" and the rounds done so far.
    """

    seed: int
    first: int
    last: int
    ticks: int
    progress: Progress


@functools.lru_cache(maxsize=1024)
def arranged(cell: Cell, problem: AnyProblem) -> Arranged:
    """The bandit of a cell with its protection, built once.

    Raises:
        KerchiefError: something is unknown, out of its bound, or not to be had in this world.
    """
    return cell.player.arrange(problem, cell.protection)


def play(cell: Cell, environment: AnyEnvironment, part: Part) -> Run:
    """Play against a ledger of its own: replicates are parallel universes of one deployment."""
    made = arranged(cell, environment.problem(cell.horizon))
    return simulate(
        policy=made.policy,
        privatizers=made.privatizers,
        environment=environment,
        ledger=MemoryLedger(cell.guarantee),
        horizon=cell.horizon,
        replicates=part.last - part.first,
        seed=part.seed,
        first_replicate=part.first,
        ticks=part.ticks,
        progress=part.progress,
    )


def width(plan: Plan) -> int:
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
