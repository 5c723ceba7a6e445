"""Batched elimination as it is published: for study, not for deployment.

`b-glincb` is the parent, B-GLinCB (Sawarni et al. 2024), with the widths of its theorem,
γ = 30RS√(d log T) and λ = 20Rd log T, in theory mode. `glm-batched@paper` is Algorithm 1 of
Sarmasarkar 2026 with its own optimizer, Algorithm 7: projected descent, plain and averaged, with as
many steps as a study allows. Both cut time by the published recursion, α, α, α√τ₂, α√τ₃, ... with
α = T^(1/(2 − 2^(2−M))) and M about log log T batches; the theorem's own first batch is longer than
any horizon below 10⁹ for d = 3 and S = 2.

With these widths nothing is ruled out in any run of less than a million rounds or so. So when
tuned both keep the recursion, the weights and the optimizer, and have widths of order one. Where
else `glm-batched@paper` differs from what is printed:

* the noise is the printed kind, shuffled coins, but as many as an accountant asks for, in place of
  the constants of Equation 122; it composes matrix and fit, and there are no halves;
* a fit takes 50 steps from the last estimate, where about the squared number of users is printed;
* in the first batch each user counts by the slope at zero, where V counts everyone as 1;
* weights are clipped to the public bound on μ', and β(x) has the width that is played for γ√κ;
* each matrix has a ridge for its own noise, and eigenvalues below a tenth of it are raised to it;
* the noise of a fit joins the shape of its confidence set;
* those after the last release play the best estimate of what is left.

`batched.md`, section 5, has the differences of the repaired `glm-batched`.
"""

from __future__ import annotations

import dataclasses
import math

from kerchief.core.minimizers import GradientDescent
from kerchief.core.problems import Problem
from kerchief.policies.glm.batched import Batched
from kerchief.policies.registry import Mode, register

_STEPS = 50


def recursion(horizon: int) -> tuple[int, ...]:
    """Return the ends of the published batches, without the last one.

    Nobody learns from the last one.

    >>> recursion(20_000)
    (286, 573, 5433)
    """
    batches = max(2, math.ceil(math.log2(math.log2(max(4, horizon)))))
    alpha = horizon ** (1 / (2 - 2.0 ** (2 - batches)))
    sizes = [alpha, alpha]
    while sum(sizes) < horizon:
        sizes.append(alpha * math.sqrt(sizes[-1]))
    ends = [math.floor(sum(sizes[: i + 1])) for i in range(len(sizes))]
    return tuple(end for end in ends if 0 < end < horizon)


def _published(problem: Problem, *, mode: Mode) -> Batched:
    """The parent's constants, or widths of order one."""
    batches = recursion(problem.horizon)
    if mode == "tuned":
        return Batched.of(problem, batches=batches)
    log, span = math.log(problem.horizon), problem.high - problem.low
    width = 30 * span * problem.radius * math.sqrt(problem.dim * log)
    proved = Batched.of(problem, mode=mode, batches=batches)
    return dataclasses.replace(
        proved, mode="tuned", ridge=20 * span * problem.dim * log, exploration=width
    )


def _private(problem: Problem, *, mode: Mode) -> Batched:
    """Algorithm 1 with Algorithm 7; clipping at the longest gradient, as published."""
    longest = problem.norm * (problem.high - problem.low)
    plain = GradientDescent(steps=_STEPS, radius=problem.radius, clip=longest)
    return Batched.of(
        problem,
        mode=mode,
        batches=recursion(problem.horizon),
        minimizer=plain,
        clip=1.0,
        doubt=problem.high - problem.low,
    )


register(
    "b-glincb",
    Batched,
    _published,
    summary="Batches with a design over the arms that remain plausible; without privacy",
    source="Sawarni et al. 2024, B-GLinCB",
    trusts=("none",),
    default_environment="probit",
)
register(
    "glm-batched@paper",
    Batched,
    _private,
    summary="The paper's batches and plain noisy gradient descent",
    source="Sarmasarkar 2026, Algorithms 1 and 7",
    trusts=("none", "shuffle"),
    default_environment="probit",
)
