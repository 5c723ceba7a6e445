"""The few tests that statistical laws lean on, each at a stated error.

Every test here rejects what is true with probability `ERROR` at most, so that a law that fails has
something to say. Seeds are fixed; thresholds are never tuned, sample sizes are.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.checks.errors import expect

ERROR = 1e-6

Floats = NDArray[np.float64]


@cache
def _load_stats() -> Any:
    """Loaded by name, as scipy ships no types."""
    return importlib.import_module("scipy.stats")


def normal_bound(tests: int = 1) -> float:
    """How far a standard normal strays in one of so many two-sided tests, at `ERROR` over all.

    >>> round(normal_bound(), 2)
    4.89
    """
    return float(_load_stats().norm.isf(ERROR / (2 * tests)))


def student_bound(samples: int) -> float:
    """How far Student's t of so many samples strays to one side, at `ERROR`."""
    return float(_load_stats().t.isf(ERROR, samples - 1))


def hoeffding(samples: int, width: float) -> float:
    """How far the mean of independent values in a range of this width strays, at `ERROR`."""
    return width * math.sqrt(math.log(2 / ERROR) / (2 * samples))


def fits_deviation(draws: Floats, std: float) -> bool:
    """Whether normal draws of mean zero may have this standard deviation (chi-square, `ERROR`)."""
    return _is_likely(float(np.square(draws / std).sum()), draws.size)


def most_deviation(squares: float, freedom: int) -> float:
    """The most that a deviation can be, but for `ERROR`, from the squares of many normal draws."""
    return math.sqrt(squares / float(_load_stats().chi2.ppf(ERROR, freedom)))


def fits_scale(draws: Floats, scale: float) -> bool:
    """Whether Laplace draws of mean zero may have this scale (chi-square, `ERROR`)."""
    return _is_likely(2 * float(np.abs(draws).sum()) / scale, 2 * draws.size)


def fits_squares(draws: Floats, std: float, *, share: float = 1.0, slack: float = 1e-6) -> bool:
    """Whether rows may have this deviation, or down to a share of it, by their mean squares.

    Normal bound, `ERROR`, and this slack.
    """
    squares = (draws**2).mean(axis=1)
    room = normal_bound() * squares.std() / math.sqrt(len(squares)) + slack * std**2
    return bool((share * std) ** 2 - room <= squares.mean() <= std**2 + room)


def _is_likely(ratio: float, freedom: int) -> bool:
    low, high = _load_stats().chi2.ppf([ERROR / 2, 1 - ERROR / 2], freedom)
    return bool(low <= ratio <= high)


def expect_deviation(
    draws: Floats,
    stated: float,
    *,
    fits: Callable[[Floats, float], bool] = fits_deviation,
    law: str | None = "norm",
) -> None:
    """Draws fit what is stated, neither 2/3 nor 3/2 of it, and the shape of a law, if one is named.

    Kolmogorov and Smirnov's test is for the shape; `fits` has an error of its own.
    """
    verdict = [fits(draws, stated * factor) for factor in (1.0, 2 / 3, 3 / 2)]
    observed = f"a deviation of {draws.std():.4g}; accepted at 1, 2/3, 3/2 of the stated: {verdict}"
    expect(verdict == [True, False, False], seen=observed, expected=f"{stated:.4g} alone")
    chance = 1.0 if law is None else normality(draws, stated, law)
    expect(chance >= ERROR, seen=f"a p-value of {chance:.2g}", expected=f"the shape of {law}")


def fits_chances(successes: NDArray[np.bool_], chances: Floats) -> bool:
    """Whether trials with chances of their own may have come out so (normal bound, `ERROR`)."""
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
    for draws in itertools.count(2):
        law = _load_stats().chi2(draws)
        low, high = law.ppf(ERROR / 2), law.ppf(1 - ERROR / 2)
        # Draws of deviation 1 held against 1/factor and factor: their ratio grows or shrinks.
        if law.cdf(high / factor**2) <= ERROR and law.sf(low * factor**2) <= ERROR:
            break
    return draws


def normality(draws: Floats, scale: float, law: str = "norm") -> float:
    """The p-value of Kolmogorov and Smirnov's test for draws of a law at this scale."""
    return float(_load_stats().kstest(draws.ravel() / scale, law).pvalue)


def precision_range(draws: Floats, direction: Floats, tests: int = 1) -> tuple[float, float]:
    """Where uᵀ Σ⁻¹ u lies, for normal draws of mean zero and covariance Σ, one column per draw.

    Exact: over its estimate, times the number of draws, it is chi-square with as many degrees of
    freedom as there are draws, less the rows but one. It lies outside at `ERROR` over all tests.
    """
    rows, count = draws.shape
    covariance = draws @ draws.T / count
    # Noise that was drawn once and used twice leaves no variance in between: not quite none here.
    covariance += 1e-12 * np.trace(covariance) / rows * np.eye(rows)
    estimate = float(direction @ np.linalg.solve(covariance, direction))
    law = _load_stats().chi2(count - rows + 1)
    share = ERROR / (2 * tests)
    return estimate * float(law.ppf(share)) / count, estimate * float(law.isf(share)) / count


def at_most_as_often(failures: int, trials: int, chance: float) -> bool:
    """Whether so many failures are compatible with this chance of one (exact binomial, `ERROR`).

    >>> at_most_as_often(5, 100, 0.05), at_most_as_often(25, 100, 0.05)
    (True, False)
    """
    return float(_load_stats().binom.sf(failures - 1, trials, chance)) >= ERROR
