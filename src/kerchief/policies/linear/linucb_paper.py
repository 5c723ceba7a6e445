"""LDP-LinUCB with the widths that its paper prints: for study.

Zheng, Cai, Huang, Li and Wang 2020, Algorithm 5. The regularizer is 2Υ and the width

    2σ√(d ln T) + (√(3Υ) + σ√(dt/Υ)) d ln T,    Υ = σ√t (4√d + 2 ln(2T/α)),

where σ is the deviation of one report. Here σ√t is what a release states, so the noise is what the
promise needs and not what the paper prints. The factor d ln T is not in the proposition that the
paper cites, and no run of usable length learns with it (`linucb.md` has the width that is proved).
"""

from __future__ import annotations

import math
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.problems import Problem
from kerchief.core.struct import struct
from kerchief.policies.ellipsoid import State
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.registry import Mode, register

__all__ = ["PaperLinUCB"]


@struct
class PaperLinUCB(LinUCB):
    """LinUCB by the printed rules.

    Attributes:
        log_horizon: ln T.
    """

    log_horizon: float | Array

    @classmethod
    def printed(cls, problem: Problem) -> Self:
        """Build it from public facts alone; there is nothing to tune.

        >>> facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
        >>> round(PaperLinUCB.printed(facts).log_horizon, 3)
        4.605
        """
        made = LinUCB.of(problem, mode="theory")
        return cls(**vars(made), log_horizon=math.log(problem.horizon))

    def _widths(self, state: State) -> tuple[Array, Array, Array]:
        """The printed regularizer and width; without noise, a ridge of one."""
        dim, log = self.query.dim, self.log_horizon
        rounds = jnp.maximum(state.count, 1)
        sigma = state.noise / jnp.sqrt(rounds)
        tail = log + jnp.log(2 / self.confidence)
        spectral = state.noise * (4 * jnp.sqrt(1.0 * dim) + 2 * tail)
        bound = jnp.maximum(spectral, self.regularizer / 2)
        drift = jnp.sqrt(3 * bound) + sigma * jnp.sqrt(dim * rounds / bound)
        width = 2 * sigma * jnp.sqrt(dim * log) + drift * dim * log
        return 2 * bound, bound, width


def _make(problem: Problem, mode: Mode) -> PaperLinUCB:
    return PaperLinUCB.printed(problem)


register(
    "linucb@paper",
    _make,
    PaperLinUCB,
    summary="LinUCB with the widths printed for local trust, and noise that is enough",
    source="Zheng et al. 2020, Algorithm 5",
    trusts=("none", "local"),
    home=None,
    noises={"local": "gaussian"},
    deployable=False,
)
