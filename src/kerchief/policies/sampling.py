"""Sampling on the device: a bandit that can be left alone, whatever the arms and the trust.

A learner posts what it believes of the parameter: an estimate and how unsure it is in each
direction. Every device draws its own guess and plays the arm that is best under it, so the users of
one batch explore in many directions although they all see one model. These make it cheap:

- Cohorts with noise of their own are combined by generalized least squares (`_combine_cohorts`):
  what an early one tells of a direction that is hardly played any more, later noise cannot hide.
- The noisy matrix is drawn towards a multiple of the identity by as much as its noise explains of
  its spread; what remains of the spread is believed (`_shrink_spectrum`).
- What is known of the noise and the bound on the parameter shrink the estimate (`_posterior`).
  Where noise is correlated over time, totals are read rarely (`_schedule`).
- A direction is sampled where the matrix says that play does not excite it by itself. Where arms
  vary enough, a small random width is all that is needed.

All of it is post-processing of releases and the device's own randomness. Proof note: `sampling.md`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.batches import ends_now, span_horizon
from kerchief.core.contracts import (
    Arms,
    Clock,
    NoiseInfo,
    Release,
    Separate,
    Tree,
    newest_counts,
)
from kerchief.core.minimizers import project_to_ball
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.core.validate import or_default, positive
from kerchief.policies.ellipsoid import Ellipsoid, cast_model
from kerchief.policies.posterior import PosteriorModel, Sums, begin_cohort
from kerchief.policies.refresh import gap_after
from kerchief.policies.tuned import TUNED

_NARROW, _DIVERSE = 0.25, 0.4
"""Shares of the mean eigenvalue: below the first a direction is sampled, above the second not."""
_RIPE: Mapping[Separate, float] = {"cohorts": 2.0, "users": 5.0}
"""How often a cohort's matrix must stand out from its noise to be closed: those that grow user by
user need not be closed early."""
_LEAST_GROWTH = 0.1
"""Of all users before, a cohort has at least this share: so there are never many."""
_LEAST_ROOM = 0.05
_MOST_SMALL = 32
"""In so few dimensions a decomposition more costs little, and recorded runs stay as they were."""
_FIRST_USERS = 4
"""Per dimension beyond 16: before so many, one more tells little, and models are posted as rarely
as after them. Up to 32 dimensions that is after every user."""
_FIRST_SAMPLE, _FIRST_WIDTH = 1.0, 5.0
_WITHOUT_NOISE = 0.2
"""How much more is sampled without noise, which makes a learner doubt by itself: else a wrong
belief is left more slowly."""
_WITH_NOISE: Mapping[Separate, float] = {"nobody": 1.0, "cohorts": 1.0, "users": 0.7}
"""How much of what is sampled is left where noise misleads, by whose noise it is: that of single
users makes a learner doubt for long by itself."""
_MOST_PRIOR: Mapping[Separate, float] = {"nobody": math.inf, "cohorts": math.inf, "users": 0.16}
"""How strongly the bound on the parameter shrinks an estimate at most, by whose noise it is."""
_FIRST_COHORT, _GROWTH = 42, 1.7
"""Users per dimension in the first cohort at epsilon 1, and how much the next ones have more."""


@struct
class Sampling(Ellipsoid):
    """Base class of linear and generalized linear posterior sampling.

    Attributes:
        optimism: multiplier of the random width in directions that play excites by itself.
        prior: how strongly the bound on the parameter shrinks the estimate.
        doubt: how much of the matrix's noise counts as noise of the vector.
        caution: the same in directions that play excites by itself: there it only shrinks.
        growth: how fast the sampled deviation grows with the logarithm of time.
        threshold: how much of its noise an eigenvalue must exceed to be believed at all.
    """

    optimism: float | Array
    prior: float | Array
    doubt: float | Array
    caution: float | Array
    growth: float | Array
    threshold: float | Array

    _with_noise: ClassVar[Mapping[Separate, float]] = _WITH_NOISE

    @classmethod
    def _build_from(
        cls, base: Ellipsoid, horizon: int, epsilon: float, exploration: float | None = None
    ) -> Self:
        """Build the policy from the bandit whose records and proved widths it has."""
        tuned = TUNED["sampling"]
        usual = 1.0 if base.mode == "theory" else tuned["exploration"]
        own = {
            **tuned,
            "query": dataclasses.replace(base.query, **_schedule(horizon, base.query.dim, epsilon)),
            "exploration": or_default("exploration", exploration, usual),
            "prior": _prior(epsilon),
            "patience": 0.03,
        }
        return cls(**(vars(base) | own))

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Tree:
        """Return the state before any user, with an empty total."""
        dim, zero = self.query.dim, jnp.float64(0)
        nothing, nobody = jnp.zeros(self.query.size, jnp.float64), jnp.int32(0)
        return Sums(
            precision=jnp.zeros((dim, dim), jnp.float64),
            pull=jnp.zeros(dim, jnp.float64),
            total=nothing,
            count=nobody,
            noise=zero,
            closed_total=nothing,
            closed_count=nobody,
            closed_noise=zero,
            separate=outlook[self.question].separate if self.mode == "tuned" else "nobody",
        )

    @newest_counts
    def update(self, state: Tree, name: str, release: Release) -> Tree:
        """Take the new total, and close the cohort where it tells enough.

        Only cohorts with noise of their own are closed.
        """
        state = dataclasses.replace(
            state, total=release.total, count=release.count, noise=release.noise
        )
        if state.separate == "nobody":
            return state
        if state.separate == "cohorts":
            return self._close_if_informative(state)
        # Looked at in public time, which is a real branch: else every user would cost a closing.
        read = (jnp.asarray(self.query.readings, jnp.int32) == release.count).any()
        read &= self._posts_early(release.count) | (release.count >= self._first_users)
        new_state: Sums = jax.lax.cond(
            read, self._close_if_informative, lambda unchanged: unchanged, state
        )
        return new_state

    def _close_if_informative(self, state: Sums) -> Sums:
        """Close the open cohort where it tells enough."""
        new_state: Sums = jax.lax.cond(
            self._is_informative(state), self._close_cohort, lambda unchanged: unchanged, state
        )
        return new_state

    def _is_informative(self, state: Sums) -> Array:
        """Whether the open cohort tells enough to be closed, in public time."""
        return self._exceeds_noise(state, times=_RIPE[state.separate], growth=_LEAST_GROWTH)

    def _exceeds_noise(self, state: Sums, *, times: float, growth: float) -> Array:
        """Whether the open cohort's matrix exceeds its noise, and the cohort is not small."""
        users = (state.count - state.closed_count).astype(jnp.float64)
        noise = self._matrix_noise(self._isolate_open_cohort(state).noise)
        is_clear = users * self._rate >= times * noise * self.query.dim**0.5
        is_informative: Array = is_clear & (users >= growth * state.closed_count)
        return is_informative

    def _close_cohort(self, state: Sums) -> Sums:
        """Add up what the open cohort tells, and begin the next cohort."""
        spectrum = self._shrink_spectrum(*self._measure_open_cohort(state))
        return begin_cohort(
            state, *self._combine_cohorts(self._isolate_open_cohort(state), *spectrum)
        )

    def _isolate_open_cohort(self, state: Sums) -> Sums:
        """Replace the total and its noise by those of the open cohort alone."""
        return dataclasses.replace(
            state,
            total=state.total - state.closed_total,
            noise=jnp.sqrt(jnp.maximum(state.noise**2 - state.closed_noise**2, 0.0)),
        )

    def _matrix(self, state: Sums) -> tuple[Array, Array]:
        """The matrix that was reported, and the deviation of its noise."""
        gram, _ = self._sums(state)
        return gram, self._matrix_noise(state.noise)

    def _measure_open_cohort(self, state: Sums) -> tuple[Array, ...]:
        """The open cohort's matrix, its noise and what else shrinking it needs."""
        return self._matrix(self._isolate_open_cohort(state))

    def _measure_everyone(self, state: Sums) -> tuple[Array, ...]:
        """The matrix of all users, its noise and what else shrinking it needs."""
        return self._matrix(state)

    def _combine_cohorts(
        self, cohort: Sums, values: Array, axes: Array, mean: Array
    ) -> tuple[Array, Array]:
        """Combine all cohorts, the open one included, by generalized least squares."""
        _, moment = self._sums(cohort)
        information, weights = self._adapt_to_cohort(cohort)._measure_precision(
            cohort, values, mean
        )
        precision = cohort.precision + (axes * information) @ axes.T
        return precision, cohort.pull + axes @ (weights * (axes.T @ moment))

    def _adapt_to_cohort(self, cohort: Sums) -> Self:
        """Return the policy with the parameters by which the open cohort is read."""
        return self

    def _measure_precision(self, cohort: Sums, values: Array, mean: Array) -> tuple[Array, Array]:
        """Compute the open cohort's precision and vector weight in each direction."""
        doubt = self.caution + (self.doubt - self.caution) * _measure_starvation(values, mean)
        residual = self._dispersion * values + self._residual_noise(cohort.noise**2, doubt) + 1e-9
        # Of an eigenvalue, what its noise may be is no information.
        hidden = 0.0 if cohort.separate == "users" else self.threshold
        signal = jnp.maximum(values - hidden * self._matrix_noise(cohort.noise), 0.0)
        return signal**2 / residual, signal / residual

    def _residual_noise(self, variance: Array, doubt: float | Array) -> Array:
        """Bound the variance of noise in b − Gθ in one direction, for an unknown θ."""
        blurred = self._matrix_noise(jnp.sqrt(variance)) * self.radius
        noise: Array = variance + doubt * blurred**2
        return noise

    def refreshes(self, clock: Clock) -> Array | bool:
        """Publish ever more rarely and at readings; evenly among the first users."""
        now = clock.round + 1
        later = super().refreshes(clock) | ends_now(self.query.readings, clock)
        return jnp.where(now < self._first_users, self._posts_early(now), later)

    @property
    def _first_users(self) -> int:
        users: int = _FIRST_USERS * (self.query.dim - 16)
        return users

    def _posts_early(self, users: Array) -> Array:
        """Whether to publish among the first users, as often as right after them."""
        return users % gap_after(self._first_users, self.patience) == 0

    def publish(self, state: Tree) -> Tree:
        """The distribution from which devices draw their parameters."""
        beliefs = (
            self._build_proved_beliefs(state)
            if self.mode == "theory"
            else self._build_beliefs(state)
        )
        return cast_model(beliefs)

    def _build_beliefs(self, state: Sums) -> PosteriorModel:
        """Build a normal posterior, and scales of its sampling in each direction."""
        if self.query.dim > _MOST_SMALL:
            return self._build_beliefs_in_turn(state)
        measurements = self._measure_open_cohort(state), self._measure_everyone(state)
        stacks = [jnp.stack(pair) for pair in zip(*measurements, strict=True)]
        # At once: library calls side by side can wait for each other for ever.
        spectra = jax.vmap(self._shrink_spectrum)(*stacks)
        cohort, everyone = ([part[place] for part in spectra] for place in (0, 1))
        return self._combine_spectra(state, cohort, everyone)

    def _build_beliefs_in_turn(self, state: Sums) -> PosteriorModel:
        """Build beliefs in many dimensions, one decomposition after the other."""
        everyone = self._shrink_spectrum(*self._measure_everyone(state))
        if state.separate == "nobody":
            return self._build_beliefs_at_once(state, *everyone)

        def combine() -> PosteriorModel:
            gram, *rest = self._measure_open_cohort(state)
            # After the other one: library calls side by side can wait for each other for ever.
            cohort = self._shrink_spectrum(jnp.where(everyone[2] > 0, gram, 0.0), *rest)
            return self._combine_spectra(state, cohort, everyone)

        nothing_closed = state.closed_count == 0
        beliefs: PosteriorModel = jax.lax.cond(
            nothing_closed, lambda: self._build_beliefs_at_once(state, *everyone), combine
        )
        return beliefs

    def _combine_spectra(
        self, state: Sums, cohort: Sequence[Array], everyone: Sequence[Array]
    ) -> PosteriorModel:
        """Build beliefs from the shrunk matrices of the open cohort and of all users."""
        values, axes, mean = everyone
        information = self._combine_cohorts(self._isolate_open_cohort(state), *cohort)
        estimate, root = self._posterior(state.separate, *information)
        guessed, wide = self._scale_directions(state, values, mean)
        along = axes.T @ root
        return PosteriorModel(
            estimate=estimate, sample=(axes * guessed) @ along, widen=(axes * wide) @ along
        )

    def _build_beliefs_at_once(
        self, state: Sums, values: Array, axes: Array, mean: Array
    ) -> PosteriorModel:
        """Build beliefs from all users' matrix alone, where no cohort is closed."""
        _, moment = self._sums(state)
        precision, weights = self._adapt_to_cohort(state)._measure_precision(state, values, mean)
        pulled = weights * (axes.T @ moment)
        estimate, root = self._solve_along_axes(state.separate, axes, precision, pulled)
        guessed, wide = self._scale_directions(state, values, mean)
        return PosteriorModel(estimate=estimate, sample=root * guessed, widen=root * wide)

    def _scale_directions(self, state: Sums, values: Array, mean: Array) -> tuple[Array, Array]:
        """Return each direction's sampled share of the belief, and its random width."""
        starved = _measure_starvation(values, mean)
        first = state.count == 0
        sampled = (
            self._scale_exploration(state, values)
            * self._grow_exploration(state.count)
            * jnp.sqrt(starved)
        )
        guessed = jnp.where(first, _FIRST_SAMPLE, sampled)
        wide = jnp.where(first, _FIRST_WIDTH, self.optimism * jnp.sqrt(1 - starved))
        return guessed, wide

    def _scale_exploration(self, state: Sums, values: Array) -> Array:
        """Scale the sampled deviation: more where chance misleads, and not noise."""
        chance = self._dispersion * values + 1e-9
        share = chance / (chance + self._residual_noise(state.noise**2, self.doubt))
        misled = self._with_noise[state.separate]
        bold: Array = self.exploration * (misled + (1 - misled) * share + _WITHOUT_NOISE * share**2)
        return bold

    def _posterior(self, separate: Separate, precision: Array, pull: Array) -> tuple[Array, Array]:
        """The estimate, within the radius, and a square root of its covariance."""
        values, axes = jnp.linalg.eigh(precision)
        return self._solve_along_axes(separate, axes, jnp.maximum(values, 0.0), axes.T @ pull)

    def _solve_along_axes(
        self, separate: Separate, axes: Array, values: Array, pulled: Array
    ) -> tuple[Array, Array]:
        """Solve for estimate and covariance root, given the precision along its axes."""
        bound = jnp.asarray(self.radius, jnp.float64) ** 2
        strength = jnp.minimum(self.prior, _MOST_PRIOR[separate])
        room, prior = bound, self.query.dim * strength + 1e-9
        # An estimate that is long by chance must not make a learner sure of it.
        certainty = values / (values + prior / bound)
        for _ in range(3):
            along = project_to_ball(pulled / (values + prior / room), self.radius)
            room = jnp.maximum(bound - ((certainty * along) ** 2).sum(), _LEAST_ROOM * bound)
        return axes @ along, axes / jnp.sqrt(values + prior / room)

    def _shrink_spectrum(
        self, gram: Array, noise: Array, *shape: Array
    ) -> tuple[Array, Array, Array]:
        """Draw eigenvalues to their mean by the share of variance that noise explains."""
        dim = self.query.dim
        values, axes = jnp.linalg.eigh(gram)
        mean = jnp.maximum(values.mean(), 0.25 * noise / dim**0.5 + 1e-9)
        explained = noise**2 * (dim * (dim + 1) / 2)
        scatter = jnp.maximum(((values - mean) ** 2).sum(), 1e-12)
        share = 1 - jnp.minimum(1.0, explained / scatter)
        return jnp.maximum(mean + share * (values - mean), 0.0), axes, mean

    def _grow_exploration(self, count: Array) -> Array:
        """Return a factor that outgrows every root of a logarithm, so that runs converge."""
        return 1 + self.growth * jnp.log1p(count / 1000.0)

    def _build_proved_beliefs(self, state: Tree) -> PosteriorModel:
        """Build beliefs as wide as the confidence set that is proved."""
        gram, moment = self._sums(state)
        ridge, floor, width = self._theory_width(state)
        values, axes = jnp.linalg.eigh(gram)
        values = jnp.maximum(values + ridge, floor)
        return PosteriorModel(
            estimate=axes @ ((axes.T @ moment) / values),
            sample=self.exploration * width * axes / jnp.sqrt(values),
            widen=jnp.zeros_like(axes),
        )

    def act(self, model: PosteriorModel, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm that is best under the device's own guess."""
        normals, lot = stream.split(0).normal(self.query.dim), stream.split(1).uniform(1)[0]
        return self.guess(model, arms, normals, lot)

    def guess(self, model: PosteriorModel, arms: Arms, normals: Array, lot: Array) -> Array:
        """The allowed arm that is best under a guess made of these random numbers."""
        wide = jnp.sqrt(((arms.features @ model.widen) ** 2).sum(-1))
        value = arms.features @ (model.estimate + model.sample @ normals) + 2 * lot * wide
        return jnp.argmax(jnp.where(arms.allowed, value, -jnp.inf))

    @property
    def _dispersion(self) -> float | Array:
        """Variance of a reward per unit of its weight in the matrix."""
        return self.spread**2

    @property
    def _rate(self) -> float | Array:
        """The greatest mean eigenvalue that one user adds to the matrix."""
        rate: float | Array = self.query.norm**2 / self.query.dim
        return rate


def _measure_starvation(values: Array, mean: Array) -> Array:
    """Measure how little play excites each direction: 1 is starved, 0 is not."""
    return jnp.clip((_DIVERSE - values / mean) / (_DIVERSE - _NARROW), 0.0, 1.0)


def _prior(epsilon: float) -> float:
    """Choose how strongly the parameter bound shrinks estimates.

    The less noise there is, the more it shrinks them.
    """
    return 0.2 if math.isinf(epsilon) else 0.2 * min(max(epsilon, 0.06), 3.0) ** 0.5


def _schedule(horizon: int, dim: int, epsilon: float) -> dict[str, tuple[int, ...]]:
    """Schedule ends of cohorts and readings of totals: later for less epsilon.

    Less of it, and more dimensions, take more users to say anything; every further total costs
    noise.
    """
    scarce = 1 / positive("epsilon", epsilon, infinite=True)
    patience = min(max(scarce, 0.25), 10.0) ** 0.85
    users = max(20, math.floor(patience * min(_FIRST_COHORT * dim, horizon // 60)))
    early = math.ceil(min(max(10 * scarce, 1.0), users))
    return {
        "batches": span_horizon(horizon, first=users, growth=_GROWTH),
        "readings": span_horizon(horizon, first=early, growth=1.1),
    }
