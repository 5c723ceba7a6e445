"""How candidates are compared: by their regret over uniform play's, on the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tools.tuning.space import Candidate

from kerchief.comparison.results import Result, mean_error
from kerchief.core.errors import InvalidValueError

OBJECTIVE = (
    "the mean, over all worlds, trusts and epsilons, of the logarithm of mean regret over the mean "
    "regret of uniform play; less is better"
)
ERRORS = 2.0
"""By how many standard errors of the paired difference an incumbent must be beaten."""

# A bandit that lost nothing at all is counted as if it had lost so much of uniform play's losses.
_LEAST = 1e-6

Shares: TypeAlias = NDArray[np.float64]
"""Regret over the mean regret of uniform play: one row per cell, one column per replicate."""


class Score(NamedTuple):
    """A mean with its standard error."""

    mean: float
    se: float


def shares(results: Sequence[Result]) -> dict[Candidate, Shares]:
    """Compute the regret shares of each candidate, one row per cell."""
    rows: dict[Candidate, list[NDArray[np.float64]]] = {}
    for result in results:
        if result.uniform <= 0:
            raise InvalidValueError(
                f"in world {result.world!r} uniform play loses nothing: nothing can be tuned "
                "there; choose another world, or more rounds"
            )
        if result.cell.player.numbers:
            rows.setdefault(result.cell.player.numbers, []).append(
                result.curves[-1] / result.uniform
            )
    return {numbers: np.stack(cell_shares) for numbers, cell_shares in rows.items()}


def score(mine: Shares) -> Score:
    """The objective; its error is that of a sum of logarithms of means, to first order.

    >>> score(np.array([[0.25, 0.25], [1.0, 1.0]])) == (np.log(0.5), 0.0)
    True
    """
    return Score(float(np.log(_means(mine)).mean()), _error(_pulls(mine)))


def gain(one: Shares, other: Shares) -> Score:
    """How much less the objective of one is than that of another, on the same draws.

    >>> [round(one, 6) for one in gain(np.array([[1.0, 2.0]]), np.array([[2.0, 4.0]]))]
    [0.693147, 0.0]
    """
    return Score(score(other).mean - score(one).mean, _error(_pulls(one) - _pulls(other)))


def tail_of(mine: Shares) -> float:
    """The 95th percentile over replicates, as a geometric mean over cells.

    >>> round(tail_of(np.array([[1.0, 1.0], [4.0, 4.0]])), 9)
    2.0
    """
    worst = np.maximum(np.percentile(mine, 95, axis=1), _LEAST)
    return float(np.exp(np.log(worst).mean()))


def _means(regret_shares: Shares) -> NDArray[np.float64]:
    return np.asarray(np.maximum(regret_shares.mean(axis=1), _LEAST))


def _pulls(regret_shares: Shares) -> NDArray[np.float64]:
    """Compute how far each replicate pulls the objective, plus a constant."""
    return np.asarray((regret_shares / _means(regret_shares)[:, None]).mean(axis=0))


def _error(pulls: NDArray[np.float64]) -> float:
    return mean_error(pulls) or 0.0
