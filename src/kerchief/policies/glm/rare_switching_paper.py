"""The jointly private GLM bandit as it was run for its paper: for study, not for deployment.

Sarmasarkar 2026 reports Table 2 for an experimental rule that differs from Algorithm 2: a ridge of
hundreds that is set from epsilon and delta, arms scored by half of the estimate plus a width of
theory size, a growth factor of 1 + 5/(8√d) + 0.05, and fits by averaged noisy gradient descent with
steps 10/√i on the mean gradient. The ridge makes Criterion I impossible there: it never fired, so
the warm estimate is zero, and so is its part here. One number was fitted to the table and is not in
the paper: the weight ½ of the matrix.

What is *not* taken over is the noise: the paper's fits get half of what replacing a user needs and
its matrix a √2 too little, while here `protect` gives the same promise its true noise. That hardly
matters for the regret, which the ridge decides. The leak of the paper's Algorithm 2, whose warm
estimate is refitted the moment a user's own context triggers Criterion I, cannot be written in
these contracts: a learner sees releases alone. `rarely` is the repaired bandit.
"""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Gradient, Start
from kerchief.core.links import link_named
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import repeat
from kerchief.core.problems import Problem
from kerchief.core.queries import Gram
from kerchief.policies.glm.rare_switching import RarelySwitching
from kerchief.policies.registry import Mode, Terms, register

__all__ = ["LongSteps", "ridge_of_the_paper"]

_FAILURE = 0.02
# What stands for no promise.
_NONE = Terms(epsilon=math.inf, delta=_FAILURE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongSteps:
    """Gradient descent on the mean loss with steps 10/√i, averaged after a while, in no ball.

    Attributes:
        steps: how many gradient sums are taken.
        skipped: how many iterates the average leaves out.
    """

    steps: int = 50
    skipped: int = 10

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """Take the steps and average the later iterates."""

        def step(i: Array | int, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            point, total = sums
            slope = gradient(point, i) / users + 1e-5 * point
            point = point - 10 / jnp.sqrt(i + 1.0) * slope
            return point, total + jnp.where(i >= self.skipped, point, 0)

        _, total = repeat(self.steps, step, (start.point, 0 * start.point))
        return total / (self.steps - self.skipped)


def ridge_of_the_paper(
    *, epsilon: float, delta: float, horizon: int, dim: int, steepest: float
) -> float:
    """The λ of Table 2: 2 ln(4/δ) ln²(4T/ζ) L/ε + ¾ d ln(4T/ζ), with ζ = 0.02.

    >>> round(ridge_of_the_paper(epsilon=4.0, delta=0.02, horizon=5000, dim=3, steepest=0.39894), 1)
    232.8
    """
    log = math.log(4 * horizon / _FAILURE)
    return 2 * math.log(4 / delta) * log**2 * steepest / epsilon + 0.75 * dim * log


def _promised(problem: Problem, *, mode: Mode, terms: Terms = _NONE) -> RarelySwitching:
    """The rule for a promise, which sets the ridge and the cap on fits."""
    link, dim, horizon = link_named(problem.link), problem.dim, problem.horizon
    largest_score = problem.radius * problem.norm
    link.kappa(largest_score)
    steepest = link.steepest(largest_score)
    ridge = ridge_of_the_paper(
        epsilon=terms.epsilon, delta=terms.delta, horizon=horizon, dim=dim, steepest=steepest
    )
    slack = 0.75 * (
        ridge
        - ridge_of_the_paper(
            epsilon=math.inf, delta=terms.delta, horizon=horizon, dim=dim, steepest=steepest
        )
    )
    growth = (ridge + slack + horizon * steepest**2 / dim) / (ridge - slack)
    return RarelySwitching(
        curvature=Gram(dim=dim, norm=problem.norm),
        loss=GLMLoss.of(
            problem,
            link=problem.link,
            clip=0.2,
            fits=max(1, math.floor(3 * math.log2(growth))),
            minimizer=LongSteps(),
        ),
        warm=None,
        radius=1e9,
        steepest=steepest,
        # Inferred: Algorithm 2 has 1/e here and its parent's code 1; a half gives the table.
        shrink=0.5,
        ridge=ridge,
        damping=0.0,
        caution=0.0,
        allowance=0.0,
        # Half of the estimate plus a width is the estimate plus twice the width.
        width=2 * 4 * math.sqrt(dim * math.log(horizon / _FAILURE)),
        factor=1 + 5 / (8 * math.sqrt(dim)) + 0.05,
        warm_factor=2.0,
        threshold=math.inf,
        warm_width=0.0,
        growth="direction",
        weighing="flat",
    )


register(
    "glm@paper",
    RarelySwitching,
    summary="the experimental rule behind the paper's Table 2, with noise that is enough",
    source="Sarmasarkar 2026, Section 8",
    trusts=("none", "joint"),
    home="probit",
    promised=_promised,
    deployable=False,
)
