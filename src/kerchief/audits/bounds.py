"""What is proved by telling two populations apart so often: lower bounds on ε.

Notes: `bounds.md`.
"""

from __future__ import annotations

import math

from kerchief.core.validate import at_least, between, whole
from kerchief.privacy.external import beta_quantile, binomial_chances

__all__ = ["likely_above", "likely_below", "one_run_lower", "two_sample_lower"]


def likely_above(hits: int, trials: int, *, failure: float) -> float:
    """A number that the chance of a hit exceeds, but for this probability of being wrong.

    Clopper and Pearson 1934: exact for every number of trials.

    >>> round(likely_above(95, 100, failure=0.025), 4)
    0.8872
    """
    whole("hits", hits, low=0, high=whole("trials", trials))
    return 0.0 if hits == 0 else beta_quantile(failure, hits, trials - hits + 1)


def likely_below(hits: int, trials: int, *, failure: float) -> float:
    """A number that the chance of a hit stays below, but for this probability of being wrong."""
    return 1.0 - likely_above(trials - hits, trials, failure=failure)


def two_sample_lower(
    *, hits: int, alarms: int, trials: int, delta: float, failure: float = 0.05
) -> float:
    """ε must be at least this, if so many runs of each population were told apart.

    For every event S an (ε, δ) mechanism has P(S) ≤ e^ε P'(S) + δ. With S that the test says
    "first", and with S that it does not, the chances are bounded by those of hits and alarms.

    Args:
        hits: runs of the first population that were said to be of the first.
        alarms: runs of the second that were said to be of the first.
        trials: runs of each.
        delta: δ of the claim.
        failure: the chance that the bound is wrong.

    >>> round(two_sample_lower(hits=900, alarms=100, trials=1000, delta=1e-5), 2)
    1.99
    """
    between("failure", failure, 0.0, 1.0)
    half = failure / 2
    hit = likely_above(hits, trials, failure=half), likely_below(hits, trials, failure=half)
    alarm = likely_above(alarms, trials, failure=half), likely_below(alarms, trials, failure=half)
    said = _ratio(hit[0] - delta, alarm[1])
    unsaid = _ratio(1 - alarm[1] - delta, 1 - hit[0])
    return max(0.0, said, unsaid)


def one_run_lower(
    *, guesses: int, right: int, canaries: int, delta: float, failure: float = 0.05
) -> float:
    """ε must be at least this, if so many canaries of a single run were guessed.

    Each canary is in the data or not by a fair coin of its own. Steinke, Nasr and Jagielski 2023,
    Theorem 5.2: under (ε, δ) the number of right guesses is about as large as that of coins which
    are right with chance e^ε / (1 + e^ε), up to a term in δ times the number of canaries.

    Args:
        guesses: how many canaries were guessed at all.
        right: how many of those guesses were right.
        canaries: how many there were.
        delta: δ of the claim.
        failure: the chance that the bound is wrong.

    >>> round(one_run_lower(guesses=100, right=90, canaries=1000, delta=0.0), 2)
    1.63
    """
    whole("right", right, low=0, high=whole("guesses", guesses, high=whole("canaries", canaries)))
    at_least("delta", delta, 0.0)
    between("failure", failure, 0.0, 1.0)

    def surprise(epsilon: float) -> float:
        """A bound on the chance of so many right guesses, if ε were this."""
        chances = binomial_chances(guesses, 1 / (1 + math.exp(-epsilon)))
        tail, most, below = math.fsum(chances[right:]), 0.0, 0.0
        for step in range(1, right + 1):
            below += chances[right - step]
            most = max(most, below / step)
        return tail + 2 * canaries * delta * most

    low, high = 0.0, 100.0
    if surprise(low) > failure:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if surprise(middle) <= failure else (low, middle)
    return low


def _ratio(above: float, below: float) -> float:
    """The logarithm of a ratio of chances; nothing is proved by one that is not positive."""
    return math.log(above / below) if above > 0 and below > 0 else 0.0
