"""Bandits for rewards that are a curve of a linear score."""

from __future__ import annotations

from kerchief.policies.glm import (
    batched,
    batched_paper,
    ecolog,
    gloc,
    greedy_descent,
    local_descent,
    local_paper,
    online,
    rare_switching,
    rare_switching_paper,
    rs_glincb,
    ucb,
)

__all__ = [
    "batched",
    "batched_paper",
    "ecolog",
    "gloc",
    "greedy_descent",
    "local_descent",
    "local_paper",
    "online",
    "rare_switching",
    "rare_switching_paper",
    "rs_glincb",
    "ucb",
]
