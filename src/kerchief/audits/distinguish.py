"""The onlooker's test: a direction in which two populations differ most, and two thresholds on it.

A run whose score is high is taken for one of the first population, one whose score is low for one
of the second, and about those in between nothing is said.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from kerchief.audits.neighbours import Floats

__all__ = ["Test", "train"]

# Where thresholds are tried, as shares of the scores: densely in the tails.
_TAIL = np.geomspace(0.002, 0.5, 32)
_SHARES = np.concatenate([_TAIL, 1 - _TAIL])
# A threshold far in the tails may prove much by chance, and nothing on other runs: so many
# standard deviations are taken off where thresholds are compared.
_CAREFUL = 4.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Test:
    """Say "first" where a score is above `high`, "second" where it is not above `low`.

    A score weighs what the first few places of a view hold, along a direction: for normal noise
    this is the best test there is.
    """

    places: int
    direction: Floats
    low: float = 0.0
    high: float = 0.0

    def scores(self, views: Floats) -> Floats:
        """How much each run looks like one of the first population."""
        found: Floats = _flat(views, self.places) @ self.direction
        return found

    def says(self, views: Floats) -> tuple[int, int]:
        """How many of these runs it takes for the first population, and for the second."""
        scores = self.scores(views)
        return int((scores > self.high).sum()), int((scores <= self.low).sum())


def train(one: Floats, other: Floats) -> Test:
    """Fit a test on runs of two populations.

    A direction is Fisher's: the difference of the means, in the metric of the pooled covariance.
    What does not vary is kept, since a difference there is certain. Directions are fitted on half
    of the runs, for the first few places and for all of them; the other half chooses among them,
    and the thresholds. Views are by run, place and number.
    """
    half, most = len(one) // 2, one.shape[1]
    found = []
    for count in sorted({min(count, most) for count in (1, 4, 16, most)}):
        direction = _fisher(_flat(one[:half], count), _flat(other[:half], count))
        test = Test(places=count, direction=direction)
        found.append(_thresholds(test, one[half:], other[half:]))
    return max(found, key=lambda pair: pair[0])[1]


def _thresholds(test: Test, one: Floats, other: Floats) -> tuple[float, Test]:
    """The test with the thresholds that prove most, and about how much."""
    first, second = np.sort(test.scores(one)), np.sort(test.scores(other))
    values = np.unique(np.quantile(np.concatenate([first, second]), _SHARES))
    # Between two values, not at one: equal runs may differ in the last bit of their scores.
    cuts = np.concatenate([[-np.inf], (values[:-1] + values[1:]) / 2, [np.inf]])
    below = np.searchsorted(first, cuts, side="right"), np.searchsorted(second, cuts, side="right")
    # A row for each lower threshold, a column for each upper one.
    right = below[1][:, None] + (len(first) - below[0])[None, :]
    wrong = below[0][:, None] + (len(second) - below[1])[None, :]
    proved = np.where(cuts[:, None] <= cuts[None, :], _about(right, wrong), -np.inf)
    low, high = np.unravel_index(int(np.argmax(proved)), proved.shape)
    chosen = dataclasses.replace(test, low=float(cuts[low]), high=float(cuts[high]))
    return float(proved[low, high]), chosen


def _about(right: NDArray[np.int64], wrong: NDArray[np.int64]) -> Floats:
    """About what so many guesses prove: log odds, less some deviations (Wilson's interval)."""
    count, z = np.maximum(right + wrong, 1), _CAREFUL
    share = right / count
    midpoint = share + z**2 / (2 * count)
    margin = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    chance = np.clip((midpoint - margin) / (1 + z**2 / count), 1e-9, 1 - 1e-9)
    odds: Floats = np.log(chance / (1 - chance))
    return odds


def _flat(views: Floats, places: int) -> Floats:
    return views[:, :places].reshape(len(views), -1)


def _fisher(one: Floats, other: Floats) -> Floats:
    gap = one.mean(0) - other.mean(0)
    spread = (np.atleast_2d(np.cov(one.T)) + np.atleast_2d(np.cov(other.T))) / 2
    values, vectors = np.linalg.eigh(spread)
    # What does not vary tells everything: its weight is as large as arithmetic allows.
    floor = max(float(values[-1]), 1e-300) * 1e-9
    weights: Floats = vectors @ ((vectors.T @ gap) / np.maximum(values, floor))
    return weights / max(float(np.linalg.norm(weights)), 1e-300)
