"""RS-GLinCB: the rarely switching bandit without privacy, with its Criterion I.

Sawarni et al. 2024 ("Generalized linear bandits with limited adaptivity", NeurIPS; algorithm
RS-GLinCB) in the words of `rare_switching.py`: a user whose arms are badly known explores, everyone
else plays the best upper bound among the arms that the explorers' estimate leaves, and the estimate
behind the bounds is made anew when the volume of its matrix has grown by a factor.

In theory mode the constants are those of the published experiments, which are far below the
theorem's: with the theorem's own, everyone explores for millions of rounds; the weights in the
matrix keep the algorithm's factor 1/e, which the published code leaves out. Where we differ:

* κ is the public bound over all scores, never the value that only the truth knows;
* arms are scored by the last estimate alone, not by its mean with the explorers';
* every switch makes a new estimate. In the published code the matrix of the last switch is the same
  array as the running one, so that the bandit switches once and then never again;
* the explorers' estimate is made anew when the volume of V has grown by a tenth, rather than after
  every explorer;
* the other estimate is fitted to explorers too, and is put into the ball of the parameter rather
  than into the explorers' confidence set.
"""

from __future__ import annotations

import math

from kerchief.core.links import link_named
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import PreconditionedSteps
from kerchief.core.problems import Problem
from kerchief.core.queries import Gram
from kerchief.core.validate import or_default
from kerchief.policies.glm.rare_switching import RarelySwitching
from kerchief.policies.registry import Mode, register

__all__ = ["rs_glincb"]

_RIDGE, _FACTOR, _WARM_FACTOR, _CONFIDENCE = 0.5, 1.5, 1.1, 0.02


def rs_glincb(
    problem: Problem,
    *,
    mode: Mode = "tuned",
    exploration: float | None = None,
    patience: float | None = None,
) -> RarelySwitching:
    """Build it from public facts alone.

    Args:
        problem: the public bounds.
        mode: the constants of the published experiments, or the documented multipliers.
        exploration: multiplier of both widths; by default 1 in theory and 0.1 when tuned.
        patience: multiplier of the threshold above which a user explores; by default 1 in theory
            and 10 when tuned.

    >>> facts = Problem(dim=3, arms=5, norm=1.0, radius=2.0, low=0.0, high=1.0, horizon=5000,
    ...                 link="probit")
    >>> policy = rs_glincb(facts, mode="theory")
    >>> round(policy.width, 2), round(policy.threshold, 3), policy.loss.fits
    (24.43, 0.45, 54)
    """
    widths, thresholds = (1.0, 1.0) if mode == "theory" else (0.1, 10.0)
    widths = or_default("exploration", exploration, widths)
    thresholds = or_default("patience", patience, thresholds)
    link, scores = link_named(problem.link), problem.radius * problem.norm
    kappa, rewards = link.kappa(scores), problem.high - problem.low
    steepest = link.steepest(scores)
    tail = math.sqrt(problem.dim * math.log(problem.horizon / _CONFIDENCE))
    return RarelySwitching(
        curvature=Gram(dim=problem.dim, norm=problem.norm, groups=2),
        loss=_loss(problem, _switches(problem, steepest, _FACTOR)),
        warm=_loss(problem, _switches(problem, 1.0, _WARM_FACTOR)),
        radius=problem.radius,
        steepest=steepest,
        # The algorithm's 1/e; tuned widths have it in their multiplier.
        shrink=math.exp(-1.0) if mode == "theory" else 1.0,
        ridge=_RIDGE,
        damping=0.0,
        caution=0.0,
        allowance=0.0,
        width=widths * 4 * tail,
        factor=_FACTOR,
        warm_factor=_WARM_FACTOR,
        threshold=thresholds / (0.01 * kappa * rewards**4 * scores**2 * problem.dim),
        warm_width=widths * rewards * scores * tail * math.sqrt(kappa),
        growth="volume",
        weighing="slope",
    )


def _loss(problem: Problem, fits: int) -> GLMLoss:
    steps = PreconditionedSteps(steps=1, radius=problem.radius)
    clip = problem.norm * (problem.high - problem.low)
    return GLMLoss.of(problem, link=problem.link, clip=clip, fits=fits, minimizer=steps)


def _switches(problem: Problem, weight: float, factor: float) -> int:
    """How often a volume can grow by the factor, when every user adds at most `weight` x xᵀ."""
    most = weight * problem.norm**2 * problem.horizon / (problem.dim * _RIDGE)
    return 1 + int(problem.dim * math.log1p(most) / math.log(factor))


register(
    "rs-glincb",
    RarelySwitching,
    rs_glincb,
    summary="explores badly known arms, then optimism around rarely refitted estimates",
    source="Sawarni et al. 2024, RS-GLinCB",
    trusts=("none",),
    home="logistic",
)
