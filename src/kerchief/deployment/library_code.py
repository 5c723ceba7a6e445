"""What a device does for a bandit without a light program: the bandit's own functions, compiled."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock, Policy, Query, Tree
from kerchief.core.errors import InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.random import POLICY, Stream
from kerchief.deployment.deployment import Deployment
from kerchief.deployment.learner import Form
from kerchief_protocol.model import Model


@double_precision
class LibraryCode:
    """Chooses and records with the policy's own functions; needs JAX, so it is not for phones."""

    def __init__(self, deployment: Deployment) -> None:
        """Prepare the functions of a task's policy."""
        self._deployment, self._policy, self._form = (
            deployment,
            deployment.by_totals,
            Form(deployment),
        )
        # Not for privacy: the coins that a policy tosses to explore.
        self._stream = Stream.of(seed=secrets.randbits(32), replicate=secrets.randbits(32))
        self._decisions = 0

    def act(self, model: Model, rows: NDArray[np.float64], mask: NDArray[np.bool_]) -> int:
        """The arm that the policy plays; a new number of arms is compiled once."""
        arms, dim = self._deployment.problem.arms, self._deployment.problem.dim
        if rows.shape[1] != dim or len(rows) > arms:
            raise InvalidValueError(
                f"there are {len(rows)} arms of {rows.shape[1]} features; the task takes up to "
                f"{arms} arms of {dim}"
            )
        padded: Any = np.zeros((arms, dim))
        allowed: Any = np.zeros(arms, np.bool_)
        padded[: len(rows)], allowed[: len(rows)] = rows, mask
        at, self._decisions = self._stream.at(POLICY, round=self._decisions), self._decisions + 1
        offered = Arms(features=padded, allowed=allowed)
        clock = self._clock(model)
        arm = int(np.asarray(_act(self._policy, self._form.tree(model), offered, clock, at)))
        # A stranger's model may make all values equal, or none a number.
        return arm if allowed[arm] else int(allowed.argmax())

    def statistics(
        self, model: Model | None, features: NDArray[np.float64], reward: float
    ) -> Sequence[NDArray[np.float64]]:
        """The statistics of all queries, clipped and encoded."""
        assert model is not None
        dim = self._deployment.problem.dim
        # Where arms have models of their own, the number of this one follows its features. All of
        # them get rows, so that one compiled program serves every arm.
        numbered = len(features) > dim
        arm, count = (int(features[-1]), self._deployment.problem.arms) if numbered else (0, 1)
        rows: Any = np.tile(features[:dim], (count, 1))
        allowed: Any = np.ones(count, np.bool_)
        arms = Arms(features=rows, allowed=allowed)
        queries = tuple(
            (name, privatizer.query) for name, privatizer in self._deployment.privatizers.items()
        )
        statistics = _statistics(self._policy, queries, self._form.tree(model), arms, arm, reward)
        return tuple(np.asarray(privatizer, np.float64) for privatizer in statistics)

    def _clock(self, model: Model) -> Clock:
        since: Any = dict.fromkeys(self._deployment.task.queries, np.int32(1))
        round: Any = np.int32(model.round)
        return Clock(round=round, since=since)


@jax.jit
def _act(policy: Policy, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
    return policy.act(model, arms, clock, stream)


@partial(jax.jit, static_argnums=1)
def _statistics(
    policy: Policy,
    queries: tuple[tuple[str, Query], ...],
    model: Tree,
    arms: Arms,
    arm: int,
    reward: float,
) -> tuple[Array, ...]:
    """Clip and encode in float64: what the proof of the discrete noise pays for."""
    records = policy.record(model, arms, jnp.int32(arm), jnp.asarray(reward, jnp.float64))
    return tuple(query.encode(records[name]) for name, query in queries)
