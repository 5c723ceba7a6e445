"""What can be played: players, the cells in which they meet worlds, and a plan of such cells.

A `Comparison` (any policies, from the command line) and a `Reproduction` (an experiment of the
catalogue) are plans. Everything that plays, tabulates, draws or reports takes a plan.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from kerchief.core.context_free import ContextFreeEnvironment, ContextFreeProblem
from kerchief.core.contracts import Environment, Policy, Problem
from kerchief.core.errors import InvalidValue
from kerchief.core.population import PopulationProblem
from kerchief.core.validate import one_of, positive
from kerchief.environments.population import Population
from kerchief.policies import POLICIES, Mode
from kerchief.policies.context_free import CONTEXT_FREE, Channel, ContextFreePolicy
from kerchief.policies.phased import PHASED, Phased
from kerchief.privacy.guarantee import Guarantee, Trust, delta_warnings
from kerchief.privatizers.registry import BEST, CONTINUALS, RANDOMIZERS, SHUFFLES, makers_of

if TYPE_CHECKING:
    from kerchief.experiments.claims import Verdict
    from kerchief.experiments.rows import Row

__all__ = [
    "YARDSTICKS",
    "Cell",
    "Layout",
    "Panel",
    "Place",
    "Plan",
    "Player",
    "Spot",
    "delta_warnings",
    "player",
]

P = TypeVar("P", Policy, Phased, ContextFreePolicy)

YARDSTICKS = ("uniform", "greedy")
"""Policies that play without protection in every plan, asked for or not."""

Panel: TypeAlias = Literal["rounds", "epsilon"]

Place: TypeAlias = Environment | Population | ContextFreeEnvironment
"""A world: met round by round, phase by phase as a population is, or without contexts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Player:
    """A policy as it plays: its name, whom users trust, and the numbers that it runs with.

    Attributes:
        policy: the bandit's own name.
        trust: whom users must trust.
        epsilon: asked for; infinite without protection.
        mode: widths `tuned`, or from the `theory`.
        continual: the noise on prefix totals, which only joint trust has.
        shuffling: what devices add to shuffled reports, which only shuffle trust has.
        randomizer: what devices do to their reports, which only local trust asks of them.
        numbers: parameters of the policy that are replaced, such as ("exploration", 1.0).
    """

    policy: str
    trust: Trust = Trust.NONE
    epsilon: float = math.inf
    mode: Mode = "tuned"
    continual: str = BEST
    shuffling: str = BEST
    randomizer: str = BEST
    numbers: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """The policy, and what is special about this one; yardsticks have no widths.

        >>> player("linucb", mode="theory", exploration=2.0).name
        'linucb theory exploration=2'
        """
        mode = [] if self.mode == "tuned" or self.policy in YARDSTICKS else [self.mode]
        return " ".join([self.policy, *mode, *(f"{name}={one:g}" for name, one in self.numbers)])

    @property
    def protection(self) -> str:
        """The trust, and its noise where it is not the default.

        >>> player("linucb", trust="joint", epsilon=1.0, continual="tree").protection
        'joint, tree'
        """
        words = (self.continual, self.shuffling, self.randomizer)
        special = [word for word in words if word != BEST]
        return ", ".join([str(self.trust), *special])

    def label(self) -> str:
        """A few words for progress bars, legends and claims.

        >>> player("linucb", trust="local", epsilon=1.0).label()
        'linucb local ε=1'
        """
        if self.trust is Trust.NONE:
            return self.name if self.policy == "uniform" else f"{self.name} not private"
        return f"{self.name} {self.protection} ε={self.epsilon:g}"

    def make(self, problem: Problem, delta: float) -> Policy:
        """Build the policy from public facts alone; a paper's own version may need the promise.

        Raises:
            KerchiefError: the policy is unknown, has no such number, or asks what nobody answers.
        """
        promise = None if self.trust is Trust.NONE else (self.epsilon, delta)
        policy = POLICIES[self.policy].build(problem, self.mode, promise)
        makers_of(policy, self.trust, continual=self.continual)
        return _replaced(policy, dict(self.numbers))

    def make_phased(self, problem: PopulationProblem) -> Phased:
        """Build a policy for a population from public facts alone.

        Raises:
            KerchiefError: no policy for populations is called so, or it has no such number.
        """
        return _replaced(PHASED[self.policy].make(problem, self.mode), dict(self.numbers))

    def make_context_free(self, problem: ContextFreeProblem, channel: Channel) -> ContextFreePolicy:
        """Build a policy without contexts from public facts alone.

        Raises:
            KerchiefError: no such policy, no such number, or it cannot learn from such reports.
        """
        return _replaced(
            CONTEXT_FREE[self.policy].make(problem, self.mode, channel), dict(self.numbers)
        )

    def parents(self) -> tuple[Player, ...]:
        """The non-private bandit behind a protected one: tuned, and with its published widths."""
        if self.trust is Trust.NONE:
            return ()
        (entry,) = [
            kind[self.policy] for kind in (POLICIES, PHASED, CONTEXT_FREE) if self.policy in kind
        ]
        return player(entry.parent), player(entry.parent, mode="theory")


