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
from typing import ClassVar, Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import NoiseInfo, Release
from kerchief.core.pairs import Pair
from kerchief.core.problems import Problem
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default
from kerchief.policies.ellipsoid import Ellipsoid
from kerchief.policies.registry import Mode, register


@struct
class Report:
    """One user's report: x̃, with noise on what is not public, and ỹ, centred; their variance."""

    features: Array
    reward: Array
    variance: Array


@struct
class ReleasedTotal:
    """The total of all reports so far, their count, and the variance of noise on a coordinate."""

    total: Array
    count: Array
    variance: Array

    @classmethod
    def nothing(cls, query: Pair) -> Self:
        """Return the total before any user."""
        zero = jnp.zeros(query.size, jnp.float64)
        return cls(total=zero, count=jnp.int32(0), variance=jnp.float64(0))

    def next(self, query: Pair, release: Release) -> tuple[Report, ReleasedTotal]:
        """Return the report that this release adds, and the new total."""
        variance = release.noise**2
        x, y = query.split(release.total - self.total)
        latest = Report(features=x, reward=y, variance=jnp.maximum(0.0, variance - self.variance))
        return latest, ReleasedTotal(total=release.total, count=release.count, variance=variance)


@struct
class State:
    """The latest release, Σ x̃ x̃ᵀ less the mean of the noise's square, Σ x̃ ỹ and Σ ỹ²."""

    seen: ReleasedTotal
    gram: Array
    moment: Array
    square: Array
    noisy: bool = static()


@struct
class PairLinUCB(Ellipsoid):
    """An `Ellipsoid` around a regression with errors in the variables.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> PairLinUCB.of(problem, mode="tuned").queries["pair"].size
    3
    """

    question: ClassVar[str] = "pair"
    query: Pair = static()

    @classmethod
    def of(
        cls, problem: Problem, *, mode: Mode = "tuned", exploration: float | None = None
    ) -> PairLinUCB:
        """Build it from public facts alone.

        By default exploration is 1 in theory, 0.2 tuned.
        """
        explored = or_default("exploration", exploration, 1.0 if mode == "theory" else 0.2)
        return cls._build(Pair.of(problem), problem, mode=mode, exploration=explored, damping=1.0)

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
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
        latest, total = state.seen.next(self.query, release)
        x, y = latest.features, latest.reward
        excess = jnp.diag(latest.variance * self.query.noisy)
        return State(
            seen=total,
            gram=state.gram + x[:, None] * x[None, :] - excess,
            moment=state.moment + y * x,
            square=state.square + y**2,
            noisy=state.noisy,
        )

    def _sums(self, state: State) -> tuple[Array, Array]:
        return state.gram, state.moment

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
        deviation = jnp.sqrt(self.spread**2 + variance / self.query.balance**2)
        sampling = deviation * jnp.sqrt(2 * logs + growth)
        bias = self.radius * jnp.sqrt(ridge + matrix_noise)
        return ridge, least, sampling + bias + vector_noise / jnp.sqrt(least)

    def _tuned_width(self, state: State) -> tuple[Array, Array, Array]:
        dim, variance = self.query.dim, state.seen.variance
        share = variance / jnp.sqrt(jnp.maximum(1, state.seen.count))
        size = (share + self.query.norm * jnp.sqrt(variance)) * jnp.sqrt(2.0 * dim)
        ridge = self.regularizer + self.damping * size
        width = 0.5 * self.radius * jnp.sqrt(ridge) + self.spread * jnp.sqrt(1.0 * dim)
        return ridge, 0.1 * ridge, width


# Nets of the sphere in d dimensions: 81^d pairs of points at distance 1/4, 5^d at 1/2.
_NINES, _FIVES = 2 * math.log(9.0), math.log(5.0)


register(
    "linucb-pairs",
    PairLinUCB,
    summary="LinUCB from noisy pairs of features and reward",
    variant_of="linucb",
    source="Fuller 1987, chapter 2; ours as a bandit",
    trusts=("none", "local"),
)
