"""Features of which nothing is public but the range of each."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError

RANGED_CONSTANT = 0.5
"""The last coordinate of every row that `ranged` makes."""
RANGED_NORM = math.hypot(1.0, RANGED_CONSTANT)
"""A bound on the norm of such a row."""


def ranged(features: ArrayLike, *, low: ArrayLike, high: ArrayLike) -> NDArray[np.float64]:
    """Rows within a ball, and a constant behind them, from features and their public ranges.

    Each feature is cut to its range, which becomes [-1, 1]. A row is divided by half of the norm
    that it could have, and shortened to norm 1 where it is longer: few data fill their ranges, and
    noise is drawn for the whole ball. Nothing else is asked of the data, so devices can do this.

    Args:
        features: of one user, or one row per user.
        low: the least value of each feature.
        high: the greatest.

    >>> ranged([[20.0, 1.0], [80.0, 0.0]], low=[0, 0], high=[100, 1]).round(2)
    array([[-0.51,  0.86,  0.5 ],
           [ 0.51, -0.86,  0.5 ]])
    """
    values = validate.real_array("features", features)
    least, greatest = validate.real_array("low", low), validate.real_array("high", high)
    if not (values.ndim and least.size and greatest.shape == least.shape == values.shape[-1:]):
        raise InvalidValueError(
            f"features have shape {values.shape}, low {least.shape} and high {greatest.shape}; "
            "give one least and one greatest value per feature"
        )
    with np.errstate(invalid="ignore"):
        half = greatest / 2 - least / 2
    if not ((half > 0) & np.isfinite(half)).all():
        raise InvalidValueError(
            "low must be less than high for every feature, both finite; leave out features that "
            "never vary"
        )
    if np.isnan(values).any():
        raise InvalidValueError("features are not all numbers; fill in what is missing first")
    rows = into_ball((np.clip(values, least, greatest) - (least + half)) / half, least.size / 4)
    return np.concatenate([rows, np.full((*rows.shape[:-1], 1), RANGED_CONSTANT)], axis=-1)


def into_ball(rows: NDArray[np.float64], usual: float) -> NDArray[np.float64]:
    """Divide rows by the root of their usual squared norm, and shorten those longer than 1.

    >>> into_ball(np.array([[0.5, 0.0], [1.0, 1.0]]), 0.5).round(2)
    array([[0.71, 0.  ],
           [0.71, 0.71]])
    """
    rows = rows / math.sqrt(usual)
    lengths: NDArray[np.float64] = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(lengths, 1.0)
