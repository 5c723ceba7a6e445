"""Shuffle-batched linear bandits with the paper's own widths, batches and switching rule.

E. Garcelon, K. Chaudhuri, V. Perchet, M. Pirotta, "Privacy amplification via shuffling for linear
contextual bandits", ALT 2022, algorithm 1 with equations (7) and (8), and algorithm 4, which posts
after every batch. Kept to compare with: on arms without negative coordinates these widths lose
more than half of what uniform play loses at up to 80 000 rounds (`kerchief reproduce sblb-rates`).
Repaired, it is `sblb`. Proof note: `sblb.md`.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.batches import grow_batches
from kerchief.core.contracts import NoiseInfo, Release
from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import invert_floored, log_det
from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments
from kerchief.core.struct import static, struct
from kerchief.core.validate import at_least, between, positive, whole
from kerchief.policies.ellipsoid import Model, Optimist, bound_parameter, cast_model
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.refresh import Batchwise
from kerchief.policies.registry import Mode, register

_MOST_BATCHES = 2**20
# Promises beyond these have lengths that no float holds.
_EPSILONS, _DELTAS = (1e-9, 1e9), (1e-300, 1.0)


def printed_keep(local: float, *, dim: int, bits: int = 1) -> float:
    """Return 1 − p of algorithm 1, the chance to keep a bit, from its input ε₀.

    >>> round(printed_keep(1.0, dim=2), 4)
    0.0997
    """
    return math.tanh(positive("local", local) / (whole("bits", bits) * dim * (dim + 3)))


def corollary_keep(epsilon: float, horizon: int) -> float:
    """Return 1 − p = ε^(2/3) T^(1/6) of corollary 8, for one bit.

    Its condition is ε ≤ 1/(27 T^(1/4)), at the end of which this is 1/9. From ε = T^(-1/4) on it
    would be no probability. Beyond the condition it stays at 1/9.

    >>> corollary_keep(1.0, 20_000) == 1 / 9, round(corollary_keep(0.001, 20_000), 4)
    (True, 0.0521)
    """
    return min(math.pow(positive("epsilon", epsilon), 2 / 3) * math.pow(horizon, 1 / 6), 1 / 9)


def batch_length(
    epsilon: float,
    delta: float,
    *,
    horizon: int,
    dim: int,
    keep: float,
    bits: int = 1,
    printed: bool = False,
) -> int:
    """Return the batch length that the paper's theorem 5 asks for, by equation (3).

    No such length is needed for privacy (`privacy/randomized_bits.md`, section 5). `delta` is the
    paper's δ₀, and `keep` one less its p. As `printed`, the equation has 1 − 2p where its
    derivation has 2 − 2p.

    >>> batch_length(1.0, 1e-5, horizon=20_000, dim=2, keep=1 / 9, printed=True)
    371
    """
    epsilon = between("epsilon", epsilon, *_EPSILONS, closed=True)
    delta = between("delta", delta, *_DELTAS)
    total = whole("bits", bits) * whole("horizon", horizon)
    lie = 1 - between("keep", keep, 0.0, 1.0)
    scale = 32 * whole("dim", dim) * (dim + 3) * math.log(8 * total / delta)
    scale *= math.sqrt(2 * horizon * math.log(2 * horizon / delta))

    def long_enough(length: int) -> bool:
        square = (epsilon * length / scale) ** 2
        # √((2+u²)² − 4) − u², without the cancellation.
        gain = 4 * square / (math.sqrt(square * square + 4 * square) + square)
        required = (1 if printed else 2) - 2 * lie
        required += 2 * math.sqrt(2 * math.log(2 * total / delta) / length)
        return gain >= required and length * lie >= 14 * math.log(8 * total / delta)

    lengths = range(1, 2**62)
    return lengths[bisect.bisect_left(lengths, True, key=long_enough)]


@struct
class Coded(Optimist):
    """A bandit that may choose what a report of bits tells, and how many are summed up.

    Attributes:
        horizon: number of users.
        length: users per batch; 0 for the bandit's own batches.
        local: ε₀, the most that one report may tell whoever reads it on its way to the shuffler.
    """

    query: RegressionMoments = static()
    horizon: int = static()
    length: float = static(number=True, default=0)
    local: float = static(number=True, default=math.inf)

    @property
    def queries(self) -> Mapping[str, RegressionMoments]:
        """The only query, a running total with the chosen batches and local epsilon."""
        facts: dict[str, Any] = {} if math.isinf(self.local) else {"local": self.local}
        if self.length:
            facts["batches"] = _equal(self.horizon, self.length)
        return {self.question: dataclasses.replace(self.query, **facts)}


def _equal(horizon: int, length: float) -> tuple[int, ...]:
    """Return the ends of batches of one length, at most the horizon."""
    shorter = min(at_least("length", length, 1.0), horizon)
    if shorter % 1:
        raise InvalidValueError(
            f"length is {length}; a batch has a whole number of users: round it"
        )
    length = whole("length", int(shorter))
    whole("horizon", horizon, high=length * _MOST_BATCHES)
    return tuple(range(length, horizon + 1, length))


@struct
class Held:
    """The matrix and vector that the posted model was made from, and their widths."""

    matrix: Array
    vector: Array
    width: Array
    floor: Array


@struct
class SBLB(Batchwise, Coded):
    """Optimism with the constants of Garcelon et al. 2022; sums come as they code them.

    What is coded is x xᵀ/(2L²) and r x/(2L). So the matrix and the vector are those of features x/L
    and of the parameter Lθ, whose norm is at most LS; the model is posted in units of x again.

    Attributes:
        promise: ε and δ₀ of the shuffler's output.
        radius: bound S on the norm of the parameter.
        spread: sub-Gaussian constant of the rewards.
        regularizer: λ.
        growth: η; a new model needs a determinant that is 1 + η times as large. Negative: any will
            do, as in algorithm 4.
        confidence: δ of the widths.
    """

    promise: tuple[float, float] = static()
    radius: float | Array
    spread: float | Array
    regularizer: float | Array
    growth: float | Array
    confidence: float | Array

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "theory",
        switching: bool,
        epsilon: float = 1.0,
        delta: float = 1e-5,
    ) -> SBLB:
        """Build it from public facts alone; without a promise it has the batches of ε = 1."""
        query = RegressionMoments.of(problem)
        policy = cls(
            query=query,
            horizon=problem.horizon,
            promise=(epsilon, delta),
            radius=bound_parameter(query, problem, "theory"),
            spread=(problem.high - problem.low) / 2,
            regularizer=problem.horizon**0.5,
            growth=0.5 if switching else -1.0,
            confidence=0.05,
        )
        return dataclasses.replace(policy, query=policy.queries[cls.question])

    @property
    def queries(self) -> Mapping[str, RegressionMoments]:
        """The only query, with p from ε₀ or corollary 8 and batches by equation (3)."""
        (epsilon, delta), dim = self.promise, self.query.dim
        is_local_set = math.isfinite(self.local)
        keep = (
            printed_keep(self.local, dim=dim)
            if is_local_set
            else corollary_keep(epsilon, self.horizon)
        )
        length = self.length or batch_length(
            epsilon, delta, horizon=self.horizon, dim=dim, keep=keep, printed=True
        )
        batches = _equal(self.horizon, length)
        query = dataclasses.replace(self.query, batches=batches, keep=keep, local=self.local)
        return {self.question: query}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> Held:
        """Before any user: the regularizer alone, so that the longest arm is played.

        The paper prints no first width. It is the part of (7) that has no round in it, S√(3λ): any
        that is positive plays the same.
        """
        dim = self.query.dim
        start = jnp.asarray(self.regularizer, jnp.float64)
        return Held(
            matrix=start * jnp.eye(dim),
            vector=jnp.zeros(dim),
            width=self._bias(start),
            floor=start,
        )

    def update(self, state: Held, name: str, release: Release) -> Held:
        """Hold the new sums if their determinant has grown enough."""
        gram, moment = self.query.split(release.total)
        ridge, width = self._widths(release.count, release.noise)
        dim, norm = self.query.dim, self.query.norm
        # Algorithm 1 begins at λ and adds 2(λ_j+1 - λ_j) in each batch.
        matrix = gram / (2 * norm**2) + (2 * ridge - self.regularizer) * jnp.eye(dim)
        vector = moment / (2 * norm)
        grown = log_det(matrix) >= jnp.log1p(self.growth) + log_det(state.matrix)
        new = Held(matrix=matrix, vector=vector, width=width, floor=0.1 * ridge)
        new_state: Held = jax.tree.map(partial(jnp.where, grown | (self.growth < 0)), new, state)
        return new_state

    def publish(self, state: Held) -> Model:
        """The estimate; eigenvalues are floored, as noise may make some negative."""
        inverted = invert_floored(state.matrix, state.floor)
        estimate, width = inverted @ state.vector, state.width
        norm = self.query.norm
        return cast_model(Model(estimate=estimate / norm, inverse=inverted, width=width / norm))

    def _widths(self, count: Array, noise: Array) -> tuple[Array, Array]:
        """Compute equations (8) and (7) as printed, at m = 1.

        The p is that which has the noise of the release.

        They are for features within 1: so the noise of the matrix is divided by L², and S becomes
        LS (`sblb.md`). One bit that is kept with chance 1 − p leaves noise of √t/(1 − p).
        """
        dim, norm = self.query.dim, self.query.norm
        log = jnp.log(2 * count / self.confidence)
        root, noise = jnp.sqrt(1.0 * count), noise / norm**2
        lie = 1 - jnp.minimum(1, root / noise)
        ridge = jnp.sqrt(8 * log) * (root + 2 * noise) + self.regularizer
        sampling = self.spread * jnp.sqrt(8 * log + dim * jnp.log(3 + count / ridge))
        shaken = 2 * jnp.sqrt(lie * (1 - lie / 2) * count * log)
        shaken += 8 / 3 * log + jnp.sqrt(8 * count * log)
        return ridge, sampling + self._bias(ridge) + dim / jnp.sqrt(ridge) * shaken

    def _bias(self, ridge: Array) -> Array:
        """Compute S√(3λ) of equation (7), for features within 1."""
        bias: Array = self.query.norm * self.radius * jnp.sqrt(3 * ridge)
        return bias


@struct
class RepairedSBLB(Coded, LinUCB):
    """LinUCB on batches that grow: what is left of the algorithm of Garcelon et al. 2022, repaired.

    Batches grow by a factor of 2.5. The first, in which nothing is known, has √(32 T) users, and
    more where epsilon is small: (d + 2)/(10 ε) times that, up to a fifth of all. With a `length`
    they are equal.
    """

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "tuned",
        exploration: float | None = None,
        epsilon: float = math.inf,
    ) -> RepairedSBLB:
        """Build it as `LinUCB.of` does, with a damping of 1.

        `epsilon` is that of the privacy guarantee.
        """
        epsilon = positive("epsilon", epsilon, infinite=True)
        base = LinUCB.of(problem, mode=mode, exploration=exploration)
        longer = min(5.0, max(1.0, (problem.dim + 2) / (10 * epsilon)))
        first = max(100, int(min(math.sqrt(32 * problem.horizon) * longer, problem.horizon / 5)))
        batches = grow_batches(problem.horizon, first=first, growth=2.5)
        query = dataclasses.replace(base.query, batches=batches)
        own = {"query": query, "damping": 1.0, "horizon": problem.horizon}
        return cls(**(vars(base) | own))


def _build_with_budget(
    problem: Problem, *, mode: Mode, epsilon: float = math.inf, delta: float = 0.0
) -> RepairedSBLB:
    return RepairedSBLB.of(problem, mode=mode, epsilon=epsilon)


register(
    "sblb",
    RepairedSBLB,
    summary="LinUCB on shuffled batches that grow",
    source="Garcelon et al. 2022, repaired",
    trusts=("none", "shuffle"),
    build_with_budget=_build_with_budget,
)
for _name, _algorithm, _switching, _when in (
    ("sblb@paper", 1, True, "when the matrix has grown"),
    ("sblb-fixed@paper", 4, False, "after each of them"),
):
    register(
        _name,
        SBLB,
        summary=f"The paper's shuffled batches, with a new model {_when}",
        source=f"Garcelon et al. 2022, Algorithm {_algorithm}",
        trusts=("none", "shuffle"),
        default_environment=None,
        build_with_budget=partial(SBLB.of, switching=_switching),
        noises={"shuffle": "bit"},
    )
