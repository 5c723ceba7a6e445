"""What bandits share that are optimistic over an ellipsoid around a (noisy) regression estimate."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, Outlook, Policy, Release
from kerchief.core.linalg import floored, inverse
from kerchief.core.queries import Regression
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.policies.refresh import ever_rarer

__all__ = ["Ellipsoid", "Model", "State", "lengths"]


@struct
class State:
    """The learner's memory: the latest release, and whether releases carry noise."""

    total: Array
    count: Array
    noise: Array
    noisy: bool = static()


@struct
class Model:
    """The billboard: the estimate, the inverse matrix and the width of the confidence set."""

    estimate: Array
    inverse: Array
    width: Array


class Ellipsoid(Policy):
    """The learner and the choice of an arm; what is reported, and the widths, are the bandit's own.

    Attributes:
        query: the sums it asks for.
        exploration: multiplier of the width; 0 is greedy.
        patience: a new model is posted every 2^k rounds, the largest such number that is at most
            patience * round, or every round while that is below 1.
    """

    query: Regression
    exploration: float | Array
    patience: float | Array

    @property
    def queries(self) -> Mapping[str, Regression]:
        """One: the running totals of a matrix and a vector."""
        return {"moments": self.query}

    def init(self, outlook: Mapping[str, Outlook]) -> State:
        """Before any user: empty sums."""
        return State(
            total=jnp.zeros(self.query.size, jnp.float64),
            count=jnp.int32(0),
            noise=jnp.float64(0),
            noisy=outlook["moments"].noisy,
        )

    def update(self, state: State, name: str, release: Release) -> State:
        """The release is a running total: it replaces the old one."""
        return State(
            total=release.total, count=release.count, noise=release.noise, noisy=state.noisy
        )

    def refreshes(self, clock: Clock) -> Array | bool:
        """Ever more rarely, as one more user matters ever less."""
        return ever_rarer(clock, self.patience)

    def publish(self, state: State) -> Model:
        """Solve the regularized normal equations and set the width."""
        gram, moment = self.query.split(state.total)
        ridge, floor, width = self._widths(state)
        matrix = self._scale() * gram + ridge * jnp.eye(self.query.dim)
        inverted = inverse(floored(matrix, floor) if state.noisy else matrix)
        return Model(
            estimate=(inverted @ moment).astype(jnp.float32),
            inverse=inverted.astype(jnp.float32),
            width=(self.exploration * width).astype(jnp.float32),
        )

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm with the highest upper confidence bound."""
        x = arms.features
        upper = x @ model.estimate + model.width * lengths(x, model.inverse)
        return jnp.argmax(jnp.where(arms.allowed, upper, -jnp.inf))

    def _scale(self) -> float | Array:
        """What a unit of the matrix in the sums stands for."""
        return 1.0

    def _widths(self, state: State) -> tuple[Array, Array, Array]:
        """Regularizer, eigenvalue floor and width for this much noise."""
        raise NotImplementedError


def lengths(x: Array, inverted: Array) -> Array:
    """‖x‖ in the inverse of a matrix, for each row.

    >>> lengths(jnp.array([[3.0, 4.0]]), jnp.eye(2)).tolist()
    [5.0]
    """
    return jnp.sqrt(jnp.maximum(0, ((x @ inverted) * x).sum(-1)))
