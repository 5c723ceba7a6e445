"""What one user may send in answer to a query, and a search for the two records farthest apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.audits.neighbours import contribution
from kerchief.checks.policy_fixture import SEED, PolicyFixture, policy_of
from kerchief.checks.statistics import Floats
from kerchief.core.contracts import Arms, BoundedLoss, Example
from kerchief.core.random import Stream

# What the device sends, or its gradient at a point: one row per record.
Encode = Callable[[Floats, Floats], Floats]

Domain: TypeAlias = "Box | Cube"
_ROWS, _DRAWS = 256, 160
NOWHERE: Floats = np.zeros(0)


def edge(vectors: Floats) -> Floats:
    """Every vector at length one."""
    unit: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-300)
    return unit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """The domain of one record: features in a ball, a reward in an interval, weights of 0 to 1.

    A record is searched for as one row: features, reward, weights. `weight` is their shape, None
    where the record leaves them out.
    """

    dim: int
    norm: float
    low: float
    high: float
    weight: tuple[int, ...] | None = None

    def record(self, row: Array) -> Example:
        """The record that a row stands for."""
        plain = Example(features=row[: self.dim], reward=row[self.dim])
        if self.weight is None:
            return plain
        return dataclasses.replace(plain, weight=row[self.dim + 1 :].reshape(self.weight))

    def drawn(self, features: Floats, rewards: Floats, rng: np.random.Generator) -> Floats:
        """Rows of these features and rewards, with weights at their ends."""
        shape = (len(rewards), 0 if self.weight is None else int(np.prod(self.weight)))
        return np.concatenate([features, rewards[:, None], rng.integers(2, size=shape)], axis=1)

    def first(self, rng: np.random.Generator, draws: int) -> Floats:
        """Random points of the edge, with a few inside."""
        features = self.norm * edge(rng.normal(size=(draws, self.dim)))
        features[: draws // 8] *= rng.uniform(size=(draws // 8, 1))
        rewards = rng.choice([self.low, self.high, (self.low + self.high) / 2], size=draws)
        return self.drawn(features, rewards, rng)

    def near(self, rng: np.random.Generator, rows: Floats, step: float) -> Floats:
        """Draw points of the edge near the given rows."""
        features = rows[:, : self.dim]
        edge_features = self.norm * edge(
            features + step * self.norm * rng.normal(size=features.shape)
        )
        return self.drawn(
            edge_features, rng.choice([self.low, self.high], size=len(edge_features)), rng
        )

    def wild(self) -> Floats:
        """List records far outside the domain, also infinite and undefined ones."""
        rng = np.random.default_rng(1)
        kinds = [10.0, 1e30, np.inf, np.nan]
        features = [self.norm * edge(rng.normal(size=(40, self.dim))) * kind for kind in kinds]
        mixed = self.norm * edge(rng.normal(size=(40, self.dim)))
        mixed[:, 0] = rng.choice([1e30, -1e30, np.nan, np.inf, -np.inf], size=40)
        rewards = rng.choice([1e9, -1e9, np.nan, np.inf, -np.inf, self.low, self.high], size=200)
        records = self.drawn(np.concatenate([*features, mixed]), rewards, rng)
        weights = records[:, self.dim + 1 :]
        weights[:] = rng.choice([0, 1, -1, 1e9, np.nan, np.inf, -np.inf], size=weights.shape)
        return records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cube:
    """The domain of some numbers in an interval, and of the record that they are answered with."""

    size: int
    low: float
    high: float
    answer: Callable[[Array], Any] = lambda row: row

    def record(self, row: Array) -> Any:
        """The numbers themselves, or the answer."""
        return self.answer(row)

    def first(self, rng: np.random.Generator, draws: int) -> Floats:
        """Corners and the middle of edges."""
        ends = [self.low, self.high, (self.low + self.high) / 2]
        rows: Floats = rng.choice(ends, size=(draws, self.size))
        rows[:2] = [[self.low], [self.high]]
        return rows

    def near(self, rng: np.random.Generator, rows: Floats, step: float) -> Floats:
        """Draw rows near the given ones, clipped to the interval."""
        nearby = rows + step * (self.high - self.low) * rng.normal(size=rows.shape)
        return np.clip(nearby, self.low, self.high)

    def wild(self) -> Floats:
        """List huge, infinite and undefined numbers of either sign."""
        kinds = [0.0, 0.5, 10.0, 1e9, 1e30, 1e300, np.inf, np.nan]
        rng = np.random.default_rng(1)
        signs = rng.choice([-1.0, 1.0], size=(200, self.size))
        rows: Floats = np.concatenate([[[-1.0], [1.0]] * np.ones(self.size), signs])
        rows *= rng.choice(kinds, size=(len(rows), 1))
        return rows


# The search within a domain and the look beyond it run the same code.
@lru_cache(maxsize=16)
def encoder(query: Any, domain: Domain, kind: type = np.float64) -> Encode:
    """What records add to a sum: their statistics, or their gradients at a point."""
    return many(lambda row, point: contribution(query, domain.record(row), point), kind)


def many(one: Callable[[Array, Array], Array], kind: type = np.float64) -> Encode:
    """Encode many records at once, in floats of this kind, with code compiled for one size."""
    compiled = jax.jit(jax.vmap(one, in_axes=(0, None)))

    def encode(records: Floats, point: Floats) -> Floats:
        rows = np.arange(_ROWS) % len(records)
        with np.errstate(over="ignore"):
            inputs: Any = records[rows].astype(kind), point.astype(kind)
        return np.asarray(compiled(*inputs), np.float64)[: len(records)]

    return encode


def widest(encode: Encode, domain: Domain, point: Floats = NOWHERE) -> tuple[float, Floats]:
    """The greatest distance found, and the pair of records that has it.

    Half of the search is points from all over the domain; the other half climbs from the best pair
    by ever smaller steps.
    """
    rng = np.random.default_rng(0)
    records, best = domain.first(rng, _DRAWS), (0.0, NOWHERE)
    for step in (*np.geomspace(0.5, 1e-3, 12), None):
        distance, pair = farthest(encode(records, point))
        best = distance, records[pair]
        if step is not None:
            near = domain.near(rng, np.repeat(best[1], _DRAWS // 2, axis=0), step)
            records = np.concatenate([best[1], near])
    return best


def farthest(points: Floats) -> tuple[float, list[int]]:
    """The greatest distance between two rows, in whichever of their parts, and which two those are.

    It is infinite if one of them is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = lengths(points[:, None] - points[None, :])
    gaps = gaps.reshape(len(points), len(points), -1).max(-1)
    return float(gaps.max()), [int(i) for i in np.unravel_index(int(gaps.argmax()), gaps.shape)]


