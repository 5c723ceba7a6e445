"""A generalized linear bandit that learns from released sums alone: one bandit for every trust.

Each device linearizes its own reward around the estimate that is posted when it acts: with m the
score ⟨x, θ⟩ at the posted θ, clipped to the greatest score possible, it reports w x xᵀ and r x,
where w = μ'(m) and r = y − μ(m) + w m. The sums of these are the normal equations of Newton's
method with every user taken at the estimate of their day (iteratively reweighted least squares in
one pass), so

    θ̂ = (Σ w x xᵀ + λ I)⁻¹ Σ r x

needs no history and no fit, and is private as soon as the sums are: with noise correlated over time
from a trusted curator this is a joint private bandit, with noise on every device a local one. What
it is measured against are the fits of `rarely`, after Sarmasarkar 2026, Algorithm 2; `online.md`
says why the estimate is consistent, what is proved and what is tuned.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, Tree
from kerchief.core.links import link_named
from kerchief.core.problems import Problem
from kerchief.core.queries import Regression
from kerchief.core.struct import static, struct
from kerchief.policies.ellipsoid import Ellipsoid, Model, State
from kerchief.policies.registry import Mode, register

__all__ = ["OnlineGLM"]


@struct
class OnlineGLM(Ellipsoid):
    """Optimism around a one-pass Newton estimate.

    Attributes:
        query: the sums it asks for; the matrix comes in units of the steepest slope.
        link: how a score becomes an expected reward.
        radius: bound on the norm of the parameter.
        steepest: bound on μ' over all scores, which scales weights into [0, 1].
        flattest: the least μ' over all scores; theory mode alone needs it.
        bend: theory mode: bound on the error of one linearization.
        spread: sub-Gaussian constant of the rewards.
        regularizer: ridge λ without noise.
        exploration: multiplier of the width; 0 is greedy.
        damping: tuned mode: how much of the noise's expected spectral norm joins the ridge.
        confidence: theory mode: the failure probability α.
        patience: a new model is posted every 2^k rounds, the largest such number that is at most
            patience * round, or every round while that is below 1.
        mode: `theory` or `tuned`; privacy does not depend on it.
    """

    query: Regression = static()
    link: str = static()
    radius: float | Array
    steepest: float | Array
    flattest: float | Array
    bend: float | Array
    spread: float | Array
    regularizer: float | Array
    exploration: float | Array
    damping: float | Array
    confidence: float | Array
    patience: float | Array
    mode: Mode = static()

    @classmethod
    def of(cls, problem: Problem, *, mode: Mode = "tuned") -> OnlineGLM:
        """Build it from public facts alone.

        Args:
            problem: the public bounds; its link is the model.
            mode: a width that is proved, or the documented multipliers.
        """
        link, largest_score = link_named(problem.link), problem.radius * problem.norm
        steepest, span = link.steepest(largest_score), problem.high - problem.low
        # Around score 0 no response is cut; around others a tuned bandit cuts surprising ones.
        slack = 0.0 if mode == "tuned" else span + steepest * largest_score
        flattest = (
            link.flattest(largest_score) if mode == "tuned" else 1 / link.kappa(largest_score)
        )
        low, high = problem.low - link.origin - slack, problem.high - link.origin + slack
        return cls(
            query=Regression(
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
            exploration=1.0 if mode == "theory" else 1.5,
            damping=2.0,
            confidence=0.05,
            patience=0.01,
            mode=mode,
        )

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """The reward, linearized around the posted estimate."""
        x, link = arms.features[action], link_named(self.link)
        largest_score = self.radius * self.query.norm
        score = jnp.clip(x @ model.estimate, -largest_score, largest_score)
        slope = link.slope(score)
        response = reward - link.mean(score) + slope * score
        return {"moments": Example(features=x, reward=response, weight=slope / self.steepest)}

    def _scale(self) -> float | Array:
        """The matrix comes in units of the steepest slope."""
        return self.steepest

    def _widths(self, state: State) -> tuple[Array, Array, Array]:
        """Regularizer, eigenvalue floor and width for this much noise."""
        dim, noise = self.query.dim, state.noise
        # The matrix was sent in other units than the vector.
        matrix_noise = self.steepest / self.query.balance * noise
        if self.mode == "tuned":
            ridge = self.regularizer + self.damping * matrix_noise * jnp.sqrt(2.0 * dim)
            return ridge, 0.1 * ridge, jnp.sqrt(1 + dim * noise**2 / ridge)
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


def _make(problem: Problem, mode: Mode) -> OnlineGLM:
    return OnlineGLM.of(problem, mode=mode)


register(
    "glm",
    _make,
    OnlineGLM,
    summary="optimism around a one-pass Newton estimate for a generalized linear model",
    source="ours; the setting is that of Sarmasarkar 2026",
    home="probit",
)
