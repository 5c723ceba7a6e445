"""An audit: two populations, many runs, the best test, and what it proves.

The test is a direction in which two populations differ most, and two thresholds on it. A run whose
score is high is taken for one of the first population, one whose score is low for one of the
second, and about those in between nothing is said.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kerchief.audits.bounds import guess_lower
from kerchief.audits.neighbours import Floats
from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import between, whole
from kerchief.privacy.guarantee import Guarantee

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
        return _flatten_views(views, self.places) @ self.direction

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
    half, place_count = len(one) // 2, one.shape[1]
    candidates = []
    for count in sorted({min(count, place_count) for count in (1, 4, 16, place_count)}):
        direction = _fit_direction(
            _flatten_views(one[:half], count), _flatten_views(other[:half], count)
        )
        test = Test(places=count, direction=direction)
        candidates.append(_choose_thresholds(test, one[half:], other[half:]))
    return max(candidates, key=lambda pair: pair[0])[1]


def _choose_thresholds(test: Test, first_views: Floats, second_views: Floats) -> tuple[float, Test]:
    """Choose the thresholds that prove most; return about how much, and the test."""
    first, second = np.sort(test.scores(first_views)), np.sort(test.scores(second_views))
    values = np.unique(np.quantile(np.concatenate([first, second]), _SHARES))
    # Between two values, not at one: equal runs may differ in the last bit of their scores.
    cuts = np.concatenate([[-np.inf], (values[:-1] + values[1:]) / 2, [np.inf]])
    below = np.searchsorted(first, cuts, side="right"), np.searchsorted(second, cuts, side="right")
    # A row for each lower threshold, a column for each upper one.
    right = below[1][:, None] + (len(first) - below[0])[None, :]
    wrong = below[0][:, None] + (len(second) - below[1])[None, :]
    proved = np.where(cuts[:, None] <= cuts[None, :], _estimate_log_odds(right, wrong), -np.inf)
    low, high = np.unravel_index(int(np.argmax(proved)), proved.shape)
    best_test = dataclasses.replace(test, low=float(cuts[low]), high=float(cuts[high]))
    return float(proved[low, high]), best_test


def _estimate_log_odds(right: NDArray[np.int64], wrong: NDArray[np.int64]) -> Floats:
    """Estimate the log odds that guesses prove, less some deviations (Wilson)."""
    count, z = np.maximum(right + wrong, 1), _CAREFUL
    share = right / count
    midpoint = share + z**2 / (2 * count)
    margin = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    chance = np.clip((midpoint - margin) / (1 + z**2 / count), 1e-9, 1 - 1e-9)
    odds: Floats = np.log(chance / (1 - chance))
    return odds


def _flatten_views(views: Floats, places: int) -> Floats:
    return views[:, :places].reshape(len(views), -1)


def _fit_direction(first: Floats, second: Floats) -> Floats:
    gap = first.mean(0) - second.mean(0)
    covariance = (np.atleast_2d(np.cov(first.T)) + np.atleast_2d(np.cov(second.T))) / 2
    values, vectors = np.linalg.eigh(covariance)
    # What does not vary tells everything: its weight is as large as arithmetic allows.
    floor = max(float(values[-1]), 1e-300) * 1e-9
    weights: Floats = vectors @ ((vectors.T @ gap) / np.maximum(values, floor))
    return weights / max(float(np.linalg.norm(weights)), 1e-300)


# The coins that choose runs come up so uneven with a chance of 2e-9, and are then tossed again.
_UNEVEN = 6.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found.

    ε is at least `epsilon_lower`, but for a chance of `failure`. `counts` is what that rests on:
    runs or canaries, guesses, and right ones. `noise` names what was drawn, where that was said:
    its word, and its class. `curve` has the rates of false alarms and of hits over all thresholds,
    on runs that trained nothing; None where a single run was audited.
    """

    name: str
    claim: Guarantee
    epsilon_lower: float
    failure: float
    counts: Mapping[str, int]
    noise: str | None = None
    curve: tuple[Floats, Floats] | None = None

    @property
    def kept(self) -> bool:
        """Whether nothing speaks against the claim."""
        return self.epsilon_lower <= self.claim.epsilon

    def to_dict(self) -> dict[str, object]:
        """The audit as JSON, without its curve."""
        return {
            "name": self.name,
            "trust": str(self.claim.trust),
            "noise": self.noise,
            "epsilon_claimed": self.claim.epsilon,
            "delta": self.claim.delta,
            "epsilon_lower": self.epsilon_lower,
            "failure": self.failure,
            **self.counts,
            "kept": self.kept,
        }


def said(word: str, *noises: object) -> str:
    """Describe noise by its mechanism and classes; prefix noise by its factor.

    >>> from kerchief.mechanisms.gaussian import Gaussian
    >>> said("best", Gaussian(std=1.0, sensitivity=1.0))
    'best (Gaussian)'
    """
    kinds = (type(getattr(noise, "factor", noise)).__name__ for noise in noises)
    return f"{word} ({', '.join(dict.fromkeys(kinds))})"


def check_runs(runs: int) -> int:
    """Check that a population is played often enough to train a test and count."""
    return whole("runs", runs, low=200, high=10**7)


def look(
    *,
    name: str,
    claim: Guarantee,
    views: tuple[Floats, Floats],
    noise: str | None = None,
    seed: int = 0,
    failure: float = 0.05,
) -> Audit:
    """Audit whatever was seen of two neighbouring populations, against a claim.

    Half of the runs of each population train the test, and the other half are told apart by it: so
    the bound holds whatever the test, and a poor test makes it weak, never wrong.

    Views are by run, place and number; `noise` names what they were drawn with. The seed is that of
    the coins that choose among the runs that are told apart; the bound is wrong with a chance of
    `failure`.
    """
    first_views, second_views = views
    half = check_runs(len(first_views)) // 2
    if first_views.shape != second_views.shape:
        raise InvalidValueError(
            f"views have shapes {first_views.shape} and {second_views.shape}; they must be equal"
        )
    between("failure", failure, 0.0, 1.0)
    test = train(first_views[:half], second_views[:half])
    first_views, second_views = first_views[half : 2 * half], second_views[half : 2 * half]
    trials, first = _split_runs(half, seed)
    hits, misses = test.says(first_views[:first])
    alarms, rejections = test.says(second_views[: trials - first])
    right, wrong = hits + rejections, misses + alarms
    return Audit(
        name=name,
        claim=claim,
        epsilon_lower=guess_lower(
            right=right, wrong=wrong, trials=trials, delta=claim.delta, failure=failure
        ),
        failure=failure,
        counts={"replicates": len(views[0]), "guesses": right + wrong, "right": right},
        noise=noise,
        curve=_compute_curve(test.scores(first_views), test.scores(second_views)),
    )


def _split_runs(half: int, seed: int) -> tuple[int, int]:
    """Choose how many runs to tell apart, and how many of the first population.

    A fair coin chooses the population of each. They are a few fewer than there are, so that
    neither population runs out.
    """
    trials = 2 * half - math.ceil(_UNEVEN * math.sqrt(2 * half))
    rng, first = np.random.default_rng([seed, half]), trials
    while max(first, trials - first) > half:
        first = int(rng.binomial(trials, 0.5))
    return trials, first


def _compute_curve(first_scores: Floats, second_scores: Floats) -> tuple[Floats, Floats]:
    """Rates of false alarms and of hits, over all thresholds."""
    thresholds = np.quantile(np.concatenate([first_scores, second_scores]), np.linspace(0, 1, 201))
    alarms, hits = (
        1 - np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores)
        for scores in (second_scores, first_scores)
    )
    return alarms, hits
