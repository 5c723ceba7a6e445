"""UCB and KL-UCB on arms: play the arm whose loss may be least.

P. Auer, N. Cesa-Bianchi, P. Fischer, "Finite-time analysis of the multiarmed bandit problem"
(2002), with the spread of the reports in place of that of the losses: the black box for stochastic
losses in Zheng et al. (2020), section 3.

A. Garivier, O. Cappé, "The KL-UCB algorithm for bounded stochastic bandits and beyond" (2011). The
divergence is that of coins. With one randomized bit per report it is exact, since a report is a
coin whose bias grows with the loss; with normal noise it would mean nothing, so that is refused.
"""

from __future__ import annotations

from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import struct
from kerchief.core.validate import or_default
from kerchief.policies.context_free.base import Counting, Counts
from kerchief.policies.registry import Mode, register
from kerchief.policies.tuned import TUNED


@struct
class UCB(Counting):
    """Play the arm with the least mean less width √(w s² ln t / n), after each was played once.

    For s-sub-Gaussian reports w = 4 makes a width fail with chance at most t^-2 in round t, and the
    regret is at most Σ (16 s² ln T / Δ + 3Δ) or so; w = 2 is the least for which the classical
    asymptotics hold. Here `width` is w; 0 is greedy play.

    >>> problem = ContextFreeProblem(horizon=9, low=0.0, high=1.0, arms=2)
    >>> UCB.of(problem, mode="theory", channel=ReportDistribution.clear(low=0.0, high=1.0)).width
    4.0
    """

    width: float | Array

    @classmethod
    def of(
        cls,
        problem: ContextFreeProblem,
        *,
        mode: Mode = "tuned",
        channel: ReportDistribution,
        width: float | None = None,
    ) -> Self:
        """Build it from public facts alone; the width is the theorem's or a tuned one.

        In theory mode, reports that are not sub-Gaussian are refused.
        """
        if mode == "theory":
            channel.need_light("ucb")
        usual = 4.0 if mode == "theory" else TUNED["ucb"]["width"]
        return cls(problem=problem, channel=channel, width=or_default("width", width, usual))

    def propose(self, state: Counts, round: Array, stream: Stream) -> Array:
        """The arm with the least optimistic loss; of several, the first."""
        variance = self.width * self.channel.spread**2 * jnp.log(round + 1.0)
        width = jnp.sqrt(variance / jnp.maximum(state.pulls, 1))
        index = jnp.where(state.pulls > 0, state.means - width, -jnp.inf)
        return jnp.argmin(index).astype(jnp.int32)


_STEPS = 4
# Means this close to 0 or 1 are taken for values that far from them.
_EDGE = 1e-9
_LEAST = 1e-290


def coin_divergence(p: Array, q: Array) -> Array:
    """Compute kl(p, q) of two coins, both strictly between 0 and 1.

    The result is exact to rounding also if p is near q.

    >>> round(float(coin_divergence(jnp.array(0.25), jnp.array(0.5))), 4)
    0.1308
    """
    apart = p - q
    return p * jnp.log1p(apart / q) + (1 - p) * jnp.log1p(-apart / (1 - q))


def least_mean(mean: Array, bound: Array) -> Array:
    """The least q, at most the mean, with kl(mean, q) at most this bound.

    As a function of q ≤ p, kl(p, q) falls and is convex, so Newton's method climbs to the root from
    any start below it. Two starts are known: p - √(b/2), by Pinsker's inequality, and
    p exp(-b/p - 1), since kl(p, q) ≥ p ln(p/q) - p. What is returned is not above the root, so a
    width is never too small, however few steps there are.
    """
    p = jnp.clip(mean, _EDGE, 1 - _EDGE)
    near, far = p - jnp.sqrt(bound / 2), p * jnp.exp(-bound / p - 1)
    start = jnp.maximum(jnp.maximum(near, far), _LEAST)

    def climb(_: int, q: Array) -> Array:
        above = jnp.maximum(coin_divergence(p, q) - bound, 0)
        return q + above * q * (1 - q) / jnp.maximum(p - q, _LEAST)

    # A true loop: steps in a row are compiled into one expression, which computes q over and over.
    root: Array = jax.lax.fori_loop(0, _STEPS, climb, start)
    return root


@struct
class KLUCB(Counting):
    """Play the arm with the least q such that n kl(mean, q) ≤ ln t + c ln ln t.

    Means are those of reports as numbers in [0, 1]. Theorem 1 of Garivier and Cappé is for c = 3;
    they play with 0. Here `extra` is c.

    >>> problem = ContextFreeProblem(horizon=9, low=0.0, high=1.0, arms=2)
    >>> KLUCB.of(problem, channel=ReportDistribution(low=None, high=None, spread=1.0))
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: kl-ucb needs reports within bounds, and these have \
none; let devices send one randomized bit (randomizer 'one-bit'), or choose ucb or tsallis-iw
    """

    extra: float | Array

    @classmethod
    def of(
        cls, problem: ContextFreeProblem, *, mode: Mode = "tuned", channel: ReportDistribution
    ) -> Self:
        """Build it with c of the theorem or, when tuned, the authors' choice."""
        channel.need_bounds("kl-ucb")
        return cls(problem=problem, channel=channel, extra=3.0 if mode == "theory" else 0.0)

    def propose(self, state: Counts, round: Array, stream: Stream) -> Array:
        """The arm with the least optimistic loss; of several, the first."""
        level = jnp.log(jnp.maximum(round + 1.0, 1.0))
        level += self.extra * jnp.log(jnp.maximum(level, 1.0))
        means = jnp.clip(self.channel.unit(state.means), 0, 1)
        index = least_mean(means, level / jnp.maximum(state.pulls, 1))
        return jnp.argmin(jnp.where(state.pulls > 0, index, -1.0)).astype(jnp.int32)


register(
    "ucb",
    UCB,
    summary="Optimism by confidence bounds on the mean loss of each arm",
    source="Auer, Cesa-Bianchi, Fischer 2002; Zheng et al. 2020, Algorithm 1",
    default_environment="chance",
)
register(
    "kl-ucb",
    KLUCB,
    summary="Optimism by the Kullback-Leibler divergence of coins",
    variant_of="ucb",
    source="Garivier, Cappé 2011; Zheng et al. 2020, Algorithm 1",
    default_environment="chance",
)
