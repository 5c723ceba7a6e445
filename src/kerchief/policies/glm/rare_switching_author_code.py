"""The rule of the author's public code behind the main paper's Section 8: for study alone.

Table 2 and Figure 1 of S. Sarmasarkar, "Shuffle and Joint Differential Privacy for Generalized
Linear Contextual Bandits", 2026, do not come from the constants of Algorithm 2: Remark B.1 calls
λ, β, γ and the caps hyperparameters, and prints none of them. They stand in the author's repository
(Sahasrajit123/Shuffle_joint_dp_generalized_linear_contextual_bandits on GitHub, of which the commit
d9c93e1 of 30 April 2026 was read). Its licence is MIT, with the copyright line of N. Das, 2024,
from whose repository the baselines come. Facts are taken from it, no code.

`glm@author-code` takes over:

* the ridge λ of hundreds, set from ε, δ, T and the link, and the cap on fits that follows from it;
* the width β = 4√(d ln(T/ζ)), and scores by half of the estimate: the mean of the estimate that is
  played and of the explorers', which is 0 as long as nobody explores;
* the growth factor 1 + 5/(8√d) + 0.05, in some direction;
* the weight μ'(0)/e of the matrix, where 1/e is also that of Algorithm 2;
* the binary tree, with the noise of a third of ε and δ, by the conversion from zero-concentrated
  privacy, for a sensitivity of μ'(0). Replacing a user moves the matrix by √2 μ'(0)/e, so this is
  more noise than the third needs;
* fits by averaged noisy descent on the mean gradient with steps 10/√i, 15 to 100 of them by the
  epsilon of one fit, gradients clipped at 0.2, the first ten iterates left out.

Where it differs from that code:

* One accountant composes the tree and the fits to exactly the promise. The tree gets the noise
  above, and the fits all of the budget that it leaves. There, a fit has half of the noise that
  replacing a user needs.
* Criterion I, the matrix V of explorers and their fit are left out. There a tree for V costs a
  third. In the worlds of Table 2 and Figure 1 the ridge is more than the criterion asks for, and
  the runs that the repository's notebooks log have no explorer. In flatter worlds they have some.
* A tree over 5000 or 15 000 users has one level fewer, so its nodes have 4 % less noise.
* All users are fitted to at once. There, batches have 2048 of them.
* The number of steps is the code's first choice. There, a search may change it by up to half.
* The matrix at hand is compared in float64 without a jitter, and its eigenvalues are floored at a
  tenth of the ridge.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Gradient, Start
from kerchief.core.links import get_link
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import repeat
from kerchief.core.problems import Problem
from kerchief.policies.glm.rare_switching import RarelySwitching
from kerchief.policies.registry import Mode, register

_FAILURE = 0.02
_FEW_FITS = 10
# How many steps a fit takes: up to each of these epsilons of one fit, and beyond the last.
_EPSILONS, _STEPS = (0.1, 0.3, 1.0, 2.0), (15, 25, 50, 75, 100)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongSteps:
    """Gradient descent on the mean loss with steps 10/√i, in no ball; the first are skipped."""

    steps: int
    skipped: int = 10

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """Take the steps from half of the last estimate, and average the later iterates."""

        def step(i: Array | int, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            point, total = sums
            slope = gradient(point, i) / users + 2e-5 * point
            point = point - 10 / jnp.sqrt(i + 1.0) * slope
            return point, total + jnp.where(i >= self.skipped, point, 0)

        _, total = repeat(self.steps, step, (start.point / 2, 0 * start.point))
        return total / (self.steps - self.skipped)


def code_ridge(*, epsilon: float, delta: float, horizon: int, dim: int, steepest: float) -> float:
    """The λ of the code: 2 ln(4/δ) ln²(4T/ζ) μ'(0)/ε + ¾ d ln(4T/ζ), with ζ = 0.02.

    >>> round(code_ridge(epsilon=4.0, delta=0.02, horizon=5000, dim=3, steepest=0.39894), 1)
    232.8
    """
    log = math.log(4 * horizon / _FAILURE)
    return 2 * math.log(4 / delta) * log**2 * steepest / epsilon + 0.75 * dim * log


def code_rho(epsilon: float, delta: float) -> float:
    """Return the ρ of ρ-zCDP that the code converts to (ε, δ).

    The conversion is ε = ρ + 2√(ρ ln(1/δ)).

    >>> round(code_rho(4.0, 0.02), 4)
    0.6971
    """
    root = math.sqrt(math.log(1 / delta))
    return (math.sqrt(root**2 + epsilon) - root) ** 2


def code_steps(*, epsilon: float, delta: float, fits: int) -> int:
    """Return the steps of a fit, by the part of ε and δ that the code gives to it.

    Up to ten fits divide the third; more of them get what advanced composition leaves.

    >>> code_steps(epsilon=4.0, delta=0.02, fits=8), code_steps(epsilon=10.0, delta=0.02, fits=8)
    (25, 50)
    """

    def compose(cost: float) -> float:
        if fits <= _FEW_FITS:
            return fits * cost
        return math.sqrt(2 * fits * math.log(6 / delta)) * cost + fits * cost * math.expm1(cost)

    return _STEPS[sum(compose(bound) < epsilon / 3 for bound in _EPSILONS)]


def _build_with_budget(
    problem: Problem,
    *,
    mode: Mode,
    epsilon: float = math.inf,
    delta: float = _FAILURE,
    noise_multiplier: float = math.inf,
) -> RarelySwitching:
    """Build the rule for a privacy guarantee, which sets ridge, fits and steps.

    A promise whose delta is 0 keeps every delta: the rule is then that of the default. Without a
    promise there is no noise, and its constants are those of an endless epsilon.
    """
    delta = delta or _FAILURE
    link, dim, horizon = get_link(problem.link), problem.dim, problem.horizon
    largest_score = problem.radius * problem.norm
    link.kappa(largest_score)
    steepest = link.steepest(largest_score)
    rule = partial(code_ridge, delta=delta, horizon=horizon, dim=dim, steepest=steepest)
    ridge = rule(epsilon=epsilon)
    slack = 0.75 * (ridge - rule(epsilon=math.inf))
    growth = (ridge + slack + horizon * steepest**2 / dim) / (ridge - slack)
    fits = max(1, math.floor(3 * math.log2(growth)))
    steps = code_steps(epsilon=epsilon, delta=delta, fits=fits)
    minimizer = LongSteps(steps=steps)
    policy = RarelySwitching.of(problem)
    return dataclasses.replace(
        policy,
        curvature=dataclasses.replace(
            policy.curvature, importance=_importance(epsilon, delta, noise_multiplier)
        ),
        loss=GLMLoss.of(problem, link=problem.link, clip=0.2, fits=fits, minimizer=minimizer),
        radius=1e9,
        shrink=math.exp(-1.0),
        ridge=ridge,
        # Half of the estimate plus a width is the estimate plus twice the width.
        width=2 * 4 * math.sqrt(dim * math.log(horizon / _FAILURE)),
        factor=1 + 5 / (8 * math.sqrt(dim)) + 0.05,
        threshold=math.inf,
        warm_width=0.0,
        weighing="flat",
        damping=0.0,
        caution=0.0,
        allowance=0.0,
    )


def _importance(epsilon: float, delta: float, noise_multiplier: float) -> float:
    """Compute the importance of the matrix for which its tree has the code's noise.

    A node has deviation μ'(0)/√(2ρ/m) there, with ρ that of ε/3 and δ/3. With the sensitivity
    √2 μ'(0)/e the tree costs 1/M² = 4ρ/e², M its multiplier, of 1/`noise_multiplier`² in all.
    """
    if math.isinf(noise_multiplier):
        return 1.0
    part = 4 * code_rho(epsilon / 3, delta / 3) / math.e**2 * noise_multiplier**2
    return part / (1 - part)


register(
    "glm@author-code",
    RarelySwitching,
    summary="The rule of the author's public code, with enough noise",
    source="Sarmasarkar 2026, Section 8: the author's public repository",
    trusts=("none", "joint"),
    default_environment="probit",
    build_with_budget=_build_with_budget,
    noises={"joint": "tree"},
)
