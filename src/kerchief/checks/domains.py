"""What one user may send in answer to a query, and how far apart what it adds to a sum can lie."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.case import SEED, Case, policy_of
from kerchief.checks.search import (
    NOWHERE,
    Box,
    Cube,
    Domain,
    encoder,
    far_points,
    farthest,
    widest,
    wild_points,
)
from kerchief.checks.statistics import Floats
from kerchief.core.contracts import Arms, BoundedLoss, Query
from kerchief.core.random import Stream

__all__ = ["first_action", "queries_of", "widest_of", "wildest_of"]


def queries_of(case: Case) -> dict[str, Any]:
    """What is really answered: the queries of the protection."""
    return {name: privatizer.query for name, privatizer in case.arranged().privatizers.items()}


def widest_of(case: Case, name: str) -> tuple[float, Floats]:
    """The greatest distance found in the domain of a query, and the pair that has it."""
    return _widest(queries_of(case)[name], _domain(case, name))


def wildest_of(case: Case, name: str, kind: type) -> float:
    """The greatest distance between what wild records add, in floats of this kind."""
    return _wildest(queries_of(case)[name], _domain(case, name), kind)


# By query and domain, so that bandits and trusts that ask the same share what was found.
@lru_cache(maxsize=64)
def _widest(query: Any, domain: Any) -> tuple[float, Floats]:
    encode = encoder(query, domain)
    found = [widest(encode, domain, point) for point in _points(query, far_points)]
    return max(found, key=lambda one: one[0])


@lru_cache(maxsize=128)
def _wildest(query: Any, domain: Any, kind: type) -> float:
    records = np.concatenate([domain.wild(), _widest(query, domain)[1]])
    encode = encoder(query, domain, kind)
    return max(farthest(encode(records, point))[0] for point in _points(query, wild_points))


def _points(query: Query, points: Callable[[int], list[Floats]]) -> list[Floats]:
    """Where to look at what records add to a sum: for a loss at these points, else anywhere."""
    return points(query.dim) if isinstance(query, BoundedLoss) else [NOWHERE]


def _domain(case: Case, name: str) -> Domain:
    """The domain of the records that a bandit sends in answer to a query."""
    policy: Any = policy_of(case)
    facts: Any = case.problem
    match case.feedback:
        case "reports":
            return _questions(policy, facts.low, facts.high)
        case "phases":
            return Cube(size=queries_of(case)[name].size, low=-1.0, high=1.0)
    return Box(
        dim=facts.dim, norm=facts.norm, low=facts.low, high=facts.high, weight=_weight(case, name)
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Questions(Cube):
    """The losses of all questions that one user is asked, and the one number that answers them."""

    answer: Callable[[Array], Any]

    def record(self, row: Array) -> Any:
        """The answer."""
        return self.answer(row)


@lru_cache(maxsize=64)
def _questions(policy: Any, low: float, high: float) -> _Questions:
    action = first_action(policy)
    size = len(action) if np.ndim(action) else 1
    answer = partial(policy.answer, jnp.asarray(action))
    return _Questions(size=size, low=low, high=high, answer=answer)


def _weight(case: Case, name: str) -> tuple[int, ...] | None:
    """The shape of a record's weight; None where the record leaves it out. Nothing is played."""
    facts: Any = case.problem
    policy: Any = policy_of(case)
    privatizers = case.arranged().privatizers
    shapes: list[Any] = []

    def record() -> None:
        model = policy.publish(policy.init({key: p.outlook for key, p in privatizers.items()}))
        arms = Arms(features=jnp.ones((facts.arms, facts.dim)), allowed=jnp.ones(facts.arms, bool))
        weight = policy.record(model, arms, jnp.int32(0), jnp.float64(facts.high))[name].weight
        shapes.append(None if isinstance(weight, float) else np.shape(weight))

    jax.eval_shape(record)
    shape: tuple[int, ...] | None = shapes[0]
    return shape


def first_action(policy: Any) -> Any:
    """What is proposed before any report."""
    return np.asarray(_first(policy))


@jax.jit
def _first(policy: Any) -> Array:
    at = Stream.of(seed=SEED, replicate=0)
    proposed: Array = policy.propose(policy.init({}), jnp.int32(0), at)
    return proposed
