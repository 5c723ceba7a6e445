"""What exact noise on prefixes has in common: a grid, sums without rounding, an end."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import CapacityExceeded, InvalidValue
from kerchief.mechanisms.mechanism import Mechanism, Vector
from kerchief.privacy import events

__all__ = ["GridNoise", "on_grid", "place_of"]

# Prefixes stay below half of what a float64 counts exactly; the other half is for the noise.
_MOST_STEPS = 2**52


class GridNoise(Mechanism, Protocol):
    """Exact noise in whole steps of a grid."""

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""

    def event(self) -> events.DiscreteGaussian:
        """What one `add` costs."""


def on_grid(vector: Vector, node: GridNoise, *, places: int) -> NDArray[np.float64]:
    """Round a vector to the noise's grid, and see that so many of them fit a float64.

    Raises:
        InvalidValue: the vector does not fit the grid.
    """
    rounded: NDArray[np.float64] = node.prepare(vector, None)
    most = _MOST_STEPS * node.grid / places
    if not (np.abs(rounded) < most).all():
        raise InvalidValue(f"vector has an entry of {most} or more; sums would not be exact")
    return rounded


def place_of(round: Any, horizon: int) -> int:
    """The place of a vector in its stream, from 1.

    Raises:
        CapacityExceeded: the stream is over.

    >>> place_of(np.int32(4), 5)
    5
    """
    place = int(round) + 1
    if place > horizon:
        raise CapacityExceeded(f"place {place} of a stream that was paid for {horizon}")
    return place
