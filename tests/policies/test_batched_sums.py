"""Batched elimination by sums alone: whom it plays, and that a shuffler can serve it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import Arms, Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import Problem
from kerchief.core.random import POLICY, Stream
from kerchief.deployment.deployment import deploy
from kerchief.policies.ellipsoid import Model
from kerchief.policies.glm.batched_sums import BatchedSums
from kerchief.privacy import Guarantee, Trust

FACTS = Problem(dim=2, arms=4, norm=1.0, radius=2.0, low=0.0, high=1.0, horizon=4000, link="probit")
BANDIT = BatchedSums.of(FACTS)
SHOWN = Arms(
    features=jnp.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [-1.0, 0.0]], jnp.float32),
    allowed=jnp.ones(4, bool),
)


def played(width: float, round: int) -> np.ndarray:
    """How often each arm is played by a model that likes the second arm best."""
    model = Model(
        estimate=jnp.array([0.3, 0.5], jnp.float32),
        inverse=jnp.eye(2, dtype=jnp.float32),
        width=jnp.float32(width),
    )

    def act(replicate: jax.Array) -> jax.Array:
        stream = Stream.of(seed=1, replicate=replicate).at(POLICY)
        return BANDIT.act(model, SHOWN, Clock(round=jnp.int32(round), since={}), stream)

    chosen = jax.jit(jax.vmap(act))(jnp.arange(400, dtype=jnp.uint32))
    return np.bincount(np.asarray(chosen), minlength=4)


def test_survivors_are_played_by_design_and_the_best_at_last() -> None:
    last = BANDIT.query.batches[-1]
    # Two of the three that are left span the plane: each is played about half of the time.
    early = played(width=0.2, round=10)
    assert early[3] == 0
    assert early[1] == pytest.approx(200, abs=60)
    assert (early > 0).sum() == 2
    assert played(width=0.01, round=10)[1] == 400
    assert played(width=0.2, round=last - 1)[1] < 400
    assert played(width=0.2, round=last)[1] == 400


def test_a_shuffler_serves_it_batch_by_batch_and_not_the_fits() -> None:
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.SHUFFLE)
    made = deploy(policy="glm-batched-sums", problem=FACTS, guarantee=promise)
    assert tuple(np.cumsum(made.task.needs)) == BANDIT.query.batches
    assert made.task.queries == ("moments",)
    with pytest.raises(InvalidValueError, match="glm-batched-sums"):
        deploy(policy="glm-batched", problem=FACTS, guarantee=promise)
