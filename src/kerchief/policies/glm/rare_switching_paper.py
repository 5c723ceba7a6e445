"""Rarely switching bandits as they are printed: the parent, and the paper's own, for study.

`rs-glincb` is RS-GLinCB (Sawarni et al. 2024, "Generalized linear bandits with limited adaptivity",
NeurIPS), with its Criterion I and without privacy. In theory mode the constants are those of its
authors' code, as with the theorem's own everyone explores for millions of rounds; the weights in
the matrix keep the algorithm's factor 1/e, which that code leaves out. The code behind Table 2 of
Sarmasarkar 2026 has the same constants, and 1/e. Where `rs-glincb` differs:

* κ is the public bound over all scores, never the value that only the truth knows;
* arms are scored by the last estimate alone, not by its mean with the explorers';
* every switch makes a new estimate. In both codes the matrix of the last switch is the same array
  as the running one, so that the bandit switches once and then never again;
* the explorers' estimate is made anew when the volume of V has grown by a tenth, rather than after
  every explorer, who adds x xᵀ to V. The code behind Table 2 divides that by 1 + ‖x‖² in V⁻¹;
* the other estimate is fitted to explorers too, as in both codes, and is put into the ball of the
  parameter rather than, as in the algorithm, into the explorers' confidence set.

`glm@paper` is Algorithm 2 of Sarmasarkar 2026 with both criteria: V and H from a binary tree with
normal noise, explorers counted by 1 and the others by μ'(⟨x, θ̂_o⟩)/e, fits by the noisy projected
descent of Lemma U.4 with gradients clipped at their full length, to explorers and to the others
apart, and a new fit when the matrix has doubled in some direction. Where it differs:

* the explorers' fit waits until the released V has doubled, too. Printed is a refit in the very
  round in which a user explores, which tells that this user explored (`rare_switching.md`);
* a fit takes 50 steps, whose length follows from the public number of users. Lemma U.4 asks for
  about n²ρ/d steps, and for the number of explorers, which is private;
* both fits are kept within the ball of the parameter. Printed is the explorers' confidence set for
  the fit that is played;
* there are at most d log₂(T)/3 fits and half as many of explorers, all paid for. Of both caps only
  the order is printed;
* one tree releases V and H together, each with a ridge for its own noise, and eigenvalues below a
  tenth of the ridge are raised to it. Printed are two trees and one λ;
* one accountant composes the tree and all fits to exactly the promise, for replacement and without
  a good event. Printed are three thirds, one of them for who explored;
* λ, β, γ and the threshold of Criterion I are the tuned or the theory mode of `glm-rare-explore`,
  with the noise that there is. Printed are forms with constants that are not (Equations 17 to 19).

Table 2 and Figure 1 of that paper come from its author's code, whose rule is another one:
`glm@author-code`, in `rare_switching_author_code.py`.
"""

from __future__ import annotations

import dataclasses
import math

from kerchief.core.links import get_link
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import GradientDescent, PreconditionedSteps
from kerchief.core.problems import Problem
from kerchief.core.validate import or_default
from kerchief.policies.glm.rare_switching import RarelySwitching
from kerchief.policies.registry import Mode, register

_FAILURE = 0.02
_STEPS = 50
_RIDGE, _FACTOR, _WARM_FACTOR = 0.5, 1.5, 1.1


def _printed(problem: Problem, *, mode: Mode) -> RarelySwitching:
    """Algorithm 2 with Lemma U.4; gradients are clipped at the longest, as printed."""
    longest = problem.norm * (problem.high - problem.low)
    descent = GradientDescent(steps=_STEPS, radius=problem.radius, clip=longest)
    policy = RarelySwitching.of(problem, mode=mode, explore=True)
    assert policy.warm is not None
    return dataclasses.replace(
        policy,
        loss=dataclasses.replace(policy.loss, clip=longest, minimizer=descent),
        warm=dataclasses.replace(policy.warm, clip=longest, minimizer=descent),
        shrink=math.exp(-1.0),
        factor=2.0,
        warm_factor=2.0,
        disjoint=True,
    )


def rs_glincb(
    problem: Problem, *, mode: Mode = "tuned", exploration: float | None = None
) -> RarelySwitching:
    """Build RS-GLinCB from public facts alone.

    By default `exploration`, the multiplier of both widths, is 1 in theory and 0.1 when tuned.

    >>> facts = Problem(dim=3, arms=5, norm=1.0, radius=2.0, low=0.0, high=1.0, horizon=5000,
    ...                 link="probit")
    >>> policy = rs_glincb(facts, mode="theory")
    >>> round(policy.width, 2), round(policy.threshold, 3), policy.loss.fits
    (24.43, 0.45, 54)
    """
    widths, thresholds = (1.0, 1.0) if mode == "theory" else (0.1, 10.0)
    widths = or_default("exploration", exploration, widths)
    link, scores = get_link(problem.link), problem.radius * problem.norm
    kappa, rewards = link.kappa(scores), problem.high - problem.low
    steepest = link.steepest(scores)
    tail = math.sqrt(problem.dim * math.log(problem.horizon / _FAILURE))
    return dataclasses.replace(
        RarelySwitching.of(problem, explore=True),
        loss=_loss(problem, _count_switches(problem, steepest, _FACTOR)),
        warm=_loss(problem, _count_switches(problem, 1.0, _WARM_FACTOR)),
        # The algorithm's 1/e; tuned widths have it in their multiplier.
        shrink=math.exp(-1.0) if mode == "theory" else 1.0,
        ridge=_RIDGE,
        width=widths * 4 * tail,
        factor=_FACTOR,
        warm_factor=_WARM_FACTOR,
        threshold=thresholds / (0.01 * kappa * rewards**4 * scores**2 * problem.dim),
        warm_width=widths * rewards * scores * tail * math.sqrt(kappa),
        growth="volume",
        damping=0.0,
        caution=0.0,
        allowance=0.0,
    )


def _loss(problem: Problem, fits: int) -> GLMLoss:
    steps = PreconditionedSteps(steps=1)
    clip = problem.norm * (problem.high - problem.low)
    return GLMLoss.of(problem, link=problem.link, clip=clip, fits=fits, minimizer=steps)


def _count_switches(problem: Problem, weight: float, factor: float) -> int:
    """Bound how often a volume can grow by the factor.

    Every user adds at most `weight` x xᵀ.
    """
    growth = weight * problem.norm**2 * problem.horizon / (problem.dim * _RIDGE)
    return 1 + int(problem.dim * math.log1p(growth) / math.log(factor))


register(
    "rs-glincb",
    RarelySwitching,
    rs_glincb,
    summary="Explore badly known arms, then optimism with rare fits",
    source="Sawarni et al. 2024, RS-GLinCB",
    trusts=("none",),
    default_environment="logistic",
)
register(
    "glm@paper",
    RarelySwitching,
    _printed,
    summary="The paper's rare switching, with a binary tree and noisy descent",
    source="Sarmasarkar 2026, Algorithm 2 and Lemma U.4",
    trusts=("none", "joint"),
    default_environment="probit",
    noises={"joint": "tree"},
)
