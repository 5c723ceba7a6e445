"""What noise that papers print really costs: for tables beside the noise that we add."""

from __future__ import annotations

import math

from kerchief.core.validate import between, positive
from kerchief.privacy.calibration import gaussian_epsilon


def printed_std(epsilon: float, delta: float) -> float:
    """Return the deviation 2√(2 ln(1.25/δ))/ε that the online bandit's paper adds to x and y.

    "Improved rate for Locally Differentially Private Linear Bandits" (TMLR submission), Algorithm
    1: the classical formula for a diameter of 2, for each of the two as if reported alone.

    >>> round(printed_std(1.0, 1e-5), 2)
    9.69
    """
    epsilon, delta = positive("epsilon", epsilon), between("delta", delta, 0.0, 1.0)
    return 2 * math.sqrt(2 * (math.log(1.25) - math.log(delta))) / epsilon


def printed_epsilon(
    epsilon: float, delta: float, reward_range: float, *, diameter: float = 2.0
) -> float:
    """Return the exact ε at which the pair (x, y) with the printed noise keeps δ.

    One release of a vector with isotropic noise: features are up to `diameter` apart, which is 2 in
    the unit ball, rewards up to `reward_range` (2 for |y| ≤ 1; 0 for the features alone), and so
    pairs up to √(diameter² + range²).

    >>> [round(printed_epsilon(e, 1e-5, 2.0), 3) for e in (1.0, 10.0)]
    [1.098, 16.096]
    >>> round(printed_epsilon(10.0, 0.1, 1.0), 2)
    17.86

    Arms (u, 1)/√2 have a public coordinate, and are √2 apart in the others.

    >>> round(printed_epsilon(10.0, 0.1, 1.0, diameter=math.sqrt(2)), 2)
    11.51
    """
    farthest = between("diameter", diameter, 0.0, 1e9)
    apart = math.hypot(farthest, between("reward_range", reward_range, 0.0, 1e9, closed=True))
    return gaussian_epsilon(delta, printed_std(epsilon, delta) / apart)
