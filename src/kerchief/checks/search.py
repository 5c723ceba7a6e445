"""The search for the two records that lie farthest apart: the adversary of a sensitivity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Box", "spread", "wild_records", "widest"]

Floats = NDArray[np.float64]
Encode = Callable[[Floats, Floats], Floats]


class Box:
    """The domain of one record: features in a ball, a reward in an interval."""

    def __init__(self, *, dim: int, norm: float, low: float, high: float) -> None:
        """Keep the public bounds."""
        self.dim, self.norm, self.low, self.high = dim, norm, low, high

    def edge(self, features: Floats) -> Floats:
        """Push every row out to the sphere."""
        length = np.linalg.norm(features, axis=1, keepdims=True)
        return features * (self.norm / np.maximum(length, 1e-300))


def widest(encode: Encode, box: Box, *, draws: int = 160) -> tuple[float, Floats, Floats]:
    """The greatest distance found, and the features and rewards of the pair that has it.

    Half of the search is random points of the edge of the domain, with a few inside; the other half
    climbs from the best pair by ever smaller steps.
    """
    rng = np.random.default_rng(0)
    features = box.edge(rng.normal(size=(draws, box.dim)))
    features[: draws // 8] *= rng.uniform(size=(draws // 8, 1))
    rewards = rng.choice([box.low, box.high, (box.low + box.high) / 2], size=draws)
    best = _best(encode, features, rewards)
    for step in np.geomspace(0.5, 1e-3, 12):
        near = np.repeat(best[1], draws // 2, axis=0)
        moved = box.edge(near + step * box.norm * rng.normal(size=near.shape))
        rewards = np.concatenate([best[2], rng.choice([box.low, box.high], size=len(moved))])
        best = _best(encode, np.concatenate([best[1], moved]), rewards)
    return best


def _best(encode: Encode, features: Floats, rewards: Floats) -> tuple[float, Floats, Floats]:
    gaps = _distances(encode(features, rewards))
    pair = list(np.unravel_index(int(gaps.argmax()), gaps.shape))
    return float(gaps.max()), features[pair], rewards[pair]


def _distances(points: Floats) -> Floats:
    gaps: Floats = np.linalg.norm(points[:, None, :] - points[None, :, :], axis=-1)
    return gaps


def spread(points: Floats) -> float:
    """The greatest distance between two of the points; infinite if one is not finite."""
    return float(_distances(points).max()) if np.isfinite(points).all() else float("inf")


def wild_records(box: Box) -> tuple[Floats, Floats]:
    """Records far beyond the domain: long, endless or undefined features, and such rewards."""
    rng = np.random.default_rng(1)
    kinds = [10.0, 1e30, np.inf, np.nan]
    features = [box.edge(rng.normal(size=(40, box.dim))) * kind for kind in kinds]
    mixed = box.edge(rng.normal(size=(40, box.dim)))
    mixed[:, 0] = rng.choice([1e30, -1e30, np.nan, np.inf, -np.inf], size=40)
    rewards = rng.choice([1e9, -1e9, np.nan, np.inf, -np.inf, box.low, box.high], size=200)
    return np.concatenate([*features, mixed]), rewards
