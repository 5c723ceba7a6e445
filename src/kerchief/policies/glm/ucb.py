"""GLM-UCB: optimism on the mean around a penalized likelihood estimate.

Filippi et al. 2010 ("Parametric bandits: the generalized linear case", NIPS; algorithm GLM-UCB):
play the arm with the greatest μ(⟨x, θ̂⟩) + ρ(t) ‖x‖ in V⁻¹, where V is a ridge plus the sum of x xᵀ
and ρ(t) = 2 κ L R √(3 + 2 ln(1 + 2/λ)) √(2 d ln(t) ln(2dT/δ)), with L the greatest slope of the
link and κ the inverse of the least. Where we differ:

* a ridge λ = d takes the place of the first d arms, as in the published comparisons, and the
  estimate is put into the ball of the parameter by scaling rather than by the paper's projection of
  the fitted means, which matters only while there are few users;
* κ and L are public bounds over all scores;
* the estimate is made anew when the volume of V has grown by a tenth, not after every round; V
  itself is always the latest;
* ln(t + 1) for ln t, which is 0 in the first round.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import (
    Arms,
    Clock,
    Example,
    NoiseInfo,
    Policy,
    Query,
    Released,
    Start,
    Tree,
)
from kerchief.core.linalg import inverse, log_det
from kerchief.core.links import get_link
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import PreconditionedSteps, project_to_ball
from kerchief.core.problems import Problem
from kerchief.core.queries import GramMatrix
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default
from kerchief.policies.ellipsoid import Fit, cast_model, lengths
from kerchief.policies.registry import Mode, register

_CONFIDENCE = 0.02


@struct
class State:
    """The learner's memory: the latest sum of x xᵀ, the one at the last fit, and the estimate."""

    total: Array
    fitted: Array
    estimate: Array


@struct
class GLMUCB(Policy):
    """The mean under the estimate plus a width in the inverse of V.

    Attributes:
        gram: the matrix it asks for.
        loss: what is fitted to all users.
        ridge: λ, of the matrix and of the fit.
        width: ρ(t) is this times √ln(t + 1); when tuned, it is the range of rewards times 0.3.
        factor: how much the volume of V must grow for a new fit.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100,
    ...                   link="logistic")
    >>> GLMUCB.of(problem, mode="tuned").width
    0.3
    """

    gram: GramMatrix = static()
    loss: GLMLoss = static()
    radius: float | Array
    ridge: float | Array
    width: float | Array
    factor: float | Array

    @classmethod
    def of(
        cls, problem: Problem, *, mode: Mode = "tuned", exploration: float | None = None
    ) -> GLMUCB:
        """Build it from public facts alone.

        By default exploration is 1 in theory, 0.3 tuned.
        """
        ridge, factor = float(problem.dim), 1.1
        if mode == "theory":
            default, unit = 1.0, _theory_width(problem, ridge)
        else:
            default, unit = 0.3, problem.high - problem.low
        growth = problem.dim * math.log1p(problem.horizon * problem.norm**2 / problem.dim / ridge)
        return cls(
            gram=GramMatrix(dim=problem.dim, norm=problem.norm),
            loss=GLMLoss.of(
                problem,
                link=problem.link,
                clip=problem.norm * (problem.high - problem.low),
                # No more fits are possible: each follows a growth of the volume by the factor.
                fits=1 + int(growth / math.log(factor)),
                minimizer=PreconditionedSteps(steps=1),
            ),
            radius=problem.radius,
            ridge=ridge,
            width=unit * or_default("exploration", exploration, default),
            factor=factor,
        )

    @property
    def queries(self) -> Mapping[str, Query]:
        """The matrix after every round, and fits on demand."""
        return {"gram": self.gram, "fit": self.loss}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Return the state before any user."""
        nothing = jnp.zeros(self.gram.size, jnp.float64)
        return State(total=nothing, fitted=nothing, estimate=jnp.zeros(self.gram.dim, jnp.float64))

    def due(self, state: State, clock: Clock) -> Mapping[str, Array | bool]:
        """The matrix always; a fit when its volume has outgrown the last fit's."""
        now, then = self._matrix(state.total), self._matrix(state.fitted)
        grown = log_det(now) > jnp.log(self.factor) + log_det(then)
        return {"gram": True, "fit": grown}

    def request(self, state: State, name: str) -> Start | None:
        """Begin at the last estimate."""
        if name == "gram":
            return None
        ridge = jnp.asarray(self.ridge, jnp.float64)
        metric = self._matrix(state.total)
        return Start(point=state.estimate, metric=metric, ridge=ridge, radius=self.radius)

    def update(self, state: State, name: str, release: Released) -> State:
        """Replace the total, or store a fit with the matrix that asked for it."""
        if name == "gram":
            return dataclasses.replace(state, total=release.total)
        estimate = project_to_ball(release.point, self.radius)
        return dataclasses.replace(state, fitted=state.total, estimate=estimate)

    def refreshes(self, clock: Clock) -> Array | bool:
        """Publish after every round, as widths are those of the latest matrix."""
        return True

    def publish(self, state: State) -> Fit:
        """The estimate, and how well each direction is known."""
        inverted = inverse(self._matrix(state.total))
        return cast_model(Fit(estimate=state.estimate, inverse=inverted))

    def act(self, model: Fit, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm whose mean may be the greatest."""
        x = arms.features
        means = get_link(self.loss.link).mean(x @ model.estimate)
        length = lengths(x, model.inverse)
        width = self.width * jnp.sqrt(jnp.log(clock.round + 2.0))
        return jnp.argmax(jnp.where(arms.allowed, means + width * length, -jnp.inf))

    def record(self, model: Fit, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """The features of the arm played, and its reward."""
        example = Example(features=arms.features[action], reward=reward)
        return {"gram": example, "fit": example}

    def _matrix(self, total: Array) -> Array:
        """V: the ridge and the sum of x xᵀ."""
        return self.ridge * jnp.eye(self.gram.dim) + self.gram.split(total)[0]


def _theory_width(problem: Problem, ridge: float) -> float:
    """Compute ρ(t) without its factor √ln t."""
    link, scores = get_link(problem.link), problem.radius * problem.norm
    ratio = link.steepest(scores) * link.kappa(scores)
    factor = math.sqrt(3 + 2 * math.log1p(2 * problem.norm**2 / ridge))
    tail = math.log(2 * problem.dim * problem.horizon / _CONFIDENCE)
    rewards = problem.high - problem.low
    return 2 * ratio * rewards * factor * math.sqrt(2 * problem.dim * tail)


register(
    "glm-ucb",
    GLMUCB,
    summary="Optimism around a penalized maximum likelihood estimate",
    source="Filippi et al. 2010, GLM-UCB",
    trusts=("none",),
    default_environment="logistic",
)
