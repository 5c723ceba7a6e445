"""Checks on what a bandit is given: each error names the value, the bound and the remedy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core.contracts import Arms
from kerchief.core.errors import InvalidValue
from kerchief.core.problems import Problem
from kerchief.core.validate import real_array

__all__ = [
    "FARTHEST",
    "as_arms",
    "as_mask",
    "as_report",
    "as_reward",
    "as_rows",
    "check_rows",
    "longest",
]

_ROUNDING = 1e-6
# Far beyond what any device sends; so many of them as there are rounds still add up to a float32.
FARTHEST = 1e27


def longest(problem: Problem) -> float:
    """The greatest norm that is taken for rounding of the declared one; the query clips the rest.

    >>> longest(Problem(dim=2, arms=3, norm=2.0, radius=1.0, low=0.0, high=1.0, horizon=9))
    2.000002
    """
    return problem.norm * (1 + _ROUNDING)


def as_rows(features: ArrayLike, problem: Problem) -> NDArray[np.float64]:
    """Features as a float64 matrix with one row per arm; lengths are for `check_rows`."""
    rows = real_array("features", features, kind="a matrix")
    if rows.ndim != 2 or rows.shape[1] != problem.dim or not 0 < len(rows) <= problem.arms:
        raise InvalidValue(
            f"features have shape {rows.shape}; it must be (1 to {problem.arms}, {problem.dim})"
        )
    return rows


def check_rows(rows: NDArray[np.float64], problem: Problem) -> None:
    """Refuse rows that are too long or hold something that is not a finite number."""
    # Not the root of a sum of squares, which would overflow before the norm does.
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.hypot.reduce(rows, axis=1)
    norms = np.where(np.isnan(norms), math.inf, np.abs(norms))
    row = int(np.argmax(norms))
    if not norms[row] <= longest(problem):
        # Not how long it is: errors end up in logs, and a context must not.
        raise InvalidValue(
            f"row {row} of features is too long or not finite; its norm must be at most "
            f"{problem.norm}: rescale the features, or declare a larger norm in the problem"
        )


def as_mask(allowed: ArrayLike, rows: int) -> NDArray[np.bool_]:
    """Which rows may be chosen: one bool per row, at least one of them True."""
    try:
        mask = np.asarray(allowed)
    except (TypeError, ValueError, OverflowError):
        mask = np.asarray(None)
    if mask.dtype != np.bool_ or mask.shape != (rows,):
        raise InvalidValue(
            f"allowed is {mask.dtype} of shape {mask.shape}; it must be bool, of shape ({rows},)"
        )
    if not mask.any():
        raise InvalidValue("allowed has no True entry; at least one arm must be allowed")
    return mask


def as_reward(reward: float, problem: Problem) -> float:
    """A reward within the declared range.

    >>> facts = Problem(dim=2, arms=3, norm=2.0, radius=1.0, low=0.0, high=1.0, horizon=9)
    >>> as_reward(2.0, facts)
    Traceback (most recent call last):
    ...
    kerchief.core.errors.InvalidValue: the reward is out of range; it must lie in [0.0, 1.0]: clip \
or rescale it, or declare a wider range in the problem
    """
    number = real_array("rewards", reward)
    if number.ndim:
        raise InvalidValue(f"the reward has shape {number.shape}; give one real number")
    value = float(number)
    if not problem.low <= value <= problem.high:
        # Not which value: errors end up in logs, and a reward must not.
        raise InvalidValue(
            f"the reward is out of range; it must lie in [{problem.low}, {problem.high}]: clip or "
            f"rescale it, or declare a wider range in the problem"
        )
    return value


def as_arms(arms: Arms) -> Arms:
    """A user's arms with finite features, one row per arm, and at least one of them allowed."""
    rows = real_array("features", arms.features)
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise InvalidValue(
            f"features have shape {rows.shape}, or are not all finite; give one row of finite "
            "numbers an arm, and at least one arm"
        )
    given = np.asarray(arms.features)
    features: Any = given if given.dtype in (np.float32, np.float64) else rows
    allowed: Any = as_mask(arms.allowed, len(rows))
    return Arms(features=features, allowed=allowed)


def as_report(name: str, report: ArrayLike, *, users: int = 1) -> NDArray[np.float64]:
    """A report, or a total of some, as one vector of numbers that devices may have sent."""
    most = FARTHEST * users * (1 + _ROUNDING)
    numbers = real_array(f"the numbers of the report to {name!r}", report)
    if numbers.ndim != 1 or not (np.abs(numbers) <= most).all():
        raise InvalidValue(
            f"the report to {name!r} has shape {numbers.shape}, or a number beyond {most:g}; "
            "it must be a row of finite numbers"
        )
    return numbers
