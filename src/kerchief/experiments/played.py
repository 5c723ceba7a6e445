"""What a planning has played: chunks of cells, and what learning is held to."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kerchief.experiments.parts import Finished
from kerchief.experiments.planning import SINGLE, UNIFORM
from kerchief.experiments.players import Cell


@dataclasses.dataclass(kw_only=True)
class Played:
    """What was played, of so many users.

    Attributes:
        runs: the chunks of each cell, in their order.
        users: how many users were simulated.
        left: what the time did not suffice for, one line each.
        seconds: how long all of it took.
    """

    users: int
    runs: dict[Cell, dict[int, Finished]] = dataclasses.field(default_factory=dict)
    left: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def rounds(self) -> NDArray[np.int64]:
        """After how many users regret was read."""
        return next(iter(self._ordered(next(iter(self.runs))))).run.rounds

    def curves(self, cell: Cell) -> NDArray[np.float64]:
        """Cumulative regret, one row per tick and one column per replicate."""
        return np.concatenate([one.run.regret for one in self._ordered(cell)], axis=1)

    def rewards(self, cell: Cell) -> NDArray[np.float64]:
        """The mean reward per user in each replicate."""
        earned = [one.run.earned for one in self._ordered(cell)]
        return np.concatenate([one for one in earned if one is not None]) / self.users

    def gains(self, cell: Cell, beside: Cell) -> NDArray[np.float64]:
        """How much less than another cell it has lost in the same worlds, as `curves`."""
        ours, theirs = self.curves(cell), self.curves(beside)
        both = min(ours.shape[1], theirs.shape[1])
        return theirs[:, :both] - ours[:, :both]

    def _ordered(self, cell: Cell) -> list[Finished]:
        """The chunks up to the first that is missing, so that replicates have their numbers."""
        chunks = self.runs[cell]
        return [chunks[i] for i in itertools.takewhile(chunks.__contains__, range(len(chunks) + 1))]


def yardstick(cells: Sequence[Cell]) -> Cell:
    """What learning must beat: the best single arm where the world knows it, else uniform play."""
    found = {cell.player.policy: cell for cell in cells}
    return found[SINGLE if SINGLE in found else UNIFORM]
