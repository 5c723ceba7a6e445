"""Arms with models of their own, from their moments and one pooled second moment of contexts.

Users report what they earned with their features and the features themselves, in the blocks of the
arm that they played, and what features are like, in one block for all (`core.disjoint_moments`). So
what is asked for grows with K d and not with K d². Left out are the matrices of the arms: anyone
can work them out, by playing the posted policy on contexts like the released ones
(`disjoint_contexts`).

Every cohort then tells of an arm's parameter what a regression with a known matrix and known noise
tells, and how much contexts matter is averaged over by its evidence (`disjoint_beliefs`): where
they do not pay, what is left is a bandit with one mean per arm. Devices draw a score for each arm,
as far around its estimate as the users to come can still move that. All of it is post-processing of
releases. Proof note: `disjoint_models.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from kerchief.core.batches import ends_now, span_horizon
from kerchief.core.contracts import Arms, Clock, Example, NoiseInfo, Policy, Release, Tree
from kerchief.core.disjoint_moments import DisjointMoments, DisjointSums
from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import lower_root
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default, positive
from kerchief.policies.disjoint_beliefs import (
    center_features,
    estimate_parameters,
    measure_information,
)
from kerchief.policies.disjoint_contexts import (
    DisjointPosterior,
    correct_gram,
    predict_gram,
    public_contexts,
    simulate_contexts,
)
from kerchief.policies.ellipsoid import cast_model
from kerchief.policies.registry import POLICIES, Mode, register
from kerchief.policies.tuned import TUNED


@struct
class Learned:
    """The learner's memory.

    Attributes:
        told: by arm, what cohorts with noise of their own told, as a precision matrix.
        evidence: by arm, that matrix times the estimate.
        gram: by arm, the contexts that it met, as simulated.
        total: as last released.
        count: how many users that had.
        noise: the deviation of its noise.
        beliefs: that are posted, in the query's units.
        separate: whether each cohort has noise of its own.
    """

    told: Array
    evidence: Array
    gram: Array
    total: Array
    count: Array
    noise: Array
    beliefs: DisjointPosterior
    separate: bool = static()


@struct
class DisjointSampling(Policy):
    """Posterior sampling (Thompson 1933) by devices, for linear rewards, one parameter per arm.

    Attributes:
        query: moments by arm, and the pool.
        constant: value of the features' last coordinate; 0 for none.
        exploration: multiplier of the deviation that scores are drawn with: of what can still be
            learned.
        spread: deviation of arms' mean rewards around each other, in ranges of rewards.
        drift: how far off a simulated mean of features may be, in deviations of these.
        radius: bound on the norm of an arm's parameter.
        public: contexts that are public, one per row; None where they are learned from users.

    >>> problem = Problem(dim=3, arms=4, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100,
    ...     constant=0.5, own=3)
    >>> DisjointSampling.of(problem).queries["moments"].size
    27
    """

    question: ClassVar[str] = "moments"
    query: DisjointMoments = static()
    constant: float = static()
    exploration: float | Array
    spread: float | Array
    drift: float | Array
    radius: float | Array
    public: Array | NDArray[np.float64] | None = dataclasses.field(
        default=None, metadata={"number": False}
    )

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "tuned",
        epsilon: float = 1.0,
        delta: float = 0.0,
        exploration: float | None = None,
        public: ArrayLike | None = None,
    ) -> Self:
        """Build it from public facts alone; in theory exploration is 1.

        With public contexts, of people like the users and none of them, users are not asked what
        contexts are like.
        """
        _check_problem(problem)
        batches, readings = _schedule(problem.horizon, problem.arms, epsilon)
        query = DisjointMoments.of(problem, pooled=public is None)
        tuned = TUNED["own-models"]
        usual = 1.0 if mode == "theory" else tuned["exploration"]
        return cls(
            query=dataclasses.replace(query, batches=batches, readings=readings),
            constant=problem.constant,
            exploration=or_default("exploration", exploration, usual),
            spread=tuned["spread"],
            drift=tuned["drift"],
            radius=problem.radius,
            public=None if public is None else public_contexts(problem, public),
        )

    @property
    def queries(self) -> Mapping[str, DisjointMoments]:
        """The only query, moments by arm and the pool."""
        return {self.question: self.query}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Learned:
        """Return the state before any user, which is the same for every arm."""
        arms, dim = self.query.arms, self.query.dim
        nothing, flat = (
            jnp.zeros((arms, dim, dim), jnp.float64),
            jnp.zeros((arms, dim), jnp.float64),
        )
        return Learned(
            told=nothing,
            evidence=flat,
            gram=nothing,
            total=jnp.zeros(self.query.size, jnp.float64),
            count=jnp.int32(0),
            noise=jnp.float64(0),
            beliefs=DisjointPosterior(estimate=flat, sample=nothing + jnp.eye(dim)),
            separate=outlook[self.question].separate == "cohorts",
        )

    def update(self, state: Tree, name: str, release: Release) -> Learned:
        """Learn from a cohort, or from a total where it is time to read it."""
        if state.separate:
            return self._learn_release(state, release)
        times = jnp.asarray((*self.query.batches, *self.query.readings), jnp.int32)
        due = (times == release.count).any()
        new_state: Learned = jax.lax.cond(
            due, self._learn_release, lambda old, _: old, state, release
        )
        return new_state

    def refreshes(self, clock: Clock) -> Array | bool:
        """Publish when a cohort ends, or when a total is read."""
        return ends_now(self.query.batches, clock) | ends_now(self.query.readings, clock)

    def publish(self, state: Learned) -> DisjointPosterior:
        """The beliefs, for features with their constant."""
        unit = jnp.ones(self.query.dim)
        if self.constant:
            unit = unit.at[-1].set(self.query.lever / self.constant)
        beliefs = state.beliefs
        model = DisjointPosterior(
            estimate=beliefs.estimate * unit, sample=beliefs.sample * unit[:, None]
        )
        return cast_model(model)

    def act(self, model: DisjointPosterior, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm whose score, drawn by the device, is the highest."""
        return self.guess(model, arms, stream.normal(self.query.arms))

    def guess(self, model: DisjointPosterior, arms: Arms, normals: Array) -> Array:
        """The allowed arm whose score is the highest with these random numbers."""
        wide = jnp.einsum("ki,kij->kj", arms.features, model.sample)
        value = (arms.features * model.estimate).sum(-1) + jnp.sqrt((wide**2).sum(-1)) * normals
        return jnp.argmax(jnp.where(arms.allowed, value, -jnp.inf))

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """The features, the reward, and a weight of one for the arm played."""
        features = arms.features[action]
        indicator = (jnp.arange(self.query.arms) == action).astype(features.dtype)
        return {self.question: Example(features=features, reward=reward, weight=indicator)}

    def _learn_release(self, state: Learned, release: Release) -> Learned:
        """Learn from a cohort with noise of its own, or from a total with shared noise."""
        sums, level = self.query.split(release.total), self._level(release)
        contexts = (
            simulate_contexts(self.query, sums, release.count, release.noise)
            if self.public is None
            else jnp.asarray(self.public, jnp.float64)
        )
        expected = predict_gram(self.query, state.beliefs, state.count == 0, contexts)
        new = expected * (release.count - state.count)
        gram = state.gram + new
        before = state.noise**2 if state.separate else 0.0
        variance = jnp.maximum(release.noise**2 - before, 0.0)

        def in_all() -> tuple[Array, Array]:
            return self._measure_information(gram, sums, release.noise**2, level)

        def by_cohorts() -> tuple[Array, Array]:
            own = self.query.split(release.total - state.total)
            precision, evidence = self._measure_information(new, own, variance, level)
            return state.told + precision, state.evidence + evidence

        if state.separate:
            # Without noise a total says all.
            precision, evidence = jax.lax.cond(release.noise > 0, by_cohorts, in_all)
        else:
            precision, evidence = in_all()
        remaining = jnp.maximum(self.query.batches[-1] - release.count, 0)
        coming = self._forecast_information(expected, remaining, variance, level)
        return Learned(
            told=precision,
            evidence=evidence,
            gram=gram,
            total=release.total,
            count=release.count,
            noise=release.noise,
            beliefs=self._build_beliefs(
                precision, evidence, coming, center_features(self.query, contexts.mean(0))
            ),
            separate=state.separate,
        )

    def _level(self, release: Release) -> Array:
        """The mean reward of all users so far, above the offset."""
        wide, moments = self.query.high - self.query.low, self.query.split(release.total).moments
        if not self.query.lever:
            return jnp.zeros((), jnp.float64)
        level = moments[:, -1].sum() / self.query.lever / release.count
        return jnp.clip(level, -0.45 * wide, 0.45 * wide)

    def _measure_information(
        self, gram: Array, sums: DisjointSums, variance: Array, level: Array
    ) -> tuple[Array, Array]:
        """Measure the information of so many users on every arm's parameter."""
        query = self.query
        noise = jnp.broadcast_to(variance, sums.moments.shape)
        if query.lever:
            feature_noise = variance / query.weight**2
            gram, unknown = correct_gram(query, gram, sums.features, feature_noise, self.drift)
            noise += level**2 * unknown
        return measure_information(gram, sums.moments, self._bound_residual(level), noise)

    def _forecast_information(
        self, expected: Array, remaining: Array, variance: Array, level: Array
    ) -> Array:
        """Forecast the information of users to come, if as many of them play each arm."""
        gram = jnp.broadcast_to(expected.sum(0) * remaining / self.query.arms, expected.shape)
        noise = jnp.broadcast_to(variance, gram.shape[:2])
        return measure_information(gram, gram[:, -1], self._bound_residual(level), noise)[0]

    def _bound_residual(self, level: Array) -> Array:
        """Bound the variance of a reward whose mean is this far above the offset."""
        mean = self.query.offset + level
        return (self.query.high - mean) * (mean - self.query.low)

    def _build_beliefs(
        self, precision: Array, evidence: Array, coming: Array, move: Array
    ) -> DisjointPosterior:
        precision, coming = (move @ matrix @ move.T for matrix in (precision, coming))
        mean, movable = estimate_parameters(
            self.query, precision, evidence @ move.T, coming, self.spread, self.radius
        )
        mean, movable = mean @ move, move.T @ movable @ move
        # With nobody to come the matrix is nothing but rounding.
        tiny = 1e-9 * jnp.maximum(jnp.trace(movable, axis1=-2, axis2=-1), 0.0)[:, None, None]
        root = jax.vmap(partial(lower_root, rolled=True))(movable + tiny * jnp.eye(self.query.dim))
        return DisjointPosterior(estimate=mean, sample=self.exploration * root)


