"""Online-to-confidence-set LinUCB from noisy pairs.

After Algorithm 1 of "Improved rate for Locally Differentially Private Linear Bandits" (TMLR
submission), itself after the conversion of Abbasi-Yadkori, Pál and Szepesvári 2012 (Abbasi-Yadkori
et al. 2012, Theorem 1). Every user reports x̃ = x + noise and ỹ = y + noise. An online learner moves
θ_t against the gradient of the loss (⟨x̃, θ⟩ - ỹ)² - σ² ‖θ‖², whose mean is that of (⟨x, θ⟩ - y)²
up to a constant; the estimate, V⁻¹ Σ x̃ x̃ᵀ θ_t with V = I + Σ x̃ x̃ᵀ, is a mean of its points.
Gradient descent is the learner by default; Maler (Wang et al. 2020) is `online-linucb-maler`.
`online.md` says what is proved, what is repaired and which of the paper's theorems do not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, NoiseInfo, Release, Tree
from kerchief.core.linalg import inverse
from kerchief.core.online import Descent, Doubling, Learner, Maler, grid_size
from kerchief.core.pairs import Pair
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default
from kerchief.policies import ellipsoid
from kerchief.policies.ellipsoid import Optimist, bound_parameter, cast_model, lengths
from kerchief.policies.linear.pairs import ReleasedTotal, Report
from kerchief.policies.refresh import Patient
from kerchief.policies.registry import Mode, register


@struct
class State:
    """The latest release, the online learner's memory, Σ x̃ x̃ᵀ, Σ x̃ x̃ᵀ θ_t and a distance.

    That is Σ ‖x̃‖² (‖θ_t‖ + S)², a bound on how far the points may be from the truth.
    """

    seen: ReleasedTotal
    learner: Tree
    gram: Array
    moment: Array
    distance: Array


@struct
class Model(ellipsoid.Model):
    """The billboard, with the most that a bonus may be."""

    cap: Array


@struct
class OnlineLinUCB(Patient, Optimist):
    """Optimism around the points of an online learner.

    Attributes:
        radius: S, bound on the norm of the parameter, and D, of the ball that the points are in.
        regularizer: of V.
        ridge: weight of ‖θ‖² in the loss.
        exploration: multiplier b of the width, which is b (1 + 15 σ) in tuned mode.
        ceiling: the most that a bonus may be, in units of what bounds on arms and parameter allow.
        patience: how rarely models are posted, see `is_refresh_due`.
        length: how many rounds the learner is told of.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> OnlineLinUCB.of(problem, mode="tuned").learner
    Descent(radius=1.0, pace=25.0)
    """

    question: ClassVar[str] = "pair"
    query: Pair = static()
    learner: Learner
    radius: float | Array
    regularizer: float | Array
    ridge: float | Array
    exploration: float | Array
    ceiling: float | Array
    patience: float | Array
    length: float | Array
    mode: Mode = static()

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "tuned",
        learner: Callable[..., Learner] | None = None,
        exploration: float | None = None,
    ) -> Self:
        """Build it from public facts alone.

        By default exploration is 1 in theory, 2 tuned.

        `learner` makes the online learner for a `radius`; gradient descent by default.
        """
        query = Pair.of(problem)
        radius = bound_parameter(query, problem, mode)
        return cls(
            query=query,
            learner=(learner or descent)(radius=radius),
            radius=radius,
            regularizer=1.0,
            ridge=0.0,
            exploration=or_default("exploration", exploration, 1.0 if mode == "theory" else 2.0),
            ceiling=1.0,
            patience=0.01,
            length=float(problem.horizon),
            mode=mode,
        )

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Before any user: the learner at zero, empty sums."""
        dim = self.query.dim
        return State(
            seen=ReleasedTotal.nothing(self.query),
            learner=self.learner.begin(jnp.zeros(dim, jnp.float64), self.length),
            gram=jnp.zeros((dim, dim), jnp.float64),
            moment=jnp.zeros(dim, jnp.float64),
            distance=jnp.float64(0),
        )

    def update(self, state: State, name: str, release: Release) -> State:
        """Let the learner take a step, and count its point among those that are averaged."""
        latest, total = state.seen.next(self.query, release)
        point, x = self.learner.point(state.learner), latest.features
        square = (x**2).sum()
        return State(
            seen=total,
            learner=self.learner.step(
                state.learner, self.gradient(latest, point), self._curvature(latest.variance)
            ),
            gram=state.gram + x[:, None] * x[None, :],
            moment=state.moment + (x @ point) * x,
            distance=state.distance + square * (jnp.linalg.norm(point) + self.radius) ** 2,
        )

    def gradient(self, report: Report, point: Array) -> Array:
        """Gradient at a point of the loss (⟨x̃, θ⟩ - ỹ)² - σ² ‖θ‖² + ridge ‖θ‖²."""
        x, slope = report.features, report.features @ point - report.reward
        return 2 * slope * x - 2 * (report.variance * self.query.noisy - self.ridge) * point

    def publish(self, state: State) -> Model:
        """The mean of the learner's points, and the ellipsoid around it."""
        inverted = inverse(state.gram + self.regularizer * jnp.eye(self.query.dim))
        estimate = inverted @ state.moment
        width = self.exploration * self._width(state)
        allowed = self.query.norm * (jnp.linalg.norm(estimate) + self.radius)
        cap = self.ceiling * allowed
        return cast_model(Model(estimate=estimate, inverse=inverted, width=width, cap=cap))

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm with the highest upper confidence bound."""
        x = arms.features
        bonus = jnp.minimum(model.width * lengths(x, model.inverse), model.cap)
        return jnp.argmax(jnp.where(arms.allowed, x @ model.estimate + bonus, -jnp.inf))

    def _curvature(self, variance: Array) -> Array:
        """Bound on the curvature of the loss, which is that of E ‖x̃‖²."""
        return 2 * (self.query.norm**2 + float(self.query.noisy.sum()) * variance)

    def _width(self, state: State) -> Array:
        """Width: tuned, 1 + 15 σ; in theory that of `online.md`, section 2."""
        if self.mode == "theory":
            return jnp.sqrt(self.regularizer * self.radius**2 + state.distance)
        return 1 + 15 * jnp.sqrt(state.seen.variance / jnp.maximum(1, state.seen.count))


def descent(radius: float) -> Descent:
    """Gradient descent at the documented pace."""
    return Descent(radius=radius, pace=25.0)


def _maler(problem: Problem, *, mode: Mode) -> OnlineLinUCB:
    maler = partial(Maler, rates=grid_size(problem.horizon))
    return OnlineLinUCB.of(problem, mode=mode, learner=maler, exploration=1.0)


_SOURCE = "Improved rate for Locally Differentially Private Linear Bandits, Algorithm"
_register = partial(register, kind=OnlineLinUCB, trusts=("none", "local"))
_register(
    "online-linucb",
    summary="Optimism around the points of online gradient descent",
    source=f"{_SOURCE} 1, repaired; Abbasi-Yadkori et al. 2012, Theorem 1",
)
_register(
    "online-linucb-maler",
    factory=_maler,
    summary="As online-linucb, with Maler as the online learner",
    variant_of="online-linucb",
    source=f"{_SOURCE} 1, repaired; Maler: Wang et al. 2020",
)
_register(
    "online-linucb-anytime",
    factory=partial(
        OnlineLinUCB.of, learner=lambda radius: Doubling(learner=descent(radius)), exploration=1.0
    ),
    summary="As online-linucb, restarted in epochs that double",
    variant_of="online-linucb",
    source=f"{_SOURCE} 9, repaired",
)
