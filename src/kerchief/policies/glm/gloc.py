"""GLOC: optimism around an online Newton step.

Jun et al. 2017 ("Scalable generalized linear bandits: online computation and hashing", NIPS;
algorithms GLOC and OL2M, Theorems 1 to 3). With k the least slope of the link, an iterate θ' moves
by Newton steps, θ' ← Π(θ' - V⁻¹ g / k) with g = (μ(⟨x, θ'⟩) - y) x and Π the projection on the ball
in the norm of V; θ̂ is the ridge regression on the scores ⟨x, θ'⟩ that the iterate gave to the arms
played; and B, a bound on the iterate's regret that grows by ‖g‖²/2k in V⁻¹, sets the width around
θ̂. Everything is made of sums: the device knows θ' and V, takes the step and reports it.

Where we differ:

* k is the public bound over all scores;
* Π is the projection. Published code scales every iterate, also from inside, to the ball's edge;
* theory mode plays as the published comparisons do: the greatest μ(⟨x, θ'⟩) plus the width around
  θ̂, and the square of the greatest slope for the spread of the rewards. Tuned mode plays the
  paper's rule, the greatest ⟨x, θ̂⟩ plus a multiple of the paper's width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, Tree
from kerchief.core.linalg import inverse
from kerchief.core.links import get_link
from kerchief.core.online import nearest
from kerchief.core.problems import Problem
from kerchief.core.queries import clip_features
from kerchief.core.struct import static, struct
from kerchief.policies.ellipsoid import State, Totals
from kerchief.policies.glm import increments
from kerchief.policies.glm.increments import Increments
from kerchief.policies.registry import Mode, register


@struct
class Model(increments.Model):
    """The billboard, with θ'."""

    iterate: Array


@struct
class GLOC(Totals):
    """An upper bound from an ellipsoid that an online learner's regret bounds.

    Attributes:
        query: the sums it asks for: x xᵀ, and the steps of θ', of Σ ⟨x, θ'⟩ x and of B.
        ridge: of V.
        flattest: k, the least slope of the link.
        spread: sub-Gaussian constant of the rewards.
        confidence: chance that the confidence set ever misses.
        exploration: multiplier of the width.
        mode: `theory` bounds means as published code does, `tuned` scores.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100,
    ...                   link="logistic")
    >>> GLOC.of(problem, mode="tuned").spread
    0.5
    """

    question: ClassVar[str] = "steps"
    query: Increments = static()
    link: str = static()
    low: float | Array
    high: float | Array
    radius: float | Array
    ridge: float | Array
    flattest: float | Array
    spread: float | Array
    confidence: float | Array
    exploration: float | Array
    mode: Mode = static()

    @classmethod
    def of(cls, problem: Problem, *, mode: Mode = "tuned") -> GLOC:
        """Build it from public facts alone."""
        link, scores = get_link(problem.link), problem.radius * problem.norm
        flattest, rewards = 1 / link.kappa(scores), problem.high - problem.low
        # θ' stays in the ball, its score is at most `scores`, and ‖x‖ in V⁻¹ is at most one.
        stride = math.hypot(2 * problem.radius, scores * problem.norm, rewards**2 / (2 * flattest))
        return cls(
            query=Increments(
                dim=problem.dim, norm=problem.norm, steps=2 * problem.dim + 1, stride=stride
            ),
            link=problem.link,
            low=problem.low,
            high=problem.high,
            radius=problem.radius,
            ridge=float(problem.dim),
            flattest=flattest,
            spread=link.steepest(scores) ** 2 if mode == "theory" else rewards / 2,
            confidence=0.02,
            exploration=1.0 if mode == "theory" else 0.03,
            mode=mode,
        )

    def publish(self, state: State) -> Model:
        """Publish the iterate, and the confidence set around θ̂."""
        gram, steps = self.query.split(state.total)
        iterate, moment, growth = jnp.split(steps, [self.query.dim, 2 * self.query.dim])
        gram = gram + self.ridge * jnp.eye(self.query.dim)
        inverted = inverse(gram)
        return Model(
            iterate=iterate,
            gram=gram,
            inverse=inverted,
            estimate=inverted @ moment,
            width=self.exploration * self._width(growth[0]),
        )

    def _values(self, model: Model, x: Array) -> Array:
        if self.mode == "theory":
            return get_link(self.link).mean(x @ model.iterate)
        return x @ model.estimate

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Take the Newton step, and report it with what it adds to the other sums."""
        x = clip_features(arms.features[action], self.query.norm)
        y = jnp.clip(reward, self.low, self.high)
        score = x @ model.iterate
        slope = get_link(self.link).mean(score) - y
        gram = model.gram + x[:, None] * x[None, :]
        square = x @ model.inverse @ x
        new_iterate = nearest(gram, gram @ model.iterate - slope / self.flattest * x, self.radius)
        growth = slope**2 * square / (1 + square) / (2 * self.flattest)
        row = jnp.concatenate([jnp.ones(1), new_iterate - model.iterate, score * x, growth[None]])
        return {"steps": Example(features=x, reward=y, weight=row)}

    def _width(self, growth: Array) -> Array:
        """Compute the radius of Theorem 1 from B."""
        bound = 2 * self.flattest * self.radius**2 * self.ridge + growth
        ratio, delta = self.spread / self.flattest, self.confidence
        inner = 1 + 2 * bound / self.flattest + 4 * ratio**4 / delta**2
        tail = jnp.log(2 / delta * jnp.sqrt(inner))
        return jnp.sqrt(1 + 4 * bound / self.flattest + 8 * ratio**2 * tail)


register(
    "gloc",
    GLOC,
    summary="Optimism around an online Newton step, from sums alone",
    source="Jun et al. 2017, GLOC, Theorems 1 to 3",
    trusts=("none",),
    default_environment="logistic",
)
