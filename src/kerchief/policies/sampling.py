"""Sampling on the device: a bandit that can be left alone, whatever the arms and the trust.

A learner posts what it believes of the parameter: an estimate and how unsure it is in each
direction. Every device draws its own guess and plays the arm that is best under it, so the users of
one batch explore in many directions although they all see one model. These make it cheap:

- Cohorts whose noise is their own are weighed by how much they tell (`_weight`), so early small
  ones cost nothing later and batches may begin early.
- The noisy matrix is drawn towards a multiple of the identity by as much as its noise explains of
  its spread; what remains of the spread is believed (`_shrunk`).
- What is known of the noise and the bound on the parameter shrink the estimate, direction by
  direction (`_posterior`). Where noise is correlated over time, totals are read rarely (`_times`).
- A direction is sampled where the matrix says that play does not excite it by itself. Where arms
  vary enough, a small random width is all that is needed.

All of it is post-processing of releases and the device's own randomness. Proof note: `sampling.md`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.batches import ends_now, spanning
from kerchief.core.contracts import Arms, Clock, Outlook, Release, Tree
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default, positive
from kerchief.policies.ellipsoid import Ellipsoid, posted
from kerchief.policies.glm.online import OnlineGLM
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.registry import Mode, register

__all__ = ["Beliefs", "GLMSampling", "LinearSampling", "Sampling", "Weighed"]

_NARROW, _DIVERSE = 0.25, 0.4
"""Shares of the mean eigenvalue: below the first a direction is sampled, above the second not."""
_LEAST_ROOM = 0.05
_FIRST_SAMPLE, _FIRST_WIDTH = 1.0, 5.0
_WITHOUT_NOISE = 1.25
"""Noise makes a learner doubt by itself; without it a wrong belief is left more slowly."""


@struct
class Weighed:
    """The learner's memory: a weighted total, and the release before.

    Attributes:
        total: over all users, each cohort with its weight.
        variance: of the noise on each coordinate of it.
        weight: the sum of all users' weights.
        square: the sum of their squares.
        released: the total as it was last released.
        count: how many users that had.
        noise: the deviation of its noise.
        noisy: whether releases carry noise.
        separate: whether each cohort has noise of its own, and so a weight of its own.
    """

    total: Array
    variance: Array
    weight: Array
    square: Array
    released: Array
    count: Array
    noise: Array
    noisy: bool = static()
    separate: bool = static()


@struct
class Beliefs:
    """The billboard: the estimate, and how far devices stray from it.

    Attributes:
        estimate: of the parameter.
        sample: a square root of the covariance that guesses are drawn with.
        widen: the same for directions in which a random width is enough.
    """

    estimate: Array
    sample: Array
    widen: Array


@struct
class Sampling(Ellipsoid):
    """What linear and generalized linear sampling share.

    Attributes:
        optimism: multiplier of the random width in directions that play excites by itself.
        prior: how strongly the bound on the parameter shrinks the estimate.
        doubt: how much of the matrix's noise counts as noise of the vector.
        caution: the same in directions that play excites by itself: there it only shrinks.
        growth: how fast the sampled deviation grows with the logarithm of time.
    """

    optimism: float | Array
    prior: float | Array
    doubt: float | Array
    caution: float | Array
    growth: float | Array

    @classmethod
    def _sampling(
        cls, base: Ellipsoid, horizon: int, epsilon: float, exploration: float | None = None
    ) -> Self:
        """From the bandit whose records and proved widths these are."""
        explored = or_default("exploration", exploration, 1.0 if base.mode == "theory" else 0.7)
        own = {
            "query": dataclasses.replace(base.query, **_times(horizon, epsilon)),
            "exploration": explored,
            "optimism": 0.6,
            "prior": 0.5,
            "doubt": 0.4,
            "caution": 4.0,
            "growth": 0.03,
        }
        return cls(**(vars(base) | own))

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Before any user: an empty total."""
        nothing, zero = jnp.zeros(self.query.size, jnp.float64), jnp.float64(0)
        return Weighed(
            total=nothing,
            variance=zero,
            weight=zero,
            square=zero,
            released=nothing,
            count=jnp.int32(0),
            noise=zero,
            noisy=outlook[self.question].noisy,
            separate=outlook[self.question].separate and self.mode == "tuned",
        )

    def update(self, state: Tree, name: str, release: Release) -> Tree:
        """Add the users since the last release, or take the new total where noise is shared."""
        users = jnp.asarray(release.count - state.count, jnp.float64)
        if state.separate:
            variance = jnp.maximum(release.noise**2 - state.noise**2, 0.0)
            weight = self._weight(users, variance)
            total = state.total + weight * (release.total - state.released)
            variance = state.variance + weight**2 * variance
        else:
            weight, total, variance = jnp.float64(1), release.total, release.noise**2
        return dataclasses.replace(
            state,
            total=total,
            variance=variance,
            weight=state.weight + weight * users,
            square=state.square + weight**2 * users,
            released=release.total,
            count=release.count,
            noise=release.noise,
        )

    def _weight(self, users: Array, variance: Array) -> Array:
        """How much a cohort counts: the more, the less of its variance is noise."""
        rate = self.query.norm**2 / self.query.dim
        noise = self._residual_noise(variance, self.doubt)
        weight: Array = users / (users + noise / (self._dispersion * rate))
        return weight

    def _residual_noise(self, variance: Array, doubt: float | Array) -> Array:
        """Variance of what noise adds to b − Gθ in one direction; the parameter is not known."""
        blurred = self._matrix_noise(jnp.sqrt(variance)) * self.radius
        noise: Array = variance + doubt * blurred**2
        return noise

    def refreshes(self, clock: Clock) -> Array | bool:
        """Ever more rarely, and whenever a running total is read."""
        return super().refreshes(clock) | ends_now(self.query.readings, clock)

    def publish(self, state: Tree) -> Tree:
        """What devices draw their guesses from."""
        believed = self._proved(state) if self.mode == "theory" else self._believed(state)
        return posted(believed)

    def _believed(self, state: Tree) -> Beliefs:
        """A normal belief, direction by direction, and how much of it devices act out."""
        gram, moment = self._sums(state)
        noise = self._matrix_noise(jnp.sqrt(state.variance))
        values, axes, mean = self._shrunk(gram, noise)
        starved = jnp.clip((_DIVERSE - values / mean) / (_DIVERSE - _NARROW), 0.0, 1.0)
        prior = self.query.dim * self.prior + 1e-9
        spread = self._dispersion * state.square / jnp.maximum(state.weight, 1e-9)
        doubt = self.caution + (self.doubt - self.caution) * starved
        residual = spread * values + self._residual_noise(state.variance, doubt) + 1e-9
        along, room = self._posterior(values, residual, axes.T @ moment, prior)
        # An eigenvalue of the size of its noise is no information, whatever it says.
        sure = values**3 / (values**2 + noise**2 * self.query.dim + 1e-12)
        first = state.count == 0
        bold = self.exploration * (1.0 if state.noisy else _WITHOUT_NOISE)
        sampled = bold * self._grown(state.count) * jnp.sqrt(starved)
        widened = self.optimism * jnp.sqrt(1 - starved)
        guessed = jnp.where(first, _FIRST_SAMPLE, sampled)
        wide = jnp.where(first, _FIRST_WIDTH, widened)
        return Beliefs(
            estimate=axes @ along,
            sample=axes * (guessed / jnp.sqrt(sure**2 / residual + prior / room)),
            widen=axes * (wide / jnp.sqrt(values**2 / residual + prior / room)),
        )

    def _posterior(
        self, values: Array, residual: Array, moment: Array, prior: Array
    ) -> tuple[Array, Array]:
        """The estimate along each axis, within the radius, and the room that it leaves there."""
        bound = jnp.asarray(self.radius, jnp.float64) ** 2
        room = bound
        for _ in range(3):
            along = values / residual * moment / (values**2 / residual + prior / room)
            room = jnp.maximum(bound - (along**2).sum(), _LEAST_ROOM * bound)
        length = jnp.sqrt((along**2).sum())
        return along * jnp.minimum(1.0, self.radius / jnp.maximum(length, 1e-9)), room

    def _shrunk(self, gram: Array, noise: Array) -> tuple[Array, Array, Array]:
        """Eigenvalues drawn to their mean by the share of their spread that noise explains."""
        dim = self.query.dim
        values, axes = jnp.linalg.eigh(gram)
        mean = jnp.maximum(values.mean(), 0.25 * noise / dim**0.5 + 1e-9)
        explained = noise**2 * (dim * (dim + 1) / 2)
        spread = jnp.maximum(((values - mean) ** 2).sum(), 1e-12)
        kept = 1 - jnp.minimum(1.0, explained / spread)
        return jnp.maximum(mean + kept * (values - mean), 0.0), axes, mean

    def _grown(self, count: Array) -> Array:
        """A factor that outgrows every root of a logarithm, so that no run is stuck for ever."""
        return 1 + self.growth * jnp.log1p(count / 1000.0)

    def _proved(self, state: Tree) -> Beliefs:
        """Guesses as wide as the confidence set that is proved."""
        gram, moment = self._sums(state)
        ridge, floor, width = self._theory_width(state)
        values, axes = jnp.linalg.eigh(gram)
        values = jnp.maximum(values + ridge, floor)
        return Beliefs(
            estimate=axes @ ((axes.T @ moment) / values),
            sample=self.exploration * width * axes / jnp.sqrt(values),
            widen=jnp.zeros_like(axes),
        )

    def act(self, model: Beliefs, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm that is best under the device's own guess."""
        normals, lot = stream.split(0).normal(self.query.dim), stream.split(1).uniform(1)[0]
        return self.guess(model, arms, normals, lot)

    def guess(self, model: Beliefs, arms: Arms, normals: Array, lot: Array) -> Array:
        """The allowed arm that is best under a guess made of these random numbers."""
        wide = jnp.sqrt(((arms.features @ model.widen) ** 2).sum(-1))
        value = arms.features @ (model.estimate + model.sample @ normals) + 2 * lot * wide
        return jnp.argmax(jnp.where(arms.allowed, value, -jnp.inf))

    @property
    def _dispersion(self) -> float | Array:
        """Variance of a reward per unit of its weight in the matrix."""
        return self.spread**2


@struct
class LinearSampling(Sampling, LinUCB):
    """Sampling for linear rewards.

    >>> from kerchief.core.contracts import Outlook
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> policy = LinearSampling.of(problem)
    >>> model = policy.publish(policy.init({"moments": Outlook(noisy=False)}))
    >>> arms = Arms(features=jnp.eye(3, 2), allowed=jnp.array([False, True, False]))
    >>> clock = Clock(round=jnp.int32(0), since={})
    >>> int(policy.act(model, arms, clock, Stream.of(seed=0, replicate=0)))
    1
    """

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "tuned",
        epsilon: float = 1.0,
        exploration: float | None = None,
    ) -> Self:
        """Build it from public facts alone; see `LinUCB.of`."""
        base = LinUCB.of(problem, mode=mode)
        return cls._sampling(base, problem.horizon, epsilon, exploration)