def player(
    policy: str,
    *,
    trust: str = "none",
    epsilon: float = math.inf,
    mode: Mode = "tuned",
    continual: str = BEST,
    shuffling: str = BEST,
    randomizer: str = BEST,
    **numbers: float,
) -> Player:
    """Name a player in one line; further numbers replace those of the policy.

    The word for continual noise is for joint trust, that for shuffling for shuffle trust, that for
    the randomizer for local trust; under any other they change nothing.

    Raises:
        UnknownName: no continual noise, no shuffle protocol, or no randomizer is called so.

    >>> player("linucb", trust="joint", epsilon=1.0, exploration=2.0).numbers
    (('exploration', 2.0),)
    """
    if not isinstance(policy, str):
        raise InvalidValue(f"policy is a {type(policy).__name__}; give a bandit's name")
    CONTINUALS[continual]
    SHUFFLES[shuffling]
    RANDOMIZERS[randomizer]
    return Player(
        policy=policy,
        trust=Trust(one_of("trust", trust, tuple(Trust))),
        epsilon=positive("epsilon", epsilon, infinite=True),
        mode=mode,
        continual=continual if trust == Trust.JOINT else BEST,
        shuffling=shuffling if trust == Trust.SHUFFLE else BEST,
        randomizer=randomizer if trust == Trust.LOCAL else BEST,
        numbers=tuple(sorted(numbers.items())),
    )


def _replaced(policy: P, numbers: Mapping[str, float]) -> P:
    if not numbers:
        return policy
    made: Any = policy
    fields = {one.name for one in dataclasses.fields(made) if not one.metadata.get("static")}
    for name in numbers:
        if name not in fields:
            raise InvalidValue(
                f"number is {name!r}; {type(policy).__name__} has {', '.join(sorted(fields))}"
            )
    replaced: P = dataclasses.replace(made, **numbers)
    return replaced


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spot:
    """A place in the table: a player in a world.

    Attributes:
        player: the line.
        contexts: the name of the world, which in a comparison is where arms come from.
    """

    player: Player
    contexts: str

    def __str__(self) -> str:
        """The player and the world.

        >>> str(Spot(player=player("uniform"), contexts="fixed"))
        'uniform on fixed'
        """
        return f"{self.player.label()} on {self.contexts}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A spot with all that a run needs: delta of the guarantee, if any, and the rounds."""

    spot: Spot
    delta: float
    horizon: int

    @property
    def player(self) -> Player:
        """Who plays."""
        return self.spot.player

    @property
    def contexts(self) -> str:
        """The name of the world."""
        return self.spot.contexts

    @property
    def policy(self) -> str:
        """The bandit's own name."""
        return self.player.policy

    @property
    def trust(self) -> str:
        """The word of `--trust`."""
        return str(self.player.trust)

    @property
    def asked(self) -> tuple[float, float] | None:
        """Epsilon and delta asked for, or None where no privacy is."""
        return None if self.player.trust is Trust.NONE else (self.player.epsilon, self.delta)

    @property
    def guarantee(self) -> Guarantee:
        """The promise."""
        epsilon, delta = self.asked or (math.inf, 0.0)
        return Guarantee(epsilon=epsilon, delta=delta, trust=self.player.trust, rounds=self.horizon)

    def label(self) -> str:
        """The player in a few words."""
        return self.player.label()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """What the picture of a plan shows.

    Attributes:
        panels: for each world, regret against these.
        axis: what `numbers` are; None where worlds have no number.
        numbers: a number a world. If given, another panel shows the final regret against it.
    """

    panels: tuple[Panel, ...] = ("rounds", "epsilon")
    axis: str | None = None
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(abc.ABC):
    """Cells that share the number of rounds, of replicates and the seed.

    Attributes:
        horizon: number of rounds.
        replicates: independent runs of each cell.
        seed: of everything random.
    """

    horizon: int
    replicates: int
    seed: int

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """A word for files."""

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """The heading of the report."""

    @abc.abstractmethod
    def lead(self) -> str:
        """One sentence under the heading."""

    @abc.abstractmethod
    def cells(self) -> tuple[Cell, ...]:
        """Every cell in the order of the table, uniform play first in each world."""

    @abc.abstractmethod
    def environment(self, contexts: str) -> Place:
        """The world of that name."""

    @abc.abstractmethod
    def parameters(self) -> dict[str, object]:
        """Everything that was chosen, in the words of the command line."""

    @abc.abstractmethod
    def command(self) -> str:
        """The command line that plays this plan again."""

    def caption(self, contexts: str) -> str:
        """What stands above the table of a world."""
        return contexts

    def layout(self) -> Layout:
        """What the picture shows."""
        return Layout()

    def printed(self) -> Mapping[Spot, float]:
        """The regrets that a paper printed, where there are any."""
        return {}

    def verdicts(self, rows: Sequence[Row]) -> tuple[Verdict, ...]:
        """What became of each claim, where there are any."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but should not pass unseen, a line each."""
        asked = [cell.asked for cell in self.cells() if cell.asked is not None]
        deltas = dict.fromkeys(delta for _, delta in asked)
        longest = max(cell.horizon for cell in self.cells())
        return tuple(line for delta in deltas for line in delta_warnings(delta, longest))
