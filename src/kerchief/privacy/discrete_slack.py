"""What a discrete Gaussian costs beyond the continuous one that it stands for.

The theorem and its proof are in `discrete_slack.md`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kerchief.core.validate import whole
from kerchief.privacy.events import MOST_SCALE, DiscreteGaussian
from kerchief.privacy.external import ndtr

WINDOW = 14
"""A: noise beyond A scales is charged to `tail`; Φ(-14) is below 1e-44."""

_FAR = 4.0
"""From so many scales of sensitivity on e^ε is large: the second form of the theorem is better."""


class Slack(NamedTuple):
    """δ_discrete(ε) ≤ e^stretch · δ_continuous(ε − shift) + e^ε · tail + outside."""

    stretch: float
    shift: float
    tail: float
    outside: float = 0.0


def slack(event: DiscreteGaussian, count: int = 1, *, window: float = WINDOW) -> Slack:
    """Return the slack of `count` discrete Gaussian releases; slacks of other releases add.

    Formal guarantees:
        `discrete_slack.md`, theorem: valid for every scale ≥ 1 and every dimension.
    """
    n = event.dimension * whole("count", count, low=0, high=MOST_SCALE)
    unit = n / (24.0 * event.scale**2)
    normalizer = 3.0 * math.exp(-2.0 * (math.pi * event.scale) ** 2)
    beyond, reach = 2.0 * n * ndtr(-float(window)), event.sensitivity / event.scale
    far = math.sqrt(count) * reach >= _FAR
    width = window + reach if far else window
    return Slack(
        stretch=unit,
        shift=(width**2 + 1) * unit + n * normalizer,
        tail=0.0 if far else beyond,
        outside=math.exp(1 / (24.0 * event.scale**2)) * beyond if far else 0.0,
    )