def _check_problem(problem: Problem) -> None:
    if problem.own < problem.dim:
        raise InvalidValueError(
            f"own is {problem.own} of {problem.dim} features; here arms share no parameter: set "
            "own to dim, which gives shared features a parameter per arm too"
        )
    if problem.link != "linear":
        raise InvalidValueError(
            f"link is {problem.link!r}; arms with models of their own take linear rewards: a "
            "linear model ranks arms well where expected rewards are bounded"
        )


def _schedule(horizon: int, arms: int, epsilon: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Schedule ends of cohorts and readings of totals: later for less epsilon.

    The more arms, the later, too; a total is read sooner, and oftener, than noise is drawn anew.
    """
    scarce = max(1 / positive("epsilon", epsilon, infinite=True), 0.25)
    cohort = int(max(10, min(scarce * 300 * arms, horizon / 7)))
    reading = int(max(10, min(scarce * 40 * arms, horizon / 40)))
    return (
        span_horizon(horizon, first=cohort, growth=1.3),
        span_horizon(horizon, first=reading, growth=1.15),
    )


register(
    "own-models",
    DisjointSampling,
    build_with_budget=DisjointSampling.of,
    actions="models",
    default_environment="own",
    summary="Thompson sampling with one parameter vector per arm",
    source="ours; posterior sampling: Thompson 1933",
)
POLICIES.add_alias("best", "sampling", "own-models")
