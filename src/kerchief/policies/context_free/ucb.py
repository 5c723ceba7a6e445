"""UCB on arms, for sub-Gaussian reports: play the arm whose loss may be least.

P. Auer, N. Cesa-Bianchi, P. Fischer, "Finite-time analysis of the multiarmed bandit problem"
(2002), with the spread of the reports in place of that of the losses: the black box for stochastic
losses in Zheng et al. (2020), section 3.
"""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.channel import Channel
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.core.validate import or_default
from kerchief.policies.context_free.base import Counting, Counts
from kerchief.policies.registry import Mode, register

__all__ = ["UCB"]


@struct
class UCB(Counting):
    """Play the arm with the least mean less width √(w s² ln t / n), after each was played once.

    For s-sub-Gaussian reports w = 4 makes a width fail with chance at most t^-2 in round t, and the
    regret is at most Σ (16 s² ln T / Δ + 3Δ) or so; w = 2 is the least for which the classical
    asymptotics hold.

    Attributes:
        width: w; 0 is greedy play.

    >>> problem = ContextFreeProblem(horizon=9, low=0.0, high=1.0, arms=2)
    >>> UCB.of(problem, mode="theory", channel=Channel.clear(low=0.0, high=1.0)).width
    4.0
    """

    width: float | Array

    @classmethod
    def of(
        cls,
        problem: ContextFreeProblem,
        *,
        mode: Mode = "tuned",
        channel: Channel,
        width: float | None = None,
    ) -> Self:
        """Build it from public facts alone; the width is the theorem's or one chosen on seed 1000.

        In theory mode, reports that are not sub-Gaussian are refused.
        """
        if mode == "theory":
            channel.need_light("ucb")
        usual = 4.0 if mode == "theory" else 1.0
        return cls(problem=problem, channel=channel, width=or_default("width", width, usual))

    def propose(self, state: Counts, round: Array, stream: Stream) -> Array:
        """The arm with the least optimistic loss; of several, the first."""
        variance = self.width * self.channel.spread**2 * jnp.log(round + 1.0)
        width = jnp.sqrt(variance / jnp.maximum(state.pulls, 1))
        index = jnp.where(state.pulls > 0, state.means - width, -jnp.inf)
        return jnp.argmin(index).astype(jnp.int32)


register(
    "ucb",
    UCB,
    heard=UCB.of,
    summary="play the arm whose loss may be least, by the public spread of reports",
    source="Auer, Cesa-Bianchi, Fischer 2002; Zheng et al. 2020, Algorithm 1",
    home="chance",
)
