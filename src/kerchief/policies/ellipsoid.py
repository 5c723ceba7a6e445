"""Base classes of policies that are optimistic over an ellipsoid around an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import (
    Arms,
    BoundedSum,
    Clock,
    Example,
    NoiseInfo,
    Policy,
    Release,
    Tree,
    newest_counts,
)
from kerchief.core.linalg import inverse, invert_floored
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.policies.refresh import Patient
from kerchief.policies.registry import Mode

T = TypeVar("T")


@struct
class State:
    """The learner's memory: the latest release, and whether releases carry noise."""

    total: Array
    count: Array
    noise: Array
    noisy: bool = static()


@struct
class Fit:
    """A published estimate and the inverse of its regularized Gram matrix."""

    estimate: Array
    inverse: Array


@struct
class Model(Fit):
    """The billboard: the estimate, the inverse matrix and the width of the confidence set."""

    width: Array


class Optimist(Policy):
    """One running total of what users report, and the arm with the highest upper bound."""

    question: ClassVar[str] = "moments"
    """Name of the only query."""
    query: BoundedSum

    @property
    def queries(self) -> Mapping[str, BoundedSum]:
        """The only query, a running total."""
        return {self.question: self.query}

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm with the highest upper confidence bound."""
        x = arms.features
        upper = self._values(model, x) + model.width * lengths(x, model.inverse)
        return jnp.argmax(jnp.where(arms.allowed, upper, -jnp.inf))

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """The features of the arm played, and its reward."""
        return {self.question: Example(features=arms.features[action], reward=reward)}

    def _values(self, model: Tree, x: Array) -> Array:
        """Estimate the expected reward of each arm."""
        values: Array = x @ model.estimate
        return values


class Totals(Optimist):
    """A learner that keeps the latest total and nothing else, unless it says otherwise."""

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Return the state before any user, with an empty total."""
        return State(
            total=jnp.zeros(self.query.size, jnp.float64),
            count=jnp.int32(0),
            noise=jnp.float64(0),
            noisy=outlook[self.question].noisy,
        )

    @newest_counts
    def update(self, state: Tree, name: str, release: Release) -> State:
        """Replace the old running total by the new one."""
        return State(
            total=release.total, count=release.count, noise=release.noise, noisy=state.noisy
        )


@struct
class Ellipsoid(Patient, Optimist):
    """Regularized regression; what is reported, and the widths, are the bandit's own.

    Attributes:
        regularizer: ridge λ without noise.
        spread: sub-Gaussian constant of the rewards.
        exploration: multiplier of the width; 0 is the greedy policy.
        damping: tuned mode: how much of the noise's expected size joins the regularizer.
        confidence: theory mode: the failure probability α.
        patience: how rarely models are posted, see `is_refresh_due`.
        mode: `theory` or `tuned`; privacy does not depend on it.
    """

    query: Any = static()
    regularizer: float | Array
    radius: float | Array
    spread: float | Array
    exploration: float | Array
    damping: float | Array
    confidence: float | Array
    patience: float | Array
    mode: Mode = static()

    @classmethod
    def _build(
        cls, query: Any, problem: Problem, *, mode: Mode, exploration: float, damping: float
    ) -> Self:
        return cls(
            query=query,
            regularizer=1.0,
            radius=bound_parameter(query, problem, mode),
            spread=(problem.high - problem.low) / 2,
            exploration=exploration,
            damping=damping,
            confidence=0.05,
            patience=0.01,
            mode=mode,
        )

    def publish(self, state: Tree) -> Model:
        """Solve the regularized normal equations and set the width."""
        gram, moment = self._sums(state)
        rule = self._theory_width if self.mode == "theory" else self._tuned_width
        ridge, floor, width = rule(state)
        matrix = gram + ridge * jnp.eye(self.query.dim)
        inverted = invert_floored(matrix, floor) if state.noisy else inverse(matrix)
        return cast_model(
            Model(estimate=inverted @ moment, inverse=inverted, width=self.exploration * width)
        )

    def _sums(self, state: Tree) -> tuple[Array, Array]:
        """The matrix and the vector of the normal equations, from a total of both."""
        gram, moment = self.query.split(state.total)
        return gram, moment

    def _matrix_noise(self, noise: Array) -> Array:
        """Convert the noise deviation of a release to that of the Gram matrix."""
        return noise

    def _theory_width(self, state: Tree) -> tuple[Array, Array, Array]:
        """Regularizer, eigenvalue floor and width for this much noise, as proved."""
        raise NotImplementedError

    def _tuned_width(self, state: Tree) -> tuple[Array, Array, Array]:
        """Regularizer, eigenvalue floor and width, with multipliers chosen by a search.

        The search used other seeds than those of reported results.
        """
        raise NotImplementedError


def bound_parameter(query: Any, problem: Problem, mode: Mode) -> float:
    """Bound the parameter, which centred rewards shift along the shared coordinate."""
    centred = mode == "theory" and problem.constant != 0.0
    return problem.radius + (abs(query.offset / problem.constant) if centred else 0.0)


def cast_model(model: T) -> T:
    """Convert the numbers of a model to float32, in which models are published."""
    cast: T = jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), model)
    return cast


def keep_plausible_arms(kept: Array, score: Array, width: Array) -> Array:
    """Keep the arms whose upper bound reaches the best lower bound: at least one."""
    best = jnp.where(kept, score - width, -jnp.inf).max()
    return kept & (score + width >= best)


def lengths(x: Array, inverted: Array) -> Array:
    """Compute ‖x‖ in the inverse of a matrix, for each row.

    >>> lengths(jnp.array([[3.0, 4.0]]), jnp.eye(2)).tolist()
    [5.0]
    """
    return jnp.sqrt(jnp.maximum(0, ((x @ inverted) * x).sum(-1)))
