"""What a device does for a bandit that has no light program: the bandit's own compiled functions."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock, Policy, Query, Tree
from kerchief.core.precision import double_precision
from kerchief.core.random import POLICY, Stream
from kerchief.roles.deployment import Deployment
from kerchief.roles.learner import model_tree
from kerchief_wire.model import Model

__all__ = ["LibraryCode"]


@double_precision
class LibraryCode:
    """Chooses and records with the policy's own functions; needs JAX, so it is not for phones."""

    def __init__(self, made: Deployment) -> None:
        """For the bandit of a task."""
        self._made, self._policy = made, made.policy
        # Not for privacy: the coins that a policy tosses to explore.
        self._stream = Stream.of(seed=secrets.randbits(32), replicate=secrets.randbits(32))
        self._decisions = 0

    def act(
        self, model: Model, rows: NDArray[np.float64], allowed: NDArray[np.bool_]
    ) -> tuple[int, NDArray[np.float64]]:
        """The arm, and all that the record will be made from."""
        arms, dim = self._made.problem.arms, self._made.problem.dim
        padded, mask = np.zeros((arms, dim)), np.zeros(arms, np.bool_)
        padded[: len(rows)], mask[: len(rows)] = rows, allowed
        self._decisions += 1
        tree, clock = self._tree(model), self._clock(model)
        at = self._stream.at(POLICY, round=self._decisions)
        action = int(np.asarray(_act(self._policy, tree, Arms(features=padded, allowed=mask), clock, at)))
        kept = [np.array([float(action)]), mask.astype(np.float64), padded.ravel()]
        kept += [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
        return action, np.concatenate(kept)

    def statistics(self, kept: NDArray[np.float64], reward: float) -> NDArray[np.float64]:
        """The statistics of all queries, clipped and encoded, one after another."""
        arms, dim = self._made.problem.arms, self._made.problem.dim
        action, mask, rows, rest = np.split(kept, np.cumsum([1, arms, arms * dim]))
        tree = self._rebuilt(rest)
        offered = Arms(features=rows.reshape(arms, dim), allowed=mask > 0)
        queries = tuple((name, one.query) for name, one in self._made.privatizers.items())
        told = _statistics(self._policy, queries, tree, offered, jnp.int32(action[0]), reward)
        return np.concatenate([np.asarray(one, np.float64) for one in told])

    def _tree(self, model: Model) -> Tree:
        return model_tree(self._policy, self._made, model)

    def _rebuilt(self, numbers: NDArray[np.float64]) -> Tree:
        form = self._form
        leaves, at = [], 0
        for leaf in jax.tree.leaves(form):
            size = int(np.prod(leaf.shape))
            leaves.append(numbers[at : at + size].reshape(leaf.shape).astype(leaf.dtype))
            at += size
        return jax.tree.unflatten(jax.tree.structure(form), leaves)

    @property
    def _form(self) -> Any:
        outlook = {name: one.outlook for name, one in self._made.privatizers.items()}
        return jax.eval_shape(lambda: self._policy.publish(self._policy.init(outlook)))

    def _clock(self, model: Model) -> Clock:
        since = {name: np.int32(1) for name in self._made.task.queries}
        return Clock(round=np.int32(model.round), since=since)


@jax.jit
def _act(policy: Policy, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
    return policy.act(model, arms, clock, stream)


@partial(jax.jit, static_argnums=1)
def _statistics(
    policy: Policy,
    queries: tuple[tuple[str, Query], ...],
    model: Tree,
    arms: Arms,
    action: Array,
    reward: float,
) -> tuple[Array, ...]:
    """Clip and encode in float64: what the proof of the discrete noise pays for."""
    records = policy.record(model, arms, action, jnp.asarray(reward, jnp.float64))
    return tuple(query.encode(records[name]) for name, query in queries)
