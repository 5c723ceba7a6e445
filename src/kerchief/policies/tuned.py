"""Numbers that bandits play with by default, as recorded searches chose them.

`make tuned` writes this file from `tools/tuning/searches`; a test fails when it is stale.
"""

from __future__ import annotations

from collections.abc import Mapping

TUNED: Mapping[str, Mapping[str, float]] = {
    "elimination": {
        "damping": 2.0,
        "exploration": 0.12,
    },
    "glm": {
        "damping": 2.0,
        "exploration": 1.5,
    },
    "linucb": {
        "damping": 2.0,
        "exploration": 0.5,
    },
    "own-models": {
        "drift": 0.1,
        "exploration": 0.25,
        "spread": 0.07,
    },
    "sampling": {
        "caution": 4.0,
        "doubt": 0.4,
        "exploration": 0.62,
        "growth": 0.05,
        "optimism": 0.6,
        "threshold": 0.4,
    },
    "tsallis": {
        "floor": 0.25,
        "rate": 5.0,
    },
    "ucb": {
        "width": 1.0,
    },
}