def lengths(vectors: Floats) -> Floats:
    """Euclidean norms, infinite where a vector is not finite or its square overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms: Floats = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))
    return np.where(np.isnan(norms), np.inf, norms)


def far_points(dim: int) -> list[Floats]:
    """Points at which to look at gradients: the origin, and others near and far."""
    directions = np.random.default_rng(2).normal(size=(4, dim))
    return [np.zeros(dim), *(size * row for size in (1.0, 30.0, 1e4) for row in directions)]


def _list_wild_points(dim: int) -> list[Floats]:
    """Points that no sound minimizer visits."""
    return [*far_points(dim), *(np.full(dim, value) for value in (1e30, np.inf, np.nan))]


# By query and domain, so that bandits and trusts that ask the same share what was found.
@lru_cache(maxsize=64)
def widest_of(query: Any, domain: Domain) -> tuple[float, Floats]:
    """The greatest distance found in the domain of a query, and the pair that has it."""
    encode = encoder(query, domain, np.float64)
    candidates = [widest(encode, domain, point) for point in _select_points(query, far_points)]
    return max(candidates, key=lambda candidate: candidate[0])


@lru_cache(maxsize=128)
def wildest_of(query: Any, domain: Domain, kind: type) -> float:
    """The greatest distance between what wild records add, in floats of this kind."""
    records = np.concatenate([domain.wild(), widest_of(query, domain)[1]])
    encode = encoder(query, domain, kind)
    return max(
        farthest(encode(records, point))[0] for point in _select_points(query, _list_wild_points)
    )


def _select_points(query: Any, points: Callable[[int], list[Floats]]) -> list[Floats]:
    """Where to look at what records add to a sum: for a loss at these points, else anywhere."""
    return points(query.dim) if isinstance(query, BoundedLoss) else [NOWHERE]


# Tracing what a bandit records takes long, and two laws ask for it.
@lru_cache(maxsize=8)
def answered(case: PolicyFixture) -> dict[str, tuple[Any, Domain]]:
    """Find the query and the domain of records for each privatizer of a case."""
    privatizers = case.arranged().privatizers
    return {
        name: (privatizer.query, _find_domain(case, name, privatizer.query))
        for name, privatizer in privatizers.items()
    }


def _find_domain(case: PolicyFixture, name: str, query: Any) -> Domain:
    """The domain of the records that a bandit sends in answer to a query."""
    problem: Any = case.problem
    policy: Any = policy_of(case)
    if case.feedback == "reports":
        return _build_loss_domain(policy, problem.low, problem.high)
    if case.feedback == "phases":
        return Cube(size=query.size, low=-1.0, high=1.0)
    bounds = {
        attribute: getattr(problem, attribute) for attribute in ("dim", "norm", "low", "high")
    }
    return Box(**bounds, weight=_find_weight_shape(case, name))


@lru_cache(maxsize=64)
def _build_loss_domain(policy: Any, low: float, high: float) -> Cube:
    """The losses of all questions that a user is asked, and the number that answers them."""
    action = first_action(policy)
    size = len(action) if np.ndim(action) else 1
    answer = partial(policy.answer, jnp.asarray(action))
    return Cube(size=size, low=low, high=high, answer=answer)


def _find_weight_shape(case: PolicyFixture, name: str) -> tuple[int, ...] | None:
    """The shape of a record's weight; None where the record leaves it out. Nothing is played."""
    problem: Any = case.problem
    policy: Any = policy_of(case)
    privatizers = case.arranged().privatizers
    shapes: list[Any] = []

    def record() -> None:
        model = policy.publish(policy.init({key: p.outlook for key, p in privatizers.items()}))
        arms = Arms(
            features=jnp.ones((problem.arms, problem.dim)), allowed=jnp.ones(problem.arms, bool)
        )
        weight = policy.record(model, arms, jnp.int32(0), jnp.float64(problem.high))[name].weight
        shapes.append(None if isinstance(weight, float) else np.shape(weight))

    jax.eval_shape(record)
    shape: tuple[int, ...] | None = shapes[0]
    return shape


def first_action(policy: Any) -> Any:
    """Return the first proposal of a policy, before any report."""
    return np.asarray(_propose_first(policy))


@jax.jit
def _propose_first(policy: Any) -> Array:
    at = Stream.of(seed=SEED, replicate=0)
    proposed: Array = policy.propose(policy.init({}), jnp.int32(0), at)
    return proposed
