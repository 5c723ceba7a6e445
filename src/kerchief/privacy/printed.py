"""What noise that papers print really costs: for tables beside the noise that we add."""

from __future__ import annotations

import math

from kerchief.core.validate import between, positive
from kerchief.privacy.calibration import gaussian_epsilon


def printed_std(epsilon: float, delta: float) -> float:
    """The deviation 2√(2 ln(1.25/δ))/ε that the online bandit's paper adds to x and to y.

    "Improved rate for Locally Differentially Private Linear Bandits" (TMLR submission), Algorithm
    1: the classical formula for a diameter of 2, for each of the two as if reported alone.

    >>> round(printed_std(1.0, 1e-5), 2)
    9.69
    """
    epsilon, delta = positive("epsilon", epsilon), between("delta", delta, 0.0, 1.0)
    return 2 * math.sqrt(2 * (math.log(1.25) - math.log(delta))) / epsilon


def printed_epsilon(epsilon: float, delta: float, reward_range: float) -> float:
    """What the pair (x, y) with that noise spends at the same δ: exact, by the Gaussian curve.

    One release of a vector with isotropic noise: features in the unit ball are up to 2 apart,
    rewards up to `reward_range` (2 for |y| ≤ 1; 0 for the features alone), and so pairs up to
    √(4 + range²).

    >>> [round(printed_epsilon(e, 1e-5, 2.0), 3) for e in (1.0, 10.0)]
    [1.098, 16.096]
    >>> round(printed_epsilon(10.0, 0.1, 1.0), 2)
    17.86
    """
    apart = math.hypot(2.0, between("reward_range", reward_range, 0.0, 1e9, closed=True))
    return gaussian_epsilon(delta, printed_std(epsilon, delta) / apart)
