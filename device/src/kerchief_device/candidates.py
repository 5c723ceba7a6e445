"""Independent normal vectors that a report is chosen from, a block of them in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kerchief_device.source import Randomness, drawn
from kerchief_wire.noise import Floats

__all__ = ["Candidates"]

# Numbers of a block: they fit in the cache of a core.
_BLOCK = 1 << 17


class Candidates:
    """Normal vectors, cut so far out; they may be known to anyone, so a fast generator is enough.

    They are drawn once to be scored, and the block of the chosen one a second time: the same
    numbers, from the same place of the generator.

    >>> own = Candidates(8, 3, 2.0, lambda count: bytes(count))
    >>> scores = own.scores(np.array([1.0, 0.0, 0.0]))
    >>> scores.shape, bool(own[5][0] == scores[5])
    ((8,), True)
    """

    def __init__(self, count: int, size: int, farthest: float, source: Randomness) -> None:
        """Draw the seed."""
        self._count, self._size, self._far = count, size, farthest
        seed = int.from_bytes(drawn(16, source), "little")
        self._generator = np.random.default_rng(seed)
        self._rows = max(1, _BLOCK // size)
        self._states: list[Any] = []

    def scores(self, unit: Floats) -> Floats:
        """How well each of them agrees with a vector."""
        return np.concatenate([block @ unit for block in self._blocks()])

    def __getitem__(self, number: int) -> Floats:
        """One of those that were scored."""
        block, row = divmod(number, self._rows)
        self._generator.bit_generator.state = self._states[block]
        vector: Floats = self._drawn(row + 1)[row]
        return vector

    def _blocks(self) -> Iterator[Floats]:
        for first in range(0, self._count, self._rows):
            self._states.append(self._generator.bit_generator.state)
            yield self._drawn(min(self._rows, self._count - first))

    def _drawn(self, rows: int) -> Floats:
        block = self._generator.standard_normal((rows, self._size))
        return np.clip(block, -self._far, self._far, out=block)
