"""Pools of exact noise: drawn in bulk, ahead of the data, each number used once."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.privacy import events
from kerchief_device.randomize import Vectors, candidates
from kerchief_device.samplers import Randomness, sample_discrete_gaussian

_DRAWS = 1 << 14
_NORMALS = 1 << 20
_LARGEST_FLOAT_INT = 2**53


class PooledGaussian:
    """A discrete Gaussian drawn thousands at a time: the same law for a fraction of the cost.

    The noise does not depend on the data, so it may be drawn before there is any; as a side effect
    the time an `add` takes says nothing about the noise it used. Whoever knew the pool could take
    the noise off again: it is in no copy, pickle or message, a forked child throws its inherited
    pool away, and every number is handed out once.

    >>> noise = PooledGaussian(ExactGaussian(grid_bits=10, scale=4096, sensitivity=1.0,
    ...     dimension=2))
    >>> noise.add([0.25, -0.5]) % 2**-10
    array([0., 0.])
    >>> noise
    Pooled(ExactGaussian(grid_bits=10, scale=4096, dimension=2, sensitivity=1.0))
    """

    idealized: ClassVar[bool] = False

    def __init__(self, noise: ExactGaussian) -> None:
        """Begin with an empty pool for this noise, and its law's table, which no user waits for."""
        # A draw that is thrown away makes the table.
        sample_discrete_gaussian(noise.scale, 1)
        self._noise = noise
        self._lock = threading.Lock()
        self._rows = np.empty((0, noise.dimension), np.int64)
        self._next = 0
        self._owner = os.getpid()

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate."""
        return self._noise.std

    @property
    def sensitivity(self) -> float:
        """How far one user can move the vector."""
        return self._noise.sensitivity

    @property
    def grid(self) -> float:
        """The distance between two values that can be released."""
        return self._noise.grid

    def prepare(
        self, vector: Sequence[float] | NDArray[np.float64], stream: object = None
    ) -> NDArray[np.float64]:
        """Round a vector to the grid."""
        return self._noise.prepare(vector)

    def add(
        self, vector: Sequence[float] | NDArray[np.float64], stream: None = None
    ) -> NDArray[np.float64]:
        """The vector, rounded to the grid, plus noise from the pool: exact multiples of the grid.

        Args:
            vector: as `ExactGaussian.add` takes it.
            stream: nothing; a pool is filled from the operating system alone.

        Raises:
            InvalidValueError: a stream was given, or the vector or the sum does not fit the grid.
        """
        steps = self._noise.prepare(vector)
        total: NDArray[np.float64] = steps + self.draw(stream)[0] * self._noise.grid
        # Both terms are whole grid steps: below 2**53 of them the sum has no rounding.
        if not (np.abs(total) < _LARGEST_FLOAT_INT * self._noise.grid).all():
            raise InvalidValueError(
                "the noisy vector has 2**53 or more grid steps; no float64 holds it"
            )
        return total

    def event(self) -> events.DiscreteGaussian:
        """What one `add` costs."""
        return self._noise.event()

    def draw(self, stream: None = None, rows: int = 1) -> NDArray[np.int64]:
        """Draw the noise of so many calls of `add`, in grid steps, one row each.

        Raises:
            InvalidValueError: a stream was given.
        """
        if stream is not None:
            raise InvalidValueError("a pool of noise was given a stream; it takes none")
        with self._lock:
            if self._next + rows > len(self._rows) or self._owner != os.getpid():
                self._fill(rows)
            # Counted as used before it is: an interrupt may waste noise, never repeat or zero it.
            places, self._next = slice(self._next, self._next + rows), self._next + rows
            noise: NDArray[np.int64] = self._rows[places].copy()
            self._rows[places] = 0
            return noise

    def _fill(self, least: int) -> None:
        size = self._noise.dimension
        rows = max(least, _DRAWS // size)
        self._rows = sample_discrete_gaussian(self._noise.scale, rows * size).reshape(rows, size)
        self._next, self._owner = 0, os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild a copy with an empty pool of its own."""
        return PooledGaussian, (self._noise,)

    def __repr__(self) -> str:
        """The noise's public parameters."""
        return f"Pooled({self._noise!r})"


class CandidatePool:
    """Candidates drawn for many reports at once: the same law, and each list used once.

    Anyone may know them (`shortlist.md`, `compass.md`). A forked child throws those away that it
    inherited, and a copy has none, so no two reports are made from one list.

    >>> CandidatePool()(3, 2, os.urandom).shape
    (3, 2)
    """

    def __init__(self) -> None:
        """Begin without candidates."""
        self._lock, self._owner = threading.Lock(), os.getpid()
        self._unused_lists: dict[tuple[int, int], list[Vectors]] = {}

    def __call__(self, count: int, size: int, source: Randomness) -> Vectors:
        """The candidates of one report, as `candidates` draws them."""
        with self._lock:
            if self._owner != os.getpid():
                self._unused_lists, self._owner = {}, os.getpid()
            unused = self._unused_lists.setdefault((count, size), [])
            if not unused:
                lists = max(1, _NORMALS // (count * size))
                unused.extend(candidates(lists * count, size, source).reshape(lists, count, size))
            return unused.pop()

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild a copy without candidates."""
        return CandidatePool, ()


def pool_noise(noise: Any) -> Any:
    """Draw exact noise in bulk, for a bandit in one process that lives in memory alone.

    A pool survives in a machine that is cloned while it runs, so an aggregator on disk has none.
    """
    match noise:
        case ExactGaussian():
            return PooledGaussian(noise)
        case ExactContinualNoise():
            return dataclasses.replace(noise, seeds=tuple(map(pool_noise, noise.seeds)))
    return noise
