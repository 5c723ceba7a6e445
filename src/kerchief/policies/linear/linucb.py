"""LinUCB from a noisy Gram matrix: one bandit for every trust.

The same functions are ridge LinUCB (OFUL; Abbasi-Yadkori, Pál and Szepesvári 2011, Theorem 2) when
the released sums carry no noise, and locally private LinUCB (Zheng, Cai, Huang, Li and Wang 2020,
Algorithm 5) when every user randomizes the report, and jointly private LinUCB (Shariff and Sheffet
2018, Algorithm 1) when a trusted curator releases every prefix of the sums. The policy sees the
noise level of the total and nothing else of the protection: a noisy matrix may be indefinite, so
the regularizer grows with the noise and eigenvalues are floored, and the width pays for the noise.
Proof note, also against the width that Zheng et al. print: `linucb.md`.
"""

from __future__ import annotations

import math
from typing import Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default
from kerchief.policies.ellipsoid import Ellipsoid, State, Totals
from kerchief.policies.registry import Mode, register
from kerchief.policies.tuned import TUNED


@struct
class LinUCB(Ellipsoid, Totals):
    """Optimism over an ellipsoid around a (noisy) ridge estimate, with the numbers of `Ellipsoid`.

    >>> from kerchief.core.contracts import Arms, Clock, NoiseInfo
    >>> from kerchief.core.random import Stream
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> policy = LinUCB.of(problem, mode="tuned")
    >>> model = policy.publish(policy.init({"moments": NoiseInfo(noisy=False)}))
    >>> arms = Arms(features=jnp.eye(3, 2) * 0.5, allowed=jnp.array([True, False, True]))
    >>> clock = Clock(round=jnp.int32(0), since={})
    >>> int(policy.act(model, arms, clock, Stream.of(seed=0, replicate=0)))
    0
    """

    query: RegressionMoments = static()

    @classmethod
    def of(
        cls, problem: Problem, *, mode: Mode = "tuned", exploration: float | None = None
    ) -> LinUCB:
        """Build it from public facts alone.

        By default exploration is 1 in theory, else tuned.
        """
        numbers = TUNED["linucb"]
        usual = 1.0 if mode == "theory" else numbers["exploration"]
        explored = or_default("exploration", exploration, usual)
        query, damping = RegressionMoments.of(problem), numbers["damping"]
        return cls._build(query, problem, mode=mode, exploration=explored, damping=damping)

    def _theory_width(self, state: State) -> tuple[Array, Array, Array]:
        """The confidence set of `linucb.md`; without noise it is OFUL's."""
        dim, bound, count, noise = self.query.dim, self.query.norm, state.count, state.noise
        tail = jnp.sqrt(2 * jnp.log(6 * (count + 1.0) ** 2 / self.confidence))
        matrix_noise = noise * (jnp.sqrt(2.0 * dim) + tail)
        vector_noise = noise * (jnp.sqrt(1.0 * dim) + tail)
        ridge, least = self.regularizer + 2 * matrix_noise, self.regularizer + matrix_noise
        growth = dim * jnp.log1p(count * bound**2 / (dim * self.regularizer))
        sampling = self.spread * jnp.sqrt(2 * jnp.log(3 / self.confidence) + growth)
        bias = self.radius * jnp.sqrt(ridge + matrix_noise)
        return ridge, least, sampling + bias + vector_noise / jnp.sqrt(least)

    def _tuned_width(self, state: State) -> tuple[Array, Array, Array]:
        dim = self.query.dim
        ridge = self.regularizer + self.damping * state.noise * jnp.sqrt(2.0 * dim)
        # Half of the worst bias: noise makes the ridge large, and all of it explores too much.
        width = 0.5 * self.radius * jnp.sqrt(ridge) + self.spread * jnp.sqrt(1.0 * dim)
        return ridge, 0.1 * ridge, width


@struct
class PaperLinUCB(LinUCB):
    """LinUCB by the rules that Zheng et al. 2020 print, for study: not for deployment.

    The regularizer is 2Υ and the width is

        2σ√(d ln T) + (√(3Υ) + σ√(dt/Υ)) d ln T,    Υ = σ√t (4√d + 2 ln(2T/α)),

    where σ is the deviation of one report; σ√t is what a release states, so the noise is enough.
    Here `log_horizon` is ln T. Not taken over are the printed noise, the width of the round to come
    (that of the release is played), and a matrix that noise may turn: its eigenvalues are floored
    at Υ. Rewards are centred where arms share a coordinate. Models are posted ever more rarely
    (`patience`), and not after every user.
    """

    log_horizon: float | Array

    @classmethod
    def printed(cls, problem: Problem, *, mode: Mode = "theory") -> Self:
        """Build it from public facts alone; there is nothing to tune.

        >>> facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
        >>> round(PaperLinUCB.printed(facts).log_horizon, 3)
        4.605
        """
        base = LinUCB.of(problem, mode="theory")
        return cls(**vars(base), log_horizon=math.log(problem.horizon))

    def _theory_width(self, state: State) -> tuple[Array, Array, Array]:
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


register(
    "linucb",
    LinUCB,
    summary="Optimism around a ridge estimate",
    source="Abbasi-Yadkori et al. 2011, Theorem 2; local: Zheng et al. 2020; "
    "joint: Shariff et al. 2018",
)
register(
    "linucb@paper",
    PaperLinUCB,
    PaperLinUCB.printed,
    summary="LinUCB with the widths printed for local trust",
    source="Zheng et al. 2020, Algorithm 5",
    trusts=("none", "local"),
    default_environment=None,
    noises={"local": "gaussian"},
)
