"""Stochastic convex losses on a line, with one question per user: an interval that shrinks.

A. Agarwal, D. Foster, D. Hsu, S. Kakade, A. Rakhlin, "Stochastic convex optimization with bandit
feedback" (2011), Algorithm 1, which is for one dimension. K. Zheng, T. Cai, W. Huang, Z. Li,
L. Wang, "Locally differentially private (contextual) bandits learning" (2020), Corollary 4, take
Algorithm 2 as the black box, which is for any dimension and not built. Proof: `line_search.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import NoiseInfo
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import struct
from kerchief.core.validate import or_default
from kerchief.policies.context_free.base import OnDomain, domain_of
from kerchief.policies.registry import Mode, register

_QUARTERS = np.array([0.25, 0.5, 0.75])


@struct
class State:
    """The interval that is left, reports at its three inner quarters, and how fine they must be.

    `cuts` counts how often the interval was cut.
    """

    left: Array
    right: Array
    pulls: Array
    total: Array
    level: Array
    cuts: Array


@struct
class Memo:
    """Which of the three was asked about, and in which interval."""

    which: Array
    cuts: Array


@struct
class LineSearch(OnDomain):
    """Ask about the three inner quarters in turns; cut off a quarter that is clearly worse.

    Each is asked p s² ln T / γ² times. If then an outer mean is 3γ above another, what lies beyond
    it is cut off, and γ begins anew at an eighth of what losses may differ by; if not, γ is halved.
    Here `patience` is p; with 4 all means are within γ but for a chance of 2/T² each.

    >>> from kerchief.core.convex import Ball
    >>> problem = ContextFreeProblem(horizon=100, low=0.0, high=2.0, domain=Ball(dim=1),
    ...                              lipschitz=1.0)
    >>> LineSearch.of(problem, channel=ReportDistribution.clear(low=0.0, high=2.0),
    ...     mode="theory").patience
    4.0
    """

    spread: float | Array
    patience: float | Array

    @classmethod
    def of(
        cls,
        problem: ContextFreeProblem,
        *,
        mode: Mode = "tuned",
        channel: ReportDistribution,
        patience: float | None = None,
    ) -> Self:
        """Build it from public facts alone.

        When tuned, the patience is one chosen on seed 1000.

        In theory mode, reports that are not sub-Gaussian are refused.
        """
        rank = domain_of(problem).rank
        if rank != 1:
            raise InvalidValueError(
                f"the domain has {rank} dimensions and line-search plays on a line; choose a "
                "domain of one dimension, or one-point-strong"
            )
        if mode == "theory":
            channel.need_light("line-search")
        usual = 4.0 if mode == "theory" else 0.03
        multiplier = or_default("patience", patience, usual)
        return cls(problem=problem, spread=channel.spread, patience=multiplier)

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Start from the whole line, without any reports."""
        end = jnp.float64(self.domain.outer)
        return self._start_interval(-end, end, jnp.int32(0))

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        """The quarter that was asked about least; of several, the first."""
        return self._point(self._places(state)[jnp.argmin(state.pulls)])[None]

    def memo(self, state: State, action: Array, round: Array) -> Memo:
        """Which quarter the question is about."""
        place = self.domain.basis()[:, 0] @ (action[0] - self.domain.center())
        return Memo(which=jnp.argmin(jnp.abs(self._places(state) - place)), cuts=state.cuts)

    def learn(self, state: State, action: Array, memo: Memo, report: Array, round: Array) -> State:
        """Count a report about the interval, and cut or look closer if there are enough.

        Ignore a report about an interval that was cut since.
        """
        indicator = (jnp.arange(3) == memo.which) & (memo.cuts == state.cuts)
        pulls, total = state.pulls + indicator, state.total + indicator * report[0]
        need = self.patience * (self.spread / state.level) ** 2 * self._log
        enough = pulls.min() >= need
        means = total / jnp.maximum(pulls, 1)
        worse = jnp.maximum(means[0], means[2]) - means.min() >= 3 * state.level
        places, upper = self._places(state), means[0] > means[2]
        shortened = self._start_interval(
            jnp.where(upper, places[0], state.left),
            jnp.where(upper, state.right, places[2]),
            state.cuts + 1,
        )
        level = jnp.where(enough, state.level / 2, state.level)
        refined = State(
            left=state.left,
            right=state.right,
            pulls=pulls,
            total=total,
            level=level,
            cuts=state.cuts,
        )
        pairs = {name: (getattr(shortened, name), getattr(refined, name)) for name in vars(refined)}
        return State(**{k: jnp.where(enough & worse, *pair) for k, pair in pairs.items()})

    def recommend(self, state: State) -> Array:
        """The middle of the interval."""
        return self._point(self._places(state)[1])

    @property
    def _log(self) -> float:
        """The factor ln T in the number of reports, which bounds the chance of failure."""
        return max(math.log(self.problem.horizon), 1.0)

    def _start_interval(self, lower: Array, upper: Array, cuts: Array) -> State:
        """Build the state of an interval without any reports."""
        zeros = jnp.zeros(3, jnp.float64)
        level = self.problem.lipschitz * (upper - lower) / 8
        return State(left=lower, right=upper, pulls=zeros, total=zeros, level=level, cuts=cuts)

    def _places(self, state: State) -> Array:
        """The three inner quarters."""
        return state.left + _QUARTERS * (state.right - state.left)

    def _point(self, place: Array) -> Array:
        """Convert a coordinate on the line to a point of the set."""
        return self.domain.center() + self.domain.basis()[:, 0] * place


register(
    "line-search",
    LineSearch,
    summary="Convex losses on a line: an interval that shrinks",
    source="Agarwal et al. 2011, Algorithm 1; Zheng et al. 2020, Corollary 4",
    actions="domain",
    default_environment="line",
)
