"""Logs of a simulated world whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.data.logs import Logs

Floats = NDArray[np.float64]

CHANCES = np.array([0.6, 0.3, 0.1])
THETA = np.array([[3.0, 0.0], [-2.0, 0.5], [0.0, 2.0]])


def means(contexts: Floats) -> Floats:
    """The chance of a reward of 1, by arm."""
    found: Floats = 1 / (1 + np.exp(-contexts @ THETA.T))
    return found


def contexts(rows: int, seed: int) -> Floats:
    """Users in the unit ball, more of them to the right."""
    drawn = np.random.default_rng(seed).normal(0.2, 0.4, size=(rows, 2))
    shortened: Floats = drawn / np.maximum(np.linalg.norm(drawn, axis=1, keepdims=True), 1.0)
    return shortened


def logged(rows: int, seed: int, **more: Any) -> Logs:
    """Logs of a policy whose chances depend on the user: arms 0 and 2 change places to the left."""
    dice, users = np.random.default_rng([seed, 1]), contexts(rows, seed)
    chances = np.where(users[:, :1] > 0, CHANCES, CHANCES[::-1])
    actions = (dice.random((rows, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=2)
    taken = np.arange(rows), actions
    rewards = (dice.random(rows) < means(users)[taken]).astype(float)
    columns = {"contexts": users, "actions": actions, "rewards": rewards}
    declared: dict[str, Any] = {"arms": 3, "low": 0.0, "high": 1.0}
    return Logs(**(columns | declared | {"propensities": chances[taken]} | more))


def rule(users: Floats) -> NDArray[np.int64]:
    """A fixed policy that looks at users."""
    return np.where(users[:, 1] > 0, 2, 0)


def value_of(chosen: NDArray[np.int64] | int, users: Floats) -> float:
    """The mean reward of one choice per user."""
    at = np.broadcast_to(chosen, len(users))
    return float(means(users)[np.arange(len(users)), at].mean())
