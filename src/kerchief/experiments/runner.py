"""Where cells are played: a stage for each kind of world, behind one way to check and to play."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kerchief.core.context_free import ContextFreeEnvironment
from kerchief.core.contracts import BoundedLoss, Environment, Policy
from kerchief.environments.population import Population
from kerchief.experiments.plan import Cell, Place, Plan
from kerchief.policies.context_free import ContextFreePolicy
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.registry import BEST, protect
from kerchief.privatizers.sums import CohortSums
from kerchief.simulation import context_free
from kerchief.simulation.phases import arrange, simulate_phases
from kerchief.simulation.run import Progress, Run, simulate

__all__ = ["MOST_FEATURES", "Part", "Stage", "stage_of", "width"]

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


class Stage(Protocol):
    """One world, and how bandits play there."""

    def check(self, cell: Cell) -> None:
        """Build all that a run needs.

        Raises:
            KerchiefError: something is unknown, out of its bound, or not to be had in this world.
        """

    def seen(self, cell: Cell) -> int:
        """How many numbers a replicate looks at in a round."""

    def kept(self, cell: Cell) -> int:
        """How many numbers a replicate keeps for the whole run."""

    def play(self, cell: Cell, part: Part) -> Run:
        """Play against a ledger of its own: replicates are parallel universes of one deployment."""


def stage_of(place: Place) -> Stage:
    """The stage of a world."""
    if isinstance(place, Population):
        return Phases(population=place)
    if isinstance(place, ContextFreeEnvironment):
        return Questions(world=place)
    return Rounds(environment=place)


def width(plan: Plan) -> int:
    """How many replicates of a plan may play at once in bounded memory."""
    stages = [(stage_of(plan.environment(cell.contexts)), cell) for cell in plan.cells()]
    seen = max(stage.seen(cell) for stage, cell in stages)
    kept = max(stage.kept(cell) for stage, cell in stages)
    room = min(MOST_TOGETHER, MOST_FEATURES // seen, MOST_KEPT // max(1, kept))
    return max(1, min(plan.replicates, room))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounds:
    """A world that is met round by round."""

    environment: Environment

    def check(self, cell: Cell) -> None:
        """Build the policy."""
        self._policy(cell)

    def seen(self, cell: Cell) -> int:
        """The features of all arms."""
        problem = self.environment.problem(cell.horizon)
        return problem.arms * problem.dim

    def kept(self, cell: Cell) -> int:
        """A history, where the policy asks for fits."""
        losses = [
            one for one in self._policy(cell).queries.values() if isinstance(one, BoundedLoss)
        ]
        return cell.horizon * sum(loss.size for loss in losses)

    def play(self, cell: Cell, part: Part) -> Run:
        """Play round by round."""
        policy = self._policy(cell)
        return simulate(
            policy=policy,
            privatizers=protect(
                policy,
                cell.guarantee,
                horizon=cell.horizon,
                continual=cell.player.continual,
                shuffling=cell.player.shuffling,
                randomizer=cell.player.randomizer,
            ),
            environment=self.environment,
            ledger=MemoryLedger(cell.guarantee),
            horizon=cell.horizon,
            replicates=part.last - part.first,
            seed=part.seed,
            first_replicate=part.first,
            ticks=part.ticks,
            progress=part.progress,
        )

    def _policy(self, cell: Cell) -> Policy:
        return cell.player.make(self.environment.problem(cell.horizon), cell.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phases:
    """A population, which is met phase by phase."""

    population: Population

    def check(self, cell: Cell) -> None:
        """Build the policy, and see that the population is large enough."""
        arrange(cell.player.make_phased(self.population.problem(cell.horizon)), cell.guarantee)

    def seen(self, cell: Cell) -> int:
        """The features of all actions."""
        problem = self.population.problem(cell.horizon)
        return problem.arms * problem.dim

    def kept(self, cell: Cell) -> int:
        """Nothing."""
        return 0

    def play(self, cell: Cell, part: Part) -> Run:
        """Play phase by phase."""
        policy = cell.player.make_phased(self.population.problem(cell.horizon))
        return simulate_phases(
            policy=policy,
            protocol=arrange(policy, cell.guarantee),
            population=self.population,
            ledger=MemoryLedger(cell.guarantee),
            horizon=cell.horizon,
            replicates=part.last - part.first,
            seed=part.seed,
            first_replicate=part.first,
            ticks=part.ticks,
            progress=part.progress,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Questions:
    """A world without contexts: the server proposes, one user answers a round."""

    world: ContextFreeEnvironment

    def check(self, cell: Cell) -> None:
        """Build the policy for the reports that it will get."""
        self._arranged(cell)

    def seen(self, cell: Cell) -> int:
        """A weight an arm, or a few matrices on a domain."""
        problem = self.world.problem(cell.horizon)
        return max(1, problem.arms, 4 * problem.dim**2)

    def kept(self, cell: Cell) -> int:
        """Nothing."""
        return 0

    def play(self, cell: Cell, part: Part) -> Run:
        """Play question by question."""
        policy, privatizers = self._arranged(cell)
        return context_free.simulate_context_free(
            policy=policy,
            privatizers=privatizers,
            environment=self.world,
            ledger=MemoryLedger(cell.guarantee),
            horizon=cell.horizon,
            replicates=part.last - part.first,
            seed=part.seed,
            first_replicate=part.first,
            ticks=part.ticks,
            progress=part.progress,
        )

    def _arranged(self, cell: Cell) -> tuple[ContextFreePolicy, Mapping[str, CohortSums]]:
        """The policy and its protection; one bit is what suits a single number best."""
        word = cell.player.randomizer
        return context_free.arrange(
            partial(cell.player.make_context_free, self.world.problem(cell.horizon)),
            cell.guarantee,
            horizon=cell.horizon,
            randomizer="one-bit" if word == BEST else word,
        )
