"""Tsallis-INF on arms: near the best that is possible against chance and against an adversary.

J. Zimmert, Y. Seldin, "Tsallis-INF: an optimal algorithm for stochastic and adversarial bandits"
(2021): follow the regularized leader with Tsallis entropy of power ½. Its theorem is for losses in
[0, 1], so reports within bounds are scaled there; one randomized bit is then such a loss
itself, and the theorem holds as it stands (`tsallis.md`). Reports without bounds are divided by
their spread, for which no theorem is known. Learning from protected losses: Zheng et al. (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal, Self, TypeAlias

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import NoiseInfo
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import static, struct
from kerchief.policies.context_free.base import Armed
from kerchief.policies.registry import Mode, register
from kerchief.policies.tuned import TUNED

Estimator: TypeAlias = Literal["reduced-variance", "importance"]

# Enough for 1e-12 with a million arms; four are enough for ten arms.
_STEPS = 6
_IMPORTANCE_RATE = 2.5


def tsallis_weights(losses: Array, rate: Array | float) -> Array:
    """Compute the weights 4 / (η (Lᵢ - x))² that sum to one, for some x < min L.

    With y = η (min L - x) and dᵢ = η (Lᵢ - min L) the sum is S(y) = Σ 4 / (y + dᵢ)². Newton's
    method is applied to S^(-1/2) - 1, which is increasing, and concave since it is a power mean of
    order -2 of the y + dᵢ. So from y = 2, where S ≥ 1, it climbs to the root and never beyond; for
    equal losses it is there after one step.
    """
    apart = rate * (losses - losses.min())
    y = jnp.asarray(2.0, apart.dtype)
    for _ in range(_STEPS):
        inverse = 1 / (y + apart)
        total = 4 * (inverse**2).sum()
        y += total * (jnp.sqrt(total) - 1) / (4 * (inverse**3).sum())
    return 4 / (y + apart) ** 2


@struct
class State:
    """Estimated cumulative losses, and the weights that follow from them for the next round."""

    losses: Array
    weights: Array


@struct
class Memo:
    """The weights that an arm was drawn by, and the estimates before its report is looked at."""

    weights: Array
    start: Array


@struct
class Tsallis(Armed):
    """Draw an arm by its weight, and estimate the losses of all arms from the one report.

    With estimator `importance` the loss of the arm that was played is divided by its weight. With
    `reduced-variance` it is measured from ½ where the arm's weight is at least a floor, so that all
    arms learn from a report (Zimmert and Seldin 2021, section 3).

    Attributes:
        rate: c in the rate η = c/√(t + t₀) of round t.
        late: t₀: with some, the first reports cannot rule an arm out.
        floor: κ in the floor κη².

    >>> problem = ContextFreeProblem(horizon=9, low=0.0, high=1.0, arms=2)
    >>> Tsallis.of(problem, mode="theory", channel=ReportDistribution.clear(low=0.0, high=1.0)).rate
    4.0
    """

    estimator: Estimator = static()
    rate: float | Array
    late: float | Array
    floor: float | Array

    @classmethod
    def of(
        cls,
        problem: ContextFreeProblem,
        *,
        mode: Mode = "tuned",
        channel: ReportDistribution,
        estimator: Estimator = "reduced-variance",
    ) -> Self:
        """Build it from public facts alone.

        The rates of the theorem are 2/√t with importance weights and 4/√t with reduced variance.
        The tuned ones are higher by a quarter or so, with t₀ in proportion to the number of
        reports that it takes to know something about every arm. They keep a theorem, with other
        constants (`tsallis.md`).

        Variance can be reduced only for reports within bounds.
        """
        reduced = estimator == "reduced-variance"
        if reduced:
            channel.need_bounds("tsallis")
        rate, floor = 4.0 if reduced else 2.0, 1.0
        late: float | Array = 0.0
        if mode == "tuned":
            late = 40 * problem.arms * (2 * channel.spread / problem.width) ** 2
            numbers = TUNED["tsallis"]
            rate, floor = numbers["rate"] if reduced else _IMPORTANCE_RATE, numbers["floor"]
        return cls(
            problem=problem, channel=channel, estimator=estimator, rate=rate, late=late, floor=floor
        )

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Return equal weights and losses of zero."""
        arms = self.problem.arms
        return State(
            losses=jnp.zeros(arms, jnp.float64), weights=jnp.full(arms, 1 / arms, jnp.float64)
        )

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        """Draw an arm with a probability equal to its weight."""
        passed = jnp.cumsum(state.weights) < stream.uniform(1)
        return jnp.minimum(passed.sum(), self.problem.arms - 1).astype(jnp.int32)

    def memo(self, state: State, action: Array, round: Array) -> Memo:
        """Return the weights by which the arm was drawn, and the first estimates."""
        return Memo(weights=state.weights, start=self._start(state.weights, self._rate(round)))

    def learn(self, state: State, action: Array, memo: Memo, report: Array, round: Array) -> State:
        """Estimate every arm's loss, then weigh the arms for the next round."""
        indicator = jnp.arange(self.problem.arms) == action
        estimates = memo.start + indicator * (self._loss(report) - memo.start) / memo.weights
        losses = state.losses + estimates
        return State(losses=losses, weights=tsallis_weights(losses, self._rate(round + 1)))

    def recommend(self, state: State) -> Array:
        """The arm with the greatest weight."""
        return jnp.argmax(state.weights).astype(jnp.int32)

    def _rate(self, round: Array) -> Array:
        """Return the learning rate η of a round; rounds are counted from 0."""
        return self.rate / jnp.sqrt(round + 1.0 + self.late)

    def _start(self, weights: Array, rate: Array) -> Array:
        """Return the estimate of each arm before its report is looked at."""
        if self.estimator == "importance":
            return jnp.zeros_like(weights)
        return jnp.where(weights >= self.floor * rate**2, 0.5, 0.0)

    def _loss(self, report: Array) -> Array:
        """Scale the report to a loss in [0, 1], or to deviation at most ½."""
        if self.channel.bounded:
            return self.channel.unit(report)
        return (report - self.problem.low) / (2 * self.channel.spread)


_SOURCE = "Zimmert, Seldin 2021, Algorithm 1; Zheng et al. 2020, Algorithm 1"

_register = partial(register, kind=Tsallis, source=_SOURCE, default_environment="chance")
_register("tsallis", summary="Tsallis-INF with reduced variance: best of both worlds")
_register(
    "tsallis-iw",
    build_with_report_distribution=partial(Tsallis.of, estimator="importance"),
    summary="Tsallis-INF with plain importance weights",
    variant_of="tsallis",
)
