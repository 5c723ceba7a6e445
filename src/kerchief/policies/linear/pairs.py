"""LinUCB from noisy pairs: regression with errors in the variables.

Every user reports features and reward themselves, each with noise, and the learner forms the
products. The square of the noise in the features has a known mean, which is taken off:
V = Σ (x̃ x̃ᵀ - σ² I) and u = Σ x̃ ỹ are unbiased for Σ x xᵀ and Σ x y. From the same report as the
online bandits (`online.py`), with one knob less. Proof note: `pairs.md`.

The correction is textbook: W. A. Fuller, "Measurement error models", 1987, chapter 2. What a report
of products costs instead is `linucb.py`; that is less noise unless epsilon is large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, Example, Outlook, Policy, Release, Tree
from kerchief.core.linalg import floored, inverse
from kerchief.core.pairs import Pair
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default
from kerchief.policies.ellipsoid import Model, lengths
from kerchief.policies.refresh import ever_rarer
from kerchief.policies.registry import Mode, register

__all__ = ["PairLinUCB", "ReleasedTotal", "Report", "State", "shift_of"]


@struct
class Report:
    """One user's report.

    Attributes:
        features: x̃, with noise on what is not public.
        reward: ỹ, centred, with noise.
        variance: of the noise on a coordinate of the report.
    """

    features: Array
    reward: Array
    variance: Array


@struct
class ReleasedTotal:
    """What was released so far: the next report is what the next total adds to it.

    Attributes:
        total: of all reports.
        count: how many there were.
        variance: of the noise on a coordinate of the total.
    """

    total: Array
    count: Array
    variance: Array

    @classmethod
    def nothing(cls, query: Pair) -> Self:
        """Before any user."""
        zero = jnp.zeros(query.size, jnp.float64)
        return cls(total=zero, count=jnp.int32(0), variance=jnp.float64(0))

    def next(self, query: Pair, release: Release) -> tuple[Report, ReleasedTotal]:
        """The report that this release adds, and what was seen then."""
        variance = release.noise**2
        x, y = query.split(release.total - self.total)
        latest = Report(features=x, reward=y, variance=jnp.maximum(0.0, variance - self.variance))
        return latest, ReleasedTotal(total=release.total, count=release.count, variance=variance)


@struct
class State:
    """The learner's memory: what was seen, and sums over reports.

    Attributes:
        seen: the latest release.
        gram: Σ x̃ x̃ᵀ, less the mean of the noise's square.
        moment: Σ x̃ ỹ.
        square: Σ ỹ².
        noisy: whether reports carry noise.
    """

    seen: ReleasedTotal
    gram: Array
    moment: Array
    square: Array
    noisy: bool = static()


@struct
class PairLinUCB(Policy):
    """Optimism over an ellipsoid around a regression with errors in the variables.

    Attributes:
        query: the report it asks for.
        regularizer: ridge λ without noise.
        radius: bound on the norm of the parameter.
        spread: sub-Gaussian constant of the rewards.
        exploration: multiplier of the width; 0 is the greedy policy.
        damping: tuned mode: how much of the noise's typical size joins the regularizer.
        confidence: theory mode: the failure probability α.
        patience: a new model is posted every 2^k rounds, the largest such number that is at most
            patience * round, or every round while that is below 1.
        mode: `theory` or `tuned`; privacy does not depend on it.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> policy = PairLinUCB.of(problem, mode="tuned")
    >>> model = policy.publish(policy.init({"pair": Outlook(noisy=False)}))
    >>> arms = Arms(features=jnp.eye(3, 2) * 0.5, allowed=jnp.array([False, True, True]))
    >>> clock = Clock(round=jnp.int32(0), since={})
    >>> int(policy.act(model, arms, clock, Stream.of(seed=0, replicate=0)))
    1
    """

    query: Pair = static()
    regularizer: float | Array
    radius: float | Array
    spread: float | Array
    exploration: float | Array
    damping: float | Array
    confidence: float | Array
    patience: float | Array
    mode: Mode = static()

    @classmethod
    def of(
        cls, problem: Problem, *, mode: Mode = "tuned", exploration: float | None = None
    ) -> PairLinUCB:
        """Build it from public facts alone.

        Args:
            problem: the public bounds.
            mode: widths from the theorem, or the documented multipliers.
            exploration: multiplier of the width; by default 1 in theory and 0.2 when tuned.
        """
        query = Pair.of(problem)
        default = 1.0 if mode == "theory" else 0.2
        return cls(
            query=query,
            regularizer=1.0,
            radius=problem.radius + (shift_of(query, problem) if mode == "theory" else 0.0),
            spread=(problem.high - problem.low) / 2,
            exploration=or_default("exploration", exploration, default),
            damping=1.0,
            confidence=0.05,
            patience=0.01,
            mode=mode,
        )

    @property
    def queries(self) -> Mapping[str, Pair]:
        """One: the running total of features and rewards."""
        return {"pair": self.query}

    def init(self, outlook: Mapping[str, Outlook]) -> State:
        """Before any user: empty sums."""
        dim = self.query.dim
        return State(
            seen=ReleasedTotal.nothing(self.query),
            gram=jnp.zeros((dim, dim), jnp.float64),
            moment=jnp.zeros(dim, jnp.float64),
            square=jnp.float64(0),
            noisy=outlook["pair"].noisy,
        )

    def update(self, state: State, name: str, release: Release) -> State:
        """Add the products of one report, less what noise adds to them on average."""
        latest, seen = state.seen.next(self.query, release)
        x, y = latest.features, latest.reward
        excess = jnp.diag(latest.variance * self.query.noisy)
        return State(
            seen=seen,
            gram=state.gram + x[:, None] * x[None, :] - excess,
            moment=state.moment + y * x,
            square=state.square + y**2,
            noisy=state.noisy,
        )

    def refreshes(self, clock: Clock) -> Array | bool:
        """Ever more rarely, as one more user matters ever less."""
        return ever_rarer(clock, self.patience)

    def publish(self, state: State) -> Model:
        """Solve the regularized normal equations and set the width."""
        rule = self._theory_width if self.mode == "theory" else self._tuned_width
        ridge, floor, width = rule(state)
        matrix = state.gram + ridge * jnp.eye(self.query.dim)
        inverted = inverse(floored(matrix, floor) if state.noisy else matrix)
        return Model(
            estimate=(inverted @ state.moment).astype(jnp.float32),
            inverse=inverted.astype(jnp.float32),
            width=(self.exploration * width).astype(jnp.float32),
        )

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm with the highest upper confidence bound."""
        x = arms.features
        upper = x @ model.estimate + model.width * lengths(x, model.inverse)
        return jnp.argmax(jnp.where(arms.allowed, upper, -jnp.inf))

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """The features of the arm played, and its reward."""
        return {"pair": Example(features=arms.features[action], reward=reward)}

    def _theory_width(self, state: State) -> tuple[Array, Array, Array]:
        """The confidence set of `pairs.md`; without noise it is LinUCB's."""
        dim, count, bound = self.query.dim, state.seen.count, self.query.norm
        variance = state.seen.variance / jnp.maximum(1, count)
        sigma, logs = jnp.sqrt(variance), jnp.log(4 / self.confidence)
        tail = jnp.sqrt(2 * jnp.log(8 * (count + 1.0) ** 2 / self.confidence))
        edge = jnp.sqrt(1.0 * dim) + tail
        squares = variance * (2 * jnp.sqrt(1.0 * count) * edge + edge**2)
        energy = 1 + count * bound**2
        crossed = 4 * sigma * jnp.sqrt(energy * (2 * (dim * _NINES + logs) + jnp.log(energy)))
        matrix_noise = squares + crossed
        power = 1 + state.square
        vector_noise = 2 * sigma * jnp.sqrt(power * (2 * (dim * _FIVES + logs) + jnp.log(power)))
        ridge, least = self.regularizer + 2 * matrix_noise, self.regularizer + matrix_noise
        growth = dim * jnp.log1p(count * bound**2 / (dim * self.regularizer))
        spread = jnp.sqrt(self.spread**2 + variance / self.query.balance**2)
        sampling = spread * jnp.sqrt(2 * logs + growth)
        bias = self.radius * jnp.sqrt(ridge + matrix_noise)
        return ridge, least, sampling + bias + vector_noise / jnp.sqrt(least)

    def _tuned_width(self, state: State) -> tuple[Array, Array, Array]:
        """Multipliers in place of the theorem's constants, chosen on unreported seeds."""
        dim, variance = self.query.dim, state.seen.variance
        share = variance / jnp.sqrt(jnp.maximum(1, state.seen.count))
        size = (share + self.query.norm * jnp.sqrt(variance)) * jnp.sqrt(2.0 * dim)
        ridge = self.regularizer + self.damping * size
        width = 0.5 * self.radius * jnp.sqrt(ridge) + self.spread * jnp.sqrt(1.0 * dim)
        return ridge, 0.1 * ridge, width


# Nets of the sphere in d dimensions: 81^d pairs of points at distance 1/4, 5^d at 1/2.
_NINES, _FIVES = 2 * math.log(9.0), math.log(5.0)


def shift_of(query: Pair, problem: Problem) -> float:
    """How far centred rewards shift the parameter, along the coordinate that all arms share."""
    return abs(query.offset / problem.constant) if problem.constant else 0.0


def _pairs(problem: Problem, mode: Mode) -> PairLinUCB:
    return PairLinUCB.of(problem, mode=mode)


register(
    "linucb-pairs",
    _pairs,
    PairLinUCB,
    summary="LinUCB from noisy features and rewards: errors in the variables",
    source="Fuller 1987, chapter 2; ours as a bandit",
    trusts=("none", "local"),
)
