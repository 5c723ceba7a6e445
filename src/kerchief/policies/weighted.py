"""Sampling from weighted surprises: under local trust every number of a report must tell something.

Every device adds noise of one size to its statistic, so what is short in it drowns. So the learner
posts, with the model, a symmetric matrix P and an earlier estimate θ₀, and a device whose user
played x and got y reports (`core.residual_moments`) the direction x', the response y' and the
weight w:

    x' = P x / ‖P x‖,    y' = (y - xᵀθ₀) m,    w = ‖P x‖ m,    m = Y / (Y + |xᵀθ₀|),

in units in which features and centred rewards have lengths up to 1 and Y; where w exceeds 1, both
y' and w are divided by it. For other links the surprise is about what the link expects, and the
weight has its slope there as a factor: to first order all else is the same. P raises directions
that are seen least. The model stays linear: y' has the mean w x'ᵀ P⁻¹(θ - θ₀). A device can tell of
x' as a vector and of x'x'ᵀ by one short report (`mechanisms.compass`), and the matrix Σ w x'x'ᵀ is
taken for Σ x'x'ᵀ times the mean weight: what that gets wrong is a share of what is wrong with θ₀.

What the matrix will be like is known beforehand in part: users play what looks best under posted
estimates, so it is drawn to a mixture of contexts that vary evenly and of the directions of those
estimates, instead of to a multiple of the identity (`shrink_to_mixture`).

After information-weighted regression: Chen, Li, Rakhlin and Simchi-Levi 2025 (arXiv 2502.13115).
Proof note: `weighted.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, NoiseInfo, Separate, Tree
from kerchief.core.queries import RegressionMoments
from kerchief.core.residual_moments import ResidualMoments
from kerchief.core.struct import static, struct
from kerchief.core.validate import one_of
from kerchief.policies.posterior import PosteriorModel, Sums, begin_cohort
from kerchief.policies.registry import TRUSTS
from kerchief.policies.sampling import Sampling

RULE = 3
"""Counts how often it was changed how weights are chosen: those of a deployed bandit are computed
again when it is opened, and its devices have used what its own version posted."""
_MATRIX = 0.36, 0.13, 0.85
"""How long a matrix is in a report, beside a vector of length 1: at an epsilon of 0, for each one
more, and at most. Noise then is about as large on both."""
_APART_UP_TO, _TOGETHER = 8.0, 0.7
"""Up to this epsilon, and one for each dimension, directions and weights are reported apart; beyond
it noise is so small that matrices with their weights are better, and so long."""
_GROWTH = 0.5
"""Of all users before, a cohort has at least this share."""
_FILL = 0.8
"""Directions are raised until everyone's matrix has this share of the largest trace."""
_HEAVIEST = 10.0
_LOOKED_FROM = 8
"""Users per dimension before whom no cohort is looked at: their estimates are noise."""
_LEAST_EVEN = 0.1
"""Contexts vary in every direction at least by this share of what they do on average."""
_REACH = 0.7
"""Of the length that P⁻¹(θ - θ₀) may have: what counts, times the matrix's noise."""
_LEAST_WEIGHT = 0.05, 0.25
"""The least mean weight of a cohort's users: so much, or such a part of its noise if that is less,
so that users without features tell nothing."""
_SAMPLED, _WIDENED = 0.62, 1.5
"""How much of what is sampled is left where noise misleads, and how much wider random widths are,
beside those of other trusts."""
_TINY = 1e-12


@struct
class ResidualState(Sums):
    """The learner's memory; precision and pull are those of the parameter.

    Attributes:
        weights: P of the open cohort, as posted.
        unweighing: its inverse.
        reference: θ₀ of the open cohort, as posted.
        reach: how long P⁻¹(θ - θ₀) may be.
        seen: the matrix of closed cohorts, in the coordinates of the parameter.
        blur: the variance of its noise.
        direction: of the estimate that users follow since the last look.
        looked: how many users there were then.
        followed: the sum of u uᵀ over users, u the direction of the estimate that they followed.
        closed_followed: the same when the last cohort was closed.
    """

    weights: Array
    unweighing: Array
    reference: Array
    reach: Array
    seen: Array
    blur: Array
    direction: Array
    looked: Array
    followed: Array
    closed_followed: Array


@struct
class ResidualModel(PosteriorModel):
    """The billboard: beliefs, and by which P and θ₀ devices weigh what they report."""

    weights: Array
    reference: Array


