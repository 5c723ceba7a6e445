"""Convex losses with K questions per user: the protected slopes along K/2 directions at once.

K. Zheng, T. Cai, W. Huang, Z. Li, L. Wang, "Locally differentially private (contextual) bandits
learning" (2020), section 3.2, which treats two questions and says that more are alike; A. Agarwal,
O. Dekel, L. Xiao (2010), section 3. Slopes of a smooth loss along directions at right angles are
together no longer than its gradient, and at kinks they are clipped to that length: all of them cost
what one does. Proof: `k_point.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import NoiseInfo, Tree
from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import orthonormalize
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import UnitBallVector
from kerchief.core.random import Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import static, struct
from kerchief.core.validate import between, whole
from kerchief.policies.context_free.base import LOSS, OnDomain, domain_of
from kerchief.policies.context_free.two_point import State, compute_query_radius
from kerchief.policies.registry import Mode, register


@struct
class KPoint(OnDomain):
    """Gradient descent on protected slopes in random directions at right angles.

    A step is √(pairs / rank) / `firmness` against rank / pairs · Σ slope · direction.

    Attributes:
        radius: how far from the point all questions lie.
        firmness: the inverse of a step, if there are questions in all directions.
        questions: how many, an even number from 2 to 2d; 0 for 2d, in all directions.

    >>> from kerchief.core.convex import Ball
    >>> problem = ContextFreeProblem(horizon=100, low=0.0, high=2.0, domain=Ball(dim=4),
    ...                              lipschitz=2.0)
    >>> channel = ReportDistribution.clear(low=-1.0, high=1.0)
    >>> KPoint.of(problem, channel=channel).firmness     # √T G / R
    20.0
    """

    radius: float | Array
    firmness: float | Array
    questions: float = static(number=True, default=0)

    @classmethod
    def of(
        cls,
        problem: ContextFreeProblem,
        *,
        mode: Mode = "theory",
        channel: ReportDistribution,
        questions: int | None = None,
    ) -> Self:
        """Build it with steps R / (√T v) that depend on the noise.

        Here v² is G² d/m and (G d s)²/m for the noise.

        For m = d; a step has the rest, √(m/d). There are so many questions, 2d unless it is given.
        """
        domain = domain_of(problem)
        noise = max(float(channel.spread) ** 2 - 1, 0.0)
        length = problem.lipschitz * math.sqrt(1 + domain.rank * noise)
        policy = cls(
            problem=problem,
            radius=compute_query_radius(problem),
            firmness=math.sqrt(problem.horizon) * length / domain.outer,
            questions=0 if questions is None else whole("questions", questions, low=2),
        )
        # Refuses a number of questions that cannot be.
        whole("pairs", policy.pairs)
        return policy

    @property
    def pairs(self) -> int:
        """Half the number of questions, an even number up to twice the dimensions."""
        largest = 2 * self.domain.rank
        questions = between("questions", self.questions or largest, 2, largest, closed=True)
        if questions % 2:
            raise InvalidValueError(
                f"questions is {questions:g}; they come in pairs: give an even number"
            )
        return int(questions) // 2

    @property
    def step(self) -> float | Array:
        """The length of a step, per unit of gradient."""
        return math.sqrt(self.pairs / self.domain.rank) / self.firmness

    @property
    def queries(self) -> Mapping[str, Any]:
        """The only query, all slopes in units of the Lipschitz bound.

        Together they are no longer than 1 but at kinks.
        """
        return {LOSS: UnitBallVector(size=self.pairs)}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Begin at the center."""
        return State(point=self.domain.center())

    def propose(self, state: State, round: Array, stream: Stream) -> Array:
        """Propose points on opposite sides, along directions at right angles."""
        rank = self.domain.rank
        normals = stream.normal(rank * self.pairs).reshape(rank, self.pairs).astype(jnp.float64)
        aside = self.radius * (self.domain.basis() @ orthonormalize(normals)).T
        return jnp.concatenate([state.point + aside, state.point - aside])

    def answer(self, action: Array, losses: Array) -> Array:
        """The slopes, in float64, in units of the bound."""
        losses = losses.astype(jnp.float64)
        apart = losses[: self.pairs] - losses[self.pairs :]
        return apart / (2 * self.radius * self.problem.lipschitz)

    def learn(self, state: State, action: Array, memo: Tree, report: Array, round: Array) -> State:
        """Take one step, and project into the set, as far inside as the questions need."""
        directions = (action[: self.pairs] - action[self.pairs :]) / (2 * self.radius)
        scale = self.domain.rank / self.pairs * self.problem.lipschitz
        share = 1 - self.radius / self.domain.inner
        new_point = state.point - scale * self.step * (report @ directions)
        return State(point=self.domain.project(new_point, share))


register(
    "k-point",
    KPoint,
    summary="Convex losses: gradient descent from questions in all directions",
    variant_of="two-point",
    source="Agarwal, Dekel, Xiao 2010; Zheng et al. 2020, section 3.2",
    actions="domain",
    default_environment="quadratic",
)
