"""Reports of one of many directions, which estimate two moments of a direction.

A statistic is a direction x, a response along it and a weight (`kerchief.core.residual_moments`).
The device tosses two coins, for the sign of the response and for the weight, and so has a unit
vector: the direction with the sign, leaning a little towards one more axis with the weight's side.
Of many candidate directions it reports one, more often one of those that agree with this vector
best. That direction is right on average as a vector, times a number, and its square as a matrix,
but for a multiple of the identity: both are read off the one candidate.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief_device.constant_time import flush
from kerchief_device.samplers import UNITS, Randomness, chosen_rank, word
from kerchief_protocol.noise import Compass, Floats

_TINY = 1e-30

Candidates: TypeAlias = Callable[[int, int, Randomness], NDArray[np.float32]]


def reported(noise: Compass, statistic: Floats, source: Randomness, listed: Candidates) -> Floats:
    """Draw the report of one user, as long as the statistic.

    Candidates are drawn before the statistic is looked at.
    """
    size = noise.dim + 1
    # The last one stands in for a direction where there is none.
    candidates = listed(noise.candidates + 1, size, source).astype(np.float64)
    lengths = np.sqrt((candidates * candidates).sum(1, keepdims=True))
    directions = candidates / np.maximum(lengths, _TINY)
    unit = _unit(noise, statistic, directions[-1, :-1], source)
    ranked = np.argpartition(directions[:-1] @ unit, noise.candidates - noise.listed)
    place = chosen_rank(noise.units, noise.candidates, noise.listed, source)
    return read(noise, directions[ranked[place]])


def read(noise: Compass, direction: Floats) -> Floats:
    """Read a reported direction as a flat matrix, followed by a vector."""
    rows, columns, scales = layout(noise.dim)
    x, last = direction[:-1], float(direction[-1])
    even = float(x @ x) / noise.dim
    weight = (noise.square / 2 + noise.weight * last) / noise.dim
    matrix = noise.matrix * x[rows] * x[columns] * scales
    matrix[rows == columns] += weight - noise.matrix * even
    return np.concatenate([matrix, noise.vector * x])


def told(noise: Compass, statistic: Floats, anywhere: Floats) -> tuple[Floats, float, float]:
    """Split a statistic into direction, response relative to the largest, and weight.

    Without a direction in the statistic it is `anywhere`, and response and weight are 0. The
    operations are the same in both cases.
    """
    rows, columns, scales = layout(noise.dim)
    matrix_size = len(rows)
    numbers = np.minimum(np.maximum(flush(statistic), -1e100), 1e100)
    flat, vector = (
        numbers[:matrix_size] / (scales * noise.square),
        numbers[matrix_size:] / noise.pull,
    )
    weight = min(max(float(flat[rows == columns].sum()), 0.0), 1.0)
    # x xᵀ again, whose trace is one; if nothing was added up, x is nowhere.
    matrix = np.empty((noise.dim, noise.dim))
    matrix[rows, columns] = matrix[columns, rows] = flat
    matrix += (1 - weight) / noise.dim * np.eye(noise.dim)
    column = matrix[:, int(np.argmax(np.diag(matrix)))]
    length = math.sqrt(float(column @ column))
    there = (float(np.abs(numbers).max()) > 0) & (length > 0) & (length < math.inf)
    own = max(math.sqrt(float(anywhere @ anywhere)), _TINY)
    x = np.where(there, column, anywhere) / (own, length)[there]
    return x, there * min(max(float(vector @ x), -1.0), 1.0), there * weight


@functools.lru_cache(maxsize=64)
def layout(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Return rows, columns and scales of the flat form of a symmetric matrix."""
    rows, columns = np.triu_indices(dim)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))


def _unit(noise: Compass, statistic: Floats, anywhere: Floats, source: Randomness) -> Floats:
    """Toss the two coins of a statistic, and return its unit vector."""
    x, response, weight = told(noise, statistic, anywhere)
    sign = _coin((1 + response) / 2, source)
    side = _coin(weight, source)
    return np.append(math.sqrt(1 - noise.lean**2) * sign * x, noise.lean * side)


def _coin(chance: float, source: Randomness) -> float:
    """Draw 1 with this chance, to 32 bits, else -1."""
    return 2.0 * (float(word(source)) < UNITS * chance) - 1.0