@struct
class SurprisedSampling(Sampling):
    """Sampling that learns from weighted surprises where each report has noise of its own.

    Attributes:
        surprised: whether devices report surprises: where it was built for local trust.
        heaviest: how much more the least direction may be raised than the greatest.
    """

    surprised: bool = static(default=False)
    heaviest: float | Array = _HEAVIEST

    _closed_at: ClassVar[float]
    """How often a cohort's vector must stand out from its noise for the cohort to be closed."""
    _with_noise: ClassVar[Mapping[Separate, float]] = {**Sampling._with_noise, "users": _SAMPLED}

    def _adapt_to_trust(self, trust: str, epsilon: float) -> Self:
        """Return the policy for a trust model; under local trust it asks for surprises."""
        one_of("trust", trust, TRUSTS)
        if self.mode == "theory" or trust != "local":
            return self
        return dataclasses.replace(
            self, surprised=True, query=_build_surprise_query(self.query, epsilon)
        )

    def _predict(self, score: Array) -> tuple[Array, Array | float]:
        """Return the expected reward above that of score 0, and the relative slope."""
        raise NotImplementedError

    @property
    def _usual_weight(self) -> tuple[Array | float, Array | float]:
        """The mean weight of a cohort's users, and how far it may be from that."""
        return 0.5, 0.2

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Tree:
        """Return the state before any user, in which nothing is weighted."""
        state = super().init(outlook)
        if not self.weighs(outlook[self.question]):
            return state
        identity, zeros = jnp.eye(self.query.dim, dtype=jnp.float64), jnp.zeros_like(state.pull)
        return ResidualState(
            **vars(state),
            weights=identity,
            unweighing=identity,
            reference=zeros,
            reach=jnp.asarray(self.radius, jnp.float64),
            seen=jnp.zeros_like(identity),
            blur=jnp.float64(0),
            direction=zeros,
            looked=jnp.int32(0),
            followed=jnp.zeros_like(identity),
            closed_followed=jnp.zeros_like(identity),
        )

    def weighs(self, outlook: NoiseInfo) -> bool:
        """Whether devices report surprises, which needs noise of every user's own."""
        return self.surprised and outlook.separate == "users"

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Report the surprise of the reward at the weighted direction of the arm."""
        if not isinstance(model, ResidualModel):
            return super().record(model, arms, action, reward)
        x, query, largest = arms.features[action], self.query, self._largest_surprise
        weighted, (expected, slope) = model.weights @ x, self._predict(x @ model.reference)
        length = jnp.linalg.norm(weighted)
        unit = weighted * (query.norm / jnp.maximum(length, _TINY * query.norm))
        shortened = largest / (largest + jnp.abs(expected))
        weight = shortened * slope * length / query.norm
        surprise = (reward - self._origin - expected) * shortened / jnp.maximum(weight, 1.0)
        example = Example(features=unit, reward=query.offset + surprise, weight=weight)
        return {self.question: example}

    def publish(self, state: Tree) -> Tree:
        """Publish the posterior, and the weights of reports."""
        beliefs = super().publish(state)
        if not isinstance(state, ResidualState):
            return beliefs
        weights, reference = (
            array.astype(jnp.float32) for array in (state.weights, state.reference)
        )
        return ResidualModel(**vars(beliefs), weights=weights, reference=reference)

    def _matrix(self, state: Sums) -> tuple[Array, Array]:
        """Matrix of the directions of the open cohort, times their mean weight."""
        if not isinstance(self.query, ResidualMoments):
            return super()._matrix(state)
        directions, _ = self._sums(state)
        users = (state.count - state.closed_count).astype(jnp.float64)
        even = users * self._rate - jnp.trace(directions) / self.query.dim
        share = self._mean_weight(state)
        matrix = directions + even * jnp.eye(self.query.dim)
        return share * matrix, share * self._matrix_noise(state.noise)

    def _mean_weight(self, state: Sums) -> Array:
        """Mean weight of the open cohort, drawn to the usual one by what noise explains."""
        users = jnp.maximum(state.count - state.closed_count, 1).astype(jnp.float64)
        directions, _ = self._sums(state)
        unit = self._rate * self.query.dim * users
        observed = jnp.trace(directions) / unit
        blurred = self._matrix_noise(state.noise) * self.query.dim**0.5 / unit
        usual, deviation = self._usual_weight
        shrunk = usual + (observed - usual) * deviation**2 / (deviation**2 + blurred**2)
        least, part = _LEAST_WEIGHT
        mean_weight: Array = jnp.clip(shrunk, jnp.minimum(least, part * blurred) + 1e-9, 1.0)
        return mean_weight

    def _close_if_informative(self, state: Sums) -> Sums:
        """Close the open cohort where it tells enough, but not among the first users."""
        if not isinstance(state, ResidualState):
            return super()._close_if_informative(state)
        late = state.count >= _LOOKED_FROM * self.query.dim
        new_state: Sums = jax.lax.cond(
            late, self._update_direction, lambda unchanged: unchanged, state
        )
        return new_state

    def _update_direction(self, state: ResidualState) -> ResidualState:
        """Update what users follow, and close the open cohort where it tells enough."""
        information = self._combine_cohorts(
            self._isolate_open_cohort(state),
            *self._shrink_spectrum(*self._measure_open_cohort(state)),
        )
        estimate, root = self._posterior(state.separate, *information)
        followed_state = dataclasses.replace(
            state,
            direction=estimate / jnp.maximum(jnp.linalg.norm(estimate), _TINY),
            looked=state.count,
            followed=self._sum_followed(state),
        )
        arguments = followed_state, information, estimate, root
        new_state: ResidualState = jax.lax.cond(
            self._is_informative(followed_state),
            self._reopen_cohort,
            lambda unchanged, *_: unchanged,
            *arguments,
        )
        return new_state

    def _reopen_cohort(
        self, state: ResidualState, information: tuple[Array, Array], estimate: Array, root: Array
    ) -> ResidualState:
        """Add up what cohorts told, and begin one with the weights of the new estimate."""
        gram, noise, *shape = self._measure_everyone(state)
        # After the others: library calls side by side can wait for each other for ever.
        gram = jnp.where(jnp.trace(root) > -jnp.inf, gram, 0.0)
        weights, unweighing = self._weights(gram, noise, *shape, count=state.count)
        deviation = jnp.sqrt(((unweighing @ root) ** 2).sum())
        largest = self.radius * jnp.sqrt((unweighing**2).sum() / self.query.dim)
        return dataclasses.replace(
            begin_cohort(state, *information),
            closed_followed=state.followed,
            weights=weights,
            unweighing=unweighing,
            reference=estimate.astype(jnp.float32).astype(jnp.float64),
            reach=jnp.minimum(deviation, largest),
            seen=gram,
            blur=noise**2,
        )

    def _sum_followed(self, state: ResidualState) -> Array:
        """Sum the directions that users followed, up to now."""
        since = (state.count - state.looked) * jnp.outer(state.direction, state.direction)
        directions: Array = state.followed + since
        return directions

    def _is_informative(self, state: Sums) -> Array:
        """Whether the open cohort's vector exceeds its noise, and the cohort is not small."""
        if not isinstance(state, ResidualState):
            return super()._is_informative(state)
        times = self._closed_at * self.query.balance * self.query.norm / self._largest_surprise
        return self._exceeds_noise(state, times=times, growth=_GROWTH)

    def _weights(
        self, gram: Array, noise: Array, *shape: Array, count: Array
    ) -> tuple[Array, Array]:
        """Choose the weights P for the matrix of so many users, and their inverse.

        Directions are raised to the level of the greatest, and then all of them alike.
        """
        values, axes, _ = self._shrink_spectrum(gram, noise, *shape)
        strength = jnp.maximum(values, noise + 1e-9)
        raised = jnp.clip(jnp.sqrt(strength.max() / strength), 1.0, jnp.maximum(self.heaviest, 1.0))
        full = _FILL * self._rate * self.query.dim * count / (raised**2 * strength).sum()
        raised = jnp.clip(jnp.sqrt(full) * raised, 1 / _HEAVIEST, _HEAVIEST)
        raised = jnp.where(noise > 0, raised, 1.0)
        weights, unweighing = ((axes * scale) @ axes.T for scale in (raised, 1 / raised))
        return weights.astype(jnp.float32).astype(jnp.float64), unweighing

    def _measure_open_cohort(self, state: Sums) -> tuple[Array, ...]:
        """The open cohort's matrix, its noise and what following estimates would show."""
        measurement = super()._measure_open_cohort(state)
        if not isinstance(state, ResidualState):
            return measurement
        weights, own = state.weights, self._sum_followed(state) - state.closed_followed
        return *measurement, weights @ weights, weights @ own @ weights

    def _measure_everyone(self, state: Sums) -> tuple[Array, ...]:
        """The matrix of all users, its noise and what following estimates would show."""
        if not isinstance(state, ResidualState):
            return super()._measure_everyone(state)
        dim, back = self.query.dim, state.unweighing
        gram, noise = self._matrix(self._isolate_open_cohort(state))
        square = back @ back
        share = (jnp.trace(square) ** 2 + (square**2).sum()) / (dim * (dim + 1))
        blurred = jnp.sqrt(state.blur + share * noise**2)
        return state.seen + back @ gram @ back, blurred, jnp.eye(dim), self._sum_followed(state)

    def _scale_directions(self, state: Sums, values: Array, mean: Array) -> tuple[Array, Array]:
        """Scale directions, with wider random widths where surprises are reported."""
        guessed, wide = super()._scale_directions(state, values, mean)
        return guessed, wide * (_WIDENED if isinstance(state, ResidualState) else 1.0)

    def _shrink_spectrum(
        self, gram: Array, noise: Array, *shape: Array
    ) -> tuple[Array, Array, Array]:
        """Shrink a matrix to what following estimates would show, where that is given."""
        if not shape:
            return super()._shrink_spectrum(gram, noise)
        target, mean = shrink_to_mixture(gram, noise, *shape)
        values, axes = jnp.linalg.eigh(target)
        return jnp.maximum(values, 0.0), axes, mean

    def _combine_cohorts(
        self, cohort: Sums, values: Array, axes: Array, mean: Array
    ) -> tuple[Array, Array]:
        """Combine all cohorts; the open one tells about P⁻¹(θ - θ₀)."""
        if not isinstance(cohort, ResidualState):
            return super()._combine_cohorts(cohort, values, axes, mean)
        nothing, back = jnp.zeros_like(cohort.precision), cohort.unweighing
        alone = dataclasses.replace(cohort, precision=nothing, pull=jnp.zeros_like(cohort.pull))
        precision, pull = super()._combine_cohorts(alone, values, axes, mean)
        information = back @ precision @ back
        return (
            cohort.precision + information,
            cohort.pull + back @ pull + information @ cohort.reference,
        )

    def _adapt_to_cohort(self, cohort: Sums) -> Self:
        """Return the policy with parameters for P⁻¹(θ - θ₀), which is short."""
        if not isinstance(cohort, ResidualState):
            return self
        adapted = dataclasses.replace(self, radius=_REACH * cohort.reach, doubt=self.caution)
        if not isinstance(self.query, ResidualMoments):
            return adapted
        share = self._mean_weight(cohort)
        return dataclasses.replace(
            adapted, radius=adapted.radius * share, spread=self.spread / jnp.sqrt(share)
        )

    @property
    def _largest_surprise(self) -> float:
        largest: float = self.query.high - self.query.offset
        return largest

    @property
    def _origin(self) -> float:
        """The expected reward of score 0."""
        origin: float = self.query.offset
        return origin


