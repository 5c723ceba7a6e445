"""Compiled records take the same operations for every record and every arm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from tests.deployment.field import build_deployment, promise

from kerchief.core.contracts import Arms
from kerchief.core.errors import KerchiefError
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.deployment import library_code
from kerchief.deployment.deployment import Deployment, deploy
from kerchief.deployment.learner import Learner
from kerchief.deployment.library_code import LibraryCode
from kerchief.policies import POLICIES
from kerchief_protocol.programs import Library

# What repeats or is left out as the data says, or as often as an algorithm needs to converge.
_UNSTEADY = {"while", "cond", "eig", "eigh", "svd", "schur"}
OWN = Problem(
    dim=3, arms=4, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=60, constant=0.5, own=3
)


def _deployable(policy: str) -> Deployment | None:
    """A task with a guarantee, where this policy's devices need the whole library."""
    entry = POLICIES[policy]
    for trust in entry.trusts if Problem in entry.problems else ():
        try:
            deployment = build_deployment(str(trust), policy=policy)
        except KerchiefError:
            continue
        if trust != "none" and isinstance(deployment.task.program, Library):
            return deployment
    return None


def _primitives(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _primitives(inner)


@double_precision
def _record_primitives(deployment: Deployment) -> set[str]:
    """Which primitives the compiled record of a visit consists of."""
    code, model = LibraryCode(deployment), Learner(deployment).model
    queries = tuple((name, each.query) for name, each in deployment.privatizers.items())
    features: Any = np.zeros((1, deployment.problem.dim))
    allowed: Any = np.ones(1, np.bool_)
    played = Arms(features=features, allowed=allowed)
    record = partial(library_code._statistics, deployment.by_totals, queries)
    traced = jax.make_jaxpr(record)(code._form.tree(model), played, 0, 0.5)
    return set(_primitives(traced.jaxpr))


def test_deployed_records_have_no_data_dependent_loops() -> None:
    found = {policy: _deployable(policy) for policy in POLICIES}
    records = {name: _record_primitives(one) for name, one in found.items() if one is not None}
    assert len(records) >= 9
    assert {name: kinds & _UNSTEADY for name, kinds in records.items() if kinds & _UNSTEADY} == {}


def test_a_loop_in_a_record_is_found() -> None:
    def record(number: Any) -> Any:
        return jax.lax.while_loop(lambda x: x < 1, lambda x: 2 * x, jax.numpy.abs(number))

    traced = jax.make_jaxpr(jax.jit(record))(0.5)
    assert "while" in set(_primitives(traced.jaxpr))


def test_one_compiled_record_serves_every_arm() -> None:
    deployment = deploy(policy="own-models", problem=OWN, guarantee=promise("central"))
    code, model = LibraryCode(deployment), Learner(deployment).model
    features = [0.3, -0.4, 0.5]
    code.statistics(model, np.array([*features, 0]), 1.0)
    record: Any = library_code._statistics
    compiled = record._cache_size()
    for arm in range(4):
        code.statistics(model, np.array([*features, arm]), 1.0)
    assert record._cache_size() == compiled
