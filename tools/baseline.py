"""The yardstick of `python -m tools.bench`: LinUCB as anyone would write it in NumPy."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray


def play_numpy(features: NDArray[np.float64], rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Decide and learn, round by round, and return the last estimate.

    Features are (rounds, arms, dim), rewards (rounds, arms).

    >>> play_numpy(np.array([[[1.0, 0.0]]]), np.array([[1.0]])).tolist()
    [0.5, 0.0]
    """
    inverse, moment = np.eye(features.shape[2]), np.zeros(features.shape[2])
    for arms, reward in zip(features, rewards, strict=True):
        bonus = np.sqrt(np.einsum("ij,ij->i", arms @ inverse, arms))
        action = np.argmax(arms @ (inverse @ moment) + bonus)
        x = arms[action]
        direction = inverse @ x
        inverse -= np.outer(direction, direction) / (1 + x @ direction)
        moment += reward[action] * x
    return np.asarray(inverse @ moment)


def time_numpy(*, arms: int, dim: int, rounds: int = 2000) -> float:
    """Microseconds per decision of one pass; drawing the arms is not counted."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(rounds, arms, dim)) / np.sqrt(dim)
    rewards = generator.random((rounds, arms))
    start = time.perf_counter()
    play_numpy(features, rewards)
    return 1e6 * (time.perf_counter() - start) / rounds
