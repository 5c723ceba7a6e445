"""How much noise a pure ε costs when a unit vector is reported by a normal vector on its side.

The randomizer is `mechanisms.privunit.PrivUnitG`; the proof is in its note.
"""

from __future__ import annotations

import math

from kerchief.core.validate import at_least, positive
from kerchief.privacy.external import erfcx
from kerchief.privacy.search import least

LARGEST_EPSILON = 30.0
"""Beyond this, no less noise is added: the tails that it would rest on are not simulated well."""

# More than all floating-point rounding between a threshold and its ε.
_GUARD = 1e-12


def unit_epsilon(threshold: float) -> float:
    """Return the ε at which this threshold γ is the best one: e^ε = 1 + γ/L(γ).

    L(γ) = E max(0, Z − γ), for a standard normal Z, is what it loses on average.

    >>> round(unit_epsilon(0.3974630), 6)
    1.0
    """
    gamma = positive("threshold", threshold)
    density = math.exp(-gamma * gamma / 2) / math.sqrt(2 * math.pi)
    loss = density * (1 - gamma * math.sqrt(math.pi / 2) * erfcx(gamma / math.sqrt(2)))
    return math.log1p(gamma / loss) * (1 + _GUARD)


def unit_noise(epsilon: float) -> float:
    """Return the least deviation, over the ball's radius, that the randomizer needs for ε.

    Formal guarantees:
        `unit_epsilon(1 / result) <= epsilon` holds in floating point too.

    >>> [round(2**0.5 * unit_noise(epsilon), 3) for epsilon in (0.2, 1.0, 5.0, 10.0)]
    [17.727, 3.558, 0.764, 0.434]
    """
    epsilon = min(at_least("epsilon", epsilon, 1e-6), LARGEST_EPSILON)
    return least(lambda noise: noise > 0.05 and unit_epsilon(1 / noise) <= epsilon)
