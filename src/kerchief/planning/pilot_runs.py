"""What a planning has played: chunks of cells, and what learning is held to."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kerchief.comparison.chunks import ChunkResult
from kerchief.comparison.players import Cell
from kerchief.planning.planning import SINGLE, UNIFORM


@dataclasses.dataclass(kw_only=True)
class SimulatedRuns:
    """What was played, of so many users.

    Attributes:
        runs: the chunks of each cell, in their order.
        users: how many users were simulated.
        left: what the time did not suffice for, one line each.
        seconds: how long all of it took.
    """

    users: int
    runs: dict[Cell, dict[int, ChunkResult]] = dataclasses.field(default_factory=dict)
    left: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def rounds(self) -> NDArray[np.int64]:
        """After how many users regret was read."""
        return next(iter(self._list_chunks(next(iter(self.runs))))).run.rounds

    def curves(self, cell: Cell) -> NDArray[np.float64]:
        """Cumulative regret, one row per tick and one column per replicate."""
        return np.concatenate([chunk.run.regret for chunk in self._list_chunks(cell)], axis=1)

    def rewards(self, cell: Cell) -> NDArray[np.float64]:
        """The mean reward per user in each replicate."""
        rewards = [chunk.run.earned for chunk in self._list_chunks(cell)]
        return np.concatenate([reward for reward in rewards if reward is not None]) / self.users

    def gains(self, cell: Cell, beside: Cell) -> NDArray[np.float64]:
        """How much less than another cell it has lost in the same worlds, as `curves`."""
        regret, baseline = self.curves(cell), self.curves(beside)
        replicates = min(regret.shape[1], baseline.shape[1])
        return baseline[:, :replicates] - regret[:, :replicates]

    def _list_chunks(self, cell: Cell) -> list[ChunkResult]:
        """The chunks up to the first that is missing, so that replicates have their numbers."""
        chunks = self.runs[cell]
        return [chunks[i] for i in itertools.takewhile(chunks.__contains__, range(len(chunks) + 1))]


def yardstick(cells: Sequence[Cell]) -> Cell:
    """What learning must beat: the best single arm where the world knows it, else uniform play."""
    by_policy = {cell.player.policy: cell for cell in cells}
    return by_policy[SINGLE if SINGLE in by_policy else UNIFORM]
