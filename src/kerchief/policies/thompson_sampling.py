"""Thompson sampling for linear and generalized linear rewards: the policy `sampling`.

Both learn from noisy totals (`sampling.py`), and under local trust from weighted residuals
(`weighted.py`). Proof notes: `sampling.md` and `weighted.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Separate
from kerchief.core.links import get_link
from kerchief.core.problems import Problem
from kerchief.core.residual_moments import ResidualMoments
from kerchief.core.struct import struct
from kerchief.policies.glm.online import OnlineGLM
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.registry import Mode, register
from kerchief.policies.weighted import SurprisedSampling

_JOINT_PRIOR = 2.0
"""How much more the bound on the parameter shrinks an estimate of a link's under joint trust."""
_LEAST_USUAL = 0.15, 0.1
"""The least mean weight that is usual for a link, and how far it may be from that."""


@struct
class LinearSampling(SurprisedSampling, LinUCB):
    """Sampling for linear rewards; under local trust it learns from weighted surprises.

    >>> from kerchief.core.contracts import NoiseInfo
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> policy = LinearSampling.of(problem, trust="local")
    >>> model = policy.publish(policy.init({"moments": NoiseInfo(noisy=True, separate="users")}))
    >>> model.weights.tolist(), model.reference.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    """

    _closed_at: ClassVar[float] = 5.5

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "tuned",
        epsilon: float = 1.0,
        trust: str = "none",
        exploration: float | None = None,
    ) -> Self:
        """Build it from public facts alone; see `LinUCB.of`."""
        policy = cls._build_from(
            LinUCB.of(problem, mode=mode), problem.horizon, epsilon, exploration
        )
        return policy._adapt_to_trust(trust, epsilon)

    def _matrix_noise(self, noise: Array) -> Array:
        """Convert the noise deviation to the units of the matrix."""
        matrix_noise: Array = noise / self.query.balance
        return matrix_noise

    def _predict(self, score: Array) -> tuple[Array, Array | float]:
        """Return the score itself, and a slope of 1."""
        return score, 1.0


@struct
class GLMSampling(SurprisedSampling, OnlineGLM):
    """Sampling around the one-pass Newton estimate of `OnlineGLM`; surprises under local trust.

    It samples more from cohorts, since weights that bend with the link mislead it, too.

    >>> problem = Problem(
    ...     dim=2, arms=3, norm=1.0, radius=2.0, low=0.0, high=1.0, horizon=100, link="logistic"
    ... )
    >>> GLMSampling.of(problem).steepest
    0.25
    """

    _closed_at: ClassVar[float] = 3.5
    _with_noise: ClassVar[Mapping[Separate, float]] = {
        **SurprisedSampling._with_noise,
        "nobody": 0.65,
        "cohorts": 1.15,
    }

    @classmethod
    def of(
        cls, problem: Problem, *, mode: Mode = "tuned", epsilon: float = 1.0, trust: str = "none"
    ) -> Self:
        """Build it from public facts alone; see `OnlineGLM.of`."""
        policy = cls._build_from(OnlineGLM.of(problem, mode=mode), problem.horizon, epsilon)
        policy = policy._adapt_to_trust(trust, epsilon)
        if trust != "joint":
            return policy
        return dataclasses.replace(policy, prior=_JOINT_PRIOR * policy.prior)

    def _predict(self, score: Array) -> tuple[Array, Array | float]:
        """Return the link's prediction, for a score clipped to its possible range."""
        link, largest_score = get_link(self.link), self._largest_score
        score = jnp.clip(score, -largest_score, largest_score)
        return link.mean(score) - link.origin, link.slope(score) / self.steepest

    @property
    def _usual_weight(self) -> tuple[Array | float, Array | float]:
        """Mean weight and its deviation, less where slopes are below the steepest.

        That counts twice: in the weights, and in how much less than a line the link then rises.
        """
        link, largest = get_link(self.link), self._largest_score
        share = (link.mean(largest) - link.mean(-largest)) / (2 * largest * self.steepest)
        (cap, far), (least, near) = super()._usual_weight, _LEAST_USUAL
        usual = jnp.clip(share**2, least, cap)
        return usual, jnp.maximum(far / cap * usual, near)

    @property
    def _largest_score(self) -> Array:
        return jnp.asarray(self.radius * self.query.norm)

    @property
    def _origin(self) -> float:
        """Expected reward of score 0, which the link sets; the offset of rewards is 0."""
        return get_link(self.link).origin

    @property
    def _dispersion(self) -> float | Array:
        """Variance of a reward per unit of its weight in the matrix.

        It is 1 for a linearized reward, which varies as much as its weight says.
        ResidualMoments have two values.
        """
        if isinstance(self.query, ResidualMoments):
            return self.spread**2 / self.steepest
        return 1.0

    @property
    def _rate(self) -> float | Array:
        """The greatest mean eigenvalue that one linearized reward adds to the matrix."""
        return self.steepest * super()._rate


def build_sampling(
    problem: Problem,
    *,
    mode: Mode = "tuned",
    epsilon: float = 1.0,
    delta: float = 0.0,
    trust: str = "none",
) -> LinearSampling | GLMSampling:
    """Build the sampling policy for the problem's rewards."""
    if problem.link != "linear":
        return GLMSampling.of(problem, mode=mode, epsilon=epsilon, trust=trust)
    return LinearSampling.of(problem, mode=mode, epsilon=epsilon, trust=trust)


register(
    "sampling",
    (LinearSampling, GLMSampling),
    build_with_budget=build_sampling,
    summary="Thompson sampling on devices, from noisy totals; the default (best)",
    source="ours; posterior sampling: Thompson 1933, Abeille and Lazaric 2017; "
    "weighted reports: after Chen et al. 2025",
)
