"""Factors: how continual noise mixes its seeds over time.

A factor is a public lower-triangular matrix B. The noise on prefix t of a stream is row t of B Z,
with independent seed vectors Z. With A the matrix of prefix sums and C = B⁻¹ A, what is released is
B (C x + Z): one user's change is amplified by a column of C. Theorem and proof: `continual.md` for
normal seeds, `exact_continual.md` for exact ones.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.validate import plain, whole
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.privacy import events

__all__ = ["Factor", "Floats", "Part"]

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factor(abc.ABC):
    """A factor for streams of one length.

    Attributes:
        horizon: the length of the stream, fixed before it starts.
    """

    longest: ClassVar[int]
    """The longest stream that it can be made for."""

    horizon: int

    def __post_init__(self) -> None:
        """Check the horizon."""
        plain(self)
        whole("horizon", self.horizon, high=self.longest)

    @property
    @abc.abstractmethod
    def column_norm(self) -> float:
        """The largest Euclidean norm of a column of C: how much one user's change is amplified."""

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """How many vectors the stream remembers; before the first place all are zero."""

    @abc.abstractmethod
    def step(self, state: Array, round: Array, seed: Array) -> tuple[Array, Array]:
        """The noise on the prefix that ends here, and the next state, in compiled code."""

    @abc.abstractmethod
    def row_norm(self, count: Any, library: Any) -> Any:
        """The norm of row `count` of B: the noise on that prefix, for seeds of deviation 1.

        The library is NumPy or `jax.numpy`, whichever has made the count: one number or many.
        """

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Factors of successive stretches of the stream, each with exact seeds of its own scale."""

    @abc.abstractmethod
    def places(self, count: int) -> tuple[int, ...]:
        """How many of the first `count` places lie in each stretch that has begun."""

    @abc.abstractmethod
    def price(self, *seeds: events.DiscreteGaussian) -> events.Event:
        """What all the prefixes together cost, from what one seed vector of each part would."""

    @property
    def capacity(self) -> int:
        """How many vectors can be added up on the grid of exact seeds without any rounding."""
        return 10**7


class Part(Factor):
    """A factor of one stretch: its exact seeds are all of one scale.

    The noise of a place is its own seed plus a mixture of the earlier ones, rounded to whole grid
    steps. All below is host code on NumPy arrays, in grid steps.
    """

    @property
    def parts(self) -> tuple[Part, ...]:
        """Itself alone."""
        return (self,)

    def places(self, count: int) -> tuple[int, ...]:
        """All of them."""
        return (count,)

    @property
    @abc.abstractmethod
    def limits(self) -> float | Floats:
        """How large the numbers of the state may become, in scales of a seed vector."""

    @abc.abstractmethod
    def mix(self, state: Floats, place: int) -> Floats:
        """What earlier seeds add to the noise of this place, from 1, before rounding."""

    @abc.abstractmethod
    def keep(self, state: Floats, place: int, seed: Floats) -> Floats:
        """The next state."""

    @abc.abstractmethod
    def seed(self, *, noise_multiplier: float, sensitivity: float, dimension: int) -> ExactGaussian:
        """The seeds with which a stream costs no more than one Gaussian of this multiplier."""
