"""Bandits without contexts: the learner proposes, a user answers with one protected number."""

from __future__ import annotations

from kerchief.policies.context_free import (
    barrier,
    best_arm,
    elimination,
    kl_ucb,
    one_point,
    tsallis,
    two_point,
    ucb,
)

__all__ = [
    "barrier",
    "best_arm",
    "elimination",
    "kl_ucb",
    "one_point",
    "tsallis",
    "two_point",
    "ucb",
]
