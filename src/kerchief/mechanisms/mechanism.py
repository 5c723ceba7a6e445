"""What every source of additive noise offers."""

from __future__ import annotations

from typing import ClassVar, Protocol

from jax import Array
from jax.typing import ArrayLike

from kerchief.core.random import Stream
from kerchief.privacy.events import Event

__all__ = ["Mechanism"]


class Mechanism(Protocol):
    """Noise and its cost in one object.

    `idealized` says that the noise is floating point: right in law for real numbers, and so fit for
    simulation only.
    """

    idealized: ClassVar[bool]

    @property
    def std(self) -> float | Array:
        """Standard deviation of the noise on each coordinate."""

    def add(self, vector: Array, stream: Stream) -> ArrayLike:
        """The vector with noise."""

    def event(self, sensitivity: float) -> Event:
        """What one `add` costs when one user can move the vector this far."""
