"""ECOLog: optimism around an online estimate for logistic rewards.

Faury et al. 2022 ("Jointly efficient and optimal algorithms for logistic bandits", AISTATS; the
adaptive algorithm ada-OFU-ECOLog). With W a ridge plus the sum of σ'(⟨x, θ⟩) x xᵀ, a user moves the
estimate to the minimizer θ⁺ of ‖· - θ‖²/2 in the norm of W plus the user's loss, over the ball. A
second minimizer θ̄, with the losses of both possible rewards, does not look at the reward, and how
much better θ⁺ does on the true one sets the width. Everything is made of sums: the device knows θ
and W, solves both problems and reports the steps.

The loss depends on one score, so its slope at the minimizer is one number a, and the minimizer is
the projection of θ - a W⁻¹ x: a problem in one dimension, whose equation for a is a contraction.

Where we differ:

* the minimizers are exact, where the paper stops at accuracy 1/t;
* no warm-up set is kept: with a ridge of at least 3 ‖x‖², σ' at θ⁺ and at θ̄ differ by a factor of
  at most 2, which is what the paper's condition is for;
* the width falls with ‖θ⁺ - θ̄‖², a square like all else in its sum; published code takes off the
  norm itself, which is more while it is below one;
* theory mode bounds means by σ(⟨x, θ⟩) plus the width, as published code does. Tuned mode bounds
  scores, as the paper does, by a multiple of that width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, Tree
from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import inverse
from kerchief.core.links import get_link
from kerchief.core.minimizers import repeat
from kerchief.core.online import nearest
from kerchief.core.problems import Problem
from kerchief.core.queries import clip_features
from kerchief.core.struct import static, struct
from kerchief.policies.ellipsoid import State, Totals
from kerchief.policies.glm.increments import Increments, Model
from kerchief.policies.registry import Mode, register

_LOGISTIC = get_link("logistic")
# With the least ridge that is allowed each step divides the error by six, with the default by 20.
_STEPS = 8


@struct
class ECOLog(Totals):
    """An upper bound from an ellipsoid whose width the data themselves set.

    Attributes:
        query: the sums it asks for: σ' x xᵀ, and the steps of θ and of the squared width.
        ridge: λ, of W.
        chance: that the confidence set ever misses.
        exploration: multiplier of the width.
        mode: `theory` bounds means as published code does, `tuned` scores.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100,
    ...                   link="logistic")
    >>> ECOLog.of(problem, mode="theory").ridge
    10.0
    """

    question: ClassVar[str] = "steps"
    query: Increments = static()
    radius: float | Array
    ridge: float | Array
    chance: float | Array
    exploration: float | Array
    mode: Mode = static()

    @classmethod
    def of(cls, problem: Problem, *, mode: Mode = "tuned") -> ECOLog:
        """Build it from public facts alone."""
        if problem.link != "logistic":
            raise InvalidValueError(
                f"the link is {problem.link!r}; ecolog is for 'logistic' rewards alone: choose "
                f"another bandit, such as gloc"
            )
        ridge = (10.0 if mode == "theory" else 3.0) * problem.norm**2
        # Each problem moves θ by at most ‖x‖/λ and its score by at most ‖x‖²/λ. So the losses at θ⁺
        # and at θ̄ differ by at most 2‖x‖²/λ, and ‖θ⁺ - θ̄‖²/2 in the norm of W is no more.
        growth = (4 * (1 + problem.radius) + 2) * problem.norm**2 / ridge
        return cls(
            query=Increments(
                dim=problem.dim,
                norm=problem.norm,
                steps=problem.dim + 1,
                stride=math.hypot(problem.norm / ridge, growth),
            ),
            radius=problem.radius,
            ridge=ridge,
            chance=0.02,
            exploration=1.0 if mode == "theory" else 0.2,
            mode=mode,
        )

    def publish(self, state: State) -> Model:
        """The estimate, and the confidence set around it."""
        weighted, steps = self.query.split(state.total)
        gram = self.ridge * jnp.eye(self.query.dim) + _LOGISTIC.steepest(0.0) * weighted
        return Model(
            estimate=steps[:-1],
            gram=gram,
            inverse=inverse(gram),
            width=self.exploration * self._width(steps[-1], state.count),
        )

    def _values(self, model: Model, x: Array) -> Array:
        score = x @ model.estimate
        return _LOGISTIC.mean(score) if self.mode == "theory" else score

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Solve both problems, and report the step and what it adds to the other sums."""
        x = clip_features(arms.features[action], self.query.norm)
        y = jnp.clip(reward, 0, 1)
        new_estimate = self._minimize(model, x, y, 1.0)
        blind = self._minimize(model, x, 0.5 + 0 * y, 2.0)
        gained = _loss(x @ blind, y) - _loss(x @ new_estimate, y)
        apart = (new_estimate - blind) @ model.gram @ (new_estimate - blind)
        growth = 2 * (1 + self.radius) * gained - apart / 2
        weight = _LOGISTIC.slope(x @ new_estimate) / _LOGISTIC.steepest(0.0)
        row = jnp.concatenate([weight[None], new_estimate - model.estimate, growth[None]])
        return {"steps": Example(features=x, reward=y, weight=row)}

    def _minimize(self, model: Model, x: Array, target: Array, losses: float) -> Array:
        """Minimize ‖· - θ‖²/2 in the norm of W plus so many losses, over the ball."""
        here = model.gram @ model.estimate

        def at(slope: Array) -> Array:
            return nearest(model.gram, here - slope * x, self.radius)

        def step(_: Array | int, slope: Array) -> Array:
            return losses * (_LOGISTIC.mean(x @ at(slope)) - target)

        return at(repeat(_STEPS, step, 0.0 * here[0]))

    def _width(self, growth: Array, count: Array) -> Array:
        """The adaptive radius, from what the users' steps added to its square."""
        ridge, root = self.ridge, jnp.sqrt(jnp.asarray(self.ridge, jnp.float64))
        tail = jnp.log(2 * jnp.sqrt(1 + count / (4 * ridge)) / self.chance)
        start = 2 * ridge * self.radius**2 + (1 + self.radius) ** 2 * (root / 2 + 2 / root * tail)
        return jnp.sqrt(jnp.maximum(0, start + growth))


def _loss(score: Array, reward: Array) -> Array:
    return _LOGISTIC.integral(score) - reward * score


register(
    "ecolog",
    ECOLog,
    summary="Optimism around an online estimate for logistic rewards",
    source="Faury et al. 2022, ada-OFU-ECOLog",
    trusts=("none",),
    default_environment="logistic",
)
