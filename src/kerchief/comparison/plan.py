"""What is played together: the cells of a plan.

A `Comparison` (any policies, from the command line), a `Reproduction` (an experiment of the
catalogue) and a `Leaderboard` are plans. Everything that plays, tabulates, draws or reports takes a
plan.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from kerchief.comparison.players import Cell, Key
from kerchief.comparison.results import Result
from kerchief.comparison.seeds import seed_warnings
from kerchief.comparison.table import Table
from kerchief.comparison.verdict import Verdict
from kerchief.environments.projected import Shortened
from kerchief.privacy.guarantee import delta_warnings
from kerchief.simulation.run import AnyEnvironment

Panel: TypeAlias = Literal["rounds", "epsilon"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """What the picture of a plan shows.

    Attributes:
        panels: for each world, regret against these.
        axis: what `numbers`, one per world, are. If given, another panel shows the final regret
            against them.
    """

    panels: tuple[Panel, ...] = ("rounds", "epsilon")
    axis: str | None = None
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is no picture at all."""
        return not self.panels and self.axis is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(abc.ABC):
    """Cells that share the number of rounds, of replicates and the seed."""

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
    def environment(self, world: str) -> AnyEnvironment:
        """The world of that name."""

    def protected(self, cell: Cell) -> str:
        """What a cell's promise is about, which its world's problem says."""
        return self.environment(cell.world).problem(cell.horizon).protected

    @abc.abstractmethod
    def parameters(self) -> dict[str, object]:
        """Everything that was chosen, in the words of the command line."""

    @abc.abstractmethod
    def command(self) -> str:
        """The command line that plays this plan again."""

    def caption(self, world: str) -> str:
        """What stands above the table of a world."""
        return world

    def layout(self) -> Layout:
        """What the picture shows."""
        return Layout()

    def printed(self) -> Mapping[Key, float]:
        """The regrets that a paper printed, where there are any."""
        return {}

    page = "report"
    """What the HTML page is called."""
    tables_name = "results"
    """What files with tables for papers are called."""

    def preface(self) -> str:
        """What stands before tables in Markdown, where there is anything."""
        return ""

    def tables(self, finished: Sequence[Result]) -> list[Table]:
        """Tables that come before those of each world, where there are any."""
        return []

    def findings(self, finished: Sequence[Result]) -> dict[str, object]:
        """What stands in the JSON object besides the rows, where there is anything."""
        return {}

    def note(self) -> str:
        """Sentences about what the tables do not show, where there are any."""
        return ""

    @property
    def rewarded(self) -> bool:
        """Whether tables show rewards beside regrets."""
        return False

    @property
    def shortened(self) -> Mapping[str, Shortened]:
        """What a projection of features costs, by world, where there is one."""
        return {}

    def verdicts(self, results: Sequence[Result]) -> tuple[Verdict, ...]:
        """What became of each claim, where there are any."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but should be seen, one line each."""
        budgets = [cell.asked for cell in self.cells() if cell.asked is not None]
        deltas = dict.fromkeys(delta for _, delta in budgets)
        longest = max(cell.horizon for cell in self.cells())
        lines = [line for delta in deltas for line in delta_warnings(delta, longest)]
        unproved = dict.fromkeys(
            cell.player.protection
            for cell in self.cells()
            if cell.asked is not None and cell.player.lacks_proof(cell.asked[1])
        )
        prefix = (
            "widths from the theory are proved for normal noise at a delta above 0, and not for"
        )
        lines += [f"{prefix} {protection}" for protection in unproved]
        return (*lines, *seed_warnings(self.seed))
