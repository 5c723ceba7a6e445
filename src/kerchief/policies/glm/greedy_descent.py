"""Stochastic descent on one short report per user: the locally private bandit with a √T rate.

A user sends a single vector, as long as the parameter, and nothing about the arms besides: with θ
the posted iterate, z = ⟨x, θ⟩ the score of the arm played and m(z) the greatest |y - μ(z)| that a
reward could have,

    (y - μ(z)) / m(z)  ·  v / ‖v‖,        v = x less most of its part along θ.

The learner takes steps that shrink like 1/t, and devices play the arm that looks best, with a bonus
for long arms that fades as the iterate settles.

The scheme, one private gradient per user and greedy play, is that of Han et al. 2021 ("Generalized
linear bandits with local differential privacy", NeurIPS), who prove a √T rate where contexts are
diverse; Li et al. 2024 ("On the optimal regret of locally private linear contextual bandit") show
that √T can be had without diversity too. `greedy_descent.md` has the theorem for this version, and
says where greedy play fails: on one fixed set of arms nothing is promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, Example, NoiseInfo, Release, Tree
from kerchief.core.links import get_link
from kerchief.core.minimizers import project_to_ball
from kerchief.core.problems import Problem
from kerchief.core.queries import clip_features, finite
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default
from kerchief.policies.ellipsoid import Optimist, cast_model
from kerchief.policies.glm.increments import ArmSum
from kerchief.policies.registry import Mode, register


class ShortResidualMoments(ArmSum):
    """The sum of e v over users: a surprise e between -1 and 1 and a direction v, scaled like x."""

    @property
    def size(self) -> int:
        """Length of the statistic."""
        return self.dim

    @property
    def sensitivity(self) -> float:
        """Exact diameter of the statistics under replacement, which is that of the ball."""
        return 2 * self.norm

    @property
    def radius(self) -> float:
        """Radius of the ball that holds every statistic."""
        return self.norm

    def encode(self, record: Example) -> Array:
        """Clip the surprise and the direction, then multiply."""
        surprise = jnp.clip(finite(record.reward), -1, 1)
        return surprise * clip_features(record.features, self.norm)


@struct
class State:
    """The learner's memory: the latest release, the iterate, and how many users noise asks for."""

    total: Array
    count: Array
    iterate: Array
    start: Array


@struct
class Model:
    """The billboard: θ, and how much of the first doubt about it is left, from 1 down to 0."""

    iterate: Array
    doubt: Array


@struct
class GreedyDescent(Optimist):
    """Greedy play on an iterate that descends by one short private report per user.

    Attributes:
        radius: S, bound on the norm of the parameter.
        pull: λ, how strongly a mean report pulls towards the truth: an assumption on contexts.
        caution: multiplier of the number of users that pass before steps shrink.
        focus: how much of an arm's part along the iterate a report leaves out, from 0 to 1.
        exploration: multiplier of the bonus; 0 is greedy.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100,
    ...                   link="logistic")
    >>> GreedyDescent.of(problem, mode="theory").focus
    0.0
    """

    question: ClassVar[str] = "surprises"
    query: ShortResidualMoments = static()
    link: str = static()
    radius: float | Array
    low: float | Array
    high: float | Array
    pull: float | Array
    caution: float | Array
    focus: float | Array
    exploration: float | Array
    mode: Mode = static()

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "tuned",
        diversity: float | None = None,
        **changes: float,
    ) -> GreedyDescent:
        """Build it from public facts alone.

        `changes` are parameters in place of those of the mode.

        `diversity` says how much arms that are played vary in every direction, as a part of the
        squared norm; by default it is 1/(4d) in theory, and 0.3/d of the norm when tuned.
        """
        link, largest_score = get_link(problem.link), problem.radius * problem.norm
        span = problem.high - problem.low
        if mode == "theory":
            numbers, part = _THEORY, or_default("diversity", diversity, 1 / (4 * problem.dim))
            slope = 1 / (link.kappa(largest_score) * span)
        else:
            numbers, part = _TUNED, or_default("diversity", diversity, _DIVERSITY / problem.dim)
            slope = 2 * link.steepest(largest_score) / span
        return cls(
            query=ShortResidualMoments(dim=problem.dim, norm=problem.norm),
            link=problem.link,
            radius=problem.radius,
            low=problem.low,
            high=problem.high,
            mode=mode,
            **({"pull": slope * part * problem.norm} | numbers | changes),
        )

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Before any user: an iterate of zero."""
        zero = jnp.zeros(self.query.dim, jnp.float64)
        return State(total=zero, count=jnp.int32(0), iterate=zero, start=jnp.float64(1))

    def update(self, state: State, name: str, release: Release) -> State:
        """Take a step along the sum of new reports, 1/(λ(t + t₀)) long."""
        count, norm = release.count.astype(jnp.float64), self.query.norm
        # The mean square of a report: that of its own length, and that of its noise.
        square = 1 + self.query.dim * release.noise**2 / (count * norm**2)
        start = 1 + self.caution * square / (self.pull * self.radius) ** 2
        step = 1 / (self.pull * (count + start))
        new_iterate = state.iterate + step * (release.total - state.total) / norm
        return State(
            total=release.total,
            count=release.count,
            iterate=project_to_ball(new_iterate, self.radius),
            start=start,
        )

    def publish(self, state: State) -> Model:
        """The iterate, and how far it may still be off."""
        doubt = jnp.sqrt(state.start / (state.start + state.count))
        return cast_model(Model(iterate=state.iterate, doubt=doubt))

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm with the greatest score, and a bonus for its length."""
        x = arms.features
        width = self.exploration * self.radius * model.doubt
        value = x @ model.iterate + width * jnp.linalg.norm(x, axis=-1)
        return jnp.argmax(jnp.where(arms.allowed, value, -jnp.inf))

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Report the residual at the posted iterate, and its direction."""
        x = clip_features(arms.features[action], self.query.norm)
        score = x @ model.iterate
        mean = get_link(self.link).mean(score)
        largest = jnp.maximum(self.high - mean, mean - self.low)
        surprise = (jnp.clip(reward, self.low, self.high) - mean) / largest
        return {"surprises": Example(features=self._instrument(model, x), reward=surprise)}

    def _instrument(self, model: Model, x: Array) -> Array:
        """The arm without most of its part along the iterate, as long as a report may be."""
        along = (x @ model.iterate) / jnp.maximum(model.iterate @ model.iterate, 1e-30)
        residual = x - self.focus * along * model.iterate
        return residual * (self.query.norm / jnp.maximum(jnp.linalg.norm(residual), 1e-15))


# Chosen on the seeds of tuning, never on those of a report.
_DIVERSITY = 0.3
_TUNED = {"caution": 2.0, "focus": 0.6, "exploration": 0.6}
_THEORY = {"caution": 1.0, "focus": 0.0, "exploration": 1.0}


register(
    "glm-greedy",
    GreedyDescent,
    summary="Greedy choices from gradient descent on one short report per user",
    source="after Han et al. 2021; see also Li et al. 2024",
    default_environment="logistic",
)