def _build_surprise_query(
    query: RegressionMoments, epsilon: float
) -> ResidualMoments | RegressionMoments:
    """Build the weighted query for surprises, with symmetric bounds."""
    largest = max(abs(query.low - query.offset), abs(query.high - query.offset))
    least, growth, longest = _MATRIX
    apart = epsilon <= min(query.dim, _APART_UP_TO)
    length = min(least + growth * epsilon, longest) if apart else _TOGETHER
    balance = min(max(length * largest / query.norm, 1e-9), 1e9)
    if not apart:
        low, high = query.offset - largest, query.offset + largest
        return dataclasses.replace(query, low=low, high=high, balance=balance, weighted=True)
    return ResidualMoments(
        readings=query.readings,
        dim=query.dim,
        norm=query.norm,
        most=largest,
        offset=query.offset,
        balance=balance,
    )


def shrink_to_mixture(
    gram: Array, noise: Array, even: Array, followed: Array
) -> tuple[Array, Array]:
    """Shrink a noisy matrix to a two-parameter model; also return its mean eigenvalue.

    Those are how much contexts vary evenly and how much they vary along what was followed, by least
    squares. What noise does not explain of the rest is kept, as a share of it.

    >>> play = jnp.diag(jnp.array([5.0, 1.0, 1.0]))
    >>> followed = jnp.diag(jnp.array([2.0, 0, 0]))
    >>> shrunk, mean = shrink_to_mixture(play, jnp.float64(9.0), jnp.eye(3), followed)
    >>> shrunk.round(3).tolist(), round(float(mean), 3)
    ([[5.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 2.333)
    """
    dim = len(gram)
    evens, cross, squares = ((first * second).sum() for first, second in _pair_up(even, followed))
    on_even, on_followed = (gram * even).sum(), (gram * followed).sum()
    alone, apart = on_even / evens, evens * squares - cross**2
    is_mixture = apart > 1e-6 * evens * squares
    apart = jnp.where(is_mixture, apart, 1.0)
    level, along = (
        (on_even * squares - on_followed * cross) / apart,
        (on_followed * evens - on_even * cross) / apart,
    )
    is_mixture &= (level > _LEAST_EVEN * alone) & (along > 0)
    target = jnp.where(is_mixture, level * even + along * followed, alone * even)
    average = jnp.trace(target) / dim
    mean = jnp.maximum(average, 0.25 * noise / dim**0.5 + 1e-9)
    target = target + (mean - average) * jnp.eye(dim)
    rest = gram - target
    explained = noise**2 * (dim * (dim + 1) / 2)
    share = 1 - jnp.minimum(1.0, explained / jnp.maximum((rest**2).sum(), 1e-12))
    return target + share * rest, mean


def _pair_up(first: Array, second: Array) -> tuple[tuple[Array, Array], ...]:
    return (first, first), (first, second), (second, second)
