"""The few tests that statistical laws lean on, each at a stated error.

Every test here rejects what is true with probability `ERROR` at most, so that a law that fails has
something to say. Seeds are fixed; thresholds are never tuned, sample sizes are.
"""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ERROR",
    "at_most_as_often",
    "audited_epsilon",
    "fits_chances",
    "fits_deviation",
    "fits_scale",
    "hoeffding",
    "laplacity",
    "least_draws",
    "most_deviation",
    "normal_bound",
    "normality",
    "precision_range",
    "student_bound",
]

ERROR = 1e-6

Floats = NDArray[np.float64]


@cache
def _stats() -> Any:
    """Scipy ships no types; loading it by name keeps the strict checker on for the rest."""
    return importlib.import_module("scipy.stats")


def normal_bound(tests: int = 1) -> float:
    """How far a standard normal strays in one of so many two-sided tests, at `ERROR` over all.

    >>> round(normal_bound(), 2)
    4.89
    """
    return float(_stats().norm.isf(ERROR / (2 * tests)))


def student_bound(samples: int) -> float:
    """How far Student's t of so many samples strays to one side, at `ERROR`."""
    return float(_stats().t.isf(ERROR, samples - 1))


def hoeffding(samples: int, width: float) -> float:
    """How far the mean of independent values in a range of this width strays, at `ERROR`."""
    return width * math.sqrt(math.log(2 / ERROR) / (2 * samples))


def fits_deviation(draws: Floats, std: float) -> bool:
    """Whether normal draws of mean zero may have this standard deviation (chi-square, `ERROR`)."""
    ratio = float(np.square(draws / std).sum())
    low, high = _stats().chi2.ppf([ERROR / 2, 1 - ERROR / 2], draws.size)
    return bool(low <= ratio <= high)


def most_deviation(squares: float, freedom: int) -> float:
    """The most that a deviation can be, but for `ERROR`, from the squares of so many normal draws.

    >>> round(most_deviation(1000.0, 1000), 3)
    1.117
    """
    return math.sqrt(squares / float(_stats().chi2.ppf(ERROR, freedom)))


def fits_scale(draws: Floats, scale: float) -> bool:
    """Whether Laplace draws of mean zero may have this scale (chi-square, `ERROR`)."""
    ratio = 2 * float(np.abs(draws).sum()) / scale
    low, high = _stats().chi2.ppf([ERROR / 2, 1 - ERROR / 2], 2 * draws.size)
    return bool(low <= ratio <= high)


def fits_chances(successes: NDArray[np.bool_], chances: Floats) -> bool:
    """Whether trials with chances of their own may have come out so (normal bound, `ERROR`).

    >>> coins = np.arange(4000) % 2 == 0
    >>> fits_chances(coins, np.full(4000, 0.5)), fits_chances(coins, np.full(4000, 0.6))
    (True, False)
    """
    room = normal_bound() * math.sqrt(float((chances * (1 - chances)).sum())) + 1.0
    # Trials count by the side on which their chance lies, so that opposite ones do not cancel.
    sides = np.where(chances >= 0.5, 1.0, -1.0)
    return bool(abs(float((sides * (successes - chances)).sum())) <= room)


@cache
def least_draws(factor: float = 1.5) -> int:
    """The fewest draws with which `fits_deviation` also rejects `factor` and 1/`factor` at `ERROR`.

    >>> least_draws()
    288
    """
    draws = 2
    while not _tells_apart(draws, factor):
        draws += 1
    return draws


def _tells_apart(draws: int, factor: float) -> bool:
    law = _stats().chi2(draws)
    low, high = law.ppf(ERROR / 2), law.ppf(1 - ERROR / 2)
    # Draws of deviation 1 held against 1/factor and factor: their ratio grows or shrinks.
    return bool(law.cdf(high / factor**2) <= ERROR and law.sf(low * factor**2) <= ERROR)


def normality(draws: Floats, std: float) -> float:
    """The p-value of Kolmogorov and Smirnov's test for normal draws of this deviation."""
    return float(_stats().kstest(draws.ravel() / std, "norm").pvalue)


def laplacity(draws: Floats, scale: float) -> float:
    """The p-value of the same test for Laplace draws of this scale."""
    return float(_stats().kstest(draws.ravel() / scale, "laplace").pvalue)


def precision_range(draws: Floats, direction: Floats, tests: int = 1) -> tuple[float, float]:
    """Where uᵀ Σ⁻¹ u lies, for normal draws of mean zero and covariance Σ, a column a draw.

    Exact: over its estimate, times the number of draws, it is chi-square with as many degrees of
    freedom as there are draws, less the rows but one. It lies outside at `ERROR` over all tests.
    """
    rows, count = draws.shape
    covariance = draws @ draws.T / count
    # Noise that was drawn once and used twice leaves no variance in between: not quite none here.
    covariance += 1e-12 * np.trace(covariance) / rows * np.eye(rows)
    estimate = float(direction @ np.linalg.solve(covariance, direction))
    law = _stats().chi2(count - rows + 1)
    share = ERROR / (2 * tests)
    return estimate * float(law.ppf(share)) / count, estimate * float(law.isf(share)) / count


def at_most_as_often(failures: int, trials: int, chance: float) -> bool:
    """Whether so many failures are compatible with this chance of one (exact binomial, `ERROR`).

    >>> at_most_as_often(5, 100, 0.05), at_most_as_often(25, 100, 0.05)
    (True, False)
    """
    return float(_stats().binom.sf(failures - 1, trials, chance)) >= ERROR


def audited_epsilon(with_user: Floats, without: Floats, delta: float) -> float:
    """A lower bound on epsilon that a threshold attacker proves from scores, wrong at `ERROR`.

    A third of the scores choose the threshold; the others are counted, with exact (Clopper and
    Pearson) bounds on both error rates.
    """
    third = len(with_user) // 3
    grid = np.quantile(with_user[:third], np.linspace(0.01, 0.99, 99))
    choices = [_bound(with_user[:third], without[:third], t, delta) for t in grid]
    best = grid[int(np.argmax(choices))]
    return _bound(with_user[third:], without[third:], best, delta)


def _bound(with_user: Floats, without: Floats, threshold: float, delta: float) -> float:
    beta = _stats().beta
    hits, alarms = int((with_user > threshold).sum()), int((without > threshold).sum())
    caught = beta.ppf(ERROR / 2, hits, len(with_user) - hits + 1) if hits else 0.0
    wrong = beta.isf(ERROR / 2, alarms + 1, len(without) - alarms) if alarms < len(without) else 1.0
    return math.log((caught - delta) / wrong) if caught > delta else 0.0
