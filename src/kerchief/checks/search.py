"""The search for the two records that lie farthest apart: the adversary of a sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

__all__ = ["Box", "Encode", "lengths", "many", "spread", "widest", "wild_records"]

Floats = NDArray[np.float64]
Encode = Callable[[Floats, Floats], Floats]

_ROWS = 256


class Box:
    """The domain of one record: features in a ball, a reward in an interval."""

    def __init__(self, *, dim: int, norm: float, low: float, high: float) -> None:
        """Keep the public bounds."""
        self.dim, self.norm, self.low, self.high = dim, norm, low, high

    def edge(self, features: Floats) -> Floats:
        """Push every row out to the sphere."""
        length = np.linalg.norm(features, axis=1, keepdims=True)
        pushed: Floats = features * (self.norm / np.maximum(length, 1e-300))
        return pushed


def many(one: Callable[[Array, Array], Array], kind: type = np.float64) -> Encode:
    """Encode many records at once, in floats of this kind, with code compiled for one size."""
    compiled = jax.jit(jax.vmap(one))

    def encode(features: Floats, rewards: Floats) -> Floats:
        rows = np.arange(_ROWS) % len(rewards)
        with np.errstate(over="ignore"):
            chosen: Any = features[rows].astype(kind), rewards[rows].astype(kind)
        return np.asarray(compiled(*chosen), np.float64)[: len(rewards)]

    return encode


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
    return lengths(points[:, None, :] - points[None, :, :])


def lengths(vectors: Floats) -> Floats:
    """Euclidean norms, infinite where a vector is not finite or its square overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Floats = np.linalg.norm(vectors, axis=-1)
    return np.where(np.isnan(found), np.inf, found)


def spread(points: Floats) -> float:
    """The greatest distance between two of the points; infinite if one is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(_distances(points).max())


def wild_records(box: Box) -> tuple[Floats, Floats]:
    """Records far beyond the domain: long, endless or undefined features, and such rewards."""
    rng = np.random.default_rng(1)
    kinds = [10.0, 1e30, np.inf, np.nan]
    features = [box.edge(rng.normal(size=(40, box.dim))) * kind for kind in kinds]
    mixed = box.edge(rng.normal(size=(40, box.dim)))
    mixed[:, 0] = rng.choice([1e30, -1e30, np.nan, np.inf, -np.inf], size=40)
    rewards = rng.choice([1e9, -1e9, np.nan, np.inf, -np.inf, box.low, box.high], size=200)
    return np.concatenate([*features, mixed]), rewards
