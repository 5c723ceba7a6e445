"""What is proved by telling two populations apart so often: lower bounds on ε.

Notes: `bounds.md`.
"""

from __future__ import annotations

import math

from kerchief.core.validate import at_least, between, whole
from kerchief.privacy.external import beta_quantile, binomial_chances


def likely_above(hits: int, trials: int, *, failure: float) -> float:
    """Lower confidence bound on the chance of a hit.

    Clopper and Pearson 1934: exact for every number of trials.

    >>> round(likely_above(95, 100, failure=0.025), 4)
    0.8872
    """
    whole("hits", hits, low=0, high=whole("trials", trials))
    return 0.0 if hits == 0 else beta_quantile(failure, hits, trials - hits + 1)


def guess_lower(
    *, right: int, wrong: int, trials: int, delta: float, failure: float = 0.05
) -> float:
    """Bound ε from below by how many runs were assigned to their population.

    Each of the trials is of one of two populations, by a fair coin, and a test guesses which, or
    says nothing. Under (ε, δ) a right guess is at most e^ε times as likely as a wrong one, and δ
    more. The bound is wrong with a chance of `failure` at most.
    """
    between("failure", failure, 0.0, 1.0)
    at_least("delta", delta, 0.0)
    whole("wrong", wrong, low=0, high=whole("trials", trials) - whole("right", right, low=0))
    leaks = _bound_leaks(trials, delta, failure / 10) if delta else 0
    clean = right - leaks
    if clean <= 0:
        return 0.0
    chance = likely_above(clean, clean + wrong, failure=failure * 9 / 10)
    return max(0.0, math.log(chance / (1 - chance)))


def one_run_lower(
    *, guesses: int, right: int, canaries: int, delta: float, failure: float = 0.05
) -> float:
    """Bound ε from below by how many canaries of a single run were guessed.

    Each canary is in the data or not by a fair coin of its own. Steinke, Nasr and Jagielski 2023,
    Theorem 5.2: under (ε, δ) the number of right guesses is about as large as that of coins which
    are right with chance e^ε / (1 + e^ε), up to a term in δ times the number of canaries. The bound
    is wrong with a chance of `failure` at most.
    """
    whole("right", right, low=0, high=whole("guesses", guesses, high=whole("canaries", canaries)))
    at_least("delta", delta, 0.0)
    between("failure", failure, 0.0, 1.0)

    def surprise(epsilon: float) -> float:
        """A bound on the chance of so many right guesses, if ε were this."""
        chances = binomial_chances(guesses, 1 / (1 + math.exp(-epsilon)))
        tail, largest, below = math.fsum(chances[right:]), 0.0, 0.0
        for step in range(1, right + 1):
            below += chances[right - step]
            largest = max(largest, below / step)
        return tail + 2 * canaries * delta * largest

    low, high = 0.0, 100.0
    if surprise(low) > failure:
        return 0.0
    for _ in range(60):
        midpoint = (low + high) / 2
        low, high = (midpoint, high) if surprise(midpoint) <= failure else (low, midpoint)
    return low


def _bound_leaks(trials: int, delta: float, failure: float) -> int:
    """Bound how many runs δ may have given away, except with chance `failure`."""
    low, high = 0, trials
    while low < high:
        count = (low + high) // 2
        enough = likely_above(count + 1, trials, failure=failure) >= delta
        low, high = (low, count) if enough else (count + 1, high)
    return low
