"""A generalized linear bandit that learns from released sums alone: one bandit for every trust.

Each device linearizes its own reward around the estimate that is posted when it acts: with m the
score ⟨x, θ⟩ at the posted θ, clipped to the greatest score possible, it reports w x xᵀ and r x,
where w = μ'(m) and r = y − μ(m) + w m. The sums of these are the normal equations of Newton's
method with every user taken at the estimate of their day (iteratively reweighted least squares in
one pass), so

    θ̂ = (Σ w x xᵀ + λ I)⁻¹ Σ r x

needs no history and no fit, and is private as soon as the sums are: with noise correlated over time
from a trusted curator this is a joint private bandit, with noise on every device a local one. What
it is measured against are the fits of `rare_switching.py`, after Sarmasarkar 2026, Algorithm 2;
`online.md` says why the estimate is consistent, what is proved and what is tuned.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, Tree
from kerchief.core.links import get_link
from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments
from kerchief.core.struct import static, struct
from kerchief.policies.ellipsoid import Ellipsoid, Model, State, Totals
from kerchief.policies.registry import Mode, register
from kerchief.policies.tuned import TUNED


@struct
class OnlineGLM(Ellipsoid, Totals):
    """An `Ellipsoid` around a one-pass Newton estimate.

    Attributes:
        query: the sums it asks for; the matrix comes in units of the steepest slope.
        steepest: bound on μ' over all scores, which scales weights into [0, 1].
        flattest: the least μ' over all scores; theory mode alone needs it.
        bend: theory mode: bound on the error of one linearization.
    """

    query: RegressionMoments = static()
    link: str = static()
    steepest: float | Array
    flattest: float | Array
    bend: float | Array

    @classmethod
    def of(cls, problem: Problem, *, mode: Mode = "tuned") -> OnlineGLM:
        """Build it from public facts alone."""
        link, largest_score = get_link(problem.link), problem.radius * problem.norm
        steepest, span = link.steepest(largest_score), problem.high - problem.low
        # Around score 0 no response is cut; around others a tuned bandit cuts surprising ones.
        slack = 0.0 if mode == "tuned" else span + steepest * largest_score
        flattest = (
            link.flattest(largest_score) if mode == "tuned" else 1 / link.kappa(largest_score)
        )
        low, high = problem.low - link.origin - slack, problem.high - link.origin + slack
        return cls(
            query=RegressionMoments(
                dim=problem.dim,
                norm=problem.norm,
                low=low,
                high=high,
                balance=1.2 * max(abs(low), abs(high)) / problem.norm,
                weighted=True,
            ),
            link=problem.link,
            radius=problem.radius,
            steepest=steepest,
            flattest=flattest,
            bend=2 * link.self_concordance(largest_score) * steepest * largest_score**2,
            spread=span / 2,
            regularizer=steepest,
            exploration=1.0 if mode == "theory" else TUNED["glm"]["exploration"],
            damping=TUNED["glm"]["damping"],
            confidence=0.05,
            patience=0.01,
            mode=mode,
        )

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """The reward, linearized around the posted estimate."""
        x, link = arms.features[action], get_link(self.link)
        largest_score = self.radius * self.query.norm
        score = jnp.clip(x @ model.estimate, -largest_score, largest_score)
        slope = link.slope(score)
        response = reward - link.mean(score) + slope * score
        return {"moments": Example(features=x, reward=response, weight=slope / self.steepest)}

    def _sums(self, state: State) -> tuple[Array, Array]:
        gram, moment = self.query.split(state.total)
        return self.steepest * gram, moment

    def _matrix_noise(self, noise: Array) -> Array:
        """The matrix was sent in other units than the vector."""
        return self.steepest / self.query.balance * noise

    def _tuned_width(self, state: State) -> tuple[Array, Array, Array]:
        dim, noise = self.query.dim, state.noise
        ridge = self.regularizer + self.damping * self._matrix_noise(noise) * jnp.sqrt(2.0 * dim)
        return ridge, 0.1 * ridge, jnp.sqrt(1 + dim * noise**2 / ridge)

    def _theory_width(self, state: State) -> tuple[Array, Array, Array]:
        """The width of `online.md`."""
        dim, noise, matrix_noise = self.query.dim, state.noise, self._matrix_noise(state.noise)
        tail = jnp.sqrt(2 * jnp.log(6 * (state.count + 1.0) ** 2 / self.confidence))
        shake, stir = matrix_noise * (jnp.sqrt(2.0 * dim) + tail), noise * (dim**0.5 + tail)
        ridge, least = self.regularizer + 2 * shake, self.regularizer + shake
        growth = dim * jnp.log1p(
            state.count * self.query.norm**2 * self.flattest / (dim * self.regularizer)
        )
        sampling = self.spread * jnp.sqrt(2 * jnp.log(3 / self.confidence) + growth)
        bent = self.bend * jnp.sqrt(1.0 * state.count)
        bias = self.radius * jnp.sqrt(ridge + shake)
        kappa = jnp.sqrt(1 / self.flattest)
        return ridge, least, kappa * (sampling + bent) + bias + stir / jnp.sqrt(least)


register(
    "glm",
    OnlineGLM,
    summary="Optimism around a one-pass Newton estimate for a generalized linear model",
    source="ours; the setting is that of Sarmasarkar 2026",
    default_environment="probit",
)
