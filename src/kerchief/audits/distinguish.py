"""The onlooker's test: a direction in which two populations differ most, and a threshold on it."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from kerchief.audits.bounds import two_sample_lower

__all__ = ["Test", "train"]

Floats = NDArray[np.float64]

# The most thresholds that are tried on the runs that the test is trained on.
_THRESHOLDS = 400
# A threshold far in the tails may prove much by chance, and nothing on other runs.
_CAREFUL = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Test:
    """Say "first" where a score is above a threshold.

    Attributes:
        releases: how many releases it looks at, from the first on.
        direction: weights of what they hold; for normal noise this is the best test there is.
        threshold: what a score must exceed.
    """

    releases: int
    direction: Floats
    threshold: float = 0.0

    def scores(self, rows: Floats) -> Floats:
        """How much each run looks like one of the first population."""
        found: Floats = _flat(rows, self.releases) @ self.direction
        return found

    def says_first(self, rows: Floats) -> int:
        """How many of these runs it takes for the first population."""
        return int((self.scores(rows) > self.threshold).sum())


def train(one: Floats, other: Floats, *, delta: float) -> Test:
    """Fit a test on runs of two populations.

    A direction is Fisher's: the difference of the means, in the metric of the pooled covariance.
    What does not vary is kept, since a difference there is certain. Directions are fitted on half
    of the runs, for the first few releases and for all of them; the other half chooses among them,
    and the threshold.

    Args:
        one: runs of the first population: by run, release and number.
        other: likewise of the second.
        delta: δ of the claim, for choosing the threshold.
    """
    half, most = len(one) // 2, one.shape[1]
    best: tuple[float, Test] | None = None
    for count in sorted({min(count, most) for count in (1, 4, 16, most)}):
        direction = _fisher(_flat(one[:half], count), _flat(other[:half], count))
        test = Test(releases=count, direction=direction)
        found = _threshold(test, one[half:], other[half:], delta)
        if best is None or found[0] > best[0]:
            best = found
    assert best is not None
    return best[1]


def _threshold(test: Test, one: Floats, other: Floats, delta: float) -> tuple[float, Test]:
    """The test with the threshold that proves most, and what it proves."""
    hits, alarms = np.sort(test.scores(one)), np.sort(test.scores(other))
    shares = np.linspace(0.001, 0.999, _THRESHOLDS)
    thresholds = np.quantile(np.concatenate([hits, alarms]), shares)
    proved = [
        two_sample_lower(
            hits=len(hits) - int(np.searchsorted(hits, threshold, side="right")),
            alarms=len(alarms) - int(np.searchsorted(alarms, threshold, side="right")),
            trials=len(hits),
            delta=delta,
            failure=_CAREFUL,
        )
        for threshold in thresholds
    ]
    place = int(np.argmax(proved))
    return proved[place], dataclasses.replace(test, threshold=float(thresholds[place]))


def _flat(rows: Floats, releases: int) -> Floats:
    return rows[:, :releases].reshape(len(rows), -1)


def _fisher(one: Floats, other: Floats) -> Floats:
    gap = one.mean(0) - other.mean(0)
    spread = (np.atleast_2d(np.cov(one.T)) + np.atleast_2d(np.cov(other.T))) / 2
    values, vectors = np.linalg.eigh(spread)
    # What does not vary tells everything: its weight is as large as arithmetic allows.
    floor = max(float(values[-1]), 1e-300) * 1e-9
    weights: Floats = vectors @ ((vectors.T @ gap) / np.maximum(values, floor))
    return weights / max(float(np.linalg.norm(weights)), 1e-300)
