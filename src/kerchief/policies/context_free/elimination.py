"""Successive elimination on arms: play in turns, and drop what is clearly worse.

E. Even-Dar, S. Mannor, Y. Mansour, "Action elimination and stopping conditions for the multi-armed
bandit and reinforcement learning problems" (2006), with the spread of the reports in the widths: a
black box for the reduction of Zheng et al. (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import NoiseInfo, Tree
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import struct
from kerchief.policies.context_free.base import Counting, Counts
from kerchief.policies.registry import Mode, register


@struct
class State(Counts):
    """Counts, and which arms survive."""

    alive: Array


@struct
class SuccessiveElimination(Counting):
    """Play the survivors in turns; drop an arm that lags the best by both their widths.

    The width of n reports is √(w s² ln(c n²) / n). With w = 2 and c = 4KT/3 all widths of all arms
    hold at once but for a chance of 2 Σₙ K / (c n²) < 3/T, and then the best arm is never dropped.
    Here `width` is w and `union` is c.

    >>> problem = ContextFreeProblem(horizon=9, low=0.0, high=1.0, arms=2)
    >>> policy = SuccessiveElimination.of(problem, channel=ReportDistribution.clear(low=0.0,
    ...     high=1.0))
    >>> policy.init({}).alive.tolist()
    [True, True]
    """

    width: float | Array
    union: float | Array

    @classmethod
    def of(
        cls, problem: ContextFreeProblem, *, mode: Mode = "tuned", channel: ReportDistribution
    ) -> Self:
        """Build it from public facts alone.

        Widths are those of the theorem, or were chosen on seed 1000.

        In theory mode, reports that are not sub-Gaussian are refused.
        """
        if mode == "tuned":
            return cls(problem=problem, channel=channel, width=0.6, union=float(problem.arms))
        channel.need_light("successive-elimination")
        union = 4 * problem.arms * problem.horizon / 3
        return cls(problem=problem, channel=channel, width=2.0, union=union)

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """No reports yet, and every arm survives."""
        return State(**vars(super().init(outlook)), alive=jnp.ones(self.problem.arms, bool))

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        """The survivor that was played least; of several, the first."""
        return jnp.argmin(jnp.where(state.alive, state.pulls, jnp.inf)).astype(jnp.int32)

    def learn(self, state: State, action: Array, memo: Tree, report: Array, round: Array) -> State:
        """Count the report, then drop every arm whose best case is above another's worst."""
        now = super().learn(state, action, memo, report, round)
        pulls = jnp.maximum(now.pulls, 1)
        level = self.width * jnp.log(self.union * pulls**2)
        width = self.channel.spread * jnp.sqrt(level / pulls)
        is_played = now.pulls > 0
        worst = jnp.where(is_played & state.alive, now.means + width, jnp.inf)
        alive = state.alive & ~(is_played & (now.means - width > worst.min()))
        return State(**vars(now), alive=alive)

    def recommend(self, state: State) -> Array:
        """The survivor with the least mean report."""
        is_candidate = state.alive & (state.pulls > 0)
        return jnp.argmin(jnp.where(is_candidate, state.means, jnp.inf)).astype(jnp.int32)


register(
    "successive-elimination",
    SuccessiveElimination,
    summary="Play all plausible arms in turn, and drop those that are clearly worse",
    source="Even-Dar, Mannor, Mansour 2006; Zheng et al. 2020, Algorithm 1",
    default_environment="chance",
)
