"""Bandits for rewards that are linear in the features."""

from __future__ import annotations

from kerchief.policies.linear import (
    combiner,
    elimination,
    linucb,
    online,
    online_paper,
    pairs,
    sblb,
)

__all__ = [
    "combiner",
    "elimination",
    "linucb",
    "online",
    "online_paper",
    "pairs",
    "sblb",
]
