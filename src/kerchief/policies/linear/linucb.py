"""LinUCB from a noisy Gram matrix: one bandit for every trust.

The same functions are ridge LinUCB (OFUL; Abbasi-Yadkori, Pál and Szepesvári 2011, Theorem 2) when
the released sums carry no noise, and locally private LinUCB (Zheng, Cai, Huang, Li and Wang 2020,
Algorithm 5) when every user randomizes the report, and jointly private LinUCB (Shariff and Sheffet
2018, Algorithm 1) when a trusted curator releases every prefix of the sums. The policy sees the
noise level of the total and nothing else of the protection.

Two places where noise changes the mathematics, both functions of public numbers:

* a noisy Gram matrix may be indefinite, so the regularizer grows with the noise and the eigenvalues
  are floored (`publish`);
* the confidence width pays for the noise in the matrix and in the vector (`_theory_width`). The
  width printed in the paper has a factor d ln T that its own proof does not need, and a bound on
  the noise vector that fails about half of the time; `linucb.md` derives the one used here.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, Tree
from kerchief.core.problems import Problem
from kerchief.core.queries import Regression
from kerchief.core.struct import static, struct
from kerchief.core.validate import or_default
from kerchief.policies.ellipsoid import Ellipsoid, Model, State
from kerchief.policies.registry import Mode, register

__all__ = ["LinUCB"]


@struct
class LinUCB(Ellipsoid):
    """Optimism over an ellipsoid around a (noisy) ridge estimate.

    Attributes:
        query: the sums it asks for.
        regularizer: ridge λ without noise.
        radius: bound on the norm of the parameter.
        spread: sub-Gaussian constant of the rewards.
        exploration: multiplier of the width; 0 is the greedy policy.
        damping: tuned mode: how much of the noise's expected spectral norm joins the regularizer.
        confidence: theory mode: the failure probability α.
        mode: `theory` or `tuned`; privacy does not depend on it.
        patience: a new model is posted every 2^k rounds, the largest such number that is at most
            patience * round, or every round while that is below 1.

    >>> from kerchief.core.contracts import Clock, Outlook
    >>> from kerchief.core.random import Stream
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> policy = LinUCB.of(problem, mode="tuned")
    >>> model = policy.publish(policy.init({"moments": Outlook(noisy=False)}))
    >>> arms = Arms(features=jnp.eye(3, 2) * 0.5, allowed=jnp.array([True, False, True]))
    >>> clock = Clock(round=jnp.int32(0), since={})
    >>> int(policy.act(model, arms, clock, Stream.of(seed=0, replicate=0)))
    0
    """

    query: Regression = static()
    regularizer: float | Array
    radius: float | Array
    spread: float | Array
    exploration: float | Array
    damping: float | Array
    confidence: float | Array
    patience: float | Array
    mode: Mode = static()

    @classmethod
    def of(
        cls, problem: Problem, *, mode: Mode = "tuned", exploration: float | None = None
    ) -> LinUCB:
        """Build it from public facts alone.

        Args:
            problem: the public bounds.
            mode: widths from the theorem, or the documented multipliers.
            exploration: multiplier of the width; by default 1 in theory and 0.5 when tuned.
        """
        query = Regression.of(problem)
        # Centred rewards belong to a parameter that is shifted along the shared coordinate.
        centred = mode == "theory" and problem.constant != 0.0
        shift = abs(query.offset / problem.constant) if centred else 0.0
        default = 1.0 if mode == "theory" else 0.5
        return cls(
            query=query,
            regularizer=1.0,
            radius=problem.radius + shift,
            spread=(problem.high - problem.low) / 2,
            exploration=or_default("exploration", exploration, default),
            damping=2.0,
            confidence=0.05,
            patience=0.01,
            mode=mode,
        )

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """The features of the arm played, and its reward."""
        return {"moments": Example(features=arms.features[action], reward=reward)}

    def _widths(self, state: State) -> tuple[Array, Array, Array]:
        """Regularizer, eigenvalue floor and width for this much noise."""
        rule = self._theory_width if self.mode == "theory" else self._tuned_width
        return rule(state.count, state.noise)

    def _theory_width(self, count: Array, noise: Array) -> tuple[Array, Array, Array]:
        """The confidence set of `linucb.md`; without noise it is OFUL's."""
        dim, bound = self.query.dim, self.query.norm
        tail = jnp.sqrt(2 * jnp.log(6 * (count + 1.0) ** 2 / self.confidence))
        matrix_noise = noise * (jnp.sqrt(2.0 * dim) + tail)
        vector_noise = noise * (jnp.sqrt(1.0 * dim) + tail)
        ridge, least = self.regularizer + 2 * matrix_noise, self.regularizer + matrix_noise
        growth = dim * jnp.log1p(count * bound**2 / (dim * self.regularizer))
        sampling = self.spread * jnp.sqrt(2 * jnp.log(3 / self.confidence) + growth)
        bias = self.radius * jnp.sqrt(ridge + matrix_noise)
        return ridge, least, sampling + bias + vector_noise / jnp.sqrt(least)

    def _tuned_width(self, count: Array, noise: Array) -> tuple[Array, Array, Array]:
        """Multipliers in place of the theorem's constants, chosen on unreported seeds."""
        dim = self.query.dim
        ridge = self.regularizer + self.damping * noise * jnp.sqrt(2.0 * dim)
        # Half of the worst bias: noise makes the ridge large, and all of it explores too much.
        width = 0.5 * self.radius * jnp.sqrt(ridge) + self.spread * jnp.sqrt(1.0 * dim)
        return ridge, 0.1 * ridge, width


def _linucb(problem: Problem, mode: Mode) -> LinUCB:
    return LinUCB.of(problem, mode=mode)


register(
    "linucb",
    _linucb,
    LinUCB,
    summary="optimism over an ellipsoid around a (noisy) ridge estimate",
    source="Abbasi-Yadkori et al. 2011, Theorem 2; local: Zheng et al. 2020; "
    "joint: Shariff et al. 2018",
)