@struct
class GLMSampling(Sampling, OnlineGLM):
    """Sampling around the one-pass Newton estimate of `OnlineGLM`.

    >>> problem = Problem(
    ...     dim=2, arms=3, norm=1.0, radius=2.0, low=0.0, high=1.0, horizon=100, link="logistic"
    ... )
    >>> GLMSampling.of(problem).steepest
    0.25
    """

    @classmethod
    def of(cls, problem: Problem, *, mode: Mode = "tuned", epsilon: float = 1.0) -> Self:
        """Build it from public facts alone; see `OnlineGLM.of`."""
        return cls._sampling(OnlineGLM.of(problem, mode=mode), problem.horizon, epsilon)

    @property
    def _dispersion(self) -> float | Array:
        """One: a linearized reward varies as much as its weight says."""
        return 1.0


def sampling(
    problem: Problem, *, mode: Mode = "tuned", epsilon: float = 1.0, delta: float = 0.0
) -> LinearSampling | GLMSampling:
    """The one for the problem's rewards."""
    kind = LinearSampling if problem.link == "linear" else GLMSampling
    return kind.of(problem, mode=mode, epsilon=epsilon)


def _times(horizon: int, epsilon: float) -> dict[str, tuple[int, ...]]:
    """When cohorts end, and when running totals are read: the less epsilon, the later.

    Less of it takes more users to say anything, and every further total costs noise.
    """
    scarce = 1 / positive("epsilon", epsilon, infinite=True)
    users = max(20, math.floor(min(max(scarce, 0.25), 4.0) * min(300, horizon // 60)))
    early = math.ceil(min(max(10 * scarce, 1.0), users))
    return {
        "batches": spanning(horizon, first=users, growth=1.5),
        "readings": spanning(horizon, first=early, growth=1.1),
    }


register(
    "sampling",
    (LinearSampling, GLMSampling),
    promised=sampling,
    summary="each device plays its own guess, drawn from what releases leave open: `best` is this",
    source="ours; posterior sampling: Thompson 1933, Abeille and Lazaric 2017",
)
